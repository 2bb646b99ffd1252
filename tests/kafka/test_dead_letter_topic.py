"""What starts, validation and rights have to do with the dead-letter topic, and reading the source again."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from servers.local_kafka import LocalKafka
from sinkpipeline.core.deadletter import parse
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.purify import purify
from sinkpipeline.kafka.settings import DeadLetterSettings
from sinkpipeline.kafka.source.reader import SourceReader
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.dead_letters import records
from support.sink.one_sink import OneSink, plan_of, rows
from support.sink.starts import refusal
from support.worlds.secure import Right, SecureKafka
from support.worlds.secured_sink import Secured

pytestmark = pytest.mark.kafka


def letters(sink: OneSink, *, auto_create: bool = True, drop: bool = False, **topic: object) -> DeadLetterSettings:
    request = TopicRequest(name=sink.dead, **topic)  # type: ignore[arg-type]
    return DeadLetterSettings(topic=request, auto_create=auto_create, drop=drop)


# Starts


def test_a_start_creates_it_as_the_manifest_says(sink: OneSink) -> None:
    config = {"max.message.bytes": "2000000"}
    started = sink.start(dead_letter=letters(sink, partitions=3, config=config))
    assert topics.partition_count(sink.servers, sink.dead) == 3
    assert (started.letter_limits.message_bytes, started.drift) == (2_000_000, ())
    assert topics.topic_id(sink.servers, sink.dead) != started.progress.meta.created  # type: ignore[union-attr]


def test_a_start_leaves_it_alone_where_it_may_not_create_it(sink: OneSink) -> None:
    started = sink.start(dead_letter=letters(sink, auto_create=False))
    assert topics.topic_id(sink.servers, sink.dead) is None
    assert started.drift == (f"{sink.dead} does not exist, and autoCreate is false",)


def test_a_start_takes_the_one_that_is_there_and_tells_what_differs(sink: OneSink) -> None:
    topic_id = topics.create_topic(sink.servers, sink.dead, partitions=2)
    started = sink.start(dead_letter=letters(sink, partitions=3))
    assert topics.topic_id(sink.servers, sink.dead) == topic_id
    assert started.drift == (f"{sink.dead} has 2 partitions, the manifest says 3",)
    topics.delete_topic(sink.servers, sink.dead)
    sink.start("run-2", dead_letter=letters(sink, partitions=3))
    assert topics.partition_count(sink.servers, sink.dead) == 3


def test_a_start_tells_of_a_topic_that_would_lose_letters(sink: OneSink) -> None:
    topics.create_topic(sink.servers, sink.dead, config=topics.COMPACTED)
    [told] = sink.start(dead_letter=letters(sink)).drift
    assert "is compacted" in told


def test_a_refused_start_creates_nothing(sink: OneSink) -> None:
    topics.create_topic(sink.servers, sink.progress, partitions=2)
    refusal(lambda: sink.start(dead_letter=letters(sink)), Reason.PROGRESS_TOPIC_INVALID)
    assert topics.topic_id(sink.servers, sink.dead) is None


def test_validation_tells_what_a_start_would_do(sink: OneSink) -> None:
    [finding] = purify([sink.settings(dead_letter=letters(sink))])
    assert finding.plan.endswith("creates the progress topic, the data topic and the dead-letter topic")
    assert topics.topic_id(sink.servers, sink.dead) is None
    [finding] = purify([sink.settings(dead_letter=letters(sink, auto_create=False))])
    assert finding.plan.endswith("creates the progress topic and the data topic")
    assert finding.warnings == (f"{sink.dead} does not exist, and autoCreate is false",)
    [finding] = purify([sink.settings(dead_letter=letters(sink, replication_factor=5))])
    assert finding.error is not None
    assert finding.error.reason is Reason.TOPIC_CREATION_FAILED


# Rights


@pytest.fixture
def secured(secure_kafka: SecureKafka, tmp_path: Path) -> Secured:
    return Secured(servers=secure_kafka.bootstrap_servers, kafka=secure_kafka, directory=tmp_path)


def right(sink: Secured, operation: AclOperation) -> Right:
    return Right(ResourceType.TOPIC, sink.dead, operation, ResourcePatternType.LITERAL)


@pytest.mark.parametrize("drop", [False, True], ids=["Stop", "DropAndContinue"])
@pytest.mark.parametrize("allowed", [True, False], ids=["with the right", "without it"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_the_documented_rights_suffice_and_without_write_on_failure_is_obeyed(
    secured: Secured, *, drop: bool, allowed: bool
) -> None:
    secured.grant(secured.rights("run", creating=True))
    operations = [AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS, AclOperation.CREATE]
    secured.grant([right(secured, operation) for operation in operations])
    secured.feed(range(3))
    dead_letter = letters(secured, drop=drop)
    started = secured.starter(dead_letter=dead_letter).start()
    if not allowed:
        secured.grant([right(secured, AclOperation.DESCRIBE)])
        secured.revoke([right(secured, AclOperation.WRITE)])
    plan = plan_of(secured, started, 3, settings=secured.settings(dead_letter=dead_letter))
    # The second one has to be read from the source again.
    batch = rows(range(3), errors=[None, "NullValue: the value is null", None], target_partitions=[0, 0, 9])
    with closing(started.hold):
        writer = ExactlyOnceWriter(plan, secured.at(), Worker())

        def write() -> None:
            writer.write(batch)
            writer.finish()

        if allowed or drop:
            write()
        else:
            error = refusal(write, Reason.DEAD_LETTER_FAILED)
            assert f"Write on topic {secured.dead} is not granted" in error.message
    found = topics.read_committed(secured.servers, secured.dead)
    offsets = sorted(parse(each.value, each.key, list(each.headers)).record.offset for each in found)
    counts = secured.truth()[f"p/{secured.source}/0"]
    told = (secured.delivered(), offsets, counts["next"], counts["dead"], counts["dropped"])
    assert told == (["0"], [1, 2], 3, 2, 0) if allowed else (["0"], [], *((3, 0, 2) if drop else (1, 0, 0)))


# Reading again


@pytest.fixture
def source(kafka: LocalKafka) -> OneSink:
    sink = OneSink(kafka.bootstrap_servers)
    topics.alter_topic(sink.servers, sink.source, {"retention.ms": "-1"})
    topics.produce_whole(sink.servers, sink.source, records(3000))
    return sink


def test_any_record_is_read_again_in_any_order(source: OneSink) -> None:
    chance = random.Random(1)
    known = records(3000)
    with closing(SourceReader(source.connection, "g", source.at())) as reader:
        for offset in (0, 1, 2, 2, 1, 2999, 5, *(chance.randrange(3000) for _ in range(30)), 0):
            record = reader.read(offset)
            assert record is not None
            assert (record.value, record.key, record.headers, record.timestamp) == known[offset]
            assert (record.offset, record.partition) == (offset, source.at())


def test_a_record_that_came_after_the_end_was_seen_is_read(source: OneSink) -> None:
    with closing(SourceReader(source.connection, "g", source.at())) as reader:
        assert reader.read(2999) is not None
        topics.produce_whole(source.servers, source.source, [(b"new", b"k", [], 7)])
        found = reader.read(3000)
        assert found is not None
        assert found.value == b"new"


def test_what_the_source_has_no_more_is_told(source: OneSink) -> None:
    with closing(SourceReader(source.connection, "g", source.at())) as reader:
        assert reader.read(10) is not None
        topics.delete_records(source.servers, source.source, 100)
        assert reader.read(5) is None
        assert reader.read(99) is None
        found = reader.read(100)
        assert found is not None
        assert found.offset == 100


def test_where_a_marker_stands_there_is_no_record(source: OneSink) -> None:
    topics.aborted_transaction(source.servers, topics.unique("id"), [(source.source, b"k", b"aborted")])
    topics.produce_whole(source.servers, source.source, [(b"behind", b"k", [], 7)])
    with closing(SourceReader(source.connection, "g", source.at())) as reader:
        for offset, value in ((3000, b"aborted"), (3001, None), (3002, b"behind")):
            record = reader.read(offset)
            assert (None if record is None else record.value) == value
