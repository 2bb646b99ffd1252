"""AtLeastOnceWriter on a real broker: what is reported was acknowledged, and a refused row never is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.one_sink import OneSink, plan_of

pytestmark = pytest.mark.kafka


def batch(values: list[bytes], *, first: int = 0, errors: list[str | None] | None = None) -> RowBatch:
    return RowBatch(
        offsets=list(range(first, first + len(values))),
        keys=[None] * len(values),
        values=list(values),
        target_partitions=None,
        timestamps=[0] * len(values),
        headers=None,
        errors=errors,
        size=sum(map(len, values)),
    )


def writer_of(sink: OneSink, end: int, **changes: object) -> AtLeastOnceWriter:
    started = sink.start(exactly_once=False)
    return AtLeastOnceWriter(plan_of(sink, started, end, **changes), sink.at(), Worker())


def test_rows_are_reported_once_they_are_acknowledged(sink: OneSink) -> None:
    writer = writer_of(sink, 5)
    writer.write(batch([b"0", b"1", b"2"]))
    assert writer.receipt().progress == replace(writer.receipt().progress, next=0, rows=0), "nothing is flushed yet"
    writer.write(batch([b"3"], first=4))
    writer.finish()

    progress = writer.receipt().progress
    assert progress is not None
    assert (progress.next, progress.rows) == (5, 4)
    assert sorted(sink.delivered()) == ["0", "1", "2", "3"]


def test_a_row_that_the_broker_refuses_is_not_reported(sink: OneSink) -> None:
    writer = writer_of(sink, 2)
    topics.alter_topic(sink.servers, sink.data, {"max.message.bytes": "2000"})
    writer.write(batch([b"small", b"x" * 100_000]))

    with pytest.raises(SinkPipelineError) as caught:
        writer.finish()

    assert caught.value.reason is Reason.RECORD_REFUSED
    progress = writer.receipt().progress
    assert progress is not None
    assert (progress.next, progress.rows) == (0, 0)


def test_a_row_that_cannot_be_decoded_ends_at_its_offset(sink: OneSink) -> None:
    writer = writer_of(sink, 3)

    with pytest.raises(SinkPipelineError) as caught:
        writer.write(batch([b"0", b"1", b"2"], errors=[None, "MalformedJson: no object", None]))

    assert caught.value.reason is Reason.RECORD_UNDECODABLE
    assert "offset 1" in caught.value.message
    progress = writer.receipt().progress
    assert progress is not None
    assert (progress.next, progress.rows) == (1, 1)
    assert sink.delivered() == ["0"]
