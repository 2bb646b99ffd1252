"""The transactional writer on a real broker, driven as a task would drive it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.sinks import transactional
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.starting import StartedSink
from sinkpipeline.sinks.worker import Worker
from support.kafka import commits, topics
from support.sink.one_sink import OneSink, plan_of, rows
from support.sink.starts import refusal
from support.waiting import wait_until

pytestmark = pytest.mark.kafka


class Task:
    """A started sink, and writers of its one source partition."""

    def __init__(self, kafka: LocalKafka, **data: Any) -> None:
        self.sink = OneSink(kafka.bootstrap_servers)
        topics.produce_numbers(self.sink.servers, self.sink.source, 10)
        self.started: StartedSink = self.sink.start(
            data=replace(self.sink.settings().data, **data),
        )

    def writer(
        self,
        end: int = 10,
        *,
        worker: Worker | None = None,
        retried: bool = False,
        cuts: CutPolicy | None = None,
        **plan: Any,
    ) -> ExactlyOnceWriter:
        return ExactlyOnceWriter(
            plan_of(self.sink, self.started, end, **plan),
            self.sink.at(),
            worker or Worker(),
            retried=retried,
            cuts=cuts,
        )

    def steal(self) -> None:
        """Another instance takes the partition's id, and dies."""
        TransactionalProducer(self.sink.connection, self.sink.id.partition_id(self.sink.at())).close()

    @property
    def next(self) -> int:
        return self.sink.frontier()[0]

    @property
    def rows(self) -> int:
        """The count in the progress record."""
        return int(self.sink.truth()[f"p/{self.sink.source}/0"]["rows"])

    def delivered(self) -> list[str]:
        return self.sink.delivered()


@pytest.fixture
def task(kafka: LocalKafka) -> Task:
    return Task(kafka)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.05)


def numbers(*ranges: range) -> list[str]:
    return [str(number) for each in ranges for number in each]


def write_all(writer: ExactlyOnceWriter, *batches: RowBatch) -> Receipt:
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return writer.receipt()


# The ordinary way


def test_rows_and_progress_are_one_transaction(task: Task) -> None:
    writer = task.writer()
    writer.write(rows(range(4)))
    writer.write(rows(range(4, 8)))
    assert topics.read_committed(task.sink.servers, task.sink.data, settled=False) == []
    assert task.next == 0
    writer.finish()
    receipt = writer.receipt()
    assert task.delivered() == numbers(range(8))
    assert (task.next, task.rows) == (8, 8)
    state = receipt.progress
    assert state is not None
    assert (receipt.partition, state.next, state.rows) == (task.sink.at(), 8, 8)
    assert (receipt.delivered, receipt.commits, receipt.claims, receipt.in_doubt) == (8, 1, 1, False)
    assert receipt.verified is not None
    assert receipt.verified > task.started.progress.end
    assert time.time() * 1000 - state.at < 60_000


def test_columns_arrive_as_they_are(kafka: LocalKafka) -> None:
    task = Task(kafka, partitions=3)
    batch = rows(
        range(3),
        keys=[b"k", None, b""],
        values=[b"a", None, b"c"],
        target_partitions=[0, 1, 2],
        timestamps=[1000, 2000, 0],
        headers=[[("h", b"1")], None, []],
    )
    write_all(task.writer(3), batch)
    first, second, third = topics.read_committed(task.sink.servers, task.sink.data)
    assert (first.partition, first.key, first.value, first.timestamp) == (0, b"k", b"a", 1000)
    assert (first.headers, second.headers, third.headers) == ([("h", b"1")], [], [])
    assert (second.partition, second.key, second.value, second.timestamp) == (1, None, None, 2000)
    assert (third.partition, third.key, third.value) == (2, b"", b"c")
    assert time.time() * 1000 - third.timestamp < 60_000


def test_filtered_offsets_are_handled_too_but_for_those_behind_the_last_row(task: Task) -> None:
    """Only the driver knows that there were no more rows."""
    write_all(task.writer(9), rows(range(3), offsets=[2, 5, 6]))
    assert (task.next, task.rows) == (7, 3)


def test_a_range_without_rows_writes_nothing(task: Task) -> None:
    receipt = write_all(task.writer())
    assert (receipt.commits, receipt.delivered) == (0, 0)
    assert receipt.progress == task.started.progress.partitions[task.sink.at()]
    assert (task.next, task.delivered()) == (0, [])


def test_rows_below_the_frontier_are_skipped(task: Task) -> None:
    """Another attempt of the same batch got to offset 3 before it died."""
    write_all(task.writer(3), rows(range(3)))
    receipt = write_all(task.writer(6), rows(range(2)), rows(range(2, 6)))
    assert task.delivered() == numbers(range(6))
    assert (task.next, task.rows) == (6, 6)
    assert receipt.progress is not None
    assert receipt.progress.rows == 6


