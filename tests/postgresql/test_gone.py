"""Machines that are gone or stand still without a word, and servers that are back without what they acknowledged."""

from __future__ import annotations

import fcntl
import os
import socket
import termios
import threading
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.postgresql import client, session, silence
from sinkpipeline.postgresql.statements import CellStatements
from sinkpipeline.sinks.contract import Restart
from support.sink.cell_sink import P0
from support.sink.sql_sink import SqlSink
from support.sink.starts import refusal
from support.waiting import wait_until

TCP_REPAIR = 19
"""Of Linux: a socket that is closed with it sends nothing any more, as that of a machine without power."""


def test_a_machine_that_is_gone_within_a_copy_lets_go_of_its_partition(
    sink: SqlSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server waits for rows there, which is not idle to it: only its own question finds that nobody is left."""
    monkeypatch.setattr(client, "SILENCE_S", 3)
    sink.driver()
    key, place = sink.settings.id.partition_key(P0), CellStatements(sink.settings.progress_schema)
    copied = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY %' AND wait_event = 'ClientRead'"
    with suppress(InDoubt), client.Client(sink.settings.connection).transaction() as work:
        work.rows(f"SELECT FROM {place.name} WHERE key = '{key}' FOR UPDATE")
        with work._cursor.copy(f"COPY {sink.table} FROM STDIN".encode()) as copying:
            copying.write(b"0\t0\tv0\n")
            wait_until(lambda: sink.sql(copied) == [(1,)], "the server waits for rows")
            vanish(work._cursor.connection.pgconn.socket)
            wait_until(lambda: sink.sql(copied) == [(0,)], "the server has noticed", 20)
    sink.driver().drain()
    assert sink.delivered() == sink.once


def vanish(number: int) -> None:
    """The connection of this number is gone without a word; the number stays, as libpq closes it at last."""
    # Whatever the server has still to say would be answered, with a reset.
    wait_until(lambda: fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)) == bytes(4), "the server has all that was sent")
    ours, its = socket.socketpair()
    with ours, its, socket.socket(fileno=os.dup(number)) as line:
        try:
            line.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        except OSError:
            pytest.skip("only root on Linux can close a connection without a word")
        os.dup2(ours.fileno(), number)


def test_a_server_that_answers_nobody_is_left_at_once(
    sink: SqlSink, postgresql: LocalPostgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that waits holds a core, and other sinks need it."""
    driver = sink.driver()
    driver.batch()
    writer, offsets = next(driver.writers())
    postgresql.pause()
    try:
        # Only here: one that answers may take longer on a busy machine.
        with monkeypatch.context() as shortly:
            shortly.setattr(silence, "QUIET_S", 0.3)
            shortly.setattr(silence, "ASKED_S", 0.3)
            told = refusal(lambda: driver.write(writer, offsets), Reason.SINK_UNREACHABLE)
    finally:
        postgresql.resume()
    assert "says nothing any more" in told.message
    assert writer.receipt().costs.retries == {"SinkUnreachable": 1}
    driver.delivery.close()
    driver.start()
    driver.drain()
    assert sink.delivered() == sink.once


def test_a_server_that_works_is_waited_for(sink: SqlSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it says nothing."""
    asked = []
    real = silence.answers
    monkeypatch.setattr(silence, "QUIET_S", 0.2)
    monkeypatch.setattr(session, "answers", lambda *server: asked.append(server) or real(*server))
    driver = sink.driver()
    writer, offsets = next(driver.writers())
    with psycopg.connect(host="127.0.0.1", port=sink.address.split(":")[1], user=SUPERUSER, dbname=DATABASE) as other:
        other.execute(f"LOCK TABLE {sink.table} IN ACCESS EXCLUSIVE MODE".encode())
        written = threading.Thread(target=driver.write, args=(writer, offsets))
        written.start()
        wait_until(lambda: len(asked) >= 3, "the server was asked some times")
    written.join()
    assert (writer.receipt().delivered, writer.receipt().costs.retries) == (4, {})


def cells(sink: SqlSink) -> list[tuple[Any, ...]]:
    return sink.sql(f"SELECT key, value::text, version FROM {sink.progress}")


def went_back(sink: SqlSink, before: list[tuple[Any, ...]], rows: int) -> None:
    """A standby took over without the last commits."""
    for key, value, version in before:
        sink.sql(f"UPDATE {sink.progress} SET value = '{value}', version = {version} WHERE key = '{key}'")
    sink.sql(f"DELETE FROM {sink.table} WHERE off >= {rows}")
    sink.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND application_name = 'sinkpipeline'"
    )


def test_a_store_that_went_back_is_noticed_where_no_record_comes(sink: SqlSink) -> None:
    """Nobody writes to these partitions any more, so no commit finds it out."""
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    before = cells(sink)
    driver.drain()
    driver.delivery.check_world()
    went_back(sink, before, rows=4)
    with pytest.raises(Restart, match="went back"):
        driver.delivery.check_world()
    driver.delivery.close()
    refusal(driver.start, Reason.PROGRESS_REGRESSED)


def test_another_connection_alone_is_no_news(sink: SqlSink) -> None:
    driver = sink.driver()
    for _ in range(3):
        driver.batch()
        driver.ports.renew_clients()
        driver.delivery.check_world()
    driver.drain()
    assert sink.delivered() == sink.once
