"""What a reset is told, what it plans, and what it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress, check
from sinkpipeline.core.progress_records import ProgressFold, decode_meta, encode, encode_meta, encode_partition
from sinkpipeline.core.reset import (
    Move,
    Note,
    ResetPlan,
    check_unmoved,
    encode_reset,
    find_doubt,
    is_done,
    plan_reset,
    reset_progress,
)
from sinkpipeline.core.starting import SourceView, partition_counts
from sinkpipeline.core.tally import checked
from sinkpipeline.core.targets import Targets, parse_targets
from sinkpipeline.core.topic_ids import joined
from sinkpipeline.core.topics import Topic, remember

SINK = SinkId("shop.orders", "enriched")
OWNER = Owner(cluster="file", name="shop/orders")
TOPIC = Topic(name="progress", id="id-p", partitions=1, replication_factor=1)
A0, A1, A2, B0 = (SourcePartition(topic, number) for topic, number in (("a", 0), ("a", 1), ("a", 2), ("b", 0)))
EARLIEST, LATEST = StartingOffsets.EARLIEST, StartingOffsets.LATEST
DOUBT = SinkPipelineError(Reason.PROGRESS_CORRUPT, "somebody wrote nonsense", "find out who")


def frontier(offsets: Mapping[SourcePartition, int], *, epoch: int = 3) -> Progress:
    """Progress with rows, deaths and losses, of a sink that has delivered."""
    partitions = {
        partition: PartitionProgress(
            epoch=epoch, next=offset, rows=offset, dead=1, dropped=2, lost=3, at=4, by_class=checked({"WrongType": 1})
        )
        for partition, offset in offsets.items()
    }
    meta = Meta(
        epoch=epoch,
        run="old",
        owner=OWNER,
        partitions=partition_counts(partitions),
        source={partition.topic: f"id-{partition.topic}" for partition in offsets},
        data="id-d",
        progress="id-p",
    )
    return Progress(meta=meta, partitions=partitions, end=50)


def view(
    offsets: Mapping[SourcePartition, tuple[int, int]],
    *,
    open_records: int = 0,
    ids: Mapping[str, str] | None = None,
) -> SourceView:
    """A source by (beginning, end) of each partition, with uncommitted records beyond each end."""
    return SourceView(
        topics={partition.topic: f"id-{partition.topic}" for partition in offsets} | dict(ids or {}),
        beginnings={partition: first for partition, (first, _) in offsets.items()},
        ends={partition: last for partition, (_, last) in offsets.items()},
        high_watermarks={partition: last + open_records for partition, (_, last) in offsets.items()},
    )


def plan(
    found: Progress,
    source: SourceView,
    targets: Targets,
    *,
    doubt: SinkPipelineError | None = None,
    remembered_epoch: int = 0,
) -> ResetPlan:
    return plan_reset(
        SINK,
        found,
        source,
        targets,
        doubt=doubt,
        remembered_epoch=remembered_epoch,
        begin_new=source.beginnings.__getitem__,
    )


def to(*texts: str) -> Targets:
    return parse_targets(texts)


@contextmanager
def suppress_usage_invalid() -> Iterator[None]:
    """For what may be refused, but for one reason only."""
    try:
        yield
    except SinkPipelineError as error:
        if error.reason is not Reason.USAGE_INVALID:
            raise


# What --to says


def test_targets_are_read() -> None:
    assert to("earliest") == Targets(everywhere=EARLIEST)
    assert to("latest,a=earliest", " b:0=17 , b:1=latest") == Targets(
        everywhere=LATEST, topics={"a": EARLIEST}, partitions={B0: 17, SourcePartition("b", 1): LATEST}
    )
    assert to("earliest=latest") == Targets(topics={"earliest": LATEST}), "a topic may be called so"
    assert to("a.b_c-d:07=008").partitions == {SourcePartition("a.b_c-d", 7): 8}


def test_times_are_targets_until_they_are_resolved() -> None:
    source = view({A0: (5, 20), A1: (0, 9), B0: (0, 7)})
    targets = to("1970-01-01T00:00:01Z,b=latest,a:1=1970-01-01T01:00:00.002+01:00")
    assert targets.moments(source) == {A0: 1000, A1: 2}
    resolved = targets.resolved({A0: 12, A1: 3})
    assert [resolved.of(each, source) for each in (A0, A1, B0)] == [12, 3, 7]
    with pytest.raises(SinkPipelineError, match="a day that does not exist"):
        to("a=2026-02-29T00:00:00Z")


def test_positions_of_others_may_be_beyond_what_is_committed_and_are_overruled() -> None:
    source = view({A0: (5, 20), A1: (0, 9)}, open_records=4)
    found = frontier({A0: 12, A1: 3})
    shown = plan(found, source, replace(to("latest,a:1=1"), imported={A0: 23, A1: 2}))
    assert [move.new for move in shown.moves] == [23, 1]
    assert shown.imported == {A0}
    check_unmoved(shown, found, source, doubt=None, remembered_epoch=0)
    with pytest.raises(SinkPipelineError, match="which has 5 to 24"):
        plan(found, source, Targets(imported={A0: 25}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01T24:00:00Z",
        "earliest,",
        "soon",
        "a",
        "a:0",
        "a=",
        "a:=1",
        "a:0=",
        "a:0=-1",
        "a:-1=0",
        "a:0=1.5",
        "a:0=+1",
        "a:0:1=2",
        "a:0=1=2",
        "a/b:0=1",
        "a:0=\N{ARABIC-INDIC DIGIT THREE}",
        "a:0=" + "9" * 5000,
        "Earliest",
    ],
    ids=lambda text: repr(text)[:20],
)
def test_a_wrong_target_is_refused_with_the_syntax(text: str) -> None:
    with pytest.raises(SinkPipelineError) as caught:
        to(text)
    assert caught.value.reason is Reason.USAGE_INVALID
    assert "orders:0=120" in caught.value.remedy


@pytest.mark.parametrize("text", ["120", "a=120"])
def test_an_offset_without_a_partition_is_refused(text: str) -> None:
    with pytest.raises(SinkPipelineError, match="names no partition") as caught:
        to(text)
    assert caught.value.reason is Reason.USAGE_INVALID


@pytest.mark.parametrize(
    "texts", [("earliest", "latest"), ("a=latest,a=latest",), ("a:0=1", "a:0=2"), ("a:0=1,a:00=2",)]
)
def test_a_target_that_is_named_twice_is_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(SinkPipelineError, match="twice"):
        to(*texts)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress_usage_invalid():
        to(text)


# The plan


@dataclass(frozen=True, kw_only=True)
class Case:
    found: Progress
    source: SourceView
    to: str
    doubt: SinkPipelineError | None = None
    then: Mapping[SourcePartition, tuple[int | None, int | None, Note]] | str
    """Old and new offset with the note, or what is said of the refusal."""
    again: int = 0
    skipped: int = 0
    unknown: frozenset[SourcePartition] = field(default=frozenset())


RETAINED = view({A0: (5, 20), A1: (0, 9)})
HERE = frontier({A0: 12, A1: 9})

CASES: dict[str, Case] = {
    "earliest": Case(
        found=HERE,
        source=RETAINED,
        to="earliest",
        then={A0: (12, 5, Note.NONE), A1: (9, 0, Note.NONE)},
        again=7 + 9,
    ),
    "latest": Case(
        found=HERE, source=RETAINED, to="latest", then={A0: (12, 20, Note.NONE), A1: (9, 9, Note.NONE)}, skipped=8
    ),
    "latest is before what is not committed": Case(
        found=HERE,
        source=view({A0: (5, 20), A1: (0, 9)}, open_records=4),
        to="latest",
        then={A0: (12, 20, Note.NONE), A1: (9, 9, Note.NONE)},
        skipped=8,
    ),
    "what is not named stays": Case(
        found=HERE, source=RETAINED, to="a:0=6", then={A0: (12, 6, Note.NONE), A1: (9, 9, Note.STAYS)}, again=6
    ),
    "what stays may be beyond the last stable offset": Case(
        found=HERE,
        source=view({A0: (5, 20), A1: (0, 7)}, open_records=2),
        to="a:0=6",
        then={A0: (12, 6, Note.NONE), A1: (9, 9, Note.STAYS)},
        again=6,
    ),
    "the narrowest decides": Case(
        found=frontier({A0: 12, A1: 9, B0: 3}),
        source=view({A0: (5, 20), A1: (0, 9), B0: (1, 4)}),
        to="latest,a=earliest,a:0=19",
        then={A0: (12, 19, Note.NONE), A1: (9, 0, Note.NONE), B0: (3, 4, Note.NONE)},
        again=9,
        skipped=8,
    ),
    "the beginning and the end are offsets of the source": Case(
        found=HERE,
        source=RETAINED,
        to="a:0=5,a:1=9",
        then={A0: (12, 5, Note.NONE), A1: (9, 9, Note.NONE)},
        again=7,
    ),
    "below the beginning": Case(found=HERE, source=RETAINED, to="a:0=4", then="offset 4 of a-0.*which has 5 to 20"),
    "beyond the end": Case(found=HERE, source=RETAINED, to="a:0=21", then="offset 21 of a-0.*which has 5 to 20"),
    "beyond the last stable offset": Case(
        found=HERE, source=view({A0: (5, 20), A1: (0, 9)}, open_records=1), to="a:0=21", then="which has 5 to 20"
    ),
    "an unknown topic": Case(found=HERE, source=RETAINED, to="c=earliest", then="name topic c, which is not in"),
    "an unknown partition": Case(found=HERE, source=RETAINED, to="a:2=0", then="name a-2, which the source does not"),
    "a new partition is named": Case(
        found=HERE,
        source=view({A0: (5, 20), A1: (0, 9), A2: (2, 6)}),
        to="a:2=5",
        then={A0: (12, 12, Note.STAYS), A1: (9, 9, Note.STAYS), A2: (None, 5, Note.NEW)},
        skipped=3,
    ),
    "a new partition is not named": Case(
        found=HERE,
        source=view({A0: (5, 20), A1: (0, 9), A2: (2, 6)}),
        to="a:1=9",
        then={A0: (12, 12, Note.STAYS), A1: (9, 9, Note.NONE), A2: (None, 2, Note.NEW)},
    ),
    "a topic that is no longer in the source stays": Case(
        found=frontier({A0: 12, B0: 3}),
        source=view({A0: (5, 20)}),
        to="earliest",
        then={A0: (12, 5, Note.NONE), B0: (3, 3, Note.NOT_IN_SOURCE)},
        again=7,
    ),
    "a topic that is no longer in the source can't be named": Case(
        found=frontier({A0: 12, B0: 3}), source=view({A0: (5, 20)}), to="b=earliest", then="topic b, which is not in"
    ),
    "a re-created source": Case(
        found=HERE,
        source=view({A0: (0, 3), A1: (0, 2)}, ids={"a": "another"}),
        to="a:0=1,a:1=earliest",
        then={A0: (None, 1, Note.RECREATED), A1: (None, 0, Note.RECREATED)},
        skipped=1,
    ),
    "a re-created source must be named": Case(
        found=HERE,
        source=view({A0: (0, 30), A1: (0, 30)}, ids={"a": "another"}),
        to="a:0=1",
        then="no target names a-1, which can't stay where it is: topic a was re-created",
    ),
    "a re-created source with fewer partitions": Case(
        found=HERE,
        source=view({A0: (0, 3)}, ids={"a": "another"}),
        to="latest",
        then={A0: (None, 3, Note.RECREATED), A1: (None, None, Note.FORGOTTEN)},
        skipped=3,
        unknown=frozenset({A1}),
    ),
    "a re-created source with more partitions": Case(
        found=HERE,
        source=view({A0: (0, 3), A1: (0, 3), A2: (0, 3)}, ids={"a": "another"}),
        to="a:0=0,a:1=0",
        then="no target names a-2",
    ),
    "another topic was re-created": Case(
        found=frontier({A0: 12, B0: 3}),
        source=view({A0: (5, 20), B0: (0, 9)}, ids={"b": "another"}),
        to="b=earliest",
        then={A0: (12, 12, Note.STAYS), B0: (None, 0, Note.RECREATED)},
    ),
    "lost at the beginning must be named": Case(
        found=HERE, source=view({A0: (13, 20), A1: (0, 9)}), to="a:1=0", then="has offsets 13 to 20, .* frontier is 12"
    ),
    "lost at the beginning": Case(
        found=HERE,
        source=view({A0: (13, 20), A1: (0, 9)}),
        to="a:0=earliest",
        then={A0: (12, 13, Note.NONE), A1: (9, 9, Note.STAYS)},
        skipped=1,
    ),
    "lost at the end must be named": Case(
        found=HERE, source=view({A0: (5, 11), A1: (0, 9)}), to="a:1=0", then="has offsets 5 to 11, .* frontier is 12"
    ),
    "lost at the end": Case(
        found=HERE,
        source=view({A0: (5, 11), A1: (0, 9)}),
        to="a:0=latest",
        then={A0: (12, 11, Note.NONE), A1: (9, 9, Note.STAYS)},
        again=1,
    ),
    "progress that is not believed": Case(
        found=HERE,
        source=RETAINED,
        to="earliest",
        doubt=DOUBT,
        then={A0: (None, 5, Note.DOUBTED), A1: (None, 0, Note.DOUBTED)},
        unknown=frozenset({A0, A1}),
    ),
    "progress that is not believed must be named": Case(
        found=HERE,
        source=RETAINED,
        to="a:1=3",
        doubt=DOUBT,
        then="names a-0, .*ProgressCorrupt: somebody wrote nonsense",
    ),
    "what is not believed and not in the source is forgotten": Case(
        found=frontier({A0: 12, B0: 3}),
        source=view({A0: (5, 20)}),
        to="latest",
        doubt=DOUBT,
        then={A0: (None, 20, Note.DOUBTED), B0: (None, None, Note.FORGOTTEN)},
        unknown=frozenset({A0, B0}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_plan(name: str) -> None:
    case = CASES[name]
    if isinstance(case.then, str):
        with pytest.raises(SinkPipelineError, match=case.then) as caught:
            plan(case.found, case.source, to(case.to), doubt=case.doubt)
        assert caught.value.reason is Reason.USAGE_INVALID
        return
    planned = plan(case.found, case.source, to(case.to), doubt=case.doubt)
    assert {move.partition: (move.old, move.new, move.note) for move in planned.moves} == case.then
    assert sum(move.again or 0 for move in planned.moves) == case.again
    assert sum(move.skipped or 0 for move in planned.moves) == case.skipped
    assert {move.partition for move in planned.moves if move.again is None} == case.unknown
    assert (planned.old_epoch, planned.epoch) == (3, 4)


def test_the_epoch_is_above_every_one_that_was_ever_seen() -> None:
    assert plan(HERE, RETAINED, to("earliest"), remembered_epoch=2).epoch == 4
    assert plan(HERE, RETAINED, to("earliest"), remembered_epoch=7).epoch == 8
    strange = replace(HERE, partitions={**HERE.partitions, A1: PartitionProgress(epoch=11, next=9)})
    assert plan(strange, RETAINED, to("earliest"), doubt=DOUBT).epoch == 12


# Under the fence


def moved(shown: ResetPlan, found: Progress, source: SourceView, doubt: SinkPipelineError | None = None) -> str:
    with pytest.raises(SinkPipelineError) as caught:
        check_unmoved(shown, found, source, doubt=doubt, remembered_epoch=0)
    assert caught.value.reason is Reason.FRONTIER_MOVED
    assert "run the reset again" in caught.value.remedy
    return caught.value.message


def test_a_reset_goes_on_only_if_nothing_moved() -> None:
    shown = plan(HERE, RETAINED, to("a:0=latest"))
    grown = view({A0: (5, 99), A1: (0, 99)}, ids={"a": "id-a"})
    check_unmoved(shown, HERE, RETAINED, doubt=None, remembered_epoch=0)
    check_unmoved(shown, HERE, grown, doubt=None, remembered_epoch=0)
    assert "a-1 was at 9, is at 10" in moved(shown, frontier({A0: 12, A1: 10}), grown)
    assert "a-0 was at 12, is at 11" in moved(shown, frontier({A0: 11, A1: 9}), grown)
    assert "it was reset, and is in epoch 4" in moved(shown, frontier({A0: 12, A1: 9}, epoch=4), grown)
    assert "a-2 is new" in moved(shown, HERE, view({A0: (5, 20), A1: (0, 9), A2: (0, 1)}))
    assert "a-0 was at 12, is at None (not believed)" in moved(
        plan(HERE, RETAINED, to("earliest")), HERE, RETAINED, DOUBT
    )


def test_a_source_that_changed_after_it_was_shown_moves_the_frontier_too() -> None:
    shown = plan(HERE, RETAINED, to("earliest"))
    assert "topic a was deleted or re-created" in moved(shown, HERE, view({A0: (5, 20)}, ids={"a": "another"}))
    assert "topic a was deleted or re-created" in moved(shown, HERE, view({B0: (5, 20)}))
    assert "offset 5 of a-0 is not in the source" in moved(shown, HERE, view({A0: (6, 20), A1: (0, 9)}))


# What is written


def fold(records: list[tuple[str, bytes | None]]) -> ProgressFold:
    folded = ProgressFold(SINK)
    for offset, (key, value) in enumerate(records):
        folded.apply(key.encode(), value, offset)
    return folded


def write(planned: ResetPlan, found: Progress) -> Progress:
    assert found.meta is not None
    return reset_progress(planned, replace(found.meta, run="reset"), "id-p2", at=99)


def test_a_reset_writes_the_frontier_in_a_new_epoch_without_counts_and_without_a_data_topic() -> None:
    found = frontier({A0: 12, B0: 3})
    new = write(plan(found, view({A0: (5, 20)}), to("a:0=17")), found)
    assert new == Progress(
        meta=Meta(
            epoch=4,
            run="reset",
            owner=OWNER,
            partitions={"a": 1, "b": 1},
            source={"a": "id-a", "b": "id-b"},
            data=None,
            former=("id-d",),
            progress="id-p2",
        ),
        partitions={
            A0: PartitionProgress(epoch=4, next=17, at=99),
            B0: PartitionProgress(epoch=4, next=3, at=99),
        },
    )
    assert encode_reset(SINK, found, new) == encode(SINK, new), "no tombstone where nothing is wrong"


def test_a_reset_keeps_where_rows_are_as_another_sink_may_be_removed_with_its_topic() -> None:
    found = frontier({A0: 12})
    assert found.meta is not None
    several = replace(found.meta, data=joined({"y": "id-y", "x": "id-x"}), former=("id-x", "older"))
    new = write(plan(found, view({A0: (5, 20)}), to("a:0=17")), replace(found, meta=several))
    assert new.meta is not None
    assert (new.meta.data, new.meta.former) == (None, ("id-x", "older", "id-y"))
    assert decode_meta(encode_meta(new.meta), "here").former == new.meta.former


def test_what_is_forgotten_is_removed_with_the_id_of_its_topic() -> None:
    found = frontier({A0: 12, A1: 9, B0: 3})
    planned = plan(found, view({A0: (0, 3)}, ids={"a": "another"}), to("earliest"), doubt=DOUBT)
    new = write(planned, found)
    assert new.meta is not None
    assert (new.meta.partitions, new.meta.source) == ({"a": 1}, {"a": "another"})
    assert fold([*encode(SINK, found), *encode_reset(SINK, found, new)]).result(9) == replace(new, end=9)


def test_a_reset_that_is_done_is_known() -> None:
    planned = plan(HERE, RETAINED, to("earliest"))
    new = write(planned, HERE)
    assert is_done(planned, new)
    assert not is_done(planned, HERE)
    assert not is_done(planned, replace(new, partitions={**new.partitions, A0: PartitionProgress(epoch=4, next=6)}))
    assert not is_done(planned, replace(new, faults={"k": DOUBT}))
    assert not is_done(planned, Progress())


# Progress that is not believed

NONSENSE: dict[str, list[tuple[str, bytes | None]]] = {
    "not JSON": [(SINK.partition_key(A0), b"{")],
    "back within an epoch": [(SINK.partition_key(A0), encode_partition(PartitionProgress(epoch=3, next=1)))],
    "another epoch": [(SINK.partition_key(A0), encode_partition(PartitionProgress(epoch=9, next=1)))],
    "removed": [(SINK.partition_key(A0), None)],
    "beyond meta": [(SINK.partition_key(A2), encode_partition(PartitionProgress(epoch=3, next=1)))],
}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_reset_replaces_what_is_not_believed(name: str) -> None:
    log = [*encode(SINK, HERE), *NONSENSE[name]]
    with pytest.raises(SinkPipelineError):
        check(fold(log).result(len(log)))
    found = fold(log).result(len(log), with_faults=True)
    doubt = find_doubt(SINK, found, TOPIC, None)
    assert doubt is not None

    new = write(plan(found, RETAINED, to("earliest"), doubt=doubt), found)
    log += encode_reset(SINK, found, new)

    for start in range(len(log) - len(encode(SINK, new)) + 1):  # any suffix that a start may begin to read at
        believed = fold(log[start:]).result(len(log))
        check(believed)
        assert believed == replace(new, end=len(log))


@pytest.mark.parametrize(
    "record",
    [(SINK.meta_key, b"{"), (SINK.meta_key, None), (f"{SINK.prefix}x/a/0", b"{}")],
    ids=["meta is nonsense", "meta is removed", "a key that nobody knows"],
)
def test_progress_of_nobody_knows_whom_is_not_replaced(record: tuple[str, bytes | None]) -> None:
    found = fold([*encode(SINK, HERE), record]).result(9, with_faults=True)
    with pytest.raises(SinkPipelineError) as caught:
        find_doubt(SINK, found, TOPIC, None)
    assert caught.value.reason is Reason.PROGRESS_CORRUPT


def test_a_newer_release_is_never_overruled() -> None:
    with pytest.raises(SinkPipelineError) as caught:
        fold([*encode(SINK, HERE), (SINK.partition_key(A0), b'{"v":2}')])
    assert caught.value.reason is Reason.PROGRESS_VERSION_UNKNOWN


def test_a_copy_is_not_believed() -> None:
    assert find_doubt(SINK, HERE, TOPIC, None) is None
    doubt = find_doubt(SINK, HERE, replace(TOPIC, id="id-p2"), None)
    assert doubt is not None
    assert doubt.reason is Reason.PROGRESS_LOST


def test_progress_that_is_behind_the_status_is_not_believed() -> None:
    memory = remember(frontier({A0: 13, A1: 9}))
    doubt = find_doubt(SINK, HERE, TOPIC, memory)
    assert doubt is not None
    assert doubt.reason is Reason.PROGRESS_REGRESSED
    assert find_doubt(SINK, HERE, TOPIC, remember(HERE)) is None


def test_what_is_wrong_stands_against_the_result_until_a_tombstone() -> None:
    good = (SINK.partition_key(A0), encode_partition(PartitionProgress(epoch=3, next=12)))
    bad = NONSENSE["not JSON"][0]
    with pytest.raises(SinkPipelineError, match="not JSON"):
        fold([bad, good]).result(2)
    with pytest.raises(SinkPipelineError, match="not JSON"):
        fold([(good[0], None), bad, good]).result(3)
    assert fold([bad, (good[0], None), good]).result(3).faults == {}


# Any reset of any sink

PARTITIONS = [SourcePartition(topic, number) for topic in "abc" for number in range(3)]
offsets = st.integers(0, 30)


@st.composite
def topic_sets(draw: st.DrawFn) -> list[SourcePartition]:
    counts = draw(st.fixed_dictionaries({topic: st.integers(0, 3) for topic in "abc"}))
    return [SourcePartition(topic, number) for topic, count in counts.items() for number in range(count)]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Progress, SourceView, Targets]:
    known = {partition: draw(offsets) for partition in draw(topic_sets())}
    bounds = {}
    for partition in draw(topic_sets()):
        first = draw(offsets)
        bounds[partition] = (first, first + draw(offsets))
    recreated = draw(st.sets(st.sampled_from("abc")))
    source = view(bounds, open_records=draw(st.integers(0, 2)))
    source = replace(
        source, topics={topic: f"id-{topic}{'-2' if topic in recreated else ''}" for topic in source.topics}
    )
    places = st.sampled_from([EARLIEST, LATEST])
    targets = Targets(
        everywhere=draw(st.none() | places),
        topics=draw(st.dictionaries(st.sampled_from(sorted(source.topics) or ["a"]), places, max_size=2)),
        partitions=draw(st.dictionaries(st.sampled_from(sorted(bounds) or PARTITIONS), places | offsets, max_size=3)),
    )
    return frontier(known, epoch=draw(st.integers(0, 5))), source, targets


@given(worlds(), st.integers(0, 8), st.booleans())
def test_any_reset(world: tuple[Progress, SourceView, Targets], remembered_epoch: int, doubted: bool) -> None:
    found, source, targets = world
    doubt = DOUBT if doubted else None
    planned = None
    with suppress_usage_invalid():
        planned = plan(found, source, targets, doubt=doubt, remembered_epoch=remembered_epoch)
    if planned is None:
        return
    new = write(planned, found)
    assert found.meta is not None
    assert new.meta is not None

    # It is whole, and of a later epoch than anything before.
    check(new)
    assert new.meta.epoch > max(found.meta.epoch, remembered_epoch)
    assert all(state.rows == state.dead == state.dropped == state.lost == 0 for state in new.partitions.values())
    assert not any(state.by_class for state in new.partitions.values())
    # Every partition of the source is in it, at an offset that the source has.
    assert source.beginnings.keys() <= new.partitions.keys()
    assert all(
        source.beginnings[each] <= new.partitions[each].next <= source.high_watermarks[each]
        for each in source.beginnings
    )
    # What nothing names, and what the source doesn't have, is where it was.
    for move in planned.moves:
        if move.note in (Note.STAYS, Note.NOT_IN_SOURCE):
            assert move.new == move.old == found.partitions[move.partition].next
            assert doubt is None
    # It is believed wherever a read begins, and it is the same when it is planned again with its own numbers.
    log = [*encode(SINK, found), *encode_reset(SINK, found, new)]
    assert fold(log).result(len(log)) == replace(new, end=len(log))
    check_unmoved(planned, found, source, doubt=doubt, remembered_epoch=remembered_epoch)
    assert is_done(planned, new)


@given(st.integers(0, 40), st.integers(0, 40))
def test_what_is_repeated_and_what_is_skipped_is_counted(handled: int, new: int) -> None:
    move = Move(partition=A0, handled=handled, new=new)
    assert (move.again or 0) - (move.skipped or 0) == handled - new
    assert 0 in (move.again, move.skipped)
