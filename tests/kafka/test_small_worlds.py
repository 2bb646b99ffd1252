"""Odd rows and names at Kafka's limits, on a real broker without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from typing_extensions import override

from servers.local_kafka import LocalKafka
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.one_sink import OneSink, deliver, plan_of, rows

pytestmark = pytest.mark.kafka

ANY_TIME = {name: str(2**63 - 1) for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")}
KEYS = (None, b"", b"\xff\x00")
VALUES = (None, b"", b"x", b"\xc3\x28\x00")
TIMESTAMPS = (1, -1, -(10**12), 1_700_000_000_000, 253_402_300_799_999, 2**53, 2**63 - 1)
HEADERS: tuple[list[tuple[str, bytes | None]], ...] = (
    [("", b""), ("", None)],
    [("same", b"1"), ("other", None), ("same", b"\xff\xfe"), ("same", b""), ("same", b"1")],
    [("\u00e9\U0001f600\n", b"x" * 5_000)],
)

Parts = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def odd_rows() -> list[Parts]:
    """Key, value, timestamp and headers: each key with each value, each timestamp, each list of headers."""
    now = TIMESTAMPS[3]
    return [
        *((key, value, now, []) for key in KEYS for value in VALUES),
        *((b"k", b"v", timestamp, []) for timestamp in TIMESTAMPS),
        *((b"k", b"v", now, headers) for headers in HEADERS),
    ]


def exactly_once(plan: BatchPlan, sink: OneSink) -> ExactlyOnceWriter:
    return ExactlyOnceWriter(plan, sink.at(), Worker())


def at_least_once(plan: BatchPlan, sink: OneSink) -> AtLeastOnceWriter:
    return AtLeastOnceWriter(plan, sink.at(), Worker())


@pytest.mark.parametrize("writer_of", [exactly_once, at_least_once])
def test_rows_arrive_byte_for_byte(sink: OneSink, writer_of: Callable[[BatchPlan, OneSink], Any]) -> None:
    odd = odd_rows()
    topics.produce_numbers(sink.servers, sink.source, len(odd))
    started = sink.start(data=TopicRequest(name=sink.data, partitions=1, config={**ANY_TIME, "retention.ms": "-1"}))
    writer = writer_of(plan_of(sink, started, len(odd)), sink)

    writer.write(
        RowBatch(
            offsets=list(range(len(odd))),
            keys=[key for key, _, _, _ in odd],
            values=[value for _, value, _, _ in odd],
            target_partitions=None,
            timestamps=[timestamp for _, _, timestamp, _ in odd],
            headers=[list(headers) for _, _, _, headers in odd],
            errors=None,
            size=10_000,
        )
    )
    writer.finish()

    delivered = topics.read_committed(sink.servers, sink.data)
    assert [(each.key, each.value, each.timestamp, each.headers) for each in delivered] == odd


def test_a_refused_row_leaves_no_transaction_open(sink: OneSink) -> None:
    """By default brokers take no timestamp of more than an hour ahead; the readers of both topics need not wait."""
    topics.produce_numbers(sink.servers, sink.source, 2)
    writer = exactly_once(plan_of(sink, sink.start(), 2), sink)
    writer.write(rows(range(2), timestamps=[1_700_000_000_000, 253_402_300_799_999]))

    with pytest.raises(SinkPipelineError, match=r"message\.timestamp") as caught:
        writer.finish()

    assert caught.value.reason is Reason.RECORD_REFUSED
    for topic in (sink.data, sink.progress):
        assert not topics.has_open_transaction(sink.servers, topic)
    assert (sink.frontier(), sink.delivered()) == ({0: 1}, ["0"])


def test_a_data_topic_that_the_brokers_take_for_another_one_is_refused_with_its_name(sink: OneSink) -> None:
    """In metrics a dot is an underscore, so Kafka has no two topics that differ in that alone."""
    other = f"{sink.name}_data"
    topics.create_topic(sink.servers, other)

    with pytest.raises(SinkPipelineError, match=f"'{sink.name}.data' collides with existing topic") as caught:
        sink.start(data=TopicRequest(name=f"{sink.name}.data"))

    assert caught.value.reason is Reason.TOPIC_CREATION_FAILED


@dataclass(frozen=True)
class LongNames(OneSink):
    """Identity, sink and every topic with as many characters as a manifest may give them."""

    def _of(self, what: str, length: int = 249) -> str:
        return f"{self.name}.{what}_".ljust(length, "x")

    @property
    @override
    def source(self) -> str:
        return self._of("source")

    @property
    @override
    def data(self) -> str:
        return self._of("data")

    @property
    @override
    def progress(self) -> str:
        return self._of("progress")

    @property
    @override
    def id(self) -> SinkId:
        return SinkId(self.name.ljust(200, "i"), "s" * 63)


def test_names_at_their_limits(kafka: LocalKafka) -> None:
    sink = LongNames(kafka.bootstrap_servers, partitions=11)
    topics.produce_numbers(sink.servers, sink.source, 3, partition=10)
    group = {"group_id_prefix": "g" * 249}
    started = sink.start(source=group)

    assert len(sink.id.partition_id(sink.at(10))) == 533
    deliver(sink, started, range(3), partition=10)
    again = sink.start("run-2", source=group)

    assert again.progress.partitions[sink.at(10)] == replace(again.progress.partitions[sink.at(10)], next=3, rows=3)
    assert sink.delivered() == ["0", "1", "2"]