# Cuts


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        (CutPolicy(rows=2), [2, 4, 6]),
        (CutPolicy(rows=5), [5, 6]),
        (CutPolicy(rows=6), [6]),
        (CutPolicy(bytes=4), [2, 4, 6]),
        (CutPolicy(seconds=0), [4, 6]),
        (CutPolicy(), [6]),
    ],
    ids=["rows", "rows across batches", "exactly", "bytes", "seconds", "never"],
)
@pytest.mark.thorough("each variant of one case", after=2)
def test_transactions_are_cut_at_source_offsets(task: Task, cuts: CutPolicy, expected: list[int]) -> None:
    receipt = write_all(task.writer(6, cuts=cuts), rows(range(4)), rows(range(4, 6)))
    key = task.sink.id.partition_key(task.sink.at())
    records = topics.progress_records(task.sink.servers, task.sink.progress)
    assert [document["next"] for found, document in records if found == key][1:] == expected
    assert receipt.commits == len(expected)
    assert task.delivered() == numbers(range(6))
    assert (task.next, task.rows) == (6, 6)


def test_a_transaction_that_is_due_is_cut_while_rows_are_late(task: Task) -> None:
    writer = task.writer(cuts=CutPolicy(seconds=0.2))
    writer.idle()
    writer.write(rows(range(3)))
    writer.idle()
    assert topics.read_committed(task.sink.servers, task.sink.data, settled=False) == []
    wait_until(lambda: (writer.idle(), writer.receipt().commits)[1] == 1, "the transaction is due")
    assert (task.delivered(), task.next) == (numbers(range(3)), 3)
    writer.idle()
    write_all(writer, rows(range(3, 5)))
    assert (task.delivered(), task.next, writer.receipt().commits) == (numbers(range(5)), 5, 2)


# Trouble


def test_one_that_is_fenced_replays_exactly_once(task: Task) -> None:
    writer = task.writer()
    writer.write(rows(range(4)))
    task.steal()
    receipt = write_all(writer, rows(range(4, 8)))
    assert task.delivered() == numbers(range(8))
    assert (task.next, task.rows) == (8, 8)
    assert (receipt.claims, receipt.delivered, receipt.in_doubt) == (2, 8, False)


def test_one_that_is_fenced_by_an_attempt_that_delivered_delivers_nothing(task: Task) -> None:
    zombie = task.writer()
    zombie.write(rows(range(8)))
    write_all(task.writer(), rows(range(8)))
    receipt = write_all(zombie)
    assert task.delivered() == numbers(range(8))
    assert (task.next, task.rows) == (8, 8)
    assert receipt.progress is not None
    assert receipt.progress.next == 8


def test_one_that_is_fenced_between_two_cuts_goes_on_from_the_first(task: Task) -> None:
    writer = task.writer(cuts=CutPolicy(rows=3))
    writer.write(rows(range(4)))
    task.steal()
    receipt = write_all(writer, rows(range(4, 8)))
    assert task.delivered() == numbers(range(8))
    assert (task.next, receipt.delivered, receipt.claims) == (8, 8, 2)


def test_troubles_between_which_something_comes_through_are_no_reason_to_give_up(task: Task) -> None:
    """A batch that takes hours may be fenced more often than a task tries in a row."""
    writer = task.writer(cuts=CutPolicy(rows=1))
    for offset in range(8):
        task.steal()
        writer.write(rows(range(offset, offset + 1)))
    writer.finish()
    assert task.delivered() == numbers(range(8))
    assert (task.next, task.rows, writer.receipt().claims) == (8, 8, 9)


def test_a_newer_driver_is_noticed_before_anything_is_written(task: Task) -> None:
    task.sink.start("run-2")
    error = refusal(task.writer, Reason.SUPERSEDED)
    assert "run-2" in error.message
    assert (task.delivered(), task.next) == ([], 0)


def test_a_newer_driver_goes_first_in_the_middle_of_a_transaction(task: Task) -> None:
    writer = task.writer()
    writer.write(rows(range(4)))
    newer = task.sink.start("run-2")
    newer_writer = ExactlyOnceWriter(plan_of(task.sink, newer, 10), task.sink.at(), Worker())
    newer_writer.write(rows(range(4)))
    refusal(writer.finish, Reason.SUPERSEDED)
    newer_writer.finish()
    assert newer_writer.receipt().claims == 1, "the older one fenced nobody in return"
    assert (task.delivered(), task.next) == (numbers(range(4)), 4)


