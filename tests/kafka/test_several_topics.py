"""A sink that spreads its rows over several topics: on a real broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.redrive import Letter
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.core.topic_ids import ids_of
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.redrive import Summary
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.kinds import ports
from sinkpipeline.sinks.contract import BatchPlan, Restart, RowBatch
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.removal import SinkRemoval
from sinkpipeline.sinks.reset import SinkReset
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.driver import Driver
from support.sink.one_sink import OneSink, rows
from support.sink.redrives import ALL_FINE, redriving
from support.sink.starts import refusal
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts"), pytest.mark.timeout(180)]


def several(sink: OneSink, *letters: str, **of_each: object) -> TopicRequest:
    names = [f"{sink.data}-{each}" for each in letters]
    parts = tuple(replace(TopicRequest(name=name, partitions=1), **of_each) for name in names)
    return TopicRequest(name=", ".join(names), parts=parts)


def spread(sink: OneSink, offsets: range, letters: str = "abc") -> list[str | None]:
    """The topic of each row, by its offset."""
    return [f"{sink.data}-{letters[offset % len(letters)]}" for offset in offsets]


def found(sink: OneSink, letters: str = "abc") -> dict[str, list[int]]:
    return {
        each: sorted(map(int, topics.texts(topics.read_committed(sink.servers, f"{sink.data}-{each}"))))
        for each in letters
    }


def expected(count: int, letters: str = "abc") -> dict[str, list[int]]:
    return {each: [n for n in range(count) if letters[n % len(letters)] == each] for each in letters}


def go(driver: Driver, begin: int, end: int, letters: str = "abc", *, small: bool = False) -> None:
    columns = {"target_topics": spread(driver.sink, range(begin, end), letters)}
    if small:
        assert driver.small(end, **columns)
    else:
        driver.batch(end, **columns)


@pytest.mark.parametrize("exactly_once", [True, pytest.param(False, marks=pytest.mark.thorough("the other guarantee"))])
def test_rows_go_each_to_their_topic_once_by_tasks_and_by_the_driver(filled: OneSink, *, exactly_once: bool) -> None:
    with Driver(filled, data=several(filled, *"abc"), exactly_once=exactly_once) as driver:
        go(driver, 0, 9)
        go(driver, 9, 15, small=exactly_once)
        go(driver, 15, 30)
        meta = filled.truth()["meta"]
    assert found(filled) == expected(30)
    assert meta["v"] == 2
    assert sorted(meta["data"]) == sorted(meta["created"]) == [f"{filled.data}-{each}" for each in "abc"]


def test_what_ends_before_a_commit_leaves_each_row_once(filled: OneSink) -> None:
    def killed() -> None:
        raise Killed

    with Driver(filled, data=several(filled, *"abc")) as driver:
        go(driver, 0, 6)
        with pytest.raises(Killed):
            driver.batch(18, "after-progress-before-commit", killed, target_topics=spread(filled, range(6, 18)))
        driver.start()
        go(driver, 6, 30)
    assert found(filled) == expected(30)


class Killed(Exception):
    pass


def test_a_row_for_another_topic_is_a_dead_letter_or_stops_the_sink(filled: OneSink) -> None:
    """Also one that no transform has judged, as of a task with a list of another day."""
    data = several(filled, *"ab")
    columns = spread(filled, range(10), "ab")
    columns[3], columns[4] = f"{filled.data}-other", None
    with Driver(filled, data=data) as driver:
        error = refusal(lambda: driver.batch(10, target_topics=columns), Reason.RECORD_UNDECODABLE)
        assert "TopicNotDeclared" in error.message
    assert filled.frontier() == {0: 3}
    letters = DeadLetterSettings(topic=TopicRequest(name=filled.dead))
    with Driver(filled, data=data, dead_letter=letters) as driver:
        driver.batch(10, target_topics=columns[3:])
        state = filled.truth()[f"p/{filled.source}/0"]
    assert (state["rows"], state["deadByClass"]) == (8, {"TopicNotDeclared": 2})
    assert Admin(filled.connection).topics([f"{filled.data}-other"])[f"{filled.data}-other"] is None
    # Once the topic is in the list, its letter is redriven into it; the other one is a letter again.
    more = filled.settings(data=several(filled, "a", "b", "other"), dead_letter=letters)
    error = refusal(lambda: redriven(more, f"{filled.data}-other", None), Reason.PROGRESS_LOST)
    assert f"does not know {filled.data}-other" in error.message
    filled.start(data=more.data, dead_letter=letters)
    assert redriven(more, f"{filled.data}-other", None) == Summary(delivered=1, dead_lettered=1)
    assert len(topics.read_committed(filled.servers, f"{filled.data}-other")) == 1


def test_a_topic_that_is_lost_is_named(filled: OneSink) -> None:
    data = several(filled, *"abc")
    with Driver(filled, data=data) as driver:
        go(driver, 0, 9)
        topics.delete_topic(filled.servers, f"{filled.data}-b")
        error = refusal(lambda: driver.plan(12), Reason.DATA_TOPIC_LOST)
        assert f"deleted ({filled.data}-b)" in error.message
        error = refusal(driver.start, Reason.DATA_TOPIC_LOST)
        assert f"data topic {filled.data}-b is lost: it is missing, and 9 rows" in error.message
        topics.create_topic(filled.servers, f"{filled.data}-b", partitions=1)
        error = refusal(driver.start, Reason.DATA_TOPIC_LOST)
        assert f"data topic {filled.data}-b is lost: it was re-created" in error.message


def test_a_topic_is_added_and_none_is_removed_without_a_reset(filled: OneSink) -> None:
    """It begins as a sink of one topic, whose records are what they were."""
    one = TopicRequest(name=f"{filled.data}-a", partitions=1)
    with Driver(filled, data=one) as driver:
        driver.batch(6)
        assert filled.truth()["meta"]["v"] == 1
        late = driver.plan(9)
    with Driver(filled, data=several(filled, *"ab")) as driver:
        go(driver, 6, 12, "ab")
        assert ids_of(driver.started.data_topic.id or "").keys() == {f"{filled.data}-a", f"{filled.data}-b"}
        # A task of the run before is late, and knows one topic only.
        refusal(lambda: late_task(filled, late), Reason.SUPERSEDED)
    assert found(filled, "ab") == {"a": [0, 1, 2, 3, 4, 5, 6, 8, 10], "b": [7, 9, 11]}
    for fewer in (several(filled, "b"), TopicRequest(name=f"{filled.data}-b", partitions=1)):
        error = refusal(lambda data=fewer: filled.start(data=data), Reason.DATA_TOPIC_REMOVED)
        assert f"{filled.data}-a" in error.message
    admin = Admin(filled.connection)
    reset = SinkReset(ports=ports(filled.settings(data=several(filled, "b")), admin, admin))
    reset.carry_out(reset.plan(parse_targets(["latest"])))
    assert filled.start(data=several(filled, "b")).progress.rows == 0


def redriven(settings: SinkSettings, *names: str | None) -> Summary:
    """Letters in their order, each for the topic with this name."""

    def transform(letters: Sequence[Letter]) -> RowBatch | None:
        batch = ALL_FINE(letters)
        return None if batch is None else replace(batch, target_topics=list(names))

    redrive = redriving(settings, transform)  # type: ignore[arg-type]
    survey = redrive.survey()
    assert survey is not None
    return redrive.carry_out(survey)


def late_task(sink: OneSink, plan: BatchPlan) -> None:
    writer = ExactlyOnceWriter(plan, sink.at(), Worker())
    writer.write(rows(range(6, 9)))
    writer.finish()


def test_a_record_that_only_one_topic_refuses_is_found(kafka: LocalKafka) -> None:
    """By its own topic's limits, beforehand; and by halves, where only the broker knows."""
    sink = OneSink(kafka.bootstrap_servers)
    topics.produce_numbers(sink.servers, sink.source, 30)
    data = several(sink, *"abc")
    small = replace(data.parts[1], config={"max.message.bytes": "2000"})
    old = replace(data.parts[2], config={"message.timestamp.before.max.ms": "3600000"})
    data = replace(data, parts=(data.parts[0], small, old))
    letters = DeadLetterSettings(topic=TopicRequest(name=sink.dead))
    values: list[bytes | None] = [str(n).encode() for n in range(30)]
    # Large for b, and sent to a; and the other way round.
    values[3], values[4] = b"x" * 5_000, b"y" * 5_000
    timestamps = [0] * 30
    # Old for c, and sent to b; and the other way round.
    timestamps[7], timestamps[8] = 1_000_000, 1_000_000
    with Driver(sink, data=data, dead_letter=letters) as driver:
        driver.batch(
            30,
            values=values,
            timestamps=timestamps,
            target_topics=spread(sink, range(30)),
        )
        state = sink.truth()[f"p/{sink.source}/0"]
    assert state["deadByClass"] == {"RecordTooLarge": 1, "InvalidTimestamp": 1}
    assert state["rows"] == 28
    counts = {each: len(topics.read_committed(sink.servers, f"{sink.data}-{each}")) for each in "abc"}
    assert counts == {"a": 10, "b": 9, "c": 9}


