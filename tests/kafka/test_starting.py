"""Starts of one sink on a real broker, without Spark."""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.naming import SENTINEL_KEY, SinkId, SourcePartition
from sinkpipeline.core.ports import Fenced
from sinkpipeline.core.progress import Owner, PartitionProgress
from sinkpipeline.core.progress_records import encode_partition, encode_sentinel, writer_header
from sinkpipeline.core.topics import Memory, TopicRequest, recall
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.purify import purify
from sinkpipeline.kinds import ports
from sinkpipeline.sinks import failpoints
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.starting import SinkStarter, StartedSink
from sinkpipeline.sinks.worker import Worker
from sinkpipeline.spark.task import run_task
from support.kafka import topics
from support.sink.one_sink import OneSink, deliver, plan_of, remembered, rows
from support.sink.starts import once, refusal

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts")]

EARLIEST, LATEST = StartingOffsets.EARLIEST, StartingOffsets.LATEST


def produce(sink: OneSink, count: int, *, partition: int = 0, start: int = 0) -> None:
    topics.produce_numbers(sink.servers, sink.source, count, partition=partition, start=start)


def start_with(sink: OneSink, memory: Memory | None, run: str = "run-2", *, exact: bool = False) -> StartedSink:
    starter = sink.starter(run, memory)
    if exact and memory is not None:
        hold = starter.ports.ledger.hold(source_topics=1)
        hold.read_no_more()
        starter.remembered.left(recall(memory, starter.settings.owner), hold, certain=True)
    started = starter.start()
    started.hold.close()
    return started


def test_one_copy_alone_is_at_risk(sink: OneSink) -> None:
    starter = sink.starter("run-1")
    assert starter.target.durability() is None, "of what is not there"
    starter.start().hold.close()
    assert starter.target.durability() is Durability.AT_RISK
    assert sink.starter("run-2", exactly_once=False).target.durability() is None, "nothing depends on it"


# First starts


def test_first_start_creates_the_topics_and_writes_the_whole_frontier_as_one_transaction(kafka: LocalKafka) -> None:
    sink = OneSink(kafka.bootstrap_servers, partitions=2)
    produce(sink, 3, partition=1)
    started = sink.start(data=TopicRequest(name=sink.data, partitions=3))

    head = sink.id.prefix
    records = topics.read_committed(sink.servers, sink.progress)
    keys = [(record.key or b"").decode().removeprefix(head) for record in records]
    sentinel = SENTINEL_KEY
    assert keys == [
        sentinel,
        sentinel,
        "meta",
        sentinel,
        f"p/{sink.source}/0",
        f"p/{sink.source}/1",
        "meta",
    ]
    assert records[2].document["partitions"] is None
    offsets = [record.offset for record in records[3:]]
    marker = offsets[0] + 1
    assert offsets[1:] == [marker + 1, marker + 2, marker + 3], "no commit marker stands between the frontier's records"
    assert topics.offsets(sink.servers, sink.progress)[1] == offsets[-1] + 2

    truth = sink.truth()
    assert truth["meta"] == {
        "v": 1,
        "epoch": 0,
        "run": "run-1",
        "owner": {"cluster": "file", "name": sink.name},
        "partitions": {sink.source: 2},
        "source": {sink.source: topics.topic_id(sink.servers, sink.source)},
        "data": topics.topic_id(sink.servers, sink.data),
        "progress": topics.topic_id(sink.servers, sink.progress),
        "created": topics.topic_id(sink.servers, sink.data),
    }
    assert sink.frontier() == {0: 0, 1: 0}
    assert topics.partition_count(sink.servers, sink.data) == 3
    assert (started.may_duplicate, started.recreated_progress_topic, started.drift) == (None, False, ())


@pytest.mark.parametrize(("offsets", "frontier"), [(EARLIEST, {0: 2, 1: 0}), (LATEST, {0: 5, 1: 0})])
def test_first_start_resolves_starting_offsets(
    kafka: LocalKafka, offsets: StartingOffsets, frontier: dict[int, int]
) -> None:
    sink = OneSink(kafka.bootstrap_servers, partitions=2)
    produce(sink, 5)
    topics.delete_records(sink.servers, sink.source, 2)
    started = sink.start(source={"starting_offsets": offsets})
    assert sink.frontier() == frontier
    assert {partition.partition: state.next for partition, state in started.progress.partitions.items()} == frontier


