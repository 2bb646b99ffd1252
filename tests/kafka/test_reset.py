"""Resets of one sink on a real broker, without Spark."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.ports import Fenced, InDoubt
from sinkpipeline.core.progress import Owner, PartitionProgress
from sinkpipeline.core.progress_records import encode_partition
from sinkpipeline.core.reset import Note, ResetPlan
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.core.topics import Memory
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kinds import ports
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.reset import SinkReset
from sinkpipeline.sinks.starting import StartedSink
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.one_sink import OneSink, deliver, plan_of, remembered, rows
from support.sink.starts import once, refusal

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts")]

EARLIEST, LATEST = StartingOffsets.EARLIEST, StartingOffsets.LATEST

POINTS_OF_STARTING = ("starting-after-control-init", "starting-after-meta")
POINTS_OF_RESETTING = ("reset-before-transaction", "reset-before-commit")


def produce(sink: OneSink, count: int, *, partition: int = 0, start: int = 0) -> None:
    topics.produce_numbers(sink.servers, sink.source, count, partition=partition, start=start)


@pytest.fixture
def delivered(sink: OneSink) -> OneSink:
    """A sink that has delivered three of five records."""
    produce(sink, 5)
    deliver(sink, sink.start(), range(3))
    return sink


def resetting(sink: OneSink, memory: Memory | None = None, **settings: Any) -> SinkReset:
    admin = Admin(sink.connection)
    return SinkReset(ports=ports(sink.settings(**settings), admin, admin), memory=memory, new_run=lambda: "reset")


def plan(sink: OneSink, to: str, memory: Memory | None = None, **settings: Any) -> ResetPlan:
    return resetting(sink, memory, **settings).plan(parse_targets([to]))


def reset(sink: OneSink, to: str, memory: Memory | None = None, **settings: Any) -> None:
    one = resetting(sink, memory, **settings)
    one.carry_out(one.plan(parse_targets([to])))


def crash() -> None:
    raise RuntimeError("crash")


def start_with(sink: OneSink, memory: Memory | None, run: str) -> StartedSink:
    started = sink.starter(run, memory).start()
    started.hold.close()
    return started


# What it does


def test_a_reset_writes_a_new_epoch_as_one_transaction(kafka: LocalKafka) -> None:
    sink = OneSink(kafka.bootstrap_servers, partitions=2)
    produce(sink, 5, partition=1)
    deliver(sink, sink.start(), range(3), partition=1)
    reset(sink, f"{sink.source}:1=1")

    truth = sink.truth()
    assert truth["meta"] == {
        "v": 1,
        "epoch": 1,
        "run": "reset",
        "owner": {"cluster": "file", "name": sink.name},
        "partitions": {sink.source: 2},
        "source": {sink.source: topics.topic_id(sink.servers, sink.source)},
        "data": None,
        "former": [topics.topic_id(sink.servers, sink.data)],
        "progress": topics.topic_id(sink.servers, sink.progress),
        "created": topics.topic_id(sink.servers, sink.data),
    }
    zero = {"v": 1, "epoch": 1, "rows": 0, "dead": 0, "dropped": 0, "lost": 0}
    for number, offset in ((0, 0), (1, 1)):
        written = truth[f"p/{sink.source}/{number}"]
        assert written.pop("at") > 0
        assert written == {**zero, "next": offset}
    records = topics.read_committed(sink.servers, sink.progress)[-3:]
    assert [(record.key or b"").decode().removeprefix(sink.id.prefix) for record in records] == [
        f"p/{sink.source}/0",
        f"p/{sink.source}/1",
        "meta",
    ]
    last = records[-1].offset
    assert [record.offset for record in records] == [last - 2, last - 1, last], "no commit marker stands between them"


@pytest.mark.parametrize("exactly_once", [True, False], ids=["ExactlyOnce", "AtLeastOnce"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_what_was_delivered_is_delivered_again_and_no_more(delivered: OneSink, exactly_once: bool) -> None:
    sink = delivered
    reset(sink, "earliest", exactly_once=exactly_once)
    started = sink.start("run-2", exactly_once=exactly_once)
    assert started.progress.rows == 0
    deliver(sink, started, range(5))
    assert sorted(sink.delivered()) == sorted(["0", "1", "2", "0", "1", "2", "3", "4"])
    again = sink.start("run-3").progress
    assert again.meta is not None
    assert (again.meta.epoch, again.partitions[sink.at()].rows, again.partitions[sink.at()].epoch) == (1, 5, 1)


def test_what_is_skipped_is_not_counted_as_lost(delivered: OneSink) -> None:
    sink = delivered
    shown = plan(sink, "latest")
    assert [(move.old, move.new, move.again, move.skipped) for move in shown.moves] == [(3, 5, 0, 2)]
    reset(sink, "latest")
    state = sink.start("run-2").progress.partitions[sink.at()]
    assert (state.next, state.lost) == (5, 0)


def test_latest_is_before_what_is_not_committed(delivered: OneSink) -> None:
    sink = delivered
    with topics.open_transaction(sink.servers, topics.unique("foreign"), [(sink.source, b"k", b"v")]):
        reset(sink, "latest")
        assert sink.frontier() == {0: 5}
        reset(sink, "latest", source={"read_committed": False})
        assert sink.frontier() == {0: 6}


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_a_reset_may_be_reset(delivered: OneSink) -> None:
    sink = delivered
    reset(sink, "earliest")
    reset(sink, "latest")
    assert (sink.truth()["meta"]["epoch"], sink.frontier()) == (2, {0: 5})


def test_to_show_a_reset_changes_nothing(delivered: OneSink) -> None:
    sink = delivered
    before = sink.truth()
    shown = plan(sink, "earliest")
    assert (shown.old_epoch, shown.epoch, shown.doubt) == (0, 1, None)
    assert sink.truth() == before


def test_partitions_and_topics_that_came_and_went(sink: OneSink) -> None:
    """Of a pattern: one topic is no longer in the source, one is new, and one has a new partition."""
    gone, new = f"{sink.name}-gone-source", f"{sink.name}-new-source"
    pattern = {"topics": (), "pattern": rf"{sink.name}-.*source"}
    topics.create_topic(sink.servers, gone)
    topics.produce_numbers(sink.servers, gone, 2)
    sink.start(source={**pattern, "starting_offsets": LATEST})
    topics.delete_topic(sink.servers, gone)
    topics.create_topic(sink.servers, new)
    topics.produce_numbers(sink.servers, new, 3)
    topics.add_partitions(sink.servers, sink.source, 2)
    produce(sink, 4, partition=1)
    produce(sink, 1)

    assert [(str(move.partition), move.new, move.note) for move in plan(sink, "earliest", source=pattern).moves] == [
        (f"{gone}-0", 2, Note.NOT_IN_SOURCE),
        (f"{new}-0", 0, Note.NEW),
        (f"{sink.source}-0", 0, Note.NONE),
        (f"{sink.source}-1", 0, Note.NEW),
    ]
    reset(sink, f"{sink.source}:0=latest", source=pattern)
    truth = sink.truth()
    assert {key: value["next"] for key, value in truth.items() if key != "meta"} == {
        f"p/{gone}/0": 2,
        f"p/{new}/0": 0,
        f"p/{sink.source}/0": 1,
        f"p/{sink.source}/1": 0,
    }
    assert truth["meta"]["partitions"] == {gone: 1, new: 1, sink.source: 2}
    sink.start("run-2", source=pattern)


def test_other_sinks_of_the_progress_topic_are_not_touched(delivered: OneSink) -> None:
    sink = delivered
    other = OneSink(sink.servers)
    shared = replace(other.settings().progress, name=sink.progress)
    other.start("other-run", progress=shared)
    before = topics.progress_truth(sink.servers, sink.progress)
    reset(sink, "earliest")
    after = topics.progress_truth(sink.servers, sink.progress)
    assert {key: value for key, value in after.items() if key.startswith(other.id.prefix)} == {
        key: value for key, value in before.items() if key.startswith(other.id.prefix)
    }
    assert after[sink.id.meta_key]["epoch"] == 1


# What it refuses


def test_without_progress_there_is_nothing_to_reset(sink: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal(lambda: plan(sink, "earliest"), Reason.NOTHING_TO_RESET)
    assert topics.topic_id(sink.servers, sink.progress) is None, "nothing is created"
    once("starting-after-meta", crash, monkeypatch)
    with pytest.raises(RuntimeError, match="crash"):
        sink.start()
    refusal(lambda: plan(sink, "earliest"), Reason.NOTHING_TO_RESET)


def test_another_owners_sink_is_refused_and_not_disturbed(sink: OneSink) -> None:
    started = sink.starter().start()
    with closing(started.hold):
        refusal(lambda: plan(sink, "earliest", owner=Owner(cluster="c", name="other")), Reason.IDENTITY_IN_USE)
        started.hold.control.write(sink.progress, [])


def test_an_invalid_progress_topic_is_refused(sink: OneSink) -> None:
    topics.create_topic(sink.servers, sink.progress, config={"cleanup.policy": "delete"})
    refusal(lambda: plan(sink, "earliest"), Reason.PROGRESS_TOPIC_INVALID)


@pytest.mark.parametrize("to", ["{source}:0=6", "{source}:1=0", "nowhere=latest"])
def test_what_the_source_does_not_have_is_refused(delivered: OneSink, to: str) -> None:
    refusal(lambda: plan(delivered, to.format(source=delivered.source)), Reason.USAGE_INVALID)


# Against whoever runs


def test_a_driver_that_runs_is_superseded(delivered: OneSink) -> None:
    sink = delivered
    older = sink.starter("run-2")
    started = older.start()
    late = ExactlyOnceWriter(plan_of(sink, started, 5), sink.at(), Worker())
    late.write(rows(range(3, 5)))
    reset(sink, "earliest")

    with closing(started.hold), pytest.raises(Fenced):
        started.hold.control.write(sink.progress, [(sink.id.meta_key, b"{}")])
    refusal(older.start, Reason.SUPERSEDED)
    refusal(late.finish, Reason.SUPERSEDED)
    refusal(lambda: ExactlyOnceWriter(plan_of(sink, started, 5), sink.at(), Worker()), Reason.SUPERSEDED)
    assert sink.delivered() == ["0", "1", "2"]
    assert sink.frontier() == {0: 0}


def test_a_frontier_that_moved_is_not_reset_but_stands_still_from_then_on(delivered: OneSink) -> None:
    sink = delivered
    older = sink.starter("run-2")
    started = older.start()
    started.hold.close()
    one = resetting(sink)
    shown = one.plan(parse_targets(["earliest"]))
    deliver(sink, started, range(3, 4))

    error = refusal(lambda: one.carry_out(shown), Reason.FRONTIER_MOVED)
    assert "was at 3, is at 4" in error.message
    assert (sink.truth()["meta"]["epoch"], sink.frontier()) == (0, {0: 4})
    refusal(older.start, Reason.SUPERSEDED)
    reset(sink, "earliest")
    assert sink.frontier() == {0: 0}


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_what_a_late_task_commits_before_it_is_fenced_is_seen(
    delivered: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = delivered
    late = ExactlyOnceWriter(plan_of(sink, sink.start("run-2"), 5), sink.at(), Worker())
    late.write(rows(range(3, 5)))
    once("starting-after-meta", late.finish, monkeypatch)
    refusal(lambda: reset(sink, "earliest"), Reason.FRONTIER_MOVED)
    assert sink.frontier() == {0: 5}


@pytest.mark.parametrize("point", [*POINTS_OF_STARTING, *POINTS_OF_RESETTING])
@pytest.mark.thorough("each point of one case", after=1)
def test_a_newer_driver_goes_first(delivered: OneSink, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = delivered
    once(point, lambda: sink.start("newer"), monkeypatch)
    refusal(lambda: reset(sink, "earliest"), Reason.SUPERSEDED)
    assert (sink.truth()["meta"]["run"], sink.truth()["meta"]["epoch"], sink.frontier()) == ("newer", 0, {0: 3})


@pytest.mark.parametrize("point", [*POINTS_OF_STARTING, *POINTS_OF_RESETTING])
@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_a_reset_that_is_fenced_by_nobody_newer_is_tried_again(
    delivered: OneSink, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = delivered
    once(point, lambda: TransactionalProducer(sink.connection, sink.id.control_id).close(), monkeypatch)
    reset(sink, "earliest")
    assert (sink.truth()["meta"]["epoch"], sink.frontier()) == (1, {0: 0})


@pytest.mark.parametrize("point", ["reset-before-commit", "reset-after-commit"], ids=["aborted", "committed"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_reset_whose_answer_was_lost_is_done_once(
    delivered: OneSink, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = delivered

    def lose_the_answer() -> None:
        raise InDoubt("no answer")

    once(point, lose_the_answer, monkeypatch)
    reset(sink, "earliest")
    assert (sink.truth()["meta"]["epoch"], sink.frontier()) == (1, {0: 0})


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_a_driver_that_goes_on_from_a_reset_in_doubt_is_left_alone(
    delivered: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = delivered

    def lose_the_answer() -> None:
        deliver(sink, sink.start("newer"), range(1))
        raise InDoubt("no answer")

    once("reset-after-commit", lose_the_answer, monkeypatch)
    error = refusal(lambda: reset(sink, "earliest"), Reason.SUPERSEDED)
    assert "whether it was reset" in error.remedy
    assert (sink.truth()["meta"]["run"], sink.truth()["meta"]["epoch"], sink.frontier()) == ("newer", 1, {0: 1})


def test_two_resets_that_were_shown_the_same_are_one(delivered: OneSink) -> None:
    sink = delivered
    first, second = resetting(sink), resetting(sink)
    plans = [each.plan(parse_targets(["earliest"])) for each in (first, second)]
    first.carry_out(plans[0])
    second.carry_out(plans[1])
    assert sink.truth()["meta"]["epoch"] == 1


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_of_two_resets_to_different_offsets_the_later_is_refused(delivered: OneSink) -> None:
    sink = delivered
    first, second = resetting(sink), resetting(sink)
    plans = [each.plan(parse_targets([to])) for each, to in ((first, "earliest"), (second, "latest"))]
    first.carry_out(plans[0])
    refusal(lambda: second.carry_out(plans[1]), Reason.FRONTIER_MOVED)
    assert sink.frontier() == {0: 0}


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_a_reset_ends_what_a_dead_task_left_open(delivered: OneSink) -> None:
    sink = delivered
    record = encode_partition(PartitionProgress(epoch=0, next=5))
    left_open = [(sink.data, b"3", b"3"), (sink.progress, sink.id.partition_key(sink.at()).encode(), record)]
    one = resetting(sink)
    shown = one.plan(parse_targets(["earliest"]))
    with topics.open_transaction(sink.servers, sink.id.partition_id(sink.at()), left_open):
        one.carry_out(shown)
    assert sink.frontier() == {0: 0}
    assert sink.delivered() == ["0", "1", "2"]


def test_progress_that_vanishes_after_it_was_shown(delivered: OneSink) -> None:
    sink = delivered
    one = resetting(sink)
    shown = one.plan(parse_targets(["earliest"]))
    topics.delete_topic(sink.servers, sink.progress)
    refusal(lambda: one.carry_out(shown), Reason.NOTHING_TO_RESET)
    assert topics.topic_id(sink.servers, sink.progress) is None
    topics.create_topic(sink.servers, sink.progress, config=topics.COMPACTED)
    refusal(lambda: one.carry_out(shown), Reason.NOTHING_TO_RESET)


@pytest.mark.parametrize("change", ["re-created", "retention", "a new partition"])
@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_a_source_that_changes_after_it_was_shown(delivered: OneSink, change: str) -> None:
    sink = delivered
    one = resetting(sink)
    shown = one.plan(parse_targets(["earliest"]))
    if change == "re-created":
        topics.recreate_topic(sink.servers, sink.source)
    elif change == "retention":
        topics.delete_records(sink.servers, sink.source, 1)
    else:
        topics.add_partitions(sink.servers, sink.source, 2)
    refusal(lambda: one.carry_out(shown), Reason.FRONTIER_MOVED)
    assert sink.frontier() == {0: 3}


# What it repairs


@pytest.mark.parametrize("again", [False, True], ids=["missing", "re-created"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_lost_data_topic(delivered: OneSink, again: bool) -> None:
    sink = delivered
    topics.delete_topic(sink.servers, sink.data)
    if again:
        topics.create_topic(sink.servers, sink.data)
    error = refusal(lambda: sink.start("run-2"), Reason.DATA_TOPIC_LOST)
    assert "sinkpipeline reset" in error.remedy
    reset(sink, "earliest")
    assert (topics.topic_id(sink.servers, sink.data) is None) == (not again), "the next start creates it"
    deliver(sink, sink.start("run-3"), range(5))
    assert sink.delivered() == ["0", "1", "2", "3", "4"]
    assert sink.truth()["meta"]["data"] == topics.topic_id(sink.servers, sink.data)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_recreated_source(kafka: LocalKafka, partitions: int) -> None:
    sink = OneSink(kafka.bootstrap_servers, partitions=2)
    produce(sink, 5)
    deliver(sink, sink.start(), range(3))
    topics.recreate_topic(sink.servers, sink.source, partitions=partitions)
    produce(sink, 4)
    error = refusal(lambda: sink.start("run-2"), Reason.SOURCE_RECREATED)
    assert "sinkpipeline reset" in error.remedy
    if partitions > 1:
        refusal(lambda: plan(sink, f"{sink.source}:0=1"), Reason.USAGE_INVALID)
    reset(sink, f"{sink.source}=earliest,{sink.source}:0=1")
    started = sink.start("run-3")
    assert started.progress.partitions.keys() == {sink.at(number) for number in range(partitions)}
    deliver(sink, started, range(1, 4))
    assert sink.delivered() == ["0", "1", "2", "1", "2", "3"]


@pytest.mark.parametrize("side", ["beginning", "end"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_source_that_lost_data(delivered: OneSink, side: str) -> None:
    sink = delivered
    if side == "beginning":
        topics.delete_records(sink.servers, sink.source, 4)
    else:
        # The same topic that ends before the frontier: as an unclean election leaves it, seen from here.
        key = sink.id.partition_key(sink.at())
        record = encode_partition(PartitionProgress(epoch=0, next=9, rows=9))
        topics.produce(sink.servers, sink.progress, [(key.encode(), record)])
    refusal(lambda: sink.start("run-2"), Reason.SOURCE_DATA_LOST)
    reset(sink, "earliest")
    assert sink.start("run-3").progress.partitions[sink.at()].next == (4 if side == "beginning" else 0)


NONSENSE: dict[str, tuple[dict[str, bytes | None], Reason]] = {
    "not JSON": ({"p/{source}/0": b"{"}, Reason.PROGRESS_CORRUPT),
    "p/ removed": ({"p/{source}/0": None}, Reason.PROGRESS_CORRUPT),
    "p/ beyond meta": (
        {"p/{source}/1": encode_partition(PartitionProgress(epoch=0, next=0))},
        Reason.PROGRESS_CORRUPT,
    ),
    "another epoch": ({"p/{source}/0": encode_partition(PartitionProgress(epoch=7, next=0))}, Reason.PROGRESS_CORRUPT),
    "back within the epoch": (
        {"p/{source}/0": encode_partition(PartitionProgress(epoch=0, next=1))},
        Reason.PROGRESS_REGRESSED,
    ),
}


def write_nonsense(sink: OneSink, records: dict[str, bytes | None]) -> None:
    pairs = [((sink.id.prefix + key.format(source=sink.source)).encode(), value) for key, value in records.items()]
    topics.produce(sink.servers, sink.progress, pairs)


@pytest.mark.parametrize("name", NONSENSE)
@pytest.mark.thorough("each variant of one case", after=2)
def test_progress_that_is_not_believed(delivered: OneSink, name: str) -> None:
    sink = delivered
    records, reason = NONSENSE[name]
    write_nonsense(sink, records)
    error = refusal(lambda: sink.start("run-2"), reason)
    assert "sinkpipeline reset" in error.remedy
    shown = plan(sink, "earliest")
    assert shown.doubt is not None
    assert shown.doubt.reason is reason
    reset(sink, "earliest")
    # The nonsense still stands in the log; the next starts believe what the reset wrote after it.
    deliver(sink, sink.start("run-3"), range(5))
    state = sink.start("run-4").progress.partitions
    assert state == {sink.at(): replace(state[sink.at()], epoch=8 if name == "another epoch" else 1, next=5, rows=5)}
    assert len(sink.delivered()) == 8


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ({"meta": b"{"}, Reason.PROGRESS_CORRUPT),
        ({"meta": None}, Reason.PROGRESS_CORRUPT),
        ({"x/{source}/0": b"{}"}, Reason.PROGRESS_CORRUPT),
        ({"p/{source}/0": b'{"v":2}'}, Reason.PROGRESS_VERSION_UNKNOWN),
    ],
    ids=["meta is nonsense", "meta removed", "a key that nobody knows", "another version"],
)
@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_progress_of_nobody_knows_whom_is_left_alone(
    delivered: OneSink, records: dict[str, bytes | None], reason: Reason
) -> None:
    sink = delivered
    write_nonsense(sink, records)
    refusal(lambda: plan(sink, "earliest"), reason)


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_a_copied_progress_topic(delivered: OneSink) -> None:
    sink = delivered
    copied = [(record.key, record.value) for record in topics.read_committed(sink.servers, sink.progress)]
    topics.recreate_topic(sink.servers, sink.progress, config=topics.COMPACTED)
    topics.produce(sink.servers, sink.progress, copied)
    refusal(lambda: sink.start("run-2"), Reason.PROGRESS_LOST)
    reset(sink, "earliest")
    sink.start("run-3")
    assert sink.truth()["meta"]["progress"] == topics.topic_id(sink.servers, sink.progress)


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_a_status_that_is_ahead(delivered: OneSink) -> None:
    sink = delivered
    memory = remembered(sink.start("run-2"))
    ahead = {partition: replace(state, next=state.next + 1) for partition, state in memory.partitions.items()}
    memory = replace(memory, partitions=ahead)
    refusal(lambda: start_with(sink, memory, "run-3"), Reason.PROGRESS_REGRESSED)
    doubt = plan(sink, "earliest", memory).doubt
    assert doubt is not None
    assert doubt.reason is Reason.PROGRESS_REGRESSED
    reset(sink, "earliest", memory)
    start_with(sink, memory, "run-4")
    assert sink.frontier() == {0: 0}


@pytest.fixture
def lost(delivered: OneSink) -> tuple[OneSink, Memory]:
    """Its progress topic is deleted, and its source another one; its status was of epoch 2."""
    sink = delivered
    reset(sink, f"{sink.source}:0=3")
    reset(sink, f"{sink.source}:0=3")
    memory = remembered(sink.start("run-2"))
    topics.delete_topic(sink.servers, sink.progress)
    topics.recreate_topic(sink.servers, sink.source)
    produce(sink, 4)
    return sink, memory


def test_lost_progress_is_reset_by_what_a_status_remembers(lost: tuple[OneSink, Memory]) -> None:
    sink, memory = lost
    error = refusal(lambda: start_with(sink, memory, "run-3"), Reason.PROGRESS_LOST)
    assert "sinkpipeline reset" in error.remedy
    refusal(lambda: plan(sink, "earliest"), Reason.NOTHING_TO_RESET)
    reset(sink, "earliest", memory)
    assert sink.truth()["meta"]["epoch"] == 3, "above what is remembered"
    started = start_with(sink, memory, "run-4")
    assert (started.may_duplicate, started.progress.partitions[sink.at()].next) == (None, 0)
    deliver(sink, started, range(4))
    assert sink.delivered() == ["0", "1", "2", "0", "1", "2", "3"]


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_lost_progress_and_lost_data(delivered: OneSink) -> None:
    sink = delivered
    memory = remembered(sink.start("run-2"))
    topics.delete_topic(sink.servers, sink.progress)
    topics.delete_topic(sink.servers, sink.data)
    refusal(lambda: start_with(sink, memory, "run-3"), Reason.DATA_TOPIC_LOST)
    reset(sink, "earliest", memory)
    deliver(sink, start_with(sink, memory, "run-4"), range(5))
    assert sink.delivered() == ["0", "1", "2", "3", "4"]


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_what_tasks_wrote_into_a_recreated_progress_topic(delivered: OneSink) -> None:
    """The driver died before it noticed: there is progress, and nothing tells whose but the status."""
    sink = delivered
    memory = remembered(sink.start("run-2"))
    topics.recreate_topic(sink.servers, sink.progress, config=topics.COMPACTED)
    write_nonsense(sink, {"p/{source}/0": encode_partition(PartitionProgress(epoch=0, next=4, rows=4))})
    refusal(lambda: start_with(sink, memory, "run-3"), Reason.PROGRESS_CORRUPT)
    refusal(lambda: plan(sink, "earliest"), Reason.PROGRESS_CORRUPT)
    reset(sink, "earliest", memory)
    assert start_with(sink, memory, "run-4").progress.partitions[sink.at()].next == 0
    assert sink.truth()["meta"]["epoch"] == 1


@pytest.mark.thorough("two faults at once: each alone is in make test")
def test_a_crash_before_lost_progress_is_written_leaves_it_lost(
    lost: tuple[OneSink, Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, memory = lost
    once("reset-before-commit", crash, monkeypatch)
    with pytest.raises(RuntimeError, match="crash"):
        reset(sink, "earliest", memory)
    refusal(lambda: start_with(sink, memory, "run-3"), Reason.PROGRESS_LOST)
    reset(sink, "earliest", memory)
    start_with(sink, memory, "run-4")
    assert (sink.truth()["meta"]["epoch"], sink.frontier()) == (3, {0: 0})


def test_a_status_of_before_the_reset_is_not_gone_on_from(delivered: OneSink) -> None:
    sink = delivered
    memory = remembered(sink.start("run-2"))
    assert memory.rows == 3
    reset(sink, "earliest")
    started = start_with(sink, memory, "run-3")
    assert (started.may_duplicate, started.progress.rows) == (None, 0)
    assert sink.frontier() == {0: 0}
