"""Rows that can't be delivered, on a real broker: dead letters exactly once, the others in order, none in silence."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.deadletter import ErrorClass, Stage
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.core.status import SinkReport, render
from sinkpipeline.core.tally import checked
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.inspection import inspect
from sinkpipeline.kafka.producers import _DELIVERY_TIMEOUT_MS, TransactionalProducer
from sinkpipeline.kafka.views import read_limits
from sinkpipeline.sinks import contract, delivery, transactional
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.worker import Worker
from support.kafka import commits, topics
from support.sink.dead_letters import AT_MS, Lettered, records
from support.sink.driver import Driver
from support.sink.one_sink import OneSink
from support.sink.starts import refusal
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

SEED = 20261122
COUNT = 12
both = pytest.mark.parametrize("exactly_once", [True, False], ids=["ExactlyOnce", "AtLeastOnce"])
on_failure = pytest.mark.parametrize("drop", [False, True], ids=["Stop", "DropAndContinue"])

Make = Callable[..., Lettered]


@pytest.fixture
def make(kafka: LocalKafka) -> Make:
    def make(count: int = COUNT, **settings: object) -> Lettered:
        return Lettered(kafka.bootstrap_servers, records(count), **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.05)


def but(count: int, *without: int) -> list[int]:
    return [n for n in range(count) if n not in without]


# The ordinary way


def test_rows_dead_letters_and_progress_are_one_transaction(make: Make) -> None:
    task = make()
    writer = task.writer()
    writer.write(task.rows(range(5), bad=[1]))
    writer.write(task.rows(range(5, COUNT), astray=[6]))
    for topic in (task.sink.data, task.sink.dead):
        wait_until(lambda topic=topic: topics.read_uncommitted(task.servers, topic), f"rows have reached {topic}")  # type: ignore[misc]
        assert topics.read_committed(task.servers, topic, settled=False) == []
    assert task.counts() == (0, 0, 0, 0)
    writer.finish()
    receipt = writer.receipt()
    assert (receipt.commits, receipt.delivered, receipt.claims, receipt.in_doubt) == (1, COUNT - 2, 1, False)
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 1, 6), [1, 6])
    assert task.counts() == (COUNT, COUNT - 2, 2, 0)


@both
@pytest.mark.parametrize(
    "bad",
    [[0], [COUNT - 1], [4, 5], list(range(COUNT)), [0, 3, 4, COUNT - 1]],
    ids=["the first", "the last", "two in a row", "all", "some"],
)
@pytest.mark.thorough("each variant of one case", after=1)
@pytest.mark.long("each variant of one case", after=3)
def test_wherever_they_stand(make: Make, exactly_once: bool, bad: list[int]) -> None:
    task = make(exactly_once=exactly_once)
    halves = (range(5), range(5, COUNT))
    task.write(*(task.rows(half, bad=[n for n in bad if n in half]) for half in halves))
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, *bad), bad)
    assert task.counts() == (COUNT, COUNT - len(bad), len(bad), 0)


@both
@pytest.mark.thorough("each variant of one case", after=1)
def test_filtered_records_are_none(make: Make, exactly_once: bool) -> None:
    task = make(exactly_once=exactly_once)
    task.write(task.rows(range(COUNT), bad=[3], without=[0, 2, 4, COUNT - 1]))
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 0, 2, 3, 4, COUNT - 1), [3])


@both
@pytest.mark.thorough("each variant of one case", after=1)
def test_each_says_what_happened(make: Make, exactly_once: bool) -> None:
    task = make(exactly_once=exactly_once, data_config={"max.message.bytes": "2000"})
    task.write(task.rows(range(COUNT), bad=[1], astray=[2], values={3: b"x" * 3000}))
    began = time.time() * 1000
    first, second, third = task.dead()
    assert [letter.verdict.error_class for letter in (first, second, third)] == [
        ErrorClass.MALFORMED_JSON,
        ErrorClass.PARTITION_OUT_OF_RANGE,
        ErrorClass.RECORD_TOO_LARGE,
    ]
    assert [letter.verdict.error_class.stage for letter in (first, second, third)] == [
        Stage.DECODE,
        Stage.SERIALIZE,
        Stage.WRITE,
    ]
    assert task.classes() == ({"MalformedJson": 1, "PartitionOutOfRange": 1, "RecordTooLarge": 1}, {})
    assert (first.verdict.text, second.verdict.text) == ("no object", "7 of 1")
    assert "the data topic takes 2000" in third.verdict.text
    assert all(abs(record.timestamp - began) < 60_000 for record in topics.read(task.servers, task.sink.dead))


@both
@pytest.mark.thorough("each variant of one case", after=1)
def test_counts_and_dead_letters_outlive_a_start(make: Make, exactly_once: bool) -> None:
    task = make(exactly_once=exactly_once)
    task.write(task.rows(range(5), bad=[1, 2]), end=5)
    task.start()
    assert (task.state.next, task.state.dead, task.state.by_class) == (5, 2, checked({"MalformedJson": 2}))
    task.write(task.rows(range(5, COUNT), bad=[7], astray=[8]))
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 1, 2, 7, 8), [1, 2, 7, 8])
    assert task.counts() == (COUNT, COUNT - 4, 4, 0)
    assert task.classes() == ({"MalformedJson": 3, "PartitionOutOfRange": 1}, {})


def test_counts_by_class_come_back_where_the_progress_topic_was_lost(make: Make) -> None:
    """The operator reads them while nothing runs, and its status is what a start is seeded from."""
    task = make(drop=True, data_config={"max.message.bytes": "2000"}, dead_config={"max.message.bytes": "1024"})
    task.source[3] = (b"x" * 3000, *task.source[3][1:])
    task.write(task.rows(range(5), bad=[1, 3]), end=5)
    told = SinkReport(name="out", exactly_once=True, progress=inspect(task.settings, None).progress)
    status = render([told], identity="i", generation=None, previous=None, now_ms=0)
    assert status["sinks"][0]["deadLetters"] == [
        {"class": "MalformedJson", "stage": "decode", "count": 1, "dropped": 1}
    ]
    topics.delete_topic(task.servers, task.sink.progress)
    task.start(memory_of(status, "i", "out"))
    task.write(task.rows(range(5, COUNT), bad=[7], astray=[8]))
    assert task.counts() == (COUNT, COUNT - 4, 3, 1)
    assert task.classes() == ({"MalformedJson": 2, "PartitionOutOfRange": 1}, {"MalformedJson": 1})


def test_two_sinks_share_a_dead_letter_topic(make: Make) -> None:
    one, other = make(), make()
    one.write(one.rows(range(COUNT), bad=[1]))
    plan = other.plan(settings=other.sink.settings(data=other.settings.data, dead_letter=one.settings.dead_letter))
    writer = ExactlyOnceWriter(plan, other.at, Worker())
    writer.write(other.rows(range(COUNT), bad=[2]))
    writer.finish()
    found = topics.read_committed(one.servers, one.sink.dead)
    assert [dict(record.headers)["sinkpipeline.dlq.identity"] for record in found] == [
        one.sink.name.encode(),
        other.sink.name.encode(),
    ]


@both
@pytest.mark.parametrize("decoding", [True, False], ids=["as the row has it", "read again"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_any_bytes_come_back(kafka: LocalKafka, exactly_once: bool, decoding: bool) -> None:
    count = 300
    task = Lettered(kafka.bootstrap_servers, records(count, chance=random.Random(SEED)), exactly_once=exactly_once)
    bad = {"bad": range(count)} if decoding else {"astray": range(0, count, 3)}
    task.write(task.rows(range(count), **bad))  # type: ignore[arg-type]
    assert task.dead_offsets() == list(*bad.values())


# What Kafka refuses


@both
@pytest.mark.parametrize("large", [[0], [4, 5], [COUNT - 1], list(range(COUNT))], ids=str)
@pytest.mark.thorough("each variant of one case", after=1)
@pytest.mark.long("each variant of one case", after=3)
def test_rows_that_only_the_broker_finds_too_large(make: Make, exactly_once: bool, large: list[int]) -> None:
    task = make(exactly_once=exactly_once)
    topics.alter_topic(task.servers, task.sink.data, {"max.message.bytes": "2000"})
    began = time.monotonic()
    task.write(task.rows(range(COUNT), bad=[2] if 2 not in large else [], values=dict.fromkeys(large, b"x" * 3000)))
    assert time.monotonic() - began < _DELIVERY_TIMEOUT_MS / 1000, "a commit waited for records that the client gave up"
    dead = sorted({*large, 2})
    assert task.dead_offsets() == dead
    verdicts = {letter.record.offset: letter.verdict for letter in task.dead()}
    assert {(verdicts[n].error_class, verdicts[n].code) for n in large} == {
        (ErrorClass.RECORD_TOO_LARGE, "MSG_SIZE_TOO_LARGE")
    }
    assert task.delivered() == but(COUNT, *dead)
    assert task.counts() == (COUNT, COUNT - len(dead), len(dead), 0)


RECENT = {"message.timestamp.before.max.ms": "3600000"}


@both
@pytest.mark.parametrize("early", [[0], [3, 7], list(range(COUNT))], ids=str)
@pytest.mark.parametrize("known", [True, False], ids=["by us", "by the broker"])
@pytest.mark.thorough("each variant of one case", after=1)
@pytest.mark.long("each variant of one case", after=4)
def test_rows_whose_timestamp_is_refused(make: Make, exactly_once: bool, early: list[int], known: bool) -> None:
    task = make(exactly_once=exactly_once, data_config=RECENT if known else {})
    topics.alter_topic(task.servers, task.sink.data, RECENT)
    receipt = task.write(task.rows(range(COUNT), timestamps=dict.fromkeys(early, AT_MS)))
    assert task.dead_offsets() == early
    assert {letter.verdict.error_class for letter in task.dead()} == {ErrorClass.INVALID_TIMESTAMP}
    assert {letter.verdict.code for letter in task.dead()} == {"" if known else "INVALID_TIMESTAMP"}
    assert task.delivered() == but(COUNT, *early)
    assert task.counts() == (COUNT, COUNT - len(early), len(early), 0)
    assert not (known and receipt.claims > 2), "the brokers are asked about one"


@pytest.mark.thorough("a fault on the way to a letter; the way is in make test")
@both
def test_limits_that_were_widened_since_the_start_are_those_of_now(make: Make, exactly_once: bool) -> None:
    task = make(exactly_once=exactly_once, data_config={**RECENT, "max.message.bytes": "2000"})
    topics.alter_topic(
        task.servers, task.sink.data, {"max.message.bytes": "20000", "message.timestamp.before.max.ms": str(2**63 - 1)}
    )
    topics.add_partitions(task.servers, task.sink.data, 8)
    values, timestamps = {5: b"row 5 " + b"x" * 3000}, {7: AT_MS}
    task.write(task.rows(range(COUNT), astray=[3], values=values, timestamps=timestamps))
    assert (sorted(task.delivered()), task.dead_offsets()) == (list(range(COUNT)), [])


def test_a_kept_producer_is_not_older_than_the_limits(make: Make) -> None:
    task, worker = make(data_config={"max.message.bytes": "2000"}), Worker()

    def write(end: int, **rows: Any) -> None:
        token = worker.token(task.started.run)
        writer = task.writer(
            end, worker=worker, owners={task.at: token}, data_limits=read_limits(admin, task.sink.data)
        )
        writer.write(task.rows(range(task.state.next, end), **rows))
        writer.finish()
        task.take(writer.receipt())

    admin = Admin(task.sink.connection)
    write(4)
    topics.alter_topic(task.servers, task.sink.data, {"max.message.bytes": "20000"})
    topics.add_partitions(task.servers, task.sink.data, 8)
    write(8, values={6: b"row 6 " + b"x" * 3000})
    write(COUNT, astray=[9])
    assert (sorted(task.delivered()), task.dead_offsets()) == (list(range(COUNT)), [])


def test_a_driver_looks_at_the_limits_now_and_then(sink: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_LIMITS_HOLD_S", 0.0)
    with Driver(sink) as driver:
        topics.alter_topic(sink.servers, sink.data, {"max.message.bytes": "12345"})
        topics.add_partitions(sink.servers, sink.data, 3)
        limits = driver.plan(0).data_limits
        assert (limits.message_bytes, limits.partitions) == (12345, 3)


@pytest.mark.thorough("a fault on the way to a letter; the way is in make test")
@both
def test_a_worker_s_clock_that_is_wrong_sends_nothing_to_the_dead_letters(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, exactly_once: bool
) -> None:
    """It is two hours slow, and the topic takes what is an hour ahead."""
    monkeypatch.setattr(contract, "time", SimpleNamespace(time=lambda: time.time() - 7_200))
    task, now = make(exactly_once=exactly_once), int(time.time() * 1000)
    worker = Worker()
    for first in (0, COUNT // 2):
        end = first + COUNT // 2
        writer = task.writer(end, worker=worker)
        writer.write(task.rows(range(first, end), timestamps=dict.fromkeys(range(first, end), now)))
        writer.finish()
        task.take(writer.receipt())
        assert writer.receipt().clock_skew
    assert caplog.text.count("ClockSkew") == 1
    assert (task.delivered(), task.dead_offsets()) == (list(range(COUNT)), [])


@both
@pytest.mark.thorough("each variant of one case", after=1)
def test_rows_without_a_key_are_known_before_a_compacted_topic_refuses_them(make: Make, exactly_once: bool) -> None:
    task = make(exactly_once=exactly_once, data_config={"cleanup.policy": "compact,delete"})
    receipt = task.write(task.rows(range(COUNT), keyless=(2, 3, 7)))
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 2, 3, 7), [2, 3, 7])
    assert receipt.claims == (1 if exactly_once else 0), "none was tried in vain"


def test_one_refused_row_among_many_is_found(make: Make) -> None:
    """The limit is lowered while the sink runs; all others fit together."""
    count = 5000
    task = make(count)
    topics.alter_topic(task.servers, task.sink.data, {"max.message.bytes": "600000"})
    receipt = task.write(task.rows(range(count), values={1234: b"x" * 700_000}))
    assert (task.dead_offsets(), task.delivered()) == ([1234], but(count, 1234))
    assert receipt.claims <= 2 + 13, "a new producer for each half"


@pytest.mark.thorough("a fault on the way to a letter; the way is in make test")
def test_progress_of_a_search_counts_when_it_is_interrupted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make(64)
    topics.alter_topic(task.servers, task.sink.data, RECENT)
    real, seen = TransactionalProducer.commit, itertools.count()

    def commit(producer: TransactionalProducer, *more: float) -> None:
        if next(seen) in (3, 6, 11, 14):
            task.steal()
        real(producer, *more)

    monkeypatch.setattr(TransactionalProducer, "commit", commit)
    task.write(task.rows(range(64), timestamps={40: AT_MS}))
    assert (task.dead_offsets(), task.delivered()) == ([40], but(64, 40))


@both
@pytest.mark.thorough("each variant of one case", after=1)
def test_small_rows_fit_into_a_small_topic_together(make: Make, exactly_once: bool) -> None:
    """One producer for two topics of different limits must not make batches that the smaller one can't take."""
    count = 500
    task = make(count, exactly_once=exactly_once, data_config={"max.message.bytes": "1500"})
    receipt = task.write(task.rows(range(count), bad=range(0, count, 5)))
    assert len(task.delivered()) == count * 4 // 5
    assert len(task.dead()) == count // 5
    assert receipt.claims == (1 if exactly_once else 0)