def test_latest_is_before_what_is_not_committed(sink: OneSink) -> None:
    produce(sink, 2)
    with topics.open_transaction(sink.servers, topics.unique("foreign"), [(sink.source, b"k", b"v")]):
        sink.start(source={"starting_offsets": LATEST})
    assert sink.frontier() == {0: 2}


def test_existing_data_can_be_refused(sink: OneSink) -> None:
    topics.create_topic(sink.servers, sink.data)
    topics.produce(sink.servers, sink.data, [b"of another pipeline"])
    refusal(lambda: sink.start(refuse_existing_data=True), Reason.DATA_TOPIC_NOT_EMPTY)
    assert topics.topic_id(sink.servers, sink.progress) is None
    sink.start()


def test_missing_source_is_refused_before_anything_is_created(sink: OneSink) -> None:
    refusal(lambda: sink.start(source={"topics": (sink.source, "nowhere")}), Reason.SOURCE_TOPIC_MISSING)
    assert topics.topic_id(sink.servers, sink.progress) is None
    assert topics.topic_id(sink.servers, sink.data) is None


def test_a_topic_of_kafka_s_own_is_no_source(sink: OneSink) -> None:
    """Spark reads none, and would only say that there are no partitions."""
    refusal(lambda: sink.start(source={"topics": ("__consumer_offsets",)}), Reason.MANIFEST_INVALID)


@pytest.mark.parametrize(("partitions", "policy"), [(2, "compact"), (1, "delete"), (1, "compact,delete")], ids=str)
def test_invalid_progress_topic_is_refused_and_left_alone(sink: OneSink, partitions: int, policy: str) -> None:
    topics.create_topic(sink.servers, sink.progress, partitions=partitions, config={"cleanup.policy": policy})
    refusal(sink.start, Reason.PROGRESS_TOPIC_INVALID)
    assert topics.topic_id(sink.servers, sink.data) is None
    assert topics.read_uncommitted(sink.servers, sink.progress) == [], "it may be somebody's topic of records"


def test_a_cluster_that_lets_nobody_set_a_part_of_the_configuration_gets_the_topic_without_it(sink: OneSink) -> None:
    wanted = TopicRequest(name=sink.progress, partitions=1, config={"cleanup.policy": "compact"})
    refused = replace(wanted, wishes={"segment.bytes": "no number"})
    admin = Admin(sink.settings().connection)
    admin.check_creation(refused)
    assert topics.topic_id(sink.servers, sink.progress) is None
    assert admin.create_topic(refused).is_ours
    assert admin.topic_config(sink.progress)["cleanup.policy"] == "compact"
    required = replace(wanted, name=sink.data, config=refused.wishes)
    refusal(lambda: admin.create_topic(required), Reason.TOPIC_CREATION_FAILED)


def test_the_progress_topic_has_small_segments_where_that_may_be_set(sink: OneSink) -> None:
    sink.start()
    config = Admin(sink.settings().connection).topic_config(sink.progress)
    assert (config["segment.bytes"], config["min.cleanable.dirty.ratio"]) == (str(64 * 1024 * 1024), "0.1")
    assert config["message.timestamp.type"] == "LogAppendTime", "a clock that is wrong stops no sink"


def test_a_data_topic_that_deletes_old_rows_at_once_is_told_before_the_first_start(sink: OneSink) -> None:
    now = int(time.time() * 1000)
    records = [(b"old", None, (), now - 8 * 24 * 3_600_000), (b"new", None, (), now)]
    topics.produce_whole(sink.servers, sink.source, records)
    [finding] = purify([sink.settings()])
    [told] = finding.warnings
    assert f"topic {sink.data} deletes rows soon after they were written: it keeps a row for 168 h" in told
    assert f"before offset 1 of topic {sink.source}, partition 0, are older" in told
    for remedy in ({"retention.ms": "-1"}, {"message.timestamp.type": "LogAppendTime"}):
        [finding] = purify([sink.settings(data=TopicRequest(name=sink.data, config=remedy))])
        assert finding.warnings == ()
    [finding] = purify([sink.settings(source={"starting_offsets": LATEST})])
    assert finding.warnings == ()


# Later starts


def test_what_a_new_partition_has_lost_before_it_was_seen_is_lost(sink: OneSink) -> None:
    produce(sink, 2)
    deliver(sink, sink.start(), range(2))
    topics.add_partitions(sink.servers, sink.source, 2)
    topics.produce(sink.servers, sink.source, [b"x"] * 5, partition=1)
    topics.delete_records(sink.servers, sink.source, 3, partition=1)
    error = refusal(lambda: sink.start("run-2"), Reason.SOURCE_DATA_LOST)
    assert f"{sink.source}-1 begins at offset 3, after the frontier 0" in error.message
    started = sink.start("run-3", source={"skip_lost": True})
    state = started.progress.partitions[SourcePartition(sink.source, 1)]
    assert (state.next, state.lost) == (3, 3)


