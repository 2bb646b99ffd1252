"""Topics that are deleted, re-created or cut short under a driver and between two, on a real broker without Spark."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.progress_records import encode_partition
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.kafka import producers
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.sinks import transactional
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.driver import BEFORE_ROWS, Driver
from support.sink.one_sink import OneSink, plan_of, rows
from support.sink.starts import once, refusal

pytestmark = pytest.mark.kafka

POINTS = (BEFORE_ROWS, "after-rows-before-progress", "after-progress-before-commit", "after-commit")
NUMBERS = [str(number) for number in range(30)]


@pytest.fixture(autouse=True)
def short_delays(short_starts: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - it acts
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.05)
    # How long a record waits for a topic that is not there.
    monkeypatch.setattr(producers, "_DELIVERY_TIMEOUT_MS", 2_000)


def change(sink: OneSink, topic: str, *, again: bool) -> None:
    """Deletes a topic, and perhaps creates it again as somebody would who knows what it must be like."""
    topics.delete_topic(sink.servers, topic)
    if again:
        topics.create_topic(sink.servers, topic, config=topics.COMPACTED if topic == sink.progress else None)


# In the middle of a batch


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "re-created"])
@pytest.mark.parametrize("later", [False, True], ids=["first batch", "later batch"])
@pytest.mark.thorough("each point of one case", after=2)
@pytest.mark.long("each point of a batch", after=5)
def test_a_progress_topic_that_goes_in_a_batch_is_written_back(
    filled: OneSink, point: str, again: bool, later: bool
) -> None:
    """Whatever was committed is known: nothing is delivered twice, and nobody is asked."""
    with Driver(filled) as driver:
        if later:
            driver.batch(5)

        def run_batch() -> None:
            driver.batch(10, point, lambda: change(filled, filled.progress, again=again))
            driver.delivery.check_world()

        with pytest.raises(Restart):
            run_batch()
        driver.start()
        assert driver.started.may_duplicate is None
        driver.until(30)
        assert filled.frontier() == {0: 30}
        assert filled.truth()["meta"]["progress"] == topics.topic_id(filled.servers, filled.progress)
    assert sorted(filled.delivered(), key=int) == NUMBERS


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "re-created"])
@pytest.mark.thorough("each point of one case", after=2)
def test_a_data_topic_that_goes_in_a_batch_is_lost(filled: OneSink, point: str, again: bool) -> None:
    with Driver(filled) as driver:
        driver.batch(5)

        def run_batch() -> None:
            driver.batch(10, point, lambda: change(filled, filled.data, again=again))
            driver.delivery.check_world()

        error = refusal(run_batch, Reason.DATA_TOPIC_LOST)
        assert filled.data in error.message
        driver.leave()
    refusal(lambda: Driver(filled).start(), Reason.DATA_TOPIC_LOST)
    assert (topics.topic_id(filled.servers, filled.data) is None) == (not again)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "re-created"])
@pytest.mark.thorough("waits for a topic of before the first row; those with rows are in make test")
def test_a_data_topic_that_goes_before_the_first_row_is_created_again(filled: OneSink, again: bool) -> None:
    with Driver(filled, data=TopicRequest(name=filled.data, partitions=3)) as driver:
        with pytest.raises(Restart, match="before a row"):
            driver.batch(10, BEFORE_ROWS, lambda: change(filled, filled.data, again=False))
        if again:
            topics.create_topic(filled.servers, filled.data)
        driver.start()
        driver.until(30)
    assert sorted(filled.delivered(), key=int) == NUMBERS


def test_rows_that_went_to_a_lost_data_topic_behind_a_starting_driver_are_missed(
    filled: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of a dead driver commits the first rows of all after the next start has created the data topic again."""
    late = ExactlyOnceWriter(plan_of(filled, filled.start(), 10), filled.at(), Worker())
    late.write(rows(range(10)))
    topics.delete_topic(filled.servers, filled.data)
    once("starting-after-meta", late.finish, monkeypatch)

    refusal(lambda: filled.start("run-2"), Reason.DATA_TOPIC_LOST)

    assert filled.frontier() == {0: 10}, "the late task has committed"
    refusal(lambda: filled.start("run-3"), Reason.DATA_TOPIC_LOST)


