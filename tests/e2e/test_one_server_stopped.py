"""A pipeline with sinks of four kinds, each on a server of its own: one server stops, and the other sinks do not wait.

The source is on a fifth server, so that none of them has a part in what the other sinks do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.local_server import LocalServer
from servers.postgresql import LocalPostgresql
from support.app.command import BY_TASKS, App, Run, manifest, sink
from support.app.stream_kinds import KINDS, StreamKind
from support.kafka.topics import read_committed, unique
from support.tables import DECODE, Orders, rows_of, table

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

FED = 10
"""Records at a time, of each partition."""
ROUNDS = 3
Streams = dict[str, tuple[StreamKind, LocalServer]]
"""By the names of their kinds, each with a server of its own."""


@pytest.fixture(scope="module")
def other_kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture
def streams() -> Iterator[Streams]:
    with ExitStack() as servers:
        yield {kind.name: (kind, servers.enter_context(kind.server())) for kind in KINDS}


@dataclass
class Four:
    """A run with all sinks, whose names are those of their kinds."""

    name: str
    """Of the pipeline, as which its topic and its table are named."""
    app: App
    run: Run
    source: Orders
    sinks: tuple[str, ...]
    slowest_s: float = 0.0
    """Of the sinks that go on: from the last record to its delivery by all of them."""

    def delivered(self, sink: str) -> int:
        return int(self.app.sink_status(sink).get("rowsDelivered", 0))

    def until_all_is_in(self, sinks: tuple[str, ...], why: str) -> None:
        self.run.eventually(lambda: {self.delivered(each) for each in sinks} == {len(self.source.rows)}, why)

    def outage(self, of: str, stopped: AbstractContextManager[object], for_s: float) -> None:
        """One server is stopped for so long, or until all others have gone on, where that takes longer."""
        before = self.delivered(of)
        others = tuple(each for each in self.sinks if each != of)
        with stopped:
            began, rounds = time.monotonic(), 0
            while rounds < ROUNDS or time.monotonic() - began < for_s:
                fed = time.monotonic()
                self.source.feed(FED)
                self.until_all_is_in(others, f"{', '.join(others)} do not wait for {of}")
                self.slowest_s = max(self.slowest_s, time.monotonic() - fed)
                rounds += 1
            assert self.delivered(of) == before
        self.until_all_is_in(self.sinks, f"{of} goes on by itself, from its own progress")


@contextmanager
def stopped(stop: Callable[..., object], go_on: Callable[..., object], *which: int) -> Iterator[None]:
    stop(*which)
    try:
        yield
    finally:
        go_on(*which)


@pytest.fixture
def four(
    kafka: LocalKafka, other_kafka: LocalKafka, postgresql: LocalPostgresql, streams: Streams, tmp_path: Path
) -> Iterator[Four]:
    name = unique("four")
    source = Orders(kafka, name)
    sinks = [
        sink("kafka", topic=f"{name}-out", bootstrapServers=other_kafka.bootstrap_servers),
        {**table(postgresql, name), "name": "postgresql"},
        *(kind.sink(server.address, each) for each, (kind, server) in streams.items()),
    ]
    document = manifest(kafka.bootstrap_servers, name, [source.topic], decode=DECODE, spark=BY_TASKS, sinks=sinks)
    app = App(tmp_path, document)
    source.feed(FED)
    with app.start() as run:
        found = Four(name, app, run, source, tuple(each["name"] for each in sinks))
        found.until_all_is_in(found.sinks, "all run")
        yield found


def documents(values: list[bytes]) -> list[tuple[Any, ...]]:
    return sorted((each["id"], each["note"]) for each in map(json.loads, values))


@pytest.mark.parametrize("for_s", [0.0, 60.0])
@pytest.mark.long("five servers beside Spark, each stopped twice; test_postgresql and test_nats stop one each")
def test_the_other_sinks_do_not_wait(
    four: Four, other_kafka: LocalKafka, postgresql: LocalPostgresql, streams: Streams, for_s: float
) -> None:
    """Whether a server ends, or is there and says nothing, as one whose machine is stopped."""
    broker, [node] = other_kafka, other_kafka.pids
    servers = {"postgresql": postgresql, **{each: server for each, (_, server) in streams.items()}}
    for name, server in servers.items():
        four.outage(name, stopped(server.kill, server.start), for_s)
    four.outage("kafka", stopped(broker.kill_broker, broker.start_broker, node), for_s)
    for name, server in servers.items():
        four.outage(name, stopped(server.pause, server.resume), for_s)
    four.outage("kafka", stopped(broker.pause_broker, broker.resume_broker, node), for_s)
    assert four.run.terminate() == 0, four.run.stderr
    print(f"the slowest delivery beside a stopped server took {four.slowest_s:.1f} s")

    sent = [row[:2] for row in four.source.rows]
    assert rows_of(postgresql, four.name) == four.source.rows
    in_topic = read_committed(broker.bootstrap_servers, f"{four.name}-out")
    assert documents([each.value or b"" for each in in_topic]) == sent
    for name, (kind, server) in streams.items():
        assert documents(kind.values(server.address, name)) == sent, name