# Trouble in the middle


@pytest.mark.parametrize("outcome", ["lost", "answer lost"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_commit_in_doubt_makes_no_second_copy(make: Make, monkeypatch: pytest.MonkeyPatch, outcome: str) -> None:
    task = make()
    left = commits.planned(monkeypatch, "committed", outcome)
    task.write(task.rows(range(COUNT), bad=[1, 5], astray=[4, 11]), cuts=CutPolicy(rows=4))
    assert left == []
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 1, 4, 5, 11), [1, 4, 5, 11])
    assert task.counts() == (COUNT, COUNT - 4, 4, 0)
    assert task.classes() == ({"MalformedJson": 2, "PartitionOutOfRange": 2}, {})


def test_one_that_is_fenced_makes_no_second_copy(make: Make) -> None:
    task = make()
    writer = task.writer()
    writer.write(task.rows(range(5), bad=[1]))
    task.steal()
    writer.write(task.rows(range(5, COUNT), astray=[6]))
    writer.finish()
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 1, 6), [1, 6])
    assert task.counts() == (COUNT, COUNT - 2, 2, 0)


def test_a_zombie_makes_no_second_copy(make: Make) -> None:
    task = make()
    zombie = task.writer()
    zombie.write(task.rows(range(COUNT), bad=[1], astray=[6]))
    task.write(task.rows(range(COUNT), bad=[1], astray=[6]))
    zombie.finish()
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 1, 6), [1, 6])
    assert task.counts() == (COUNT, COUNT - 2, 2, 0)