def test_progress_that_goes_with_an_outcome_in_doubt_is_lost(filled: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = TransactionalProducer.commit

    def lose_the_answer() -> None:
        def once_in_doubt(producer: TransactionalProducer) -> None:
            monkeypatch.setattr(TransactionalProducer, "commit", commit)
            producer.commit()
            change(filled, filled.progress, again=True)
            raise InDoubt("the answer was lost")

        monkeypatch.setattr(TransactionalProducer, "commit", once_in_doubt)

    with Driver(filled) as driver:
        driver.batch(5)
        with pytest.raises(Restart):
            driver.batch(10, "after-progress-before-commit", lose_the_answer)
        error = refusal(driver.start, Reason.PROGRESS_LOST)
    assert "in doubt" in error.message
    assert len(filled.delivered()) == 10


@pytest.mark.parametrize("snapshot", [False, True], ids=["batch", "snapshot"])
@pytest.mark.parametrize("exactly_once", [True, False], ids=["ExactlyOnce", "AtLeastOnce"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_what_a_driver_wrote_into_a_progress_topic_that_another_sink_re_created(
    filled: OneSink, exactly_once: bool, snapshot: bool
) -> None:
    """Two sinks share a progress topic: one creates it again while the other is in a batch."""
    other = OneSink(filled.servers)
    shared = other.settings().progress
    with Driver(other) as first, Driver(filled, progress=shared, exactly_once=exactly_once) as second:
        second.batch(5)

        def create_again() -> None:
            topics.delete_topic(filled.servers, shared.name)
            with pytest.raises(Restart):
                first.delivery.check_world()
            first.start()

        second.batch(10, "" if snapshot else BEFORE_ROWS, create_again)
        if snapshot:
            create_again()
            second.delivery.snapshot()
        elif not exactly_once:
            create_again()
        with pytest.raises(Restart):
            second.delivery.check_world()
        second.start()
        assert not second.started.recreated_progress_topic
        second.until(30)
        first.delivery.check_world()
    assert sorted(filled.delivered(), key=int) == NUMBERS


def test_progress_beyond_our_own_in_a_re_created_topic_is_somebody_elses(filled: OneSink) -> None:
    with Driver(filled) as driver:
        driver.batch(5)
        topics.recreate_topic(filled.servers, filled.progress, config=topics.COMPACTED)
        ahead = encode_partition(PartitionProgress(epoch=0, next=9))
        topics.produce(filled.servers, filled.progress, [(filled.id.partition_key(filled.at()).encode(), ahead)])
        refusal(driver.start, Reason.PROGRESS_CORRUPT)


# A broker that tells what was so


class StaleBroker:
    """A driver's clients ask a broker that doesn't know a topic; those that it makes from now on ask another one."""

    def __init__(self, driver: Driver, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        clients = (driver.starter.ports.admin, driver.starter.ports.source_admin)
        ask = Admin.topics

        def topics_of(admin: Admin, names: Collection[str]) -> dict[str, Topic | None]:
            found = ask(admin, names)
            if admin in clients and missing in found:
                self.asked += 1
                found[missing] = None
            return found

        monkeypatch.setattr(Admin, "topics", topics_of)


@pytest.mark.parametrize("what", ["source", "data"])
@pytest.mark.parametrize("running", [True, False], ids=["running", "starting"])
@pytest.mark.thorough("each answer", after=2)
def test_one_stale_answer_is_no_verdict(
    filled: OneSink, what: str, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driver(filled) as driver:
        driver.batch(5)
        stale = StaleBroker(driver, getattr(filled, what), monkeypatch)
        if running:
            driver.delivery.check_world()
        else:
            driver.start()
        assert stale.asked > 0
        driver.until(30)
    assert sorted(filled.delivered(), key=int) == NUMBERS
