"""From a bad row to its dead letter: whose bytes it has, and what is asked of the topic before."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

import pytest

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.deadletter import ErrorClass, SourceRecord, Verdict, parse
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import NoDeadLetter
from sinkpipeline.core.progress import Owner, PartitionProgress
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KAFKA
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings, SourceSettings
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.dead_letters import DeadLetters
from sinkpipeline.sinks.worker import Worker
from support.sink.starts import refusal

AT = SourcePartition("source", 0)
CONNECTION = Connection(bootstrap_servers="nowhere:1")
DECODE = Verdict(ErrorClass.MALFORMED_JSON, "no object")
SERIALIZE = Verdict(ErrorClass.PARTITION_OUT_OF_RANGE, "7 of 1")
DEAD = Topic(name="dead", id="d", partitions=1, replication_factor=1)
ROW = RowBatch(
    offsets=[5],
    keys=[b"row's"],
    values=[b"row's"],
    target_partitions=None,
    timestamps=[0],
    headers=[[("row's", None)]],
    errors=None,
    size=10,
)
FAILED = replace(ROW, errors=["MalformedJson: no object"])
RECORD = SourceRecord(
    partition=AT, offset=5, key=b"source's", value=b"source's", headers=[("source's", None)], timestamp=9
)


@dataclass
class World:
    """A cluster, as far as it is asked."""

    topic: Topic | None = DEAD
    denied: frozenset[str] = frozenset()
    error: SinkPipelineError | None = None
    record: SourceRecord | None = RECORD
    asked: list[str] = field(default_factory=list)

    def topics(self, names: list[str]) -> dict[str, Topic | None]:
        self.asked += names
        if self.error is not None:
            raise self.error
        return dict.fromkeys(names, self.topic)

    def denies(self, _name: str, _operations: tuple[str, ...]) -> frozenset[str]:
        return self.denied

    def read(self, offset: int) -> SourceRecord | None:
        self.asked.append(f"offset {offset}")
        return self.record

    def letters(self, *, auto_create: bool = False, most: int = 10_000) -> DeadLetters:
        world = self

        class Cluster(Worker):
            def shared(self, *_: object) -> object:  # type: ignore[override]
                return type("Admin", (), {"topics": staticmethod(world.topics), "denied": staticmethod(world.denies)})

        settings = DeadLetterSettings(topic=TopicRequest(name="dead"), auto_create=auto_create)
        plan = BatchPlan(
            kind=KAFKA,
            settings=SinkSettings(
                id=SinkId("i", "s"),
                owner=Owner(cluster="file", name="n"),
                source=SourceSettings(connection=CONNECTION, topics=(AT.topic,)),
                connection=CONNECTION,
                data=TopicRequest(name="data"),
                progress=TopicRequest(name="progress"),
                dead_letter=settings,
            ),
            run="r",
            data_limits=TopicLimits(partitions=1, message_bytes=1000),
            letter_limits=TopicLimits(partitions=1, message_bytes=most),
            data_topic_id="d",
            progress_topic_id="p",
            verified=0,
            ranges={AT: OffsetRange(0, 10)},
            frontier={AT: PartitionProgress(epoch=0, next=0)},
            owners={},
        )
        letters = DeadLetters(plan, settings, AT, Cluster())
        letters._source.read = world.read  # type: ignore[method-assign]
        return letters


def missing(letters: DeadLetters, verdict: Verdict = DECODE) -> NoDeadLetter:
    with pytest.raises(NoDeadLetter) as caught:
        letters.row(ROW, 0, verdict)
    return caught.value


@pytest.mark.parametrize(
    "verdict", [DECODE, Verdict(ErrorClass.EVALUATION_FAILED, "no")], ids=lambda v: v.error_class.value
)
def test_of_what_was_not_decoded_or_not_transformed_the_row_is_the_record(verdict: Verdict) -> None:
    world = World()
    failed = replace(ROW, errors=[verdict.error_class.error("no")])
    value, key, _, _, headers = world.letters().row(failed, 0, verdict)
    letter = parse(value, key, headers)
    assert (value, key, letter.record.headers, letter.record.timestamp) == (b"row's", b"row's", [("row's", None)], -1)
    assert world.asked == ["dead"]


@pytest.mark.parametrize(
    "verdict",
    [SERIALIZE, Verdict(ErrorClass.RECORD_REFUSED, "no"), Verdict(ErrorClass.TOO_MANY_ROWS, "too many bytes")],
    ids=lambda v: v.error_class.value,
)
def test_what_failed_later_is_quoted_from_the_source(verdict: Verdict) -> None:
    world = World()
    value, key, _, _, headers = world.letters().row(ROW, 0, verdict)
    assert parse(value, key, headers).record == RECORD
    assert world.asked == ["dead", "offset 5"]


def test_what_the_source_has_no_more_has_no_dead_letter() -> None:
    assert "no record at offset 5" in missing(World(record=None).letters(), SERIALIZE).fact


def test_one_that_is_too_large_tells_both_sizes() -> None:
    record = replace(RECORD, value=b"x" * 900)
    failure = missing(World(record=record).letters(most=1000), SERIALIZE)
    assert "topic dead takes 1000" in failure.fact
    assert "max.message.bytes of dead" in failure.remedy


def test_the_topic_is_looked_at_once_until_something_goes_wrong() -> None:
    world = World()
    letters = world.letters()
    for _ in range(3):
        letters.row(FAILED, 0, DECODE)
    assert world.asked == ["dead"]
    world.topic = None
    letters.look_again()
    for _ in range(3):
        missing(letters)
    assert world.asked == ["dead", "dead"]
    world.topic = DEAD
    letters.look_again()
    letters.row(ROW, 0, DECODE)


def test_a_missing_topic_that_is_created_ends_the_batch() -> None:
    letters = World(topic=None).letters(auto_create=True)
    error = refusal(lambda: letters.row(ROW, 0, DECODE), Reason.TOPICS_CHANGED)
    assert error.reason.retry


def test_a_missing_topic_that_is_not_created_is_told() -> None:
    assert missing(World(topic=None).letters()).fact == "topic dead does not exist, and autoCreate is false"


def test_missing_rights_are_told() -> None:
    assert "Write on topic dead is not granted" in missing(World(denied=frozenset({"WRITE"})).letters()).fact
    hidden = SinkPipelineError(Reason.AUTHORIZATION_FAILED, "Describe on topic dead is not granted", "grant it")
    assert missing(World(error=hidden).letters()).fact == hidden.message


def test_a_broker_that_does_not_answer_is_another_matter() -> None:
    error = SinkPipelineError(Reason.BROKER_UNREACHABLE, "no answer", "wait")
    refusal(lambda: World(error=error).letters().row(ROW, 0, DECODE), Reason.BROKER_UNREACHABLE)


def test_dropped_records_are_logged_but_not_without_bound(caplog: pytest.LogCaptureFixture) -> None:
    letters = World().letters()
    with caplog.at_level(logging.WARNING, "sinkpipeline.sink"):
        for offset in range(1000):
            letters.dropped(offset, DECODE, NoDeadLetter("there is no topic", "create it"))
        letters.close()
    assert len(caplog.messages) == 6
    assert "offset 0 (MalformedJson: no object): there is no topic" in caplog.messages[0]
    assert caplog.messages[-1].endswith("dropped 1000 records")