@pytest.mark.thorough("a fault on the way to a letter; the way is in make test")
def test_a_newer_driver_goes_first(make: Make) -> None:
    task = make()
    older = task.writer()
    older.write(task.rows(range(COUNT), bad=[1]))
    task.start()
    refusal(older.finish, Reason.SUPERSEDED)
    task.write(task.rows(range(COUNT), bad=[1]))
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 1), [1])


@pytest.mark.thorough("random troubles beside the named ones")
def test_many_at_random_with_trouble_at_random(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    count, chance = 2_000, random.Random(SEED)
    task = Lettered(
        kafka.bootstrap_servers,
        records(count, chance=chance),
        data_config={"max.message.bytes": "5000"},
    )
    topics.alter_topic(task.servers, task.sink.data, RECENT)
    kinds = ["bad", "astray", "large", "early"]
    verdicts = {n: chance.choice(kinds) for n in range(count) if chance.random() < 0.02}
    real = TransactionalProducer.commit

    def commit(producer: TransactionalProducer, *more: float) -> None:
        fate = chance.random()
        if fate < 0.03:
            task.steal()
        real(producer, *more)
        if fate > 0.97:
            raise InDoubt("the answer is lost")

    monkeypatch.setattr(TransactionalProducer, "commit", commit)
    while task.state.next < count:
        begin = task.state.next
        offsets = range(begin, min(count, begin + chance.choice([100, 300, 700])))
        of_kind = {kind: [n for n in offsets if verdicts.get(n) == kind] for kind in kinds}
        batch = task.rows(
            offsets,
            bad=of_kind["bad"],
            astray=of_kind["astray"],
            values=dict.fromkeys(of_kind["large"], b"x" * 9000),
            timestamps=dict.fromkeys(of_kind["early"], AT_MS),
        )
        task.write(batch, cuts=CutPolicy(rows=chance.choice([50, 500])), end=offsets.stop)
        if chance.random() < 0.3:
            task.start()
    assert (task.delivered(), task.dead_offsets()) == (but(count, *verdicts), sorted(verdicts))
    assert task.counts() == (count, count - len(verdicts), len(verdicts), 0)
    classes = {
        "bad": "MalformedJson",
        "astray": "PartitionOutOfRange",
        "large": "RecordTooLarge",
        "early": "InvalidTimestamp",
    }
    assert task.classes() == (Counter(classes[kind] for kind in verdicts.values()), {})


# Dead letters that can't be written


def undeliverable(task: Lettered, **rows: object) -> None:
    """Row 4 has no dead letter: the sink stops before it, or goes on without it."""
    batch = task.rows(range(COUNT), **{"bad": [4], **rows})  # type: ignore[arg-type]
    if task.drop:
        task.write(batch)
        assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 4), [])
        assert task.counts() == (COUNT, COUNT - 1, 0, 1)
        assert task.classes() == ({}, {"PartitionOutOfRange" if "astray" in rows else "MalformedJson": 1})
        return
    error = refusal(lambda: task.write(batch), Reason.DEAD_LETTER_FAILED)
    assert "offset 4 can't be delivered" in error.message
    assert (task.delivered(), task.dead_offsets(), task.counts()) == ([0, 1, 2, 3], [], (4, 4, 0, 0))


