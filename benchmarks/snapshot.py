"""The rows of one table by the stage of a database, until the commit that says that all were read: before the stream
(Snapshot), and beside it (IncrementalSnapshot), in turns.

`make bench-snapshot`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m snapshot [--rows N] [--kinds mysql]`

From the start of the stage on, with what it takes to fence, to make the slot and to lock. CPU seconds are those of the
stage, of the database's processes and of the broker. Nobody writes meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from lab import cpu_of
from record import recording
from servers.binlog_server import BinlogServer
from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from support.changes.binlog import SERVERS, BinlogLab
from support.changes.lab import LOGICAL, Lab, StageProcess
from support.waiting import wait_until

_PATIENCE_S = 1800
_ROW = "lpad(g::text, 60, 'x'), (g % 1000000)::numeric / 100, now()"
"""About 100 bytes with its key."""
_BINLOG_ROW = "lpad(n.seq * 1000 + m.seq, 60, 'x'), (n.seq % 1000) / 100, now()"
HOW: Mapping[str, Mapping[str, Any]] = {"Snapshot": {"snapshot": True}, "IncrementalSnapshot": {"incremental": True}}
AnyServer = LocalPostgresql | BinlogServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="snapshot", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="a multiple of 1,000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=["postgresql", *SERVERS], choices=["postgresql", *SERVERS])
    arguments = parser.parse_args()
    rows = arguments.rows
    lines = []
    with recording("snapshot", arguments) as record, LocalKafka() as kafka:
        for kind in arguments.kinds:
            with server_of(kind) as server:
                told: dict[str, list[tuple[float, ...]]] = {how: [] for how in HOW}
                for number in range(arguments.rounds):
                    for how, settings in HOW.items():
                        with tempfile.TemporaryDirectory() as directory:
                            seconds, spent = _round(kafka, server, Path(directory), rows, settings)
                        told[how].append((seconds, *spent))
                        micros = ", ".join(f"{each / rows * 1e6:.1f}" for each in spent)
                        print(f"  {kind}, {how}, {number + 1}: {rows / seconds:,.0f} rows/s; {micros} us", flush=True)
                for how, each in told.items():
                    middle = [statistics.median(values) for values in zip(*each, strict=True)]
                    micros_of = [f"{value / rows * 1e6:.1f}" for value in middle[1:]]
                    lines.append((kind, how, f"{rows / middle[0]:,.0f}", *micros_of))
        columns = ("database", "rows", "rows/s", "us a row: stage", "database", "broker")
        record.table(f"{rows:,} rows of a table", columns, lines)


@contextmanager
def servers() -> Iterator[tuple[LocalKafka, LocalPostgresql]]:
    with LocalKafka() as kafka, LocalPostgresql(settings=LOGICAL) as postgresql:
        yield kafka, postgresql


def server_of(kind: str) -> AnyServer:
    return LocalPostgresql(settings=LOGICAL) if kind == "postgresql" else SERVERS[kind]()


def _round(
    kafka: LocalKafka, server: AnyServer, directory: Path, rows: int, how: Mapping[str, Any]
) -> tuple[float, tuple[float, float, float]]:
    """Seconds, and CPU seconds of stage, database and broker."""
    lab = filled(kafka, server, directory, rows)
    try:
        before = database_s(server), broker_s(kafka)
        began = time.monotonic()
        stage = lab.start(database=dict(how))
        wait_until(lambda: _is_complete(stage, rows), "all rows are read", _PATIENCE_S, poll_s=0.05)
        seconds = time.monotonic() - began
        spent = cpu_of(psutil.Process(stage.pid))
        after = database_s(server), broker_s(kafka)
        database, broker = (two - one for one, two in zip(before, after, strict=True))
        return seconds, (spent, database, broker)
    finally:
        lab.close()


def filled(kafka: LocalKafka, server: AnyServer, directory: Path, rows: int) -> Lab | BinlogLab:
    if isinstance(server, LocalPostgresql):
        lab = Lab(server, kafka.bootstrap_servers, directory)
        lab.sql(
            "CREATE TABLE orders (id bigint PRIMARY KEY, note text, price numeric, at timestamptz)",
            f"INSERT INTO orders SELECT g, {_ROW} FROM generate_series(1, {rows}) AS g",  # noqa: S608 - ours
            "VACUUM ANALYZE orders",
            "CHECKPOINT",
        )
        return lab
    found = BinlogLab(server, kafka.bootstrap_servers, directory)
    found.sql(
        "CREATE TABLE orders (id bigint PRIMARY KEY, note varchar(60), price decimal(10, 2), at timestamp)",
        "CREATE TABLE n AS SELECT seq FROM seq_1_to_1000",
        f"INSERT INTO orders SELECT n.seq * 1000 + m.seq, {_BINLOG_ROW} FROM n JOIN n AS m"  # noqa: S608 - ours
        f" WHERE n.seq <= {rows // 1000}",
        "ANALYZE TABLE orders",
    )
    return found


def _is_complete(stage: StageProcess, rows: int) -> bool:
    committed = stage.of("committed")
    if not committed or committed[-1]["rows"] < rows:
        return False
    return any(committed[-1].get(each, 0) is None for each in ("snapshot", "incrementalSnapshot"))


def broker_s(kafka: LocalKafka) -> float:
    return sum(cpu_of(psutil.Process(pid)) for pid in kafka.pids.values())


def database_s(server: AnyServer) -> float:
    """Of its processes, also those that have ended."""
    first = psutil.Process(server.pid)
    ended = first.cpu_times()
    alive = [first, *first.children(recursive=True)]
    return float(ended.children_user + ended.children_system) + sum(map(cpu_of, alive))


if __name__ == "__main__":
    main()
