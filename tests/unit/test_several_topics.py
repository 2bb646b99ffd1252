"""A sink of several topics: its ids, what a start decides about them, its records, and limits of rows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.lost_topics import check_several
from sinkpipeline.core.manifest import ManifestError, parse_manifest
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Meta, Owner
from sinkpipeline.core.progress_records import decode_meta, encode_meta
from sinkpipeline.core.removal import why_kept
from sinkpipeline.core.row_limits import Limits
from sinkpipeline.core.topic_ids import (
    by_name,
    changed,
    contains,
    from_record,
    ids_of,
    joined,
    merged,
    to_record,
    to_status,
)
from sinkpipeline.sinks.contract import RowBatch
from support.resource.manifests import SINK, sink, smallest, topics_of
from support.resource.manifests import changed as with_changes

AB = joined({"b": "2", "a": "1"})
META = Meta(epoch=0, run="r", owner=Owner(cluster="c", name="n"), partitions={"raw": 1}, progress="p")


def test_ids_are_one_text_and_come_back() -> None:
    assert ids_of(AB) == {"a": "1", "b": "2"}
    assert joined({"a": "1", "b": "2"}) == AB
    assert ids_of("1") is ids_of(None) is joined({}) is None
    assert contains(AB, "2")
    assert not contains(AB, "a")
    assert contains("2", "2")
    assert by_name("2", {"a": "1", "b": "2"}) == {"b": "2"}
    assert changed(AB, joined({"a": "3"})) == "re-created (a) and deleted (b)"
    assert (changed("1", None), changed("1", "2")) == ("deleted", "re-created")


def test_what_was_created_is_remembered_with_what_is_created_now() -> None:
    there = {"a": "1", "b": "2", "c": "3"}
    assert merged(AB, joined({"c": "3"}), there) == joined(there)
    assert merged("1", joined({"c": "3"}), there) == joined({"a": "1", "c": "3"})
    assert merged(AB, joined({"b": "9"}), there) == joined({"a": "1", "b": "9"})
    assert merged(None, None, there) is None
    assert merged("1", None, None) == "1"
    assert merged("1", "2", None) == "2"


LOST, REMOVED = Reason.DATA_TOPIC_LOST, Reason.DATA_TOPIC_REMOVED


@pytest.mark.parametrize(
    ("before", "there", "declared", "reason", "named"),
    [
        (AB, {"a": "1", "b": "2"}, "ab", None, ""),
        (AB, {"a": "1", "b": "2"}, "abc", None, ""),
        (AB, {"a": "1", "b": "2", "c": "3"}, "abc", None, ""),
        (AB, {"a": "1"}, "ab", LOST, "data topic b is lost: it is missing"),
        (AB, {"a": "1", "b": "9"}, "ab", LOST, "data topic b is lost: it was re-created"),
        (AB, {}, "ab", LOST, "a, b"),
        (AB, {"a": "1"}, "a", REMOVED, "into b"),
        (AB, {"a": "9"}, "a", LOST, "data topic a"),
        ("2", {"a": "1", "b": "2"}, "ab", None, ""),
        ("2", {"a": "1"}, "ab", LOST, "no topic has the id 2"),
        (None, {"a": "1"}, "ab", None, ""),
    ],
)
def test_the_worst_of_all_topics_is_told(
    before: str | None, there: dict[str, str], declared: str, reason: Reason | None, named: str
) -> None:
    if reason is None:
        check_several(before, 5, there, list(declared))
        return
    with pytest.raises(SinkPipelineError) as caught:
        check_several(before, 5, there, list(declared))
    assert caught.value.reason is reason
    assert named in caught.value.message


def test_rows_that_nobody_counted_are_not_told_as_counted() -> None:
    with pytest.raises(SinkPipelineError, match="it is missing, and rows were delivered into the sink's topics"):
        check_several(AB, None, {"a": "1"}, ["a", "b"])


def test_a_record_of_several_topics_is_of_another_version() -> None:
    """A release that knows one topic refuses it; one of one topic stays what it was."""
    several = replace(META, data=AB, created=joined({"a": "1"}))
    document = json.loads(encode_meta(several))
    assert (document["v"], document["data"], document["created"]) == (2, {"a": "1", "b": "2"}, {"a": "1"})
    assert decode_meta(encode_meta(several), "here") == several
    one = replace(META, data="1", created="1")
    assert b'"v":1,' in encode_meta(one)
    assert decode_meta(encode_meta(one), "here") == one
    assert json.loads(encode_meta(replace(META, data=None, created=AB)))["v"] == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"v": 3}, Reason.PROGRESS_VERSION_UNKNOWN),
        ({"v": 2, "data": "1"}, Reason.PROGRESS_VERSION_UNKNOWN),
        ({"v": 1}, Reason.PROGRESS_CORRUPT),
        ({"data": {}}, Reason.PROGRESS_CORRUPT),
        ({"data": {"a": 1}}, Reason.PROGRESS_CORRUPT),
        ({"v": 1, "data": '{"a":"1"}'}, Reason.PROGRESS_CORRUPT),
    ],
)
def test_a_record_that_is_none_is_refused(change: dict[str, object], reason: Reason) -> None:
    document = {**json.loads(encode_meta(replace(META, data=AB))), **change}
    with pytest.raises(SinkPipelineError) as caught:
        decode_meta(json.dumps(document).encode(), "here")
    assert caught.value.reason is reason


def test_a_status_remembers_each_topic() -> None:
    assert to_status("1") == {"dataTopicId": "1"}
    told = to_status(AB)
    entry = {"name": "s", "epoch": 0, "frontier": [{"topic": "raw", "next": [1]}], **told}
    entry |= dict.fromkeys(("rowsDelivered", "deadLettered", "dropped", "lost"), 0)
    memory = memory_of({"identity": "i", "sinks": [entry]}, "i", "s")
    assert memory is not None
    assert memory.data == AB


def test_of_each_topic_it_is_known_who_made_it() -> None:
    meta = replace(META, data=AB, created=joined({"a": "1"}))
    mine = SinkId("shop.orders", "out")
    assert why_kept(mine, "1", meta, {}) is None
    assert "nothing says" in (why_kept(mine, "2", meta, {}) or "")
    assert "delivers into it" in (why_kept(mine, "1", meta, {"other": meta}) or "")


def batch(topics: list[str | None], **columns: object) -> RowBatch:
    count = len(topics)
    found = RowBatch(
        offsets=list(range(count)),
        keys=[b"k"] * count,
        values=[b"v"] * count,
        target_partitions=None,
        target_topics=topics,
        timestamps=[0] * count,
        headers=None,
        errors=None,
        size=2 * count,
    )
    return replace(found, **columns)  # type: ignore[arg-type]


LIMITS = Limits(
    1, row_bytes=100, keyed=True, topics={"a": Limits(3, row_bytes=1000), "b": Limits(1, row_bytes=100, keyed=True)}
)


@pytest.mark.parametrize(
    ("rows", "bad"),
    [
        (batch(["a", "b"]), {}),
        (batch(["a", "x", None, ""]), dict.fromkeys((1, 2, 3), ErrorClass.TOPIC_NOT_DECLARED)),
        (batch(["a", "b"], target_partitions=[2, 2]), {1: ErrorClass.PARTITION_OUT_OF_RANGE}),
        (batch(["a", "b"], target_partitions=[3, 0]), {0: ErrorClass.PARTITION_OUT_OF_RANGE}),
        (batch(["a", "b"], values=[b"v" * 500] * 2, size=1000), {1: ErrorClass.RECORD_TOO_LARGE}),
        (batch(["a", "b"], keys=[None, None]), {1: ErrorClass.RECORD_REFUSED}),
        (batch([None, "a"], errors=["WrongType: no", None]), {0: ErrorClass.WRONG_TYPE}),
    ],
)
def test_a_row_is_judged_by_its_own_topic(rows: RowBatch, bad: dict[int, ErrorClass]) -> None:
    assert {index: rows.verdict(index, LIMITS).error_class for index in rows.bad_rows(LIMITS)} == bad


def test_limits_of_several_are_the_strictest() -> None:
    limits = TopicLimits.of_several(
        {"a": TopicLimits(partitions=3, message_bytes=10), "b": TopicLimits(partitions=1, message_bytes=20)}
    )
    assert (limits.partitions, limits.message_bytes, limits.most_bytes) == (1, 10, 20)


def paths(*changes: tuple[tuple[str | int, ...], object]) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(with_changes(smallest(), *changes))
    return [problem.path for problem in caught.value.problems]


def test_none_of_them_may_be_another_topic_of_the_pipeline() -> None:
    assert paths((SINK, topics_of("a", "orders"))) == ["spec.sinks[0].kafka.topics[1].name"]
    more = ("spec", "sinks", 1)
    assert paths((SINK, topics_of("a", "b")), (more, sink("more", "b"))) == ["spec.sinks[1].kafka.topic.name"]
    assert paths((SINK, topics_of("a", "b")), (more, {**topics_of("c", "a"), "name": "more"})) == [
        "spec.sinks[1].kafka.topics[1].name"
    ]
    letters = {**sink("more", "c"), "deadLetter": {"topic": {"name": "b"}}}
    assert paths((SINK, topics_of("a", "b")), (more, letters)) == ["spec.sinks[1].deadLetter.topic.name"]


def test_a_subject_does_not_follow_from_several_topics() -> None:
    encode = {"value": {"format": "avro", "schemaRegistry": {"url": "http://r:8081"}}}
    one = topics_of("a", "b", select={"topic": "'a'", "value": "struct(key)"})
    one["kafka"]["encode"] = encode
    assert paths((SINK, one)) == ["spec.sinks[0].kafka.encode.value.schemaRegistry.subject"]


@pytest.mark.parametrize("text", ["{", "{}", "{ x", '{"a":1}', '{"a":""}', "[]"])
def test_a_text_that_names_no_topics_is_one_id(text: str) -> None:
    """As in a status that somebody has edited: it raises nothing, and is the id of no topic that is there."""
    assert ids_of(text) is None
    assert to_record(text) == from_record(text) == text
    assert not contains(text, "id")
