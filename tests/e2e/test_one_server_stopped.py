"""A pipeline with a topic and a table, each on a server of its own: one server stops, and the other sink does not wait.

The source is on a third server, so that none of them has a part in what the other sink does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from support.app.command import BY_TASKS, App, Run, manifest, sink
from support.kafka.topics import read_committed, unique
from support.tables import DECODE, Orders, rows_of, table

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

FED = 10
"""Records at a time, of each partition."""
ROUNDS = 3


@pytest.fixture(scope="module")
def other_kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as kafka:
        yield kafka


@dataclass
class Two:
    """A run with both sinks."""

    app: App
    run: Run
    source: Orders
    name: str
    slowest_s: float = 0.0
    """Of the sink that goes on: from the last record to its delivery."""

    @property
    def topic(self) -> str:
        return f"{self.name}-topic"

    @property
    def table(self) -> str:
        return f"{self.name}-table"

    def delivered(self, sink: str) -> int:
        return int(self.app.sink_status(sink).get("rowsDelivered", 0))

    def until_all_is_in(self, sink: str, why: str) -> None:
        self.run.eventually(lambda: self.delivered(sink) == len(self.source.rows), why)

    def outage(self, stopped: AbstractContextManager[object], of: str, beside: str, for_s: float) -> None:
        """One server is stopped for so long, or until `beside` has shown that it goes on, where that takes longer."""
        before = self.delivered(of)
        with stopped:
            began, rounds = time.monotonic(), 0
            while rounds < ROUNDS or time.monotonic() - began < for_s:
                fed = time.monotonic()
                self.source.feed(FED)
                self.until_all_is_in(beside, f"{beside} does not wait for {of}")
                self.slowest_s = max(self.slowest_s, time.monotonic() - fed)
                rounds += 1
            assert self.delivered(of) == before
        self.until_all_is_in(of, f"{of} goes on by itself")
        assert self.delivered(beside) == len(self.source.rows)


@contextmanager
def stopped(stop: Callable[..., object], go_on: Callable[..., object], *which: int) -> Iterator[None]:
    stop(*which)
    try:
        yield
    finally:
        go_on(*which)


@pytest.fixture
def two(kafka: LocalKafka, other_kafka: LocalKafka, postgresql: LocalPostgresql, tmp_path: Path) -> Iterator[Two]:
    name = unique("two")
    source = Orders(kafka, name)
    there = sink(f"{name}-topic", topic=f"{name}-out", bootstrapServers=other_kafka.bootstrap_servers)
    document = manifest(
        kafka.bootstrap_servers,
        name,
        [source.topic],
        decode=DECODE,
        spark=BY_TASKS,
        sinks=[there, table(postgresql, name)],
    )
    app = App(tmp_path, document)
    source.feed(FED)
    with app.start() as run:
        found = Two(app, run, source, name)
        for each in (found.topic, found.table):
            found.until_all_is_in(each, "both run")
        yield found


def in_topic(kafka: LocalKafka, name: str) -> list[tuple[Any, ...]]:
    documents = [json.loads(each.value or b"") for each in read_committed(kafka.bootstrap_servers, f"{name}-out")]
    return sorted((each["id"], each["note"]) for each in documents)


SHORT = pytest.mark.thorough("two brokers beside Spark; test_postgresql shows a table's server that is killed")
LONG = pytest.mark.long("a minute for each server in each way; the variant before it shows the same sooner")


@pytest.mark.parametrize("for_s", [pytest.param(0.0, marks=SHORT), pytest.param(60.0, marks=LONG)])
def test_the_other_sink_does_not_wait(
    two: Two, other_kafka: LocalKafka, postgresql: LocalPostgresql, for_s: float
) -> None:
    """Whether a server ends, or is there and says nothing, as one whose machine is stopped."""
    broker, [node] = other_kafka, other_kafka.pids
    two.outage(stopped(postgresql.kill, postgresql.start), two.table, two.topic, for_s)
    two.outage(stopped(broker.kill_broker, broker.start_broker, node), two.topic, two.table, for_s)
    two.outage(stopped(postgresql.pause, postgresql.resume), two.table, two.topic, for_s)
    two.outage(stopped(broker.pause_broker, broker.resume_broker, node), two.topic, two.table, for_s)
    assert two.run.terminate() == 0, two.run.stderr
    print(f"the slowest delivery beside a stopped server took {two.slowest_s:.1f} s")

    assert rows_of(postgresql, two.name) == two.source.rows
    assert in_topic(other_kafka, two.name) == [row[:2] for row in two.source.rows]