@both
@on_failure
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_missing_topic_that_may_not_be_created(make: Make, exactly_once: bool, drop: bool) -> None:
    task = make(exactly_once=exactly_once, drop=drop, auto_create=False)
    assert topics.topic_id(task.servers, task.sink.dead) is None
    undeliverable(task)
    assert topics.topic_id(task.servers, task.sink.dead) is None


@both
@on_failure
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_dead_letter_that_is_too_large(make: Make, exactly_once: bool, drop: bool) -> None:
    """It is larger than its record, by the envelope."""
    task = make(exactly_once=exactly_once, drop=drop, dead_config={"max.message.bytes": "1024"})
    task.source[4] = (b"x" * 900, *task.source[4][1:])
    undeliverable(task)


@both
@on_failure
@pytest.mark.thorough("a fault on the way to a letter; the way is in make test")
def test_a_dead_letter_that_only_the_broker_refuses(make: Make, exactly_once: bool, drop: bool) -> None:
    task = make(exactly_once=exactly_once, drop=drop)
    topics.alter_topic(task.servers, task.sink.dead, {"max.message.bytes": "300"})
    batch = task.rows(range(COUNT), bad=[4])
    if drop:
        task.write(batch)
        assert task.delivered() == but(COUNT, 4)
        assert (task.dead(), task.counts()) == ([], (COUNT, COUNT - 1, 0, 1))
        assert task.classes() == ({}, {"MalformedJson": 1})
    else:
        error = refusal(lambda: task.write(batch), Reason.DEAD_LETTER_FAILED)
        assert "MSG_SIZE_TOO_LARGE" in error.message or "too large" in error.message
        # AtLeastOnce may have sent others along with it, which come again.
        assert task.delivered()[:4] == [0, 1, 2, 3]
        assert (task.dead(), task.counts()) == ([], (4, 4, 0, 0))
        assert not exactly_once or len(task.delivered()) == 4