def test_each_topic_takes_rows_as_large_as_it_says_now(filled: OneSink) -> None:
    """One takes more than the others, another one less; and what they take changes while the sink runs."""
    data = several(filled, *"abc")
    takes = {"b": "3000000", "c": "10000"}
    parts = tuple(
        replace(each, config={"max.message.bytes": takes.get(each.name[-1], "1048588")}) for each in data.parts
    )
    dead = TopicRequest(name=filled.dead, partitions=1, config={"max.message.bytes": "4000000"})
    sizes = {"a": 400_000, "b": 2_000_000, "c": 5_000}

    def columns(begin: int, end: int, **of_offset: int) -> dict[str, object]:
        named = spread(filled, range(begin, end))
        large = [of_offset.get(f"at{begin + i}", sizes[(each or "")[-1]]) for i, each in enumerate(named)]
        return {"target_topics": named, "values": [b"x" * each for each in large], "size": sum(large)}

    def state() -> dict[str, object]:
        found = filled.truth()[f"p/{filled.source}/0"]
        return {name: found[name] for name in ("rows", "deadByClass")}

    with Driver(filled, data=replace(data, parts=parts), dead_letter=DeadLetterSettings(topic=dead)) as driver:
        # Too large for a, though b takes it; and too large for c, though a takes it.
        driver.batch(12, **columns(0, 12, at9=2_000_000, at11=20_000))
        assert state() == {"rows": 10, "deadByClass": {"RecordTooLarge": 2}}
        topics.alter_topic(filled.servers, f"{filled.data}-b", {"max.message.bytes": "10000"})
        topics.alter_topic(filled.servers, f"{filled.data}-c", {"max.message.bytes": "1000000"})
        driver.batch(18, **columns(12, 18, at14=20_000))
        assert state() == {"rows": 14, "deadByClass": {"RecordTooLarge": 4}}
    counts = [len(topics.read_committed(filled.servers, f"{filled.data}-{each}")) for each in "abc"]
    assert counts == [5, 4, 5]


