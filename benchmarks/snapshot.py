"""A snapshot of one table by the stage of a database, until the commit that says that it is complete.

`make bench-snapshot`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m snapshot [--rows N]`

From the start of the stage on, with what it takes to fence, to make the slot and to lock. CPU seconds are those of the
stage, of the database's processes and of the broker.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from lab import cpu_of
from record import recording
from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from support.changes.lab import LOGICAL, Lab, StageProcess
from support.waiting import wait_until

_PATIENCE_S = 1800
_ROW = "lpad(g::text, 60, 'x'), (g % 1000000)::numeric / 100, now()"
"""About 100 bytes with its key."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="snapshot", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    told = []
    with recording("snapshot", arguments) as record, servers() as (kafka, postgresql):
        for number in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as directory:
                seconds, spent = _round(kafka, postgresql, Path(directory), arguments.rows)
            told.append((seconds, *spent))
            micros = ", ".join(f"{each / arguments.rows * 1e6:.1f}" for each in spent)
            print(f"  round {number + 1}: {arguments.rows / seconds:,.0f} rows/s; {micros} us a row", flush=True)
        best = [statistics.median(each) for each in zip(*told, strict=True)]
        cells = (f"{arguments.rows / best[0]:,.0f}", *(f"{each / arguments.rows * 1e6:.1f}" for each in best[1:]))
        columns = ("rows", "rows/s", "us a row: stage", "database", "broker")
        record.table("a snapshot", columns, [(f"{arguments.rows:,}", *cells)])


@contextmanager
def servers() -> Iterator[tuple[LocalKafka, LocalPostgresql]]:
    with LocalKafka() as kafka, LocalPostgresql(settings=LOGICAL) as postgresql:
        yield kafka, postgresql


def _round(
    kafka: LocalKafka, postgresql: LocalPostgresql, directory: Path, rows: int
) -> tuple[float, tuple[float, float, float]]:
    """Seconds, and CPU seconds of stage, database and broker."""
    lab = Lab(postgresql, kafka.bootstrap_servers, directory)
    try:
        lab.sql(
            "CREATE TABLE orders (id bigint PRIMARY KEY, note text, price numeric, at timestamptz)",
            f"INSERT INTO orders SELECT g, {_ROW} FROM generate_series(1, {rows}) AS g",  # noqa: S608 - ours
            "VACUUM ANALYZE orders",
            "CHECKPOINT",
        )
        before = database_s(postgresql), broker_s(kafka)
        began = time.monotonic()
        stage = lab.start(database={"snapshot": True})
        wait_until(lambda: _is_complete(stage), "the snapshot is complete", _PATIENCE_S, poll_s=0.05)
        seconds = time.monotonic() - began
        spent = cpu_of(psutil.Process(stage.pid))
        after = database_s(postgresql), broker_s(kafka)
        database, broker = (two - one for one, two in zip(before, after, strict=True))
        assert stage.of("committed")[-1]["rows"] == rows
        return seconds, (spent, database, broker)
    finally:
        lab.close()


def _is_complete(stage: StageProcess) -> bool:
    committed = stage.of("committed")
    return bool(committed) and committed[-1].get("snapshot", 0) is None


def broker_s(kafka: LocalKafka) -> float:
    return sum(cpu_of(psutil.Process(pid)) for pid in kafka.pids.values())


def database_s(postgresql: LocalPostgresql) -> float:
    """Of its processes, also those that have ended."""
    first = psutil.Process(postgresql.pid)
    ended = first.cpu_times()
    alive = [first, *first.children(recursive=True)]
    return float(ended.children_user + ended.children_system) + sum(map(cpu_of, alive))


if __name__ == "__main__":
    main()
