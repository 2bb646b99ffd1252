"""A task meets records whose schemas the plan doesn't have: what comes before them counts, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.schemas import PENDING
from sinkpipeline.sinks.contract import Stop, UnknownSchemas
from sinkpipeline.spark.task import run_task
from support.kafka.topics import offsets, produce_numbers
from support.sink.driver import Driver
from support.sink.one_sink import OneSink, rows

pytestmark = pytest.mark.kafka

UNKNOWN = {seven: b"\0\0\0\0" + bytes([seven]) for seven in (7, 8)}


def wire(offsets: range, unknown: Mapping[int, int]) -> pa.RecordBatch:
    """Rows as they travel; some name a schema by its number that is not known."""
    errors = [f"{PENDING}{UNKNOWN[unknown[each]].hex().upper()}" if each in unknown else None for each in offsets]
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": list(offsets),
            "key": pa.array([None] * len(offsets), pa.binary()),
            "value": [str(each).encode() for each in offsets],
            "timestamp_ms": [0] * len(offsets),
            "notes": pa.array([None if each is None else f'{{"error":"{each}"}}' for each in errors], pa.string()),
        }
    )


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.thorough("each guarantee", after=1)
def test_what_comes_before_counts_and_all_schemas_are_told(sink: OneSink, exactly_once: bool) -> None:
    produce_numbers(sink.servers, sink.source, 30)
    with Driver(sink, exactly_once=exactly_once) as driver:
        plan = driver.plan(30)
        batches = [wire(range(10), {}), wire(range(10, 20), {14: 8, 16: 7, 17: 8}), wire(range(20, 30), {25: 7})]

        receipt = run_task(plan, batches, retried=False)

        assert receipt.error is None
        assert [bytes.fromhex(each) for each in receipt.unknown] == [UNKNOWN[8], UNKNOWN[7]]
        assert receipt.progress is not None
        assert receipt.progress.next == 14
        with pytest.raises(UnknownSchemas, match="id 8, id 7") as caught:
            driver.delivery.end(plan, [receipt])
        assert caught.value.frames == (UNKNOWN[8], UNKNOWN[7])
        assert sink.delivered() == [str(each) for each in range(14)]
        assert driver.delivery.exact, "another query of the same start need not doubt anything"

        known = driver.plan(30)
        assert [offsets.start for offsets in known.ranges.values()] == [14]
        driver.delivery.end(known, [run_task(known, [wire(range(14, 30), {})], retried=False)])
    assert sink.delivered() == [str(each) for each in range(30)]


def test_nothing_counts_where_the_first_record_is_such_a_one(sink: OneSink) -> None:
    produce_numbers(sink.servers, sink.source, 3)
    with Driver(sink) as driver:
        plan = driver.plan(3)
        receipt = run_task(plan, [wire(range(3), {0: 7})], retried=False)
        with pytest.raises(UnknownSchemas):
            driver.delivery.end(plan, [receipt])
        assert receipt.claims == 0
        assert driver.delivery.exact
        assert sink.frontier() == {0: 0}
    assert sink.delivered() == []


def test_a_small_batch_is_delivered_up_to_such_a_record_and_the_same_start_goes_on(kafka: LocalKafka) -> None:
    sink = OneSink(kafka.bootstrap_servers, partitions=2)
    at = [SourcePartition(sink.source, number) for number in range(2)]
    for each in at:
        produce_numbers(sink.servers, sink.source, 12, partition=each.partition)
    with Driver(sink) as driver:
        run, plan = driver.started.run, driver.plan(6)
        assert driver.delivery.takes(plan)
        with pytest.raises(UnknownSchemas) as caught:
            driver.delivery.deliver(
                plan, [(at[0], rows(range(3))), (at[1], rows(range(6)))], {at[0]: Stop(3, (UNKNOWN[8], UNKNOWN[7]))}
            )
        assert caught.value.frames == (UNKNOWN[8], UNKNOWN[7])
        assert sink.frontier() == {0: 3, 1: 6}
        assert driver.delivery.exact

        before = offsets(sink.servers, sink.progress)
        plan = driver.plan(6)
        assert {each.partition: (of.start, of.end) for each, of in plan.ranges.items()} == {0: (3, 6)}
        with pytest.raises(UnknownSchemas):
            driver.delivery.deliver(plan, [], {at[0]: Stop(3, (UNKNOWN[7],))})
        assert offsets(sink.servers, sink.progress) == before, "nothing comes before it, nothing is written"
        assert driver.delivery.exact

        assert driver.small(8)
        driver.batch(12)
        assert driver.started.run == run
        assert sink.frontier() == {0: 12, 1: 12}
    assert sorted(sink.delivered(), key=int) == [str(number) for number in range(12) for _ in range(2)]
