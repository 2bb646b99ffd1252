"""The servers of tests keep apart."""

from __future__ import annotations

from pathlib import Path

from servers.binlog_server import BinlogServer


def test_a_server_has_its_temporary_files_for_itself(binlog_server: BinlogServer) -> None:
    # In a directory that two share, each one that starts removes what the other one uses, which crashes.
    with binlog_server.connected() as session, session.cursor() as cursor:
        cursor.execute("SELECT @@tmpdir")
        [directory] = cursor.fetchone() or ()
    assert binlog_server.directory in Path(directory).parents