def test_resume_goes_on_where_the_last_run_ended(sink: OneSink) -> None:
    produce(sink, 5)
    deliver(sink, sink.start(), range(3))
    started = sink.start("run-2")
    state = started.progress.partitions[sink.at()]
    assert (state.next, state.rows, state.lost) == (3, 3, 0)
    assert sink.truth()["meta"]["run"] == "run-2"
    assert sink.frontier() == {0: 3}
    deliver(sink, started, range(3, 5))
    assert sink.delivered() == ["0", "1", "2", "3", "4"]


def test_every_start_leaves_a_snapshot_at_the_end_of_the_log(kafka: LocalKafka) -> None:
    sink = OneSink(kafka.bootstrap_servers, partitions=2)
    sink.start()
    sink.start("run-2")
    last = [key.removeprefix(sink.id.prefix) for key, _ in topics.progress_records(sink.servers, sink.progress)[-3:]]
    assert last == [f"p/{sink.source}/0", f"p/{sink.source}/1", "meta"]


def test_new_partition_of_a_known_topic_begins_at_its_beginning(sink: OneSink) -> None:
    sink.start(source={"starting_offsets": LATEST})
    topics.add_partitions(sink.servers, sink.source, 2)
    produce(sink, 4, partition=1)
    sink.start("run-2", source={"starting_offsets": LATEST})
    assert sink.frontier() == {0: 0, 1: 0}
    assert sink.truth()["meta"]["partitions"] == {sink.source: 2}


@pytest.mark.parametrize(("offsets", "next_"), [(EARLIEST, 0), (LATEST, 3)])
@pytest.mark.thorough("each variant of one case", after=1)
def test_newly_listed_topic_begins_at_starting_offsets(sink: OneSink, offsets: StartingOffsets, next_: int) -> None:
    sink.start(source={"starting_offsets": offsets})
    other = OneSink(sink.servers)
    produce(other, 3)
    sink.start("run-2", source={"topics": (sink.source, other.source), "starting_offsets": offsets})
    assert sink.truth()[f"p/{other.source}/0"]["next"] == next_
    assert sink.truth()["meta"]["partitions"] == {sink.source: 1, other.source: 1}
    assert sink.truth()["meta"]["source"].keys() == {sink.source, other.source}


def test_topic_that_the_pattern_discovers_begins_at_its_beginning(sink: OneSink) -> None:
    pattern = {"topics": (), "pattern": rf"{sink.name}-.*source", "starting_offsets": LATEST}
    produce(sink, 2)
    sink.start(source=pattern)
    assert sink.frontier() == {0: 2}
    discovered = f"{sink.name}-second-source"
    topics.create_topic(sink.servers, discovered)
    topics.produce_numbers(sink.servers, discovered, 3)
    sink.start("run-2", source=pattern)
    assert sink.truth()[f"p/{discovered}/0"]["next"] == 0


def test_drift_of_the_data_topic_is_reported_and_not_altered(sink: OneSink) -> None:
    sink.start()
    drifted = TopicRequest(name=sink.data, partitions=6, config={"retention.ms": "1000"})
    started = sink.start("run-2", data=drifted)
    assert len(started.drift) == 2
    assert topics.partition_count(sink.servers, sink.data) == 1


def test_the_limit_of_the_data_topic_is_handed_on(sink: OneSink) -> None:
    topics.create_topic(sink.servers, sink.data, config={"max.message.bytes": "12345"})
    assert sink.start().data_limits.message_bytes == 12345


# Who may start


def test_identity_of_another_owner_is_refused_and_left_alone(sink: OneSink) -> None:
    sink.start()
    error = refusal(
        lambda: sink.start("run-2", owner=Owner(cluster="c-2", name="other/pipeline")), Reason.IDENTITY_IN_USE
    )
    assert sink.name in error.message
    assert sink.truth()["meta"]["run"] == "run-1"


def test_older_driver_is_superseded_and_writes_nothing_more(sink: OneSink) -> None:
    older = sink.starter("run-1")
    started = older.start()
    sink.start("run-2")
    with closing(started.hold), pytest.raises(Fenced):
        started.hold.control.write(sink.progress, [(sink.id.meta_key, b"{}")])
    error = refusal(older.start, Reason.SUPERSEDED)
    assert "run-2" in error.message
    assert sink.truth()["meta"]["run"] == "run-2"


