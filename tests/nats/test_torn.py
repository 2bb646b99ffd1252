"""A server that lost the end of its store kept the first rows of a commit: the claim finds out how many.

The stream's file is cut at a byte, as a machine leaves it that failed before its disk had all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from servers.nats import LocalNats, LocalNatsCluster
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks.contract import RowBatch
from support.sink.cell_driver import Driver
from support.sink.cell_sink import P0
from support.sink.nats_sink import NatsSink, asked, of_offsets
from support.sink.nats_store import block_of, cut
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
ROWS = 40


@pytest.fixture
def server() -> Iterator[LocalNats]:
    """One of its own, as it is killed, and its files are cut."""
    with LocalNats() as found:
        yield found


@contextmanager
def sink_of(server: LocalNats, ends: dict[SourcePartition, int]) -> Iterator[NatsSink]:
    found = NatsSink(server.address, ends=ends)
    yield found
    found.close()


def sizes(server: LocalNats, sink: NatsSink, commits: int) -> tuple[int, int]:
    """Of the block, before and after the last one of so many commits."""
    driver = sink.driver(step=ROWS)
    for _ in range(commits - 1):
        driver.batch()
    before = block_of(server, sink.stream).stat().st_size
    driver.batch()
    return before, block_of(server, sink.stream).stat().st_size


@pytest.mark.parametrize(
    "place", [0.02, 0.5, 0.97, *(pytest.param(None, marks=pytest.mark.thorough("anywhere")) for _ in range(6))]
)
def test_what_is_left_of_a_commit_is_told_by_its_rows(server: LocalNats, place: float | None) -> None:
    with sink_of(server, {P0: 3 * ROWS}) as sink:
        before, after = sizes(server, sink, 2)
        share = random.uniform(0.01, 0.99) if place is None else place
        cut(server, sink.stream, before + int((after - before) * share))
        left = sink.delivered()
        assert ROWS <= left.total() < 2 * ROWS, "a part of the second commit"
        driver = sink.driver(step=ROWS)
        assert driver.delivery.progress.partitions[P0].next == left.total()
        assert driver.delivery.progress.partitions[P0].rows == left.total()
        driver.drain()
        assert sink.delivered() == sink.once
        assert [each[2] for each in sink.rows()] == [b"0:%d" % each for each in range(3 * ROWS)], "in their order"


def test_what_others_have_written_since_is_not_taken_for_the_rest(server: LocalNats) -> None:
    """Another sink's messages stand where the lost rows stood."""
    with sink_of(server, {P0: 3 * ROWS}) as sink:
        before, after = sizes(server, sink, 2)
        cut(server, sink.stream, (before + after) // 2)
        left = sink.delivered().total()
        for _ in range(ROWS):
            sink.publish(f"{sink.subject}.others", b"9:0")
        sink.driver(step=ROWS).drain()
        assert left < 2 * ROWS
        assert sink.delivered() - sink.once == {(9, 0): ROWS}
        assert sink.once - sink.delivered() == {}


@pytest.mark.thorough("three servers")
def test_a_stream_that_another_server_than_ours_has_lost_the_end_of() -> None:
    """Our connection stays, and so does the session of a writer."""
    with LocalNatsCluster() as cluster:
        ours, server, _ = cluster.servers
        wait_until(lambda: "error" not in asked(ours.address, "INFO"), "the cluster has a leader", 30)
        sink = NatsSink(ours.address, ends={P0: 5 * ROWS})
        config = {**sink.ports().target._asked(), "placement": {"tags": ["n1"]}}
        wait_until(lambda: "config" in asked(ours.address, f"STREAM.CREATE.{sink.stream}", **config), "the stream", 30)
        driver = sink.driver(step=ROWS)
        driver.batch()
        before = block_of(server, sink.stream).stat().st_size
        driver.batch()
        after = block_of(server, sink.stream).stat().st_size
        cut(server, sink.stream, (before + after) // 2)
        wait_until(lambda: "state" in asked(ours.address, f"STREAM.INFO.{sink.stream}"), "the stream is back", 60)
        left = sink.delivered().total()
        assert ROWS <= left < 2 * ROWS
        # Of which a driver makes another start.
        with pytest.raises(SinkPipelineError) as raised:
            driver.batch()
        assert raised.value.reason is Reason.PROGRESS_REGRESSED
        wait_until(lambda: started(sink), "the cluster answers all that a start asks", 60).drain()
        assert sink.delivered() == sink.once
        sink.close()


def started(sink: NatsSink) -> Driver | None:
    """None while the servers still elect who answers: a runner waits for that."""
    try:
        return sink.driver(step=ROWS)
    except SinkPipelineError as error:
        if error.reason is not Reason.SINK_UNREACHABLE:
            raise
        return None


def exploded(partition: SourcePartition, offsets: range) -> RowBatch:
    """Five rows of each record."""
    values = [b"%d:%d" % (partition.partition, each) for each in offsets for _ in range(5)]
    found = of_offsets(partition, offsets)
    return RowBatch(
        **{
            **found.__dict__,
            "keys": [None] * len(values),
            "values": values,
            "timestamps": [0] * len(values),
            "firsts": [5 * each for each in range(len(offsets) + 1)],
        }
    )


def test_of_a_record_with_several_rows_all_are_there_or_none(server: LocalNats) -> None:
    with sink_of(server, {P0: 16}) as sink:
        sink.driver(step=8, make=exploded).batch()
        before = block_of(server, sink.stream).stat().st_size
        sink.driver(step=8, make=exploded).batch()
        after = block_of(server, sink.stream).stat().st_size
        for share in (0.65, 0.62, 0.58, 0.55, 0.5):
            cut(server, sink.stream, before + int((after - before) * share))
            if sink.delivered().total() % 5:
                break
        else:
            pytest.fail("no cut was within a record")
        sink.driver(step=8, make=exploded).drain()
        assert sink.delivered() == dict.fromkeys(sink.once, 5)


def test_rows_that_expired_are_no_torn_commit(sink: NatsSink) -> None:
    sink.driver(step=12).drain()
    sink.purge(filter=sink.subject)
    driver = sink.driver()
    assert {each: state.next for each, state in driver.delivery.progress.partitions.items()} == sink.ends
