"""Redrives on a real broker: each pending letter is settled once, whatever is killed, fenced, lost or filtered."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.deadletter import DeadLetter as Envelope
from sinkpipeline.core.deadletter import ErrorClass, SourceRecord, Verdict, encode
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka import dead_letter_log, reading, redrive
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.redrive import Summary
from sinkpipeline.kafka.settings import DeadLetterSettings
from sinkpipeline.sinks import exactly_once, transactional
from sinkpipeline.sinks.worker import Worker
from support.kafka import commits, topics
from support.sink.dead_letters import AT_MS
from support.sink.redrives import ALL_FINE, Dead, RedriveProcess, Repaired, dead, four_at_once
from support.sink.starts import refusal
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

SEED = 20261122
COUNT = 12


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.05)


@pytest.fixture
def task(kafka: LocalKafka) -> Dead:
    """Every record of it is a dead letter."""
    return dead(kafka.bootstrap_servers, COUNT).kill()


def small_chunks(monkeypatch: pytest.MonkeyPatch, letters: int) -> None:
    real = redrive.chunks
    monkeypatch.setattr(redrive, "chunks", lambda found, *, most: real(found, most=min(most, letters)))


def once(*offsets: int) -> Counter[int]:
    return Counter(offsets)


# The ordinary way


def test_each_letter_is_delivered_once_also_when_it_is_redriven_twice(task: Dead) -> None:
    assert task.redrive() == Summary(delivered=COUNT)
    assert task.redrive() == Summary()
    assert task.judge() == once(*range(COUNT))
    assert task.pending() == 0


@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_what_is_dropped_by_where_is_settled_too(task: Dead) -> None:
    assert task.redrive(Repaired(filtered=frozenset({0, 5, COUNT - 1}))) == Summary(delivered=COUNT - 3, filtered=3)
    assert task.redrive() == Summary()
    assert task.judge() == once(*(n for n in range(COUNT) if n not in (0, 5, COUNT - 1)))


def test_a_record_of_before_1970_is_a_letter_and_is_redriven(kafka: LocalKafka) -> None:
    """Brokers take any timestamp: what .NET has where no time was set is of the year 1."""
    times = [-62_135_596_800_000, -2, -(2**62)]
    task = Dead(kafka.bootstrap_servers, [(b"v", b"k", [], at) for at in times]).kill()
    assert [each.record.timestamp for each in task.letters()] == times
    assert task.redriving().survey().foreign == []  # type: ignore[union-attr]
    assert task.redrive() == Summary(delivered=len(times))


@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_a_chunk_of_which_nothing_is_left(task: Dead) -> None:
    assert task.redrive(Repaired(filtered=frozenset(range(COUNT)))) == Summary(filtered=COUNT)
    assert task.pending() == 0


def test_what_fails_again_is_a_letter_again_and_of_a_later_redrive(task: Dead) -> None:
    first = {letter.record.offset: letter for letter in task.letters()}
    for times in (1, 2):
        fails = Repaired(astray=frozenset({3, 4}))
        wanted = COUNT - 2 if times == 1 else 0
        assert task.redrive(fails) == Summary(delivered=wanted, dead_lettered=2), "once in one call"
        assert task.pending() == 2
        again = [letter for letter in task.letters() if letter.redrives == times]
        assert [letter.record for letter in again] == [first[n].record for n in (3, 4)], "the source's, not nested"
        assert {letter.verdict.error_class for letter in again} == {ErrorClass.PARTITION_OUT_OF_RANGE}
        assert {letter.sink for letter in again} == {task.sink.id}
    assert task.redrive() == Summary(delivered=2)
    assert task.judge() == once(*range(COUNT))


def test_beside_a_run_of_the_pipeline(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dead-lettered meanwhile is of a later redrive; neither fences the other."""
    small_chunks(monkeypatch, 2)
    task = dead(kafka.bootstrap_servers, COUNT)
    worker = Worker()
    task.write(task.rows(range(4), bad=range(4)), end=4)

    def transform(letters: list[object]) -> object:
        begin = task.state.next
        writer = task.writer(begin + 2, worker=worker)
        writer.write(task.rows(range(begin, begin + 2), bad=[begin]))
        writer.finish()
        task.take(writer.receipt())
        return ALL_FINE(letters)  # type: ignore[arg-type]

    assert task.redrive(transform) == Summary(delivered=4)  # type: ignore[arg-type]
    assert task.pending() == 2
    assert task.redrive(Repaired()) == Summary(delivered=2)
    assert task.judge() == once(*range(8))