def test_a_commit_whose_answer_is_lost_is_not_repeated(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = task.writer()
    writer.write(rows(range(4)))
    left = commits.planned(monkeypatch, "answer lost")
    writer.finish()
    assert left == []
    receipt = writer.receipt()
    assert task.delivered() == numbers(range(4))
    assert (task.next, task.rows) == (4, 4)
    assert (receipt.delivered, receipt.claims, receipt.in_doubt) == (4, 2, False)


def test_a_commit_whose_answer_is_lost_in_the_middle_goes_on_behind_it(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = task.writer(cuts=CutPolicy(rows=3))
    left = commits.planned(monkeypatch, "answer lost")
    receipt = write_all(writer, rows(range(4)), rows(range(4, 8)))
    assert left == []
    assert task.delivered() == numbers(range(8))
    assert (task.next, task.rows, receipt.delivered) == (8, 8, 8)


def test_a_commit_that_is_lost_is_replayed_once(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = task.writer()
    writer.write(rows(range(4)))
    left = commits.planned(monkeypatch, "lost")
    began = time.monotonic()
    writer.finish()
    assert left == []
    assert time.monotonic() - began < 20, "our own open transaction held our own reads back"
    assert task.delivered() == numbers(range(4))
    assert (task.next, task.rows) == (4, 4)


def test_one_that_is_in_doubt_for_ever_gives_up(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = task.writer()
    writer.write(rows(range(4)))
    monkeypatch.setattr(
        TransactionalProducer, "produce_record", _in_doubt_for_rows(TransactionalProducer.produce_record)
    )
    refusal(writer.finish, Reason.TRANSACTION_FAILED)
    task.steal()
    assert (task.delivered(), task.next) == ([], 0)


def _in_doubt_for_rows(real: Callable[..., None]) -> Callable[..., None]:
    def produce_record(producer: TransactionalProducer, topic: str, key: str, value: bytes) -> None:
        if "/p/" in key:
            raise InDoubt("the broker is gone")
        real(producer, topic, key, value)

    return produce_record


@pytest.mark.usefixtures("short_transactions")
def test_a_transaction_that_the_broker_timed_out_is_replayed_once(kafka: LocalKafka) -> None:
    task = Task(kafka)
    writer = task.writer()
    writer.write(rows(range(4)))
    wait_until(lambda: topics.read_uncommitted(task.sink.servers, task.sink.data), "the rows have reached the broker")
    topics.wait_until_settled(task.sink.servers, task.sink.data)
    receipt = write_all(writer, rows(range(4, 8)))
    assert task.delivered() == numbers(range(8))
    assert (task.next, task.rows, receipt.claims) == (8, 8, 2)


def test_a_recreated_progress_topic_is_noticed_by_a_claim(task: Task) -> None:
    topics.recreate_topic(task.sink.servers, task.sink.progress, config=topics.COMPACTED)
    with pytest.raises(SinkPipelineError) as caught:
        task.writer(verified=0)
    assert caught.value.reason is Reason.TOPICS_CHANGED
    assert task.delivered() == []


# Records that can't be delivered


def test_everything_before_an_undecodable_row_is_delivered(task: Task) -> None:
    writer = task.writer()
    batch = rows(range(2, 6), errors=[None, None, "MalformedJson: at 1", "later"])
    error = refusal(lambda: write_all(writer, rows(range(2)), batch), Reason.RECORD_UNDECODABLE)
    assert "offset 4" in error.message
    assert "MalformedJson: at 1" in error.message
    receipt = writer.receipt()
    assert receipt.progress is not None
    assert (receipt.progress.next, receipt.delivered, receipt.in_doubt) == (4, 4, False)
    assert (task.delivered(), task.next) == (numbers(range(4)), 4)


def test_an_undecodable_first_row_delivers_nothing(task: Task) -> None:
    refusal(lambda: task.writer().write(rows(range(2), errors=["WrongType: x", None])), Reason.RECORD_UNDECODABLE)
    assert (task.delivered(), task.next) == ([], 0)


@pytest.mark.parametrize("target", [1, -2])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_partition_out_of_range_is_a_record_that_cannot_be_delivered(task: Task, target: int) -> None:
    batch = rows(range(3), target_partitions=[0, -1, target])
    error = refusal(lambda: write_all(task.writer(), batch), Reason.RECORD_UNDECODABLE)
    assert f"PartitionOutOfRange: {target} of 1" in error.message
    assert (task.delivered(), task.next) == (numbers(range(2)), 2)


def test_a_row_too_large_for_the_topic_is_named_and_everything_before_it_delivered(task: Task) -> None:
    topics.alter_topic(task.sink.servers, task.sink.data, {"max.message.bytes": "2000"})
    writer = task.writer(data_limits=TopicLimits(partitions=1, message_bytes=2_000))
    batch = rows(range(3), values=[b"a", b"b", b"x" * 3_000])
    error = refusal(lambda: write_all(writer, batch), Reason.RECORD_REFUSED)
    assert "offset 2" in error.message
    assert (task.delivered(), task.next) == (["a", "b"], 2)
    assert writer.receipt().in_doubt is False


def test_a_row_that_only_the_broker_refuses_is_found_and_everything_before_it_delivered(task: Task) -> None:
    topics.alter_topic(task.sink.servers, task.sink.data, {"max.message.bytes": "2000"})
    writer = task.writer()
    batch = rows(range(3), values=[b"a", b"b", b"x" * 3_000])
    error = refusal(lambda: write_all(writer, batch), Reason.RECORD_REFUSED)
    assert "offset 2 was refused" in error.message
    assert writer.receipt().in_doubt is False
    task.steal()
    assert (task.delivered(), task.next) == (["a", "b"], 2)


# Kept producers


def test_a_kept_producer_is_used_again_where_the_driver_names_this_worker(task: Task) -> None:
    worker = Worker()
    first = write_all(task.writer(4, worker=worker), rows(range(4)))
    assert first.owner is not None
    assert first.progress is not None
    frontier = {task.sink.at(): first.progress}
    second = write_all(
        task.writer(8, worker=worker, owners={task.sink.at(): first.owner}, frontier=frontier), rows(range(4, 8))
    )
    assert (second.claims, second.verified, second.delivered) == (0, None, 4)
    assert task.delivered() == numbers(range(8))


@pytest.mark.parametrize("owner", [None, "another-worker"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_kept_producer_is_dropped_where_the_driver_names_another(task: Task, owner: str | None) -> None:
    worker = Worker()
    first = write_all(task.writer(4, worker=worker), rows(range(4)))
    assert first.progress is not None
    owners = {} if owner is None else {task.sink.at(): owner}
    second = write_all(
        task.writer(8, worker=worker, owners=owners, frontier={task.sink.at(): first.progress}), rows(range(4, 8))
    )
    assert second.claims == 1


def test_a_kept_producer_is_not_used_by_another_run(task: Task) -> None:
    worker = Worker()
    first = write_all(task.writer(4, worker=worker), rows(range(4)))
    newer = task.sink.start("run-2")
    plan = plan_of(task.sink, newer, 8, owners={task.sink.at(): first.owner})
    second = write_all(ExactlyOnceWriter(plan, task.sink.at(), worker), rows(range(4, 8)))
    assert second.claims == 1
    assert first.owner != second.owner
    assert task.delivered() == numbers(range(8))


def test_a_worker_gives_a_kept_producer_once_and_to_its_own_run_alone(task: Task) -> None:
    transactional_id = task.sink.id.partition_id(task.sink.at())
    worker = Worker()
    write_all(task.writer(4, worker=worker), rows(range(4)))
    assert worker.take(transactional_id, "run-2") is None
    write_all(task.writer(4, worker=worker), rows(range(4, 8)))
    kept = worker.take(transactional_id, "run-1")
    assert kept is not None
    assert worker.take(transactional_id, "run-1") is None
    kept.close()


def test_a_kept_producer_that_was_fenced_meanwhile_recovers(task: Task) -> None:
    worker = Worker()
    first = write_all(task.writer(4, worker=worker), rows(range(4)))
    assert first.progress is not None
    task.steal()
    plan = {"owners": {task.sink.at(): first.owner}, "frontier": {task.sink.at(): first.progress}}
    second = write_all(task.writer(8, worker=worker, **plan), rows(range(4, 8)))
    assert (second.claims, second.delivered) == (1, 4)
    assert task.delivered() == numbers(range(8))


def test_a_retried_attempt_trusts_no_kept_producer(task: Task) -> None:
    """The first attempt committed and kept its producer, unfenced; then its task failed, before it could report."""
    worker = Worker()
    first = write_all(task.writer(4, worker=worker), rows(range(4)))
    assert first.progress is not None
    plan = {"owners": {task.sink.at(): first.owner}, "frontier": {task.sink.at(): first.progress}}
    write_all(task.writer(8, worker=worker, **plan), rows(range(4, 8)))
    again = write_all(task.writer(8, worker=worker, retried=True, **plan), rows(range(4, 8)))
    assert again.claims == 1
    assert task.delivered() == numbers(range(8))
    assert (task.next, task.rows) == (8, 8)


def test_a_producer_is_not_kept_after_an_error(task: Task) -> None:
    worker = Worker()
    writer = task.writer(worker=worker)
    refusal(lambda: writer.write(rows(range(2), errors=[None, "WrongType: x"])), Reason.RECORD_UNDECODABLE)
    assert worker.take(task.sink.id.partition_id(task.sink.at()), "run-1") is None
