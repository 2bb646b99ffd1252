"""Records of which several rows were made, on a broker: of one that can't be delivered nothing is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.sinks import transactional
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.whole_records import grouped
from support.kafka import topics
from support.sink.dead_letters import Lettered, records

pytestmark = pytest.mark.kafka

COUNT, EACH = 12, 3
both = pytest.mark.parametrize("exactly_once", [True, False], ids=["ExactlyOnce", "AtLeastOnce"])
Make = Callable[..., Lettered]


@pytest.fixture
def make(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.05)
    return lambda **settings: Lettered(kafka.bootstrap_servers, records(COUNT), **settings)


def several(
    task: Lettered, offsets: range, *, values: Mapping[tuple[int, int], bytes], astray: Collection[tuple[int, int]] = ()
) -> RowBatch:
    """Each record gives the same rows, but for some, by offset and place in the record."""
    places = [(offset, place) for offset in offsets for place in range(EACH)]
    rows = task.rows(range(COUNT))
    found = replace(
        rows,
        offsets=[offset for offset, _ in places],
        keys=[b"key"] * len(places),
        values=[values.get(at, b"row %d %d" % at) for at in places],
        target_partitions=[7 if at in astray else -1 for at in places],
        timestamps=[0] * len(places),
        headers=None,
    )
    return grouped(found)


def whole(delivered: list[str]) -> Counter[int]:
    return Counter(int(text.split()[1]) for text in delivered if text.startswith("row"))


@both
@pytest.mark.parametrize("known", [False, True], ids=["by the broker", "by us"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_row_that_is_refused_takes_its_record_with_it(make: Make, exactly_once: bool, known: bool) -> None:
    limit = {"max.message.bytes": "2000"}
    task = make(exactly_once=exactly_once, data_config=limit if known else {})
    topics.alter_topic(task.servers, task.sink.data, limit)
    large = dict.fromkeys(((1, 2), (6, 0), (7, 1), (11, 2)), b"x" * 3000)
    # The last record of the first batch goes on in the second one.
    rows = several(task, range(COUNT), values=large, astray=[(3, 1)])
    parts = [cut(rows, 0, 5, EACH), cut(rows, 5, COUNT * EACH, EACH)]

    task.write(*parts, cuts=CutPolicy(rows=7))

    dead = [1, 3, 6, 7, 11]
    assert task.dead_offsets() == dead
    classes = {letter.record.offset: letter.verdict.error_class for letter in task.dead()}
    assert classes == {**dict.fromkeys(dead, ErrorClass.RECORD_TOO_LARGE), 3: ErrorClass.PARTITION_OUT_OF_RANGE}
    found = whole(task.sink.delivered())
    good = [offset for offset in range(COUNT) if offset not in dead]
    if exactly_once:
        assert found == Counter(good * EACH)
        assert task.counts() == (COUNT, len(good) * EACH, len(dead), 0)
    else:
        assert all(found[offset] >= EACH for offset in good)
        assert known is False or not any(found[offset] for offset in dead), "what is known before is never sent"


def cut(rows: RowBatch, begin: int, end: int, each: int) -> RowBatch:
    """These rows alone, as they would travel."""
    offsets = [offset for offset in rows.offsets for _ in range(each)]
    targets = rows.target_partitions
    return grouped(
        replace(
            rows,
            offsets=offsets[begin:end],
            firsts=None,
            keys=rows.keys[begin:end],
            values=rows.values[begin:end],
            target_partitions=None if targets is None else targets[begin:end],
            timestamps=rows.timestamps[begin:end],
        )
    )