@pytest.mark.thorough("tests/unit/test_several_topics has who made which, tests/kafka/test_removal one topic")
def test_a_removal_deletes_those_that_the_sink_made(filled: OneSink) -> None:
    topics.create_topic(filled.servers, f"{filled.data}-b", partitions=1)
    with Driver(filled, data=several(filled, *"abc")) as driver:
        go(driver, 0, 9)
    admin = Admin(filled.connection)
    removal = SinkRemoval(ports=ports(filled.settings(data=several(filled, *"abc")), admin, admin))
    assert removal.doomed() == (f"{filled.data}-a", f"{filled.data}-c")
    kept = removal.carry_out()
    assert kept is not None
    assert kept.name == f"{filled.data}-b"
    names = [f"{filled.data}-{each}" for each in "abc"]
    # A broker may name a topic for a moment after its deletion.
    wait_until(
        lambda: [admin.topics([name])[name] is not None for name in names] == [False, True, False],
        "the topics that the sink made are gone, and the other one is there",
    )


def test_a_data_topic_that_is_read_or_has_another_part_is_refused(filled: OneSink) -> None:
    def started(*names: str, **more: object) -> Callable[[], object]:
        parts = tuple(TopicRequest(name=each) for each in names)
        return lambda: filled.start(data=TopicRequest(name=", ".join(names), parts=parts), **more)

    refusal(started(filled.data, filled.source), Reason.MANIFEST_INVALID)


@pytest.mark.thorough("with rows is beside it")
def test_a_topic_that_is_re_created_before_any_row_only_restarts(filled: OneSink) -> None:
    with Driver(filled, data=several(filled, *"ab")) as driver:
        topics.delete_topic(filled.servers, f"{filled.data}-b")
        topics.create_topic(filled.servers, f"{filled.data}-b", partitions=1)
        with pytest.raises(Restart):
            driver.plan(3)
        driver.start()
        go(driver, 0, 6, "ab")
    assert found(filled, "ab") == expected(6, "ab")
