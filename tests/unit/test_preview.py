"""What a preview says of rows, without the brokers and Spark that they come from."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.cli import preview as command
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.partitioner import murmur2, partition_of_key
from sinkpipeline.kafka.preview import Outlook
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.postgresql.lines import line, values
from sinkpipeline.spark import preview
from support.resource.manifests import SINK, changed, dead, smallest, table
from support.resource.streams import stream

ROW = {
    "topic": "orders",
    "partition": 1,
    "offset": 120,
    "key": bytearray(b"NL"),
    "value": bytearray(b'{"id":1}'),
    "target_partition": None,
    "timestamp_ms": 1_700_000_000_001,
    "notes": None,
}


def settings(*, letters: bool = True) -> SinkSettings:
    document = smallest()
    if letters:
        document = changed(document, (("spec", "sinks", 0, "deadLetter"), {"topic": {"name": "dlq"}}))
    return resolve_sinks(parse_manifest(document), None)[0]


def judged(*, partitions: int | None = 3, letters: bool = True, **row: Any) -> preview.PreviewRow:
    outlook = Outlook(
        ranges={SourcePartition("orders", 1): OffsetRange(0, 200)},
        resumes=False,
        data_limits=TopicLimits(partitions=partitions or 1, message_bytes=1000),
        data_partitions=partitions,
    )
    rows: Any = [SimpleNamespace(**{**ROW, **row})]
    [found] = preview._judged(rows, settings(letters=letters), outlook)
    return found


def test_a_good_row_and_where_it_goes() -> None:
    row = judged()
    assert (row.partition, row.verdict) == (partition_of_key(b"NL", 3), None)
    assert list(command._lines(row, settings())) == [
        f"orders:1:120 -> orders-copy, partition {row.partition}",
        "  timestamp 1700000000001 ms, 2023-11-14T22:13:20Z",
        "  key       2 bytes, text:",
        "    NL",
        "  value     8 bytes, text:",
        '    {"id":1}',
    ]
    document = command._document(row, settings())
    assert (document["topic"], document["partition"], document["error"]) == ("orders-copy", row.partition, None)
    assert document["value"] == {"base64": "eyJpZCI6MX0="}


@pytest.mark.parametrize(
    ("row", "partition"),
    [
        ({"target_partition": 2}, 2),
        ({"key": None}, None),
        ({"partitions": None}, None),
        ({"partitions": None, "target_partition": 8}, 8),
    ],
)
def test_the_partition_is_told_where_it_is_known(row: dict[str, Any], partition: int | None) -> None:
    assert judged(**row).partition == partition
    assert judged(**row).verdict is None


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"notes": '{"error":"MalformedJson: at 3"}'}, "MalformedJson"),
        ({"target_partition": 3}, "PartitionOutOfRange"),
        ({"value": bytearray(2000)}, "RecordTooLarge"),
    ],
)
def test_a_row_that_cannot_be_delivered_and_what_becomes_of_it(row: dict[str, Any], error: str) -> None:
    found = judged(**row)
    assert found.partition is None
    assert next(command._lines(found, settings())).startswith(f"orders:1:120 -> dead letter in dlq: {error}: ")
    document = command._document(found, settings())
    assert (document["topic"], document["error"]["class"]) == ("dlq", error)


def test_of_a_record_with_several_rows_all_are_shown_or_one_dead_letter() -> None:
    outlook = Outlook(
        ranges={SourcePartition("orders", 1): OffsetRange(0, 200)},
        resumes=False,
        data_limits=TopicLimits(partitions=3, message_bytes=1000),
        data_partitions=3,
    )
    good = [{"offset": 7, "value": bytearray(b"%d" % row)} for row in range(3)]
    bad = [{"offset": 8}, {"offset": 8, "notes": '{"error":"EvaluationFailed: no"}', "value": bytearray(b"own")}]
    rows: Any = [SimpleNamespace(**{**ROW, **row}) for row in (*good, *bad)]
    found = list(preview._judged(rows, settings(), outlook))
    assert [(row.offset, row.value, row.verdict and row.verdict.error_class.value) for row in found] == [
        (7, b"0", None),
        (7, b"1", None),
        (7, b"2", None),
        (8, b"own", "EvaluationFailed"),
    ]


def test_without_dead_letters_the_sink_stops() -> None:
    found = judged(letters=False, notes='{"error":"MalformedJson: at 3"}')
    assert "the sink stops" in next(command._lines(found, settings(letters=False)))


def test_headers_are_shown_and_what_would_steer_a_terminal_is_not() -> None:
    found = judged(notes='{"headers":[{"k":"a\\u001b","v":"/w=="},{"k":"b"}]}', timestamp_ms=0)
    assert found.headers == [("a\x1b", b"\xff"), ("b", None)]
    assert list(command._lines(found, settings()))[1:5] == [
        "  timestamp when it is written",
        "  header a\\u001b 1 bytes, not UTF-8, in base64:",
        "    /w==",
        "  header b  null",
    ]


def test_the_hash_is_that_of_javas_clients() -> None:
    """Values of org.apache.kafka.common.utils.Utils.murmur2, of its own tests."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    known |= {
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    assert {key: murmur2(key) for key in known} == {key: value % 2**32 for key, value in known.items()}
    assert partition_of_key(b"21", 2**31) == 1173551340, "its sign is cut off"