def test_a_driver_starts_its_own_sink_again(sink: OneSink) -> None:
    starter = sink.starter()
    starter.start().hold.close()
    starter.start().hold.close()
    assert sink.truth()["meta"]["run"] == "run-1"


@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.thorough("the same race again", after=1)
def test_two_starters_at_once_end_in_order(sink: OneSink, attempt: int) -> None:
    runs = [f"{attempt}-one", f"{attempt}-two"]

    def outcome(run: str) -> str:
        try:
            sink.start(run)
        except SinkPipelineError as error:
            return error.reason.value
        return "started"

    with ThreadPoolExecutor(2) as pool:
        outcomes = dict(zip(runs, pool.map(outcome, runs), strict=True))
    winner = sink.truth()["meta"]["run"]
    assert outcomes[winner] == "started"
    assert set(outcomes.values()) <= {"started", "Superseded"}
    assert sink.frontier() == {0: 0}


@pytest.mark.parametrize("point", ["starting-after-control-init", "starting-after-meta", "starting-before-first-start"])
@pytest.mark.thorough("each point of one case", after=1)
def test_starter_that_meets_a_newer_driver_is_superseded(
    sink: OneSink, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.start("old")
    once(point, lambda: sink.start("newer"), monkeypatch)
    error = refusal(lambda: sink.start("mine"), Reason.SUPERSEDED)
    assert "newer" in error.message
    assert sink.truth()["meta"]["run"] == "newer"


@pytest.mark.parametrize("point", ["starting-after-control-init", "starting-after-meta", "starting-before-first-start"])
@pytest.mark.parametrize("started_before", [False, True], ids=["first start", "later start"])
@pytest.mark.thorough("each point of one case", after=1)
def test_starter_that_is_fenced_by_nobody_newer_starts_again(
    sink: OneSink, point: str, started_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older driver that fights back, or one that dies before its meta: its run is the one that was there."""
    if started_before:
        sink.start("old")
    once(point, lambda: TransactionalProducer(sink.connection, sink.id.control_id).close(), monkeypatch)
    assert sink.start("mine").progress.meta is not None
    assert sink.truth()["meta"]["run"] == "mine"


@pytest.mark.thorough("waits until it gives up")
def test_starter_that_is_fenced_for_ever_gives_up(sink: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    def fence(point: str) -> None:
        if point == "starting-after-meta":
            TransactionalProducer(sink.connection, sink.id.control_id).close()

    monkeypatch.setattr(failpoints, "failpoint", fence)
    refusal(sink.start, Reason.FENCED_REPEATEDLY)


@pytest.mark.parametrize("progress_too", [False, True], ids=["rows", "rows and progress"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_start_ends_what_a_dead_task_left_open(sink: OneSink, progress_too: bool) -> None:
    sink.start()
    key = sink.id.partition_key(sink.at()).encode()
    left_open = [
        (sink.data, b"0", b"0"),
        (sink.progress, key, encode_partition(PartitionProgress(epoch=0, next=1))),
    ]
    began = time.monotonic()
    with topics.open_transaction(sink.servers, sink.id.partition_id(sink.at()), left_open[: 1 + progress_too]):
        sink.start("run-2")
        assert time.monotonic() - began < 30, "its time-out is a minute"
        assert sink.delivered() == []
    assert sink.frontier() == {0: 0}


def test_what_a_late_task_commits_before_it_is_fenced_is_seen(sink: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(sink, 3)
    late = ExactlyOnceWriter(plan_of(sink, sink.start(), 3), sink.at(), Worker())
    late.write(rows(range(3)))
    once("starting-after-meta", late.finish, monkeypatch)
    started = sink.start("run-2")
    assert started.progress.partitions[sink.at()].next == 3
    assert sink.delivered() == ["0", "1", "2"]


def test_late_task_that_was_fenced_writes_nothing(sink: OneSink) -> None:
    produce(sink, 3)
    late = ExactlyOnceWriter(plan_of(sink, sink.start(), 3), sink.at(), Worker())
    late.write(rows(range(3)))
    sink.start("run-2")
    refusal(late.finish, Reason.SUPERSEDED)
    assert sink.delivered() == []
    assert sink.frontier() == {0: 0}


@pytest.mark.thorough("two drivers or two losses at once: each alone is in make test")
def test_other_sinks_of_the_progress_topic_are_not_disturbed(sink: OneSink) -> None:
    sink.start()
    other = OneSink(sink.servers)
    shared = replace(other.settings().progress, name=sink.progress)
    other.start("other-run", progress=shared)
    sink.start("run-2")
    keys = topics.progress_truth(sink.servers, sink.progress)
    assert keys[other.id.meta_key]["run"] == "other-run"
    assert keys[sink.id.meta_key]["run"] == "run-2"


# A world that changed


def test_recreated_source_is_refused(sink: OneSink) -> None:
    produce(sink, 2)
    sink.start()
    topics.recreate_topic(sink.servers, sink.source)
    produce(sink, 9)
    refusal(lambda: sink.start("run-2"), Reason.SOURCE_RECREATED)


def test_lost_offsets_are_refused_or_skipped_and_counted(sink: OneSink) -> None:
    produce(sink, 9)
    deliver(sink, sink.start(), range(2))
    topics.delete_records(sink.servers, sink.source, 6)
    refusal(lambda: sink.start("run-2"), Reason.SOURCE_DATA_LOST)
    assert sink.frontier() == {0: 2}
    sink.start("run-3", source={"skip_lost": True})
    written = sink.truth()[f"p/{sink.source}/0"]
    assert (written["next"], written["lost"], written["rows"]) == (6, 4, 2)


@pytest.mark.parametrize("again", [False, True], ids=["missing", "re-created"])
def test_lost_data_topic_is_never_created_again(sink: OneSink, again: bool) -> None:
    produce(sink, 2)
    deliver(sink, sink.start(), range(2))
    topics.delete_topic(sink.servers, sink.data)
    if again:
        topics.create_topic(sink.servers, sink.data)
    refusal(lambda: sink.start("run-2"), Reason.DATA_TOPIC_LOST)
    assert (topics.topic_id(sink.servers, sink.data) is None) == (not again)
    assert sink.truth()["meta"]["run"] == "run-1", "a refusal takes nothing over"


def test_data_topic_without_rows_is_created_again(sink: OneSink) -> None:
    sink.start()
    topics.delete_topic(sink.servers, sink.data)
    sink.start("run-2")
    assert sink.truth()["meta"]["data"] == topics.topic_id(sink.servers, sink.data) is not None


@pytest.fixture
def lost(sink: OneSink) -> tuple[OneSink, Memory]:
    """A sink that delivered three of five rows, and lost its progress topic; and what its status remembers."""
    produce(sink, 5)
    deliver(sink, sink.start(), range(3))
    memory = remembered(sink.start("run-2"))
    topics.delete_topic(sink.servers, sink.progress)
    return sink, memory


def test_lost_progress_is_seeded_from_memory(lost: tuple[OneSink, Memory]) -> None:
    sink, memory = lost
    started = start_with(sink, memory, "run-3")
    assert sink.frontier() == {0: 3}
    assert (started.may_duplicate, started.recreated_progress_topic) == (2, True)
    assert sink.truth()["meta"]["progress"] == topics.topic_id(sink.servers, sink.progress)
    assert sink.truth()[f"p/{sink.source}/0"]["rows"] == 3
    deliver(sink, started, range(3, 5))
    assert sink.delivered() == ["0", "1", "2", "3", "4"]
    # It belongs to the progress: whoever starts later tells it as well, and one that restores it once more adds to it.
    again = start_with(sink, None, "run-4")
    assert again.may_duplicate == 2
    produce(sink, 1)
    topics.delete_topic(sink.servers, sink.progress)
    assert start_with(sink, remembered(again), "run-5").may_duplicate == 2 + 1


@pytest.mark.thorough("two drivers or two losses at once: each alone is in make test")
def test_lost_progress_is_seeded_too_where_another_sink_recreated_the_topic(lost: tuple[OneSink, Memory]) -> None:
    sink, memory = lost
    topics.create_topic(sink.servers, sink.progress, config=topics.COMPACTED)
    assert start_with(sink, memory, "run-3").may_duplicate == 2
    assert sink.frontier() == {0: 3}


def test_an_exact_memory_duplicates_nothing(lost: tuple[OneSink, Memory]) -> None:
    sink, memory = lost
    assert start_with(sink, memory, "run-3", exact=True).may_duplicate is None


def test_a_driver_with_an_outcome_in_doubt_does_not_write_its_frontier_back(sink: OneSink) -> None:
    produce(sink, 5)
    starter = sink.starter()
    started = starter.start()
    deliver(sink, started, range(3))
    starter.remembered.left(started.progress, started.hold, certain=False)
    topics.delete_topic(sink.servers, sink.progress)
    refusal(starter.start, Reason.PROGRESS_LOST)


def started_with_three_rows(sink: OneSink) -> tuple[SinkStarter, StartedSink]:
    """A driver that knows of three rows of five."""
    produce(sink, 5)
    starter = SinkStarter(ports=ports(sink.settings(), Admin(sink.connection), Admin(sink.connection)))
    first = starter.start()
    deliver(sink, first, range(3))
    first.hold.close()
    return starter, starter.start()


def test_a_driver_writes_its_frontier_back_while_it_holds_the_sink(sink: OneSink) -> None:
    starter, started = started_with_three_rows(sink)
    starter.remembered.left(started.progress, started.hold, certain=True)
    topics.delete_topic(sink.servers, sink.progress)
    again = starter.start()
    assert (again.recreated_progress_topic, again.may_duplicate, again.progress.rows) == (True, None, 3)
    again.hold.close()


@pytest.mark.thorough("two drivers or two losses at once: each alone is in make test")
def test_a_driver_that_was_overtaken_unnoticed_does_not_write_its_frontier_back(sink: OneSink) -> None:
    """The progress topic is gone with what would have told it: its transactional id tells."""
    starter, started = started_with_three_rows(sink)
    starter.remembered.left(started.progress, started.hold, certain=True)
    newer = sink.starter("run-9").start()
    deliver(sink, newer, range(3, 5))
    topics.delete_topic(sink.servers, sink.progress)
    refusal(starter.start, Reason.PROGRESS_LOST)
    newer.hold.close()


@pytest.mark.thorough("two drivers or two losses at once: each alone is in make test")
@pytest.mark.parametrize("overtaken", ["starting-after-control-init", "starting-before-first-start"])
def test_a_driver_that_is_overtaken_while_it_writes_its_frontier_back_does_not_write_it_again(
    sink: OneSink, overtaken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held the sink when it began. The newer one delivers, and that progress is deleted, too."""
    starter, started = started_with_three_rows(sink)
    starter.remembered.left(started.progress, started.hold, certain=True)
    memory = starter.remembered.memory

    def overtake() -> None:
        newer = sink.starter("run-9", memory).start()
        deliver(sink, newer, range(3, 5))
        newer.hold.close()
        topics.delete_topic(sink.servers, sink.progress)

    topics.delete_topic(sink.servers, sink.progress)
    once(overtaken, overtake, monkeypatch)
    refusal(starter.start, Reason.PROGRESS_LOST)
    assert sink.delivered() == ["0", "1", "2", "3", "4"]


def test_a_driver_that_was_overtaken_leaves_the_tasks_of_the_newer_one_alone(
    sink: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped before it took its id again, and its read is held back by what such a task has open."""
    starter, started = started_with_three_rows(sink)
    started.hold.close()
    hold = SinkStarter._hold
    tasks: list[TransactionalProducer] = []

    @contextlib.contextmanager
    def overtaken(self: SinkStarter, *args: Any, **named: Any) -> Iterator[Any]:
        monkeypatch.setattr(SinkStarter, "_hold", hold)
        newer = sink.starter("run-9").start()
        newer.hold.close()
        partition = SourcePartition(sink.source, 0)
        task = TransactionalProducer(sink.connection, sink.id.partition_id(partition))
        task.begin()
        task.produce_rows(
            sink.progress,
            [(encode_sentinel("x"), SENTINEL_KEY.encode(), 0, 0, writer_header(sink.id.partition_id(partition)))],
        )
        tasks.append(task)
        with hold(self, *args, **named) as held:
            yield held

    monkeypatch.setattr(SinkStarter, "_hold", overtaken)
    refusal(starter.start, Reason.SUPERSEDED)
    [task] = tasks
    task.commit()
    task.close()


def test_seed_that_was_interrupted_is_seeded_again(
    lost: tuple[OneSink, Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, memory = lost

    def crash() -> None:
        raise RuntimeError("crash")

    once("starting-before-first-start", crash, monkeypatch)
    with pytest.raises(RuntimeError, match="crash"):
        start_with(sink, memory, "run-3")
    assert start_with(sink, memory, "run-4").may_duplicate == 2
    assert sink.frontier() == {0: 3}


@pytest.mark.thorough("two drivers or two losses at once: each alone is in make test")
def test_an_older_announcement_does_not_spoil_the_epoch_of_a_seed(
    lost: tuple[OneSink, Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start without memory announced epoch 0 and died; then comes one that remembers a later epoch."""
    sink, memory = lost

    def crash() -> None:
        raise RuntimeError("crash")

    once("starting-before-first-start", crash, monkeypatch)
    with pytest.raises(RuntimeError, match="crash"):
        start_with(sink, None, "run-3")
    later = {partition: replace(state, epoch=2) for partition, state in memory.partitions.items()}
    start_with(sink, replace(memory, epoch=2, partitions=later), "run-4")
    sink.start("run-5")
    assert sink.truth()["meta"]["epoch"] == sink.truth()[f"p/{sink.source}/0"]["epoch"]


def test_lost_progress_and_lost_data_is_data_lost(lost: tuple[OneSink, Memory]) -> None:
    sink, memory = lost
    topics.delete_topic(sink.servers, sink.data)
    refusal(lambda: start_with(sink, memory), Reason.DATA_TOPIC_LOST)
    assert topics.topic_id(sink.servers, sink.progress) is None
    topics.create_topic(sink.servers, sink.data)
    refusal(lambda: start_with(sink, memory), Reason.DATA_TOPIC_LOST)


def test_lost_progress_and_another_source_is_progress_lost(lost: tuple[OneSink, Memory]) -> None:
    sink, memory = lost
    topics.recreate_topic(sink.servers, sink.source)
    refusal(lambda: start_with(sink, memory), Reason.PROGRESS_LOST)
    assert topics.topic_id(sink.servers, sink.progress) is None


def test_memory_ahead_of_the_progress_is_refused(sink: OneSink) -> None:
    produce(sink, 5)
    memory = remembered(sink.start())
    ahead = {partition: replace(state, next=state.next + 1) for partition, state in memory.partitions.items()}
    refusal(lambda: start_with(sink, replace(memory, partitions=ahead)), Reason.PROGRESS_REGRESSED)


@pytest.mark.parametrize("point", ["starting-after-control-init", "starting-after-meta"])
@pytest.mark.thorough("two drivers or two losses at once: each alone is in make test")
def test_progress_topic_that_is_recreated_on_the_way_is_not_a_first_start(
    sink: OneSink, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(sink, 5)
    deliver(sink, sink.start(), range(3))
    once(point, lambda: topics.recreate_topic(sink.servers, sink.progress, config=topics.COMPACTED), monkeypatch)
    starter = sink.starter("run-2")
    # The read can also fail on the way; the driver then starts the sink again.
    with contextlib.suppress(SinkPipelineError):
        starter.start().hold.close()
    started = starter.start()
    started.hold.close()
    assert sink.frontier() == {0: 3}, "what was read before is remembered, and the three rows are not delivered again"


@pytest.mark.thorough("two drivers or two losses at once: each alone is in make test")
def test_a_first_start_whose_progress_topic_vanishes_under_another_that_delivered_is_refused(
    sink: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(sink, 5)

    def another_delivers() -> None:
        deliver(sink, sink.start("run-2"), range(3))
        topics.delete_topic(sink.servers, sink.progress)

    once("starting-after-control-init", another_delivers, monkeypatch)
    starter = sink.starter("run-1")
    # The driver tries again; what it met stays known.
    for _ in range(2):
        error = refusal(starter.start, Reason.PROGRESS_LOST)
        assert sink.data in error.message
    assert len(sink.delivered()) == 3
    # A person has decided.
    sink.start("run-3")
    assert sink.frontier() == {0: 0}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"p/{source}/0": b"{"}, Reason.PROGRESS_CORRUPT),
        ({"p/{source}/0": None}, Reason.PROGRESS_CORRUPT),
        ({"meta": None}, Reason.PROGRESS_CORRUPT),
        ({"p/{source}/1": encode_partition(PartitionProgress(epoch=0, next=0))}, Reason.PROGRESS_CORRUPT),
        ({"p/{source}/0": encode_partition(PartitionProgress(epoch=1, next=0))}, Reason.PROGRESS_CORRUPT),
        ({"meta": b'{"v":3}'}, Reason.PROGRESS_VERSION_UNKNOWN),
    ],
    ids=["not JSON", "p/ removed", "meta removed", "p/ beyond meta", "another epoch", "another version"],
)
@pytest.mark.thorough("each variant of one case", after=2)
def test_progress_that_contradicts_itself_starts_nothing(sink: OneSink, change: dict[str, Any], reason: Reason) -> None:
    sink.start()
    records = [((sink.id.prefix + key.format(source=sink.source)).encode(), value) for key, value in change.items()]
    topics.produce(sink.servers, sink.progress, records)
    before = len(topics.read_committed(sink.servers, sink.progress))
    refusal(lambda: sink.start("run-2"), reason)
    after = topics.read_committed(sink.servers, sink.progress)[before:]
    assert {record.key for record in after} <= {SENTINEL_KEY.encode()}


def test_partition_ids_of_a_memory_are_fenced_too(lost: tuple[OneSink, Memory]) -> None:
    """A task of the last run may still be alive when its progress topic is gone."""
    sink, memory = lost
    gone = SourcePartition("no-longer-listed", 0)
    known = {**memory.partitions, gone: PartitionProgress(epoch=0, next=1)}
    late = [(sink.data, b"k", b"late")]
    with topics.open_transaction(sink.servers, SinkId(sink.name, "out").partition_id(gone), late):
        start_with(sink, replace(memory, partitions=known), "run-3")
        assert "late" not in sink.delivered()


def test_a_task_of_an_earlier_start_of_the_same_driver_stops_without_writing(sink: OneSink) -> None:
    produce(sink, 5)
    admin = Admin(sink.connection)
    starter = SinkStarter(ports=ports(sink.settings(), admin, admin))
    first = starter.start()
    first.hold.close()
    survivor = ExactlyOnceWriter(plan_of(sink, first, 5), sink.at(), Worker())
    second = starter.start()
    second.hold.close()

    def go_on() -> None:
        survivor.write(rows(range(5)))
        survivor.finish()

    with pytest.raises(SinkPipelineError) as caught:
        go_on()

    assert caught.value.reason is Reason.SUPERSEDED
    assert sink.delivered() == []
    deliver(sink, second, range(5))
    assert len(sink.delivered()) == 5


def test_a_retry_that_cannot_read_says_that_it_does_not_know(sink: OneSink) -> None:
    produce(sink, 5)
    started = sink.start()
    plan = replace(plan_of(sink, started, 5), progress_topic_id="another")
    columns = {
        "partition": pa.array([0], pa.int32()),
        "offset": [0],
        "key": pa.array([None], pa.binary()),
        "value": [b"0"],
        "timestamp_ms": [0],
        "notes": pa.array([None], pa.string()),
    }

    receipt = run_task(plan, [pa.RecordBatch.from_pydict(columns)], retried=True)

    assert receipt.error is not None
    assert receipt.error.reason is Reason.TOPICS_CHANGED
    assert receipt.in_doubt, "an earlier attempt may have committed"


# How large a pipeline may be


def of_many_topics(sink: OneSink, count: int) -> None:
    """The sink has read so many topics that its `meta` is larger than the client's and the broker's default limits."""
    meta = sink.truth()["meta"]
    gone = {f"orders-of-shop-{number}": str(uuid.uuid4())[:22] for number in range(count)}
    document = json.dumps({**meta, "source": {**gone, **meta["source"]}}).encode()
    assert len(document) > 1_048_588
    large = {"message.max.bytes": "100000000", "compression.type": "zstd"}
    producer = TransactionalProducer(sink.connection, topics.unique("foreign"), large)
    producer.write(sink.progress, [(sink.id.meta_key, document)])
    producer.close()


@pytest.mark.thorough("limits that few brokers have")
def test_a_meta_of_more_than_a_megabyte_is_written(filled: OneSink) -> None:
    filled.start()
    of_many_topics(filled, 30_000)
    started = filled.start("run-2")
    assert not started.hold.delivers, "its rows would be compressed, which nobody asked for"
    deliver(filled, started, range(3))
    assert len(filled.truth()["meta"]["source"]) == 30_001
    assert filled.frontier() == {0: 3}


@pytest.mark.thorough("limits that few brokers have")
def test_a_progress_topic_that_is_too_small_for_a_record_says_how_to_widen_it(filled: OneSink) -> None:
    filled.start()
    of_many_topics(filled, 30_000)
    topics.alter_topic(filled.servers, filled.progress, {"max.message.bytes": "2000"})
    error = refusal(lambda: filled.start("run-2"), Reason.PROGRESS_TOPIC_INVALID)
    typed = re.search(r"--entity-name (\S+) --add-config (max.message.bytes)=([0-9]+)", error.remedy)
    assert typed is not None
    assert typed[1] == filled.progress
    topics.alter_topic(filled.servers, filled.progress, {typed[2]: typed[3]})
    filled.start("run-3")
    assert filled.truth()["meta"]["run"] == "run-3"