@both
@on_failure
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_row_whose_record_the_source_has_no_more(make: Make, exactly_once: bool, drop: bool) -> None:
    task = make(exactly_once=exactly_once, drop=drop)
    topics.delete_records(task.servers, task.sink.source, 6)
    undeliverable(task, bad=[], astray=[4])


def test_a_record_that_is_too_large_for_both_topics(make: Make) -> None:
    limits = {"data_config": {"max.message.bytes": "2000"}, "dead_config": {"max.message.bytes": "2000"}}
    task = make(**limits)
    task.source[4] = (b"x" * 3000, *task.source[4][1:])
    undeliverable(task)


@both
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_missing_topic_is_no_trouble_while_nobody_needs_it(make: Make, exactly_once: bool) -> None:
    task = make(exactly_once=exactly_once)
    topics.delete_topic(task.servers, task.sink.dead)
    task.write(task.rows(range(COUNT)))
    assert task.delivered() == but(COUNT)


@both
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_topic_that_is_deleted_while_running_is_there_after_the_next_start(make: Make, exactly_once: bool) -> None:
    task = make(exactly_once=exactly_once)
    task.write(task.rows(range(4), bad=[1]), end=4)
    topics.delete_topic(task.servers, task.sink.dead)
    refusal(lambda: task.write(task.rows(range(4, COUNT), bad=[6])), Reason.TOPICS_CHANGED)
    assert task.counts()[0] == 6
    task.start()
    task.write(task.rows(range(6, COUNT), bad=[6]))
    assert (task.delivered(), task.dead_offsets()) == (but(COUNT, 1, 6), [6])
    assert task.counts() == (COUNT, COUNT - 2, 2, 0)


