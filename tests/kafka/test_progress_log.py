from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import TopicPartition

from servers.local_kafka import LocalKafka
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SENTINEL_KEY, SinkId, SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.progress_records import encode, encode_partition, encode_sentinel
from sinkpipeline.kafka import progress_log
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.follower import ProgressFollower
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from support.kafka import topics
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

P0, P1 = SourcePartition("raw", 0), SourcePartition("raw", 1)


def state(next_: int) -> PartitionProgress:
    return PartitionProgress(epoch=0, next=next_)


def sound(first: int = 5, second: int = 7, *, run: str = "r") -> Progress:
    meta = Meta(epoch=0, run=run, owner=Owner(cluster="file", name="n"), partitions={"raw": 2})
    return Progress(meta=meta, partitions={P0: state(first), P1: state(second)})


@dataclass(frozen=True)
class Place:
    """A progress topic and one sink in it."""

    servers: str
    topic: str = field(default_factory=lambda: topics.unique("progress"))
    sink: SinkId = field(default_factory=lambda: SinkId(topics.unique("i"), "s"))

    @property
    def connection(self) -> Connection:
        return Connection(bootstrap_servers=self.servers)

    def write(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        """Not under a fence: what stands in the log is what the reader must judge."""
        topics.produce(self.servers, self.topic, [(key.encode(), value) for key, value in records])

    def write_foreign(self, count: int) -> None:
        key = SinkId("somebody", "else").partition_key(P0)
        self.write((key, encode_partition(state(number))) for number in range(count))

    def resume(self, control: TransactionalProducer | None = None) -> Progress:
        with ProgressLog(self.connection, self.topic, "g") as log:
            producer = control or TransactionalProducer(self.connection, self.sink.control_id)
            try:
                return log.resume(self.sink, producer)
            finally:
                producer.close()

    def resume_since(self, offset: int) -> Progress:
        producer = TransactionalProducer(self.connection, self.sink.control_id)
        with ProgressLog(self.connection, self.topic, "g") as log:
            try:
                return log.resume_since(self.sink, producer, offset)
            finally:
                producer.close()

    def decide(self) -> Progress:
        with ProgressLog(self.connection, self.topic, "g") as log:
            return log.decide(self.sink)

    def observe(self) -> Progress:
        with ProgressLog(self.connection, self.topic, "g") as log:
            return log.observe(self.sink)

    def sentinels(self) -> int:
        return sum(key == SENTINEL_KEY for key, _ in topics.progress_records(self.servers, self.topic))

    def length(self) -> int:
        return len(topics.read_uncommitted(self.servers, self.topic))


@pytest.fixture
def place(kafka: LocalKafka) -> Place:
    found = Place(kafka.bootstrap_servers)
    topics.create_topic(found.servers, found.topic, config=topics.EAGERLY_COMPACTED)
    return found


READS: dict[str, Callable[[Place], Progress]] = {
    "resume": Place.resume,
    "decide": Place.decide,
    "observe": Place.observe,
}


def facts(progress: Progress) -> tuple[str | None, dict[SourcePartition, int]]:
    run = None if progress.meta is None else progress.meta.run
    return run, {partition: found.next for partition, found in progress.partitions.items()}


@pytest.mark.parametrize("read", READS)
def test_last_of_each_key_is_found(place: Place, read: str) -> None:
    place.write(encode(place.sink, sound(1, 2, run="old")))
    place.write_foreign(3)
    place.write(encode(place.sink, sound(5, 7, run="new")))
    place.write([(place.sink.partition_key(P1), encode_partition(state(9)))])
    assert facts(READS[read](place)) == ("new", {P0: 5, P1: 9})


@pytest.mark.parametrize("read", READS)
def test_empty_topic_holds_no_progress(place: Place, read: str) -> None:
    found = READS[read](place)
    assert facts(found) == (None, {})
    assert not found.exists


@pytest.mark.parametrize("read", READS)
@pytest.mark.thorough("each variant of one case", after=1)
def test_suffixes_are_doubled_until_they_hold_every_key(place: Place, read: str) -> None:
    place.write(encode(place.sink, sound(1, 2, run="old")))
    place.write_foreign(5_100)
    place.write(encode(place.sink, sound(5, 7, run="new")))
    place.write_foreign(1_500)
    place.write([(place.sink.partition_key(P0), encode_partition(state(6)))])
    place.write_foreign(1_500)
    starts = Starts()
    with pytest.MonkeyPatch.context() as patch:
        starts.record(patch)
        assert facts(READS[read](place)) == ("new", {P0: 6, P1: 7})
    lengths = [starts.end - start for start in starts.found]
    assert lengths == pytest.approx([1024, 2048, 4096], abs=4), "the older history was not read"


@pytest.mark.parametrize("read", READS)
def test_only_the_full_log_says_that_there_is_no_progress(place: Place, read: str) -> None:
    place.write_foreign(5_100)
    starts = Starts()
    with pytest.MonkeyPatch.context() as patch:
        starts.record(patch)
        assert facts(READS[read](place)) == (None, {})
    assert starts.found[-1] == 0


class Starts:
    """From where each read of a search began."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.end = 0

    def record(self, patch: pytest.MonkeyPatch) -> None:
        read, extent = ProgressLog._read, ProgressLog._extent

        def recorded(log: ProgressLog, sink: SinkId, start: int, **more: object) -> Progress:
            self.found.append(start)
            return read(log, sink, start, **more)

        def measured(log: ProgressLog) -> object:
            found = extent(log)
            self.end = found.high
            return found

        patch.setattr(ProgressLog, "_read", recorded)
        patch.setattr(ProgressLog, "_extent", measured)


def test_progress_far_back_is_found_by_reading_everything(place: Place) -> None:
    place.write(encode(place.sink, sound()))
    place.write_foreign(5_100)
    assert facts(place.resume()) == ("r", {P0: 5, P1: 7})


def test_resume_since_reads_only_what_is_newer(place: Place) -> None:
    place.write(encode(place.sink, sound(5, 7)))
    known = place.resume()
    place.write([(place.sink.partition_key(P1), encode_partition(state(9)))])
    newer = place.resume_since(known.end)
    assert facts(newer) == (None, {P1: 9})
    assert newer.end > known.end


class Interposing(TransactionalProducer):
    """A control producer behind which something happens as soon as a sentinel of ours is committed."""

    def __init__(self, place: Place, then: Callable[[], object]) -> None:
        super().__init__(place.connection, place.sink.control_id)
        self._then = then

    def commit(self, *more: float) -> None:
        super().commit(*more)
        self._then()


@pytest.mark.parametrize("more", [0, 3], ids=["nothing after it", "records after it"])
def test_a_sentinel_that_was_compacted_away_is_proved_by_the_position(place: Place, more: int) -> None:
    place.write(encode(place.sink, sound()))

    def compact_it_away() -> None:
        [sentinel] = [
            r.value for r in topics.read_committed(place.servers, place.topic) if r.key == SENTINEL_KEY.encode()
        ]
        assert sentinel is not None
        place.write([(SENTINEL_KEY, encode_sentinel("another reader's"))])
        topics.compact(place.servers, place.topic, without=sentinel)
        place.write_foreign(more)

    assert facts(place.resume(Interposing(place, compact_it_away))) == ("r", {P0: 5, P1: 7})


def test_what_was_compacted_away_before_a_slow_reader_got_there_is_read_beyond_its_sentinel(place: Place) -> None:
    """A newer driver went on behind the sentinel: without its records, nothing would be left to tell of either."""
    place.write(encode(place.sink, sound()))

    def supersede() -> None:
        place.write(encode(place.sink, sound(9, 9, run="newer")))
        for old in (state(5), state(7)):
            topics.compact(place.servers, place.topic, without=encode_partition(old))

    slow = Interposing(place, supersede)
    try:
        with ProgressLog(place.connection, place.topic, "slow") as log:
            assert facts(log.resume_since(place.sink, slow, 0)) == ("newer", {P0: 9, P1: 9})
    finally:
        slow.close()


def test_a_sentinel_of_another_reader_ends_nothing(place: Place) -> None:
    place.write(encode(place.sink, sound()))
    place.write([(SENTINEL_KEY, encode_sentinel("another reader's"))])
    place.write([(place.sink.partition_key(P0), encode_partition(state(6)))])
    assert facts(place.resume()) == ("r", {P0: 6, P1: 7})


@pytest.fixture
def open_foreign_transaction(place: Place) -> Iterator[str]:
    """Holds every later record of the topic back; yields what names its writer."""
    foreign = SinkId("foreign", "writer")
    key = foreign.partition_key(P0)
    place.write(encode(place.sink, sound()))
    with topics.open_transaction(
        place.servers, topics.unique("foreign"), [(place.topic, key.encode(), encode_partition(state(1)))]
    ):
        yield foreign.prefix


@pytest.mark.parametrize("read", ["resume", "decide"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_an_open_foreign_transaction_makes_progress_unreadable_and_is_named(
    place: Place, open_foreign_transaction: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_log, "READ_DEADLINE_S", 2.5)
    with pytest.raises(SinkPipelineError) as caught:
        READS[read](place)
    assert caught.value.reason is Reason.PROGRESS_UNREADABLE
    assert open_foreign_transaction in caught.value.message


def test_observing_does_not_wait_for_an_open_foreign_transaction(place: Place, open_foreign_transaction: str) -> None:
    assert open_foreign_transaction
    assert facts(place.observe()) == ("r", {P0: 5, P1: 7})


@pytest.mark.parametrize("number", [0, 1])
def test_resuming_ends_what_a_dead_task_of_this_sink_left_open(place: Place, number: int) -> None:
    place.write(encode(place.sink, sound()))
    partition = SourcePartition("raw", number)
    late = (place.topic, place.sink.partition_key(partition).encode(), encode_partition(state(99)))
    with topics.open_transaction(place.servers, place.sink.partition_id(partition), [late]):
        began = time.monotonic()
        assert facts(place.resume()) == ("r", {P0: 5, P1: 7})
        assert time.monotonic() - began < 20, "its time-out is a minute"


def test_a_foreign_transaction_that_ends_in_time_is_waited_for(place: Place) -> None:
    place.write(encode(place.sink, sound()))
    with topics.open_transaction(place.servers, topics.unique("foreign"), [(place.topic, b"x", b"y")]) as foreign:
        found = place.resume(Interposing(place, lambda: foreign.commit_transaction(topics.DEADLINE_S)))
    assert facts(found) == ("r", {P0: 5, P1: 7})


def test_aborted_records_are_not_progress(place: Place) -> None:
    place.write(encode(place.sink, sound()))
    late = (place.topic, place.sink.partition_key(P0).encode(), encode_partition(state(99)))
    topics.aborted_transaction(place.servers, place.sink.partition_id(P0), [late])
    for read in READS.values():
        assert facts(read(place)) == ("r", {P0: 5, P1: 7})


@pytest.mark.parametrize("read", READS)
def test_a_topic_whose_head_was_deleted_is_unreadable(kafka: LocalKafka, read: str) -> None:
    place = Place(kafka.bootstrap_servers)
    # The broker deletes records only of topics that it may delete from: the policy that this sink would be refused for.
    topics.create_topic(place.servers, place.topic, config={"cleanup.policy": "delete"})
    place.write(encode(place.sink, sound()))
    topics.delete_records(place.servers, place.topic, 1)
    with pytest.raises(SinkPipelineError) as caught:
        READS[read](place)
    assert caught.value.reason is Reason.PROGRESS_UNREADABLE
    assert "begins at offset 1" in caught.value.message


def test_what_is_left_after_a_deletion_is_enough_where_it_is_complete(kafka: LocalKafka) -> None:
    place = Place(kafka.bootstrap_servers)
    topics.create_topic(place.servers, place.topic, config={"cleanup.policy": "delete"})
    place.write_foreign(2)
    place.write(encode(place.sink, sound()))
    topics.delete_records(place.servers, place.topic, 2)
    assert facts(place.resume()) == ("r", {P0: 5, P1: 7})


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([("p/raw/0", b"{")], Reason.PROGRESS_CORRUPT),
        ([("p/raw/0", encode_partition(state(2))), ("p/raw/0", encode_partition(state(1)))], Reason.PROGRESS_REGRESSED),
        ([("meta", b'{"v":3}')], Reason.PROGRESS_VERSION_UNKNOWN),
    ],
    ids=lambda value: value.value if isinstance(value, Reason) else "",
)
@pytest.mark.parametrize("read", READS)
@pytest.mark.thorough("each variant of one case", after=3)
def test_what_is_wrong_in_the_log_is_refused(
    kafka: LocalKafka, read: str, records: list[tuple[str, bytes]], reason: Reason
) -> None:
    place = Place(kafka.bootstrap_servers)
    # Not eagerly compacted, which would take the older of two away.
    topics.create_topic(place.servers, place.topic, config=topics.COMPACTED)
    place.write((place.sink.prefix + key, value) for key, value in records)
    with pytest.raises(SinkPipelineError) as caught:
        READS[read](place)
    assert caught.value.reason is reason


def test_deciding_refuses_progress_that_stays_contradictory(place: Place) -> None:
    place.write([(place.sink.partition_key(P0), encode_partition(state(1)))])
    with pytest.raises(SinkPipelineError) as caught:
        place.decide()
    assert caught.value.reason is Reason.PROGRESS_CORRUPT


@pytest.mark.parametrize(("read", "written"), [("resume", 1), ("decide", 1), ("observe", 0)])
def test_a_read_writes_a_sentinel_or_nothing(kafka: LocalKafka, read: str, written: int) -> None:
    place = Place(kafka.bootstrap_servers)
    topics.create_topic(place.servers, place.topic, config=topics.COMPACTED)
    place.write(encode(place.sink, sound()))
    before = place.length()
    READS[read](place)
    assert (place.sentinels(), place.length() - before) == (written, written)


@pytest.mark.parametrize("offset", [1_000, 1], ids=["beyond the end", "below the beginning"])
def test_an_offset_that_is_not_there_is_an_error_and_never_no_progress(kafka: LocalKafka, offset: int) -> None:
    place = Place(kafka.bootstrap_servers)
    topics.create_topic(place.servers, place.topic, config={"cleanup.policy": "delete"})
    place.write(encode(place.sink, sound()))
    place.write_foreign(5)
    topics.delete_records(place.servers, place.topic, 4)
    with pytest.raises(SinkPipelineError) as caught:
        place.resume_since(offset)
    assert caught.value.reason is Reason.PROGRESS_UNREADABLE


@pytest.mark.thorough("waits for a time-out")
def test_a_missing_topic_is_an_error_and_never_no_progress(kafka: LocalKafka) -> None:
    # The reads that write wait half a minute for the topic to appear, and end the same way.
    with pytest.raises(SinkPipelineError, match=r"Unknown (topic|partition)"):
        Place(kafka.bootstrap_servers).observe()


def test_a_follower_sees_what_is_committed_since(place: Place) -> None:
    place.write(encode(place.sink, sound()))
    follower = ProgressFollower(place.connection, place.topic, "g", place.sink)
    try:
        wait_until(lambda: follower.poll(0.1).complete, "the follower has read the whole progress")
        key = place.sink.partition_key(P0)
        late = [(place.topic, key.encode(), encode_partition(state(6)))]
        with topics.open_transaction(place.servers, place.sink.partition_id(P0), late) as producer:
            assert facts(follower.poll(0.2)) == ("r", {P0: 5, P1: 7})
            producer.commit_transaction(topics.DEADLINE_S)
        wait_until(lambda: follower.poll(0.1).partitions[P0].next == 6, "the follower has seen the commit")
        wait_until(lambda: follower.poll(0.1) and follower.position > 4, "and the marker behind it")
        assert place.sentinels() == 0
    finally:
        follower.close()


def test_readers_leave_no_consumer_group_behind(place: Place) -> None:
    place.observe()
    place.resume()
    with ProgressLog(place.connection, place.topic, "left-behind") as log:
        log.observe(place.sink)
        assert log._consumer.committed([TopicPartition(place.topic, 0)], timeout=10)[0].offset < 0
