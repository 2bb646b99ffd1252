from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.naming import SENTINEL_KEY, SinkId, SourcePartition, writer_of

OWN_WORDS = ["p", "meta", "control", "sentinel", "v1", "sinkpipeline", "0"]
"""The fixed parts of ids and keys, as a hostile user would name things."""

identities = st.sampled_from(OWN_WORDS) | st.text("a0.-", min_size=1, max_size=4)
sink_names = st.builds(
    str.__add__,
    st.sampled_from(OWN_WORDS) | st.from_regex(r"[a0](-[a0])?", fullmatch=True),
    st.sampled_from(["", ".redrive"]),
)
topics = st.sampled_from(OWN_WORDS) | st.text("aA0._-", min_size=1, max_size=4).filter(
    lambda name: name not in {".", ".."}
)
sink_ids = st.builds(SinkId, identities, sink_names)
source_partitions = st.builds(SourcePartition, topics, st.integers(0, 12))
writers = st.tuples(sink_ids, st.none() | source_partitions)
"""Who writes: the control id where no partition is named."""


def transactional_id(writer: tuple[SinkId, SourcePartition | None]) -> str:
    sink, partition = writer
    return sink.control_id if partition is None else sink.partition_id(partition)


def progress_key(writer: tuple[SinkId, SourcePartition | None]) -> str:
    sink, partition = writer
    return sink.meta_key if partition is None else sink.partition_key(partition)


def test_names_are_those_of_the_design() -> None:
    sink, partition = SinkId("shop.orders", "enriched"), SourcePartition("orders-raw", 7)
    assert sink.prefix == "sinkpipeline/v1/shop.orders/enriched/"
    assert sink.control_id == "sinkpipeline/v1/shop.orders/enriched/control"
    assert sink.partition_id(partition) == "sinkpipeline/v1/shop.orders/enriched/orders-raw/7"
    assert sink.meta_key == "sinkpipeline/v1/shop.orders/enriched/meta"
    assert sink.partition_key(partition) == "sinkpipeline/v1/shop.orders/enriched/p/orders-raw/7"
    assert SENTINEL_KEY == "sinkpipeline/v1/sentinel"


@given(writers, writers)
def test_no_two_writers_share_a_transactional_id(one: tuple, other: tuple) -> None:
    assert (transactional_id(one) == transactional_id(other)) == (one == other)


@given(writers, writers)
def test_no_two_writers_share_a_progress_key(one: tuple, other: tuple) -> None:
    assert (progress_key(one) == progress_key(other)) == (one == other)
    assert progress_key(one) != SENTINEL_KEY


@given(sink_ids, sink_ids, source_partitions)
def test_a_key_stands_below_the_prefix_of_its_own_sink_alone(one: SinkId, other: SinkId, at: SourcePartition) -> None:
    for key in (one.meta_key, one.partition_key(at)):
        assert key.startswith(other.prefix) == (one == other)


@given(sink_ids, sink_ids, source_partitions)
def test_a_partition_key_is_read_back_by_its_own_sink_alone(one: SinkId, other: SinkId, at: SourcePartition) -> None:
    assert one.parse_partition_key(one.partition_key(at)) == at
    assert other.parse_partition_key(one.partition_key(at)) == (at if one == other else None)
    assert one.parse_partition_key(one.meta_key) is None


@given(sink_ids, source_partitions)
def test_the_writer_of_a_partition_key_is_told_by_the_key_alone(sink: SinkId, at: SourcePartition) -> None:
    assert writer_of(sink.partition_key(at)) == sink.partition_id(at)
    assert writer_of(sink.meta_key) == sink.control_id
    assert writer_of(SENTINEL_KEY) is None


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "meta",
        "p/",
        "p/t",
        "p/t/",
        "p//0",
        "p/t/x",
        "p/t/-1",
        "p/t/+1",
        "p/t/ 1",
        "p/t/1/2",
        "p/t/٣",
        "p/t/²",
        "q/t/0",
    ],
)
def test_other_keys_of_a_sink_name_no_partition(rest: str) -> None:
    sink = SinkId("i", "s")
    assert sink.parse_partition_key(sink.prefix + rest) is None


@pytest.mark.parametrize("number", ["00", "007", "0" * 20 + "1"])
def test_a_partition_has_one_key_only(number: str) -> None:
    sink = SinkId("i", "s")
    assert sink.parse_partition_key(f"{sink.prefix}p/t/{number}") is None


@pytest.mark.parametrize(("identity", "sink"), [("", "s"), ("i", ""), ("a/b", "s"), ("i", "a/b"), ("/", "s")])
def test_a_part_that_could_forge_an_id_is_refused(identity: str, sink: str) -> None:
    with pytest.raises(ValueError, match="transactional id"):
        SinkId(identity, sink)
