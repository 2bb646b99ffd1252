"""The servers of tests keep apart."""

from __future__ import annotations

from pathlib import Path

from servers.mariadb import LocalMariadb


def test_a_server_has_its_temporary_files_for_itself(mariadb: LocalMariadb) -> None:
    # In a directory that two share, each one that starts removes what the other one uses, which crashes.
    with mariadb.connected() as session, session.cursor() as cursor:
        cursor.execute("SELECT @@tmpdir")
        [directory] = cursor.fetchone() or ()
    assert mariadb.directory in Path(directory).parents