TABLE = {"columns": {"id": "bigint", "note": "text"}, "primaryKey": ["id"]}


@pytest.mark.parametrize(
    ("more", "content", "told", "order"),
    [
        ({}, b"7\t\\N", ["public.orders, insert", "  id    7", "  note  NULL"], None),
        ({}, b"7\ta\\nb\\\\N", ["public.orders, insert", "  id    7", "  note  a\\nb\\N"], None),
        ({"writeMode": "Upsert"}, b"7\tx", ["public.orders, upsert", "  id    7", "  note  x"], None),
        ({"writeMode": "Upsert", "deleteWhen": "gone"}, b"7\tx\tt", ["public.orders, delete", "  id  7"], None),
        (
            {"writeMode": "Upsert", "deleteWhen": "gone", "orderBy": "version"},
            b"7\tx\tf\t12",
            ["public.orders, upsert", "  id         7", "  note       x", "  (orderBy)  12"],
            "12",
        ),
    ],
)
def test_what_a_row_does_to_a_table(more: dict[str, Any], content: bytes, told: list[str], order: str | None) -> None:
    of_table = TABLE if "writeMode" in more else {"columns": TABLE["columns"]}
    [sink] = resolve_sinks(parse_manifest(changed(smallest(), (SINK, table(**more, of_table=of_table)))), None)
    row = replace(judged(), value=content)
    assert list(command._lines(row, sink)) == [f"orders:1:120 -> {told[0]}", *told[1:]]
    document = command._document(row, sink)
    assert (document["table"], document["orderBy"], document["error"]) == ("public.orders", order, None)
    assert document["columns"]["id"] == "7"


@pytest.mark.parametrize(("key", "subject"), [(b"a.b", "a.b"), (None, "orders.all")])
def test_a_row_of_a_stream_is_shown_with_its_subject(key: bytes | None, subject: str) -> None:
    [sink] = resolve_sinks(parse_manifest(changed(smallest(), (SINK, stream()))), None)
    row = replace(judged(), key=key, value=b"v", headers=[("h", b"1")])
    first, *rest = command._lines(row, sink)
    assert first == f"orders:1:120 -> ORDERS, subject {subject}"
    assert "timestamp" not in "".join(rest)
    document = command._document(row, sink)
    assert (document["stream"], document["subject"], document["value"]) == ("ORDERS", subject, {"base64": "dg=="})
    assert "key" not in document


def test_a_record_that_a_table_can_not_have_is_a_dead_letter_as_of_a_topic() -> None:
    bad = judged(notes='{"error": "MalformedJson: the value is not JSON"}')
    for sink, where in ((table(), "the sink stops"), (dead(table(), "dlq"), "dead letter in dlq")):
        [settings_] = resolve_sinks(parse_manifest(changed(smallest(), (SINK, sink))), None)
        assert where in next(iter(command._lines(bad, settings_)))
        assert command._document(bad, settings_)["error"]["class"] == "MalformedJson"


@given(st.lists(st.none() | st.text(), min_size=1))
def test_a_line_is_read_back(found: list[str | None]) -> None:
    assert values(line(found)) == found