def test_by_filter_and_then_all(kafka: LocalKafka) -> None:
    task = dead(kafka.bootstrap_servers, COUNT)
    batch = task.rows(range(COUNT), bad=range(6), astray=range(6, COUNT))
    task.write(batch)
    ids = task.ids()
    assert task.redrive(ids=frozenset({ids[7], ids[2]})).delivered == 2
    assert task.redrive(ids=frozenset({ids[7], ids[3]})).delivered == 1
    assert task.redrive(classes=frozenset({ErrorClass.MALFORMED_JSON})).delivered == 4
    assert task.redrive(until=1) == Summary()
    assert task.judge() == once(7, *range(6))
    assert task.redrive(since=1).delivered == COUNT - 7
    assert task.judge() == once(*range(COUNT))


@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_what_fails_again_in_another_partition_is_of_a_later_redrive_too(kafka: LocalKafka) -> None:
    task = dead(kafka.bootstrap_servers, 40)
    task.write(task.rows(range(20), bad=range(20)), end=20)
    # From now on most keys are of another partition than before.
    topics.add_partitions(task.servers, task.sink.dead, 3)
    task.write(task.rows(range(20, 40), bad=range(20, 40)))
    assert {each.partition for each in task.ids().values()} == {0, 1, 2}
    assert task.redrive(Repaired(astray=frozenset(range(20)))) == Summary(delivered=20, dead_lettered=20)
    assert {each.partition for source, each in task.ids().items() if source < 20} == {0, 1, 2}
    assert task.redrive() == Summary(delivered=20)
    assert task.judge() == once(*range(40))


def test_the_letters_of_others_stay_theirs(kafka: LocalKafka) -> None:
    one, other = (dead(kafka.bootstrap_servers, COUNT) for _ in range(2))
    shared = DeadLetterSettings(topic=TopicRequest(name=one.sink.dead))
    one.kill()
    plan = other.plan(settings=other.sink.settings(data=other.settings.data, dead_letter=shared))
    writer = exactly_once.ExactlyOnceWriter(plan, other.at, Worker())
    writer.write(other.rows(range(COUNT), bad=range(COUNT)))
    writer.finish()
    assert one.redrive().delivered == COUNT
    assert (one.judge(), other.judge()) == (once(*range(COUNT)), Counter())


def test_of_a_sink_that_delivers_at_least_once(kafka: LocalKafka) -> None:
    task = dead(kafka.bootstrap_servers, COUNT, exactly_once=False).kill()
    assert task.redrive() == Summary(delivered=COUNT)
    found = Counter(int(text.split()[1]) for text in task.sink.delivered())
    assert found == once(*range(COUNT))


@pytest.mark.thorough("waits for a rate")
def test_at_a_rate_and_stopped(task: Dead) -> None:
    """Stopped after the first letter's transaction, which counts."""
    stop = threading.Event()
    changes: list[Summary] = []

    def on_change(summary: Summary) -> None:
        changes.append(summary)
        if summary.delivered:
            stop.set()

    assert task.redrive(rate=1.0, stop=stop, on_change=on_change) == Summary(delivered=1, pending=COUNT - 1)
    assert changes[0] == Summary(pending=COUNT)
    assert task.redrive().delivered == COUNT - 1
    assert task.judge() == once(*range(COUNT))


# What Kafka refuses


