"""The JSON of commands: keys as the status has them, and one shape of a place in the source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sinkpipeline.cli import preview, progress, reset
from sinkpipeline.cli.dlq import listing, showing
from sinkpipeline.cli.dlq.contents import Contents
from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Verdict
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.redrive import Ledger, Letter, LetterId
from sinkpipeline.core.reset import Move, ResetPlan
from sinkpipeline.core.topics import Topic
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.spark.preview import PreviewRow
from support.resource.manifests import smallest

SINK = SinkId("shop.orders", "enriched")
PLACE = SourcePartition("orders", 1)
OFFSET = 120
DLQ = Topic(name="dlq", id="id-dlq", partitions=1, replication_factor=1)


def letter() -> Letter:
    verdict = Verdict(ErrorClass.MALFORMED_JSON, "no object")
    record = SourceRecord(
        partition=PLACE, offset=OFFSET, key=b"k", value=b"v", headers=[("h", b"1")], timestamp=1_700_000_000_000
    )
    return Letter(LetterId(0, 7), 1_700_000_000_001, DeadLetter(sink=SINK, verdict=verdict, record=record))


def of_progress(_: pytest.CaptureFixture[str]) -> Any:
    line = progress._Line(
        sink="enriched", topic="orders", partition=1, next=OFFSET, end=200, lag=80, rows=7, dead=1, dropped=0, lost=0,
        at="2026-11-22T08:00:00Z", guarantee="ExactlyOnce", durability="Committed",
        dead_by_class={"MalformedJson": 1}, dropped_by_class={},
    )  # fmt: skip
    return json.loads(progress._for_programs([], [line], {}))


def of_reset(captured: pytest.CaptureFixture[str]) -> Any:
    move = Move(partition=PLACE, handled=OFFSET, new=100)
    reset._show(ResetPlan(sink=SINK, old_epoch=3, epoch=4, moves=(move,), source={}, doubt=None), "json")
    return json.loads(captured.readouterr().out)


def of_preview(_: pytest.CaptureFixture[str]) -> Any:
    [settings] = resolve_sinks(parse_manifest(smallest()), None)
    row = PreviewRow(
        source=PLACE, offset=OFFSET, key=b"k", value=b"v", headers=[("h", b"1")], timestamp=1_700_000_000_000,
        partition=0, verdict=None,
    )  # fmt: skip
    return [preview._document(row, settings)]


def of_dlq_list(captured: pytest.CaptureFixture[str]) -> Any:
    contents = Contents(DLQ, [], [letter()], [], [Ledger(DLQ.id, 0)])
    listing._show([listing._line(contents, letter())], "json")
    return json.loads(captured.readouterr().out)


def of_dlq_show(_: pytest.CaptureFixture[str]) -> Any:
    return [json.loads(json.dumps(showing._document(letter(), "dlq", "Pending")))]


OF_RECORDS = (of_preview, of_dlq_list, of_dlq_show)
OF_PARTITIONS = (of_progress, of_reset)


@pytest.mark.parametrize("document", [*OF_RECORDS, *OF_PARTITIONS], ids=lambda each: each.__name__.removeprefix("of_"))
def test_a_place_in_the_source_has_one_shape(
    document: Callable[[pytest.CaptureFixture[str]], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    [told] = document(capsys)
    # A line of `progress` or `reset` is about a partition, and has its offsets under names of their own.
    place = told["source"] if document in OF_RECORDS else told
    assert {name: place[name] for name in ("topic", "partition")} == {"topic": "orders", "partition": 1}
    if document in OF_RECORDS:
        assert place["offset"] == OFFSET
    assert {each for each in keys(told) if not re.fullmatch("[a-z][a-z0-9]*([A-Z][a-z]+)*", each)} == set()


def keys(value: Any) -> Iterator[str]:
    """At all depths; but not the names of classes, which are words of ours and no fields."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield name
        if not name.endswith("ByClass"):
            yield from keys(inner)
    for inner in value if isinstance(value, list) else ():
        yield from keys(inner)


def test_a_table_has_a_place_in_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    contents = Contents(DLQ, [], [letter()], [], [Ledger(DLQ.id, 0)])
    listing._show([listing._line(contents, letter())], "table")
    assert " orders:1:120 " in capsys.readouterr().out