@pytest.mark.parametrize("auto_create", [True, False])
@pytest.mark.thorough("a fault on the way to a letter; the way is in make test")
def test_a_topic_that_is_deleted_in_the_middle_of_a_transaction(make: Make, auto_create: bool) -> None:
    """What went into it is gone with it, but nothing that was not committed counts."""
    task = make()
    task.auto_create = auto_create
    writer = task.writer()
    writer.write(task.rows(range(4), bad=[1]))
    wait_until(lambda: topics.read_uncommitted(task.servers, task.sink.dead), "the dead letter has reached the broker")
    topics.delete_topic(task.servers, task.sink.dead)
    writer.write(task.rows(range(4, 8)))

    def go_on() -> None:
        writer.write(task.rows(range(8, COUNT), bad=[9]))
        writer.finish()

    reason = Reason.TOPICS_CHANGED if auto_create else Reason.DEAD_LETTER_FAILED
    refusal(go_on, reason)
    task.take(writer.receipt())
    task.auto_create = True
    task.start()
    task.write(task.rows(range(task.state.next, COUNT), bad=[n for n in (1, 9) if n >= task.state.next]))
    assert task.delivered() == but(COUNT, 1, 9)
    assert set(task.dead_offsets()) <= {1, 9}
    assert 9 in task.dead_offsets()
    assert task.counts() == (COUNT, COUNT - 2, 2, 0)
