"""A backlog into a stream, while driver, workers and server are killed: counted by a client of that server."""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.local_server import LocalServer
from support.app.command import BY_TASKS, App, Run, manifest
from support.app.stream_kinds import KINDS, StreamKind
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.kafka.topics import unique

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

SEED = 20261125
DRIVER, WORKER, SERVER = "the driver with its workers", "a worker within a commit", "the server"
LITTLE = pytest.mark.thorough("two starts of Spark; tests/conformance kills at each point of a commit")
MUCH = pytest.mark.long("200,000 rows; the variant before it shows the same sooner")
IN_TEST_NATS = pytest.mark.long("test_nats kills a driver and the server, too")


@dataclass
class Backlog:
    """A run that delivers a backlog into a stream."""

    kind: StreamKind
    server: LocalServer
    app: App
    name: str

    def delivered(self) -> int:
        return self.kind.count(self.server.address, self.name)

    def until_delivered(self, run: Run, rows: int) -> None:
        run.eventually(lambda: self.delivered() >= rows, f"{rows:,} rows are in the stream", 180)

    def kill_worker(self, run: Run, point: str) -> None:
        self.app.arm(point)
        os.kill(run.until_held(point), signal.SIGKILL)
        self.app.disarm()

    def kill_server(self, run: Run) -> None:
        """In the middle of whatever it does; the command goes on by itself."""
        self.server.kill()
        run.until_state("Retrying", self.name)
        self.server.start()


@pytest.mark.parametrize(
    ("kind", "rows", "kills"),
    [
        *(
            pytest.param(kind, 20_000, (SERVER, DRIVER), marks=IN_TEST_NATS if kind.name == "nats" else LITTLE)
            for kind in KINDS
        ),
        *(
            pytest.param(kind, 200_000, (DRIVER, WORKER, DRIVER, SERVER, DRIVER, WORKER, DRIVER), marks=MUCH)
            for kind in KINDS
        ),
    ],
    ids=lambda each: each.name if isinstance(each, StreamKind) else None,
)
def test_a_backlog_while_all_is_killed(
    kafka: LocalKafka, tmp_path: Path, kind: StreamKind, rows: int, kills: tuple[str, ...]
) -> None:
    name = unique("backlog")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    source.feed(rows // source.partitions)
    chance = random.Random(SEED)
    with kind.server() as server:
        document = manifest(
            kafka.bootstrap_servers,
            name,
            [source.topic],
            trigger={"interval": "0s", "maxOffsetsPerTrigger": rows // 20},
            spark=BY_TASKS,
            sinks=[kind.sink(server.address, name)],
        )
        backlog = Backlog(kind, server, App(tmp_path, document), name)
        points = [*kind.points]
        with ExitStack() as runs:
            run = runs.enter_context(backlog.app.start())
            for number, victim in enumerate(kills):
                # Each kill has a part of the backlog to itself.
                part = rows // (len(kills) + 1)
                backlog.until_delivered(run, int(part * (number + chance.uniform(0.2, 0.9))))
                if victim is DRIVER:
                    run.kill()
                    assert backlog.delivered() < rows, "it is killed while it delivers"
                    run = runs.enter_context(backlog.app.start())
                elif victim is WORKER:
                    backlog.kill_worker(run, points.pop())
                else:
                    backlog.kill_server(run)
            backlog.until_delivered(run, rows)
            run.until_rows(rows)
            assert run.terminate() == 0, run.stderr

        assert kind.judge(server.address, name, source.rows) == EXACTLY_ONCE
        assert sum(line["rows"] for line in backlog.app.progress()) == rows