def test_a_row_that_the_broker_refuses_is_found_and_dead_lettered_again(
    task: Dead, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.alter_topic(task.servers, task.sink.data, {"max.message.bytes": "2000"})
    # As if it were lowered later.
    for name in ("limits_of", "data_limits_of"):
        monkeypatch.setattr(redrive, name, lambda topic: TopicLimits(partitions=topic.partitions, message_bytes=5_000))
    large = Repaired(values={4: b"x" * 3000, 9: b"x" * 3000})
    assert task.redrive(large) == Summary(delivered=COUNT - 2, dead_lettered=2)
    again = [letter for letter in task.letters() if letter.redrives]
    assert [(letter.record.offset, letter.verdict.code) for letter in again] == [
        (4, "MSG_SIZE_TOO_LARGE"),
        (9, "MSG_SIZE_TOO_LARGE"),
    ]
    assert task.judge() == once(*(n for n in range(COUNT) if n not in (4, 9)))
    assert task.pending() == 2


@pytest.mark.parametrize("drop", [False, True], ids=["Stop", "DropAndContinue"])
@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_one_that_fails_again_and_can_be_no_letter_again_is_not_lost(kafka: LocalKafka, drop: bool) -> None:
    task = dead(kafka.bootstrap_servers, COUNT, drop=drop).kill()
    topics.alter_topic(task.servers, task.sink.dead, {"max.message.bytes": "450"})
    fails = Repaired(astray=frozenset({4}))
    if drop:
        assert task.redrive(fails) == Summary(delivered=COUNT - 1, kept=1)
        assert task.pending() == 1
    else:
        attempt = task.redriving(fails)
        survey = attempt.survey()
        assert survey is not None
        refusal(lambda: attempt.carry_out(survey), Reason.DEAD_LETTER_FAILED)
        assert attempt.summary == Summary(delivered=4, pending=COUNT - 4)
        assert task.pending() == COUNT - 4
    task.redrive()
    assert task.judge() == once(*range(COUNT))


@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_many_spans_fit_into_a_small_topic(kafka: LocalKafka) -> None:
    """What is settled here and there takes several redrive records."""
    count = 300
    task = dead(kafka.bootstrap_servers, count, dead_config={"max.message.bytes": "1500"}).kill()
    assert task.redrive(Repaired(filtered=frozenset(range(0, count, 2)))) == Summary(delivered=150, filtered=150)
    sentinels = [
        each for each in topics.read_committed(task.servers, task.sink.dead) if b'"nonce"' in (each.value or b"")
    ]
    assert len(sentinels) == 1, "nothing had to be halved"
    assert task.redrive() == Summary()


# Trouble in the middle


@pytest.mark.parametrize("outcome", ["lost", "answer lost"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_commit_in_doubt_makes_no_second_copy(task: Dead, monkeypatch: pytest.MonkeyPatch, outcome: str) -> None:
    small_chunks(monkeypatch, 4)
    # The first commit is the sentinel's.
    left = commits.planned(monkeypatch, "committed", "committed", outcome)
    fails = Repaired(filtered=frozenset({5}), astray=frozenset({6}))
    assert task.redrive(fails) == Summary(delivered=COUNT - 2, filtered=1, dead_lettered=1)
    assert left == []
    assert task.judge() == once(*(n for n in range(COUNT) if n not in (5, 6)))
    assert [letter.record.offset for letter in task.letters() if letter.redrives] == [6]


@pytest.mark.parametrize("point", ["redrive-after-claim", "redrive-before-commit", "redrive-after-commit"])
@pytest.mark.thorough("each point of one case", after=1)
def test_it_is_killed_at_every_point(task: Dead, tmp_path: Path, point: str) -> None:
    with RedriveProcess(tmp_path / "points", task.settings, rate=5) as killed:
        killed.arm(point)
        killed.until_held(point)
        killed.kill()
    expected = 5 if point == "redrive-after-commit" else 0
    assert task.redrive().delivered == COUNT - expected
    assert task.judge() == once(*range(COUNT))


@pytest.mark.thorough("kills at random; a kill at a point is beside it")
def test_many_killed_twice_at_random(kafka: LocalKafka, tmp_path: Path) -> None:
    count, chance = 10_000, random.Random(SEED)
    task = dead(kafka.bootstrap_servers, count).kill()
    for name in ("first", "second"):
        point = chance.choice(["redrive-before-commit", "redrive-after-commit"])
        with RedriveProcess(tmp_path / name, task.settings, rate=1500) as killed:
            killed.arm(point)
            killed.until_held(point)
            for _ in range(chance.randrange(3)):
                killed.go_on(point)
            killed.kill()
    left = task.redrive().delivered
    assert 0 < left < count
    assert task.judge() == once(*range(count))


@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_one_that_is_only_fenced_goes_on(task: Dead, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the broker has timed the transaction out."""
    small_chunks(monkeypatch, 4)

    def transform(letters: list[object]) -> object:
        TransactionalProducer(task.sink.connection, task.redrive_id).close()
        return ALL_FINE(letters)  # type: ignore[arg-type]

    assert task.redrive(transform) == Summary(delivered=COUNT)  # type: ignore[arg-type]
    assert task.judge() == once(*range(COUNT))


def test_a_newer_redrive_goes_first(task: Dead, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 4)
    newer: list[Summary] = []

    def transform(letters: list[object]) -> object:
        rows = ALL_FINE(letters)  # type: ignore[arg-type]
        if rows is not None and rows.offsets[0] >= 4 and not newer:
            newer.append(task.redrive())
        return rows

    older = task.redriving(transform)  # type: ignore[arg-type]
    survey = older.survey()
    assert survey is not None
    refusal(lambda: older.carry_out(survey), Reason.SUPERSEDED)
    assert older.summary.delivered == 4
    assert newer == [Summary(delivered=COUNT - 4)]
    assert task.judge() == once(*range(COUNT))


@pytest.mark.thorough("two at once are beside it")
def test_many_redrives_at_once(kafka: LocalKafka) -> None:
    count = 200
    task = dead(kafka.bootstrap_servers, count).kill()
    told = four_at_once(lambda: task.redrive(rate=50))
    assert len(told) == 4
    assert {each for each in told if isinstance(each, Reason)} <= {Reason.SUPERSEDED, Reason.TRANSACTION_FAILED}
    task.redrive()
    assert task.judge() == once(*range(count))


@pytest.mark.thorough("waits for a transaction to time out")
def test_what_an_open_transaction_of_another_sink_hides_is_waited_for(
    task: Dead, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A redrive's records stand behind it: whoever reads to the last stable offset misses them, and delivers again."""
    monkeypatch.setattr(reading, "_TELL_AFTER_S", 0.2)
    foreign = topics.unique("foreign")
    with topics.open_transaction(task.servers, foreign) as producer:

        def transform(letters: list[object]) -> object:
            producer.produce(task.sink.dead, b"foreign", partition=0)
            assert producer.flush(topics.DEADLINE_S) == 0
            return ALL_FINE(letters)  # type: ignore[arg-type]

        assert task.redrive(transform).delivered == COUNT  # type: ignore[arg-type]
        assert task.redriving().survey().pending == COUNT, "that it was redriven is hidden for now"  # type: ignore[union-attr]
        later: list[Summary] = []
        thread = threading.Thread(target=lambda: later.append(task.redrive()))
        thread.start()
        wait_until(
            lambda: "waiting for the open transaction of somebody unknown" in caplog.text, "it waits, and says so"
        )
        producer.abort_transaction(topics.DEADLINE_S)
        thread.join(60)
    assert later == [Summary()]
    assert task.judge() == once(*range(COUNT))


@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_one_that_does_not_end_is_told_and_nothing_is_guessed(task: Dead, monkeypatch: pytest.MonkeyPatch) -> None:
    with topics.open_transaction(task.servers, topics.unique("foreign"), [(task.sink.dead, b"", b"")]):
        with monkeypatch.context() as patch:
            patch.setattr(dead_letter_log, "READ_DEADLINE_S", 1.0)
            refused = refusal(task.redrive, Reason.DEAD_LETTERS_UNREADABLE)
        assert f"partition 0 of {task.sink.dead}" in refused.message
        assert "holds it back" in refused.message
        assert topics.read_committed(task.servers, task.sink.data, settled=False) == []
    assert task.redrive().delivered == COUNT


def test_one_that_does_not_end_holds_up_no_other_partition(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those behind it, nor letters that are named."""
    monkeypatch.setattr(dead_letter_log, "READ_DEADLINE_S", 1.0)
    task = dead(kafka.bootstrap_servers, 40, partitions=2).kill()
    by_partition = Counter(each.partition for each in task.ids().values())
    assert set(by_partition) == {0, 1}
    behind = next(each for each in task.ids().values() if each.partition == 1)
    with topics.open_transaction(task.servers, topics.unique("foreign"), [(task.sink.dead, b"", b"")]):
        assert task.redrive(ids=frozenset({behind})) == Summary(delivered=1), "its own partition can be read"
        attempt = task.redriving()
        survey = attempt.survey()
        assert survey is not None
        assert [view.hidden > 0 for view in survey.partitions] == [True, False]
        refusal(lambda: attempt.carry_out(survey), Reason.DEAD_LETTERS_UNREADABLE)
        assert attempt.summary == Summary(delivered=by_partition[1] - 1, pending=by_partition[0])
    assert task.redrive().delivered == by_partition[0]
    assert task.judge() == once(*range(40))


@pytest.mark.thorough("random troubles beside the named ones")
def test_trouble_at_random(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    count, chance = 300, random.Random(SEED)
    task = dead(kafka.bootstrap_servers, count, partitions=2, data_config={"max.message.bytes": "2000"}).kill()
    began = int(time.time() * 1000) + 1
    small_chunks(monkeypatch, 30)
    fates = {n: chance.choice(["filtered", "astray", "large"]) for n in range(count) if chance.random() < 0.1}
    of = {kind: frozenset(n for n, fate in fates.items() if fate == kind) for kind in ("filtered", "astray", "large")}
    # Only the broker knows.
    for name in ("limits_of", "data_limits_of"):
        monkeypatch.setattr(redrive, name, lambda topic: TopicLimits(partitions=1, message_bytes=100_000))  # noqa: ARG005
    transform = Repaired(of["filtered"], of["astray"], dict.fromkeys(sorted(of["large"])[:1], b"x" * 3000))
    fails = len(of["astray"]) + 1
    real = TransactionalProducer.commit

    def commit(producer: TransactionalProducer, *more: float) -> None:
        fate = chance.random()
        if fate < 0.05:
            TransactionalProducer(task.sink.connection, producer.transactional_id).close()
        real(producer, *more)
        if fate > 0.95:
            raise InDoubt("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalProducer, "commit", commit)
        total: Counter[str] = Counter()
        left = count
        while left:
            # Not what failed again meanwhile: it would fail for ever.
            attempt = task.redriving(transform, until=began)
            survey = attempt.survey()
            assert survey is not None
            with suppress(SinkPipelineError):
                attempt.carry_out(survey)
            total += Counter(vars(attempt.summary))
            left = attempt.summary.pending
    expected = count - len(of["filtered"]) - fails
    assert (total["delivered"], total["filtered"]) == (expected, len(of["filtered"]))
    assert task.pending() == fails
    values = Counter(task.delivered())
    assert set(values.values()) == {1}
    assert len(values) == expected


# A world that is not as it should be


@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_no_topic_an_empty_one_and_a_sink_that_never_ran(kafka: LocalKafka) -> None:
    task = dead(kafka.bootstrap_servers, COUNT, auto_create=False)
    assert task.redriving().survey() is None
    topics.create_topic(task.servers, task.sink.dead)
    assert task.redrive() == Summary()
    row = encode(
        Envelope(
            sink=task.sink.id,
            verdict=Verdict(ErrorClass.WRONG_TYPE, "x"),
            record=SourceRecord(partition=task.at, offset=1, key=None, value=b"v", headers=None, timestamp=AT_MS),
        )
    )
    topics.produce_whole(task.servers, task.sink.dead, [(row[0], row[1], row[4], 1)])  # type: ignore[list-item]
    topics.delete_topic(task.servers, task.sink.progress)
    refusal(task.redrive, Reason.PROGRESS_LOST)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "re-created"])
@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_a_data_topic_that_is_lost_is_not_delivered_into(task: Dead, again: bool) -> None:
    topics.delete_topic(task.servers, task.sink.data)
    if again:
        topics.create_topic(task.servers, task.sink.data)
    refusal(task.redrive, Reason.DATA_TOPIC_LOST)
    assert task.pending() == COUNT


@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_a_topic_that_is_recreated_in_the_middle_settles_nothing(task: Dead, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 4)
    seen: list[object] = []

    def transform(letters: list[object]) -> object:
        if seen:
            topics.recreate_topic(task.servers, task.sink.dead)
        seen.append(letters)
        return ALL_FINE(letters)  # type: ignore[arg-type]

    refusal(lambda: task.redrive(transform), Reason.TOPICS_CHANGED)  # type: ignore[arg-type]


@pytest.mark.thorough("a rare end: the usual ones are in make test")
def test_what_is_said_of_another_topic_settles_nothing(task: Dead, kafka: LocalKafka) -> None:
    """A copy of a redrive record, with the offsets of the topic that it was copied from."""
    other = dead(kafka.bootstrap_servers, COUNT).kill()
    other.redrive()
    records = [
        (each.value or b"").replace(other.sink.id.identity.encode(), task.sink.id.identity.encode())
        for each in topics.read_committed(task.servers, other.sink.dead)
        if dict(each.headers).keys() == {"sinkpipeline.dlq.redriven"}
    ]
    headers: list[tuple[str, bytes | None]] = [("sinkpipeline.dlq.redriven", b"1")]
    topics.produce_whole(task.servers, task.sink.dead, [(each, None, headers, 1) for each in records])
    assert task.pending() == COUNT
    assert task.redrive().delivered == COUNT


def test_a_compacted_topic_is_refused(task: Dead) -> None:
    """Who follows the remedy is told what compaction may have removed."""
    topics.alter_topic(task.servers, task.sink.dead, {"cleanup.policy": "compact,delete"})
    error = refusal(task.redrive, Reason.DEAD_LETTER_FAILED)
    assert "What was redriven before may be pending again" in error.remedy


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, ["12 of them are of records that are older"]),
        ({"retention.ms": "-1"}, []),
        ({"cleanup.policy": "compact"}, ["topic {} is compacted: what is written of a letter replaces"]),
    ],
    ids=str,
)
def test_what_becomes_of_rows_in_the_data_topic_is_told_before(
    task: Dead, config: dict[str, str], told: list[str]
) -> None:
    if config:
        topics.alter_topic(task.servers, task.sink.data, config)
    redrive = task.redriving()
    survey = redrive.survey()
    assert survey is not None
    found = list(redrive.forecast(survey))
    assert len(found) == len(told)
    assert all(line.startswith(start.format(task.sink.data)) for line, start in zip(found, told, strict=True))


def test_foreign_records_are_told_and_passed_over(task: Dead) -> None:
    version_2 = [("sinkpipeline.dlq.version", b"2"), ("sinkpipeline.dlq.identity", task.sink.id.identity.encode())]
    odd = [(b"\xff", b"\xff", [], 1), (None, None, [], 1), (b"{}", None, version_2, 1)]
    odd += [(b"no json", None, [("sinkpipeline.dlq.redriven", b"1")], 1)]
    topics.produce_whole(task.servers, task.sink.dead, odd)  # type: ignore[arg-type]
    survey = task.redriving().survey()
    assert survey is not None
    assert (survey.pending, len(survey.foreign)) == (COUNT, 4)
    assert any("version 2" in each for each in survey.foreign)
    assert task.redrive().delivered == COUNT


def test_a_redrive_record_of_a_newer_release_stops_everything(task: Dead) -> None:
    header = [("sinkpipeline.dlq.redriven", b"2")]
    topics.produce_whole(task.servers, task.sink.dead, [(b'{"version":2}', None, header, 1)])  # type: ignore[list-item]
    refusal(task.redrive, Reason.PROGRESS_VERSION_UNKNOWN)
    assert task.sink.delivered() == []


def test_what_retention_takes_while_it_is_redriven_is_gone(task: Dead, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 4)
    attempt = task.redriving()
    survey = attempt.survey()
    assert survey is not None
    topics.delete_records(task.servers, task.sink.dead, 6)
    summary = attempt.carry_out(survey)
    assert summary == Summary(delivered=COUNT - 6, gone=6)
    assert task.judge() == once(*range(6, COUNT))
    assert task.redrive() == Summary()
