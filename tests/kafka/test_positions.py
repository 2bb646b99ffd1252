"""A sink that goes on where a consumer group stands, or at a time, on a real broker; a checkpoint is in tests/spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At

from servers.local_kafka import LocalKafka
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.manifest import StartFrom
from sinkpipeline.core.reset import ResetPlan
from sinkpipeline.core.targets import Targets, parse_targets
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.purify import purify
from sinkpipeline.kafka.source.groups import Groups
from sinkpipeline.kafka.source.positions import read_checkpoint, read_group
from sinkpipeline.kinds import ports
from sinkpipeline.kinds.asked_reset import AskedReset
from sinkpipeline.sinks.reset import SinkReset
from support.kafka import topics
from support.sink.one_sink import OneSink, deliver
from support.sink.starts import once, refusal
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts")]

DAY = 24 * 3600 * 1000
NEW_YEAR = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""


@pytest.fixture
def two(kafka: LocalKafka) -> OneSink:
    """A sink whose source has two partitions with the numbers from 0 to 9."""
    sink = OneSink(kafka.bootstrap_servers, partitions=2)
    for partition in range(2):
        topics.produce_numbers(sink.servers, sink.source, 10, partition=partition)
    return sink


@contextmanager
def consumer(sink: OneSink, group: str) -> Iterator[Consumer]:
    found = Consumer({"bootstrap.servers": sink.servers, "group.id": group, "enable.auto.commit": False})
    try:
        yield found
    finally:
        found.close()


def commit(sink: OneSink, group: str, offsets: Mapping[int, int], topic: str | None = None) -> None:
    with consumer(sink, group) as one:
        one.commit(offsets=[At(topic or sink.source, *each) for each in offsets.items()], asynchronous=False)


def resetting(sink: OneSink) -> SinkReset:
    admin = Admin(sink.connection)
    return SinkReset(ports=ports(sink.settings(), admin, admin))


def news(plan: ResetPlan) -> list[int | None]:
    return [move.new for move in plan.moves]


def test_a_first_start_goes_on_where_a_group_stands_once_nobody_is_in_it(two: OneSink) -> None:
    group, other = topics.unique("connect"), topics.unique("other")
    topics.create_topic(two.servers, other)
    commit(two, group, {0: 4})
    commit(two, group, {0: 0}, other)
    source = {"start_from": StartFrom(group=group)}

    with consumer(two, group) as one:
        one.subscribe([two.source])
        wait_until(lambda: one.poll(0.1) is None and bool(one.assignment()), "it is a member")
        refused = refusal(lambda: two.start(source=source), Reason.POSITIONS_REFUSED)
        assert "is in use" in refused.message
        assert topics.topic_id(two.servers, two.progress) is None, "nothing was created"
        [finding] = purify([two.settings(source=source)])
        assert finding.error is not None
        assert finding.error.reason is Reason.POSITIONS_REFUSED

    [finding] = purify([two.settings(source=source)])
    assert finding.begins == (
        f"begins from consumer group {group}: {two.source}-0 at 4",
        "what the group's consumers wrote after their last commit is delivered again: nobody knows how much",
        f"topics that are not in the source stay unread: {other}",
        f"partitions of which there is no position: {two.source}-1",
    )
    two.start(source=source)
    assert two.frontier() == {0: 4, 1: 0}
    commit(two, group, {0: 9})
    two.start("run-2", source=source)
    assert two.frontier() == {0: 4, 1: 0}, "progress decides, once there is some"


def test_a_group_is_not_free_because_its_broker_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client lists what the other brokers have, and beside it that one did not answer."""
    monkeypatch.setattr("sinkpipeline.kafka.errors.REQUEST_TIMEOUT_S", 0)
    monkeypatch.setattr("sinkpipeline.kafka.source.groups.ATTEMPT_S", 0.5)
    nobody = Groups(Connection(bootstrap_servers="127.0.0.1:1"))
    refusal(lambda: nobody.state("connect-orders"), Reason.BROKER_UNREACHABLE)


def test_a_group_that_nobody_knows_starts_nothing(sink: OneSink) -> None:
    source = {"start_from": StartFrom(group=topics.unique("nobody"))}
    refusal(lambda: sink.start(source=source), Reason.POSITIONS_REFUSED)
    assert topics.topic_id(sink.servers, sink.data) is None


def test_offsets_in_an_open_transaction_are_waited_for(two: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who delivers exactly once commits its offsets with its rows: those may stand there, and its offsets not yet."""
    group = topics.unique("streams")
    commit(two, group, {0: 4, 1: 4})
    producer = Producer({"bootstrap.servers": two.servers, "transactional.id": topics.unique("foreign")})
    producer.init_transactions()
    producer.begin_transaction()
    with consumer(two, group) as one:
        producer.send_offsets_to_transaction([At(two.source, 0, 9)], one.consumer_group_metadata())
    ended: list[str] = []

    def end(_: float) -> None:
        if not ended:
            ended.append("committed")
            producer.commit_transaction()

    monkeypatch.setattr("sinkpipeline.kafka.errors.time.sleep", end)
    positions = read_group(group, two.connection)
    if not ended:
        producer.abort_transaction()
    assert (positions.next, ended) == ({two.at(0): 9, two.at(1): 4}, ["committed"])


def test_a_first_start_that_dies_is_followed_by_one_from_the_newest_positions(
    two: OneSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was delivered yet: what the group has done since must not be delivered again. Each is told."""
    group = topics.unique("connect")
    commit(two, group, {0: 4, 1: 4})
    source = {"start_from": StartFrom(group=group)}

    def crash() -> None:
        raise RuntimeError("crash")

    once("starting-before-first-start", crash, monkeypatch)
    with pytest.raises(RuntimeError, match="crash"):
        two.start(source=source)
    commit(two, group, {0: 7, 1: 7})
    two.start("run-2", source=source)

    assert two.frontier() == {0: 7, 1: 7}
    told = [record.message for record in caplog.records if "begins from" in record.message]
    assert [line.split(": ")[-1] for line in told] == [
        f"{two.source}-0 at {offset}, {two.source}-1 at {offset}" for offset in (4, 7)
    ]


@pytest.fixture
def dated(sink: OneSink) -> OneSink:
    """A sink whose source has a record of each of the days from three before to two after New Year."""
    whole: list[topics.Whole] = [(b"%d" % day, None, [], NEW_YEAR + day * DAY) for day in range(-3, 3)]
    topics.produce_whole(sink.servers, sink.source, whole)
    return sink


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("2026-01-01T00:00:00Z", 3),
        ("2026-01-01T00:00:00.001Z", 4),
        ("1970-01-01T00:00:00Z", 0),
        ("2999-01-01T00:00:00+01:00", 6),
    ],
)
@pytest.mark.thorough("each kind of time", after=1)
def test_at_a_time(dated: OneSink, text: str, offset: int) -> None:
    dated.start(source={"start_from": StartFrom(timestamp=text)})
    assert dated.frontier() == {0: offset}
    for target in (text, f"{dated.source}={text}", f"{dated.source}:0={text}"):
        assert news(resetting(dated).plan(parse_targets([target]))) == [offset]


def test_a_reset_to_a_time_is_carried_out_as_it_was_shown(dated: OneSink) -> None:
    deliver(dated, dated.start(), range(6))
    reset = resetting(dated)
    plan = reset.plan(parse_targets(["2026-01-01T00:00:00Z"]))
    topics.produce_whole(dated.servers, dated.source, [(b"late", None, [], NEW_YEAR)])
    reset.carry_out(plan)
    assert dated.frontier() == {0: 3}


def test_an_action_takes_a_time_and_keeps_the_numbers_that_it_has_shown(dated: OneSink) -> None:
    deliver(dated, dated.start(), range(6))
    asked = AskedReset(settings=dated.settings())
    shown = asked.preview("2026-01-01T00:00:00Z")
    assert f"{dated.source}-0: from 6 to 3" in shown.text
    assert shown.resolved["to"] == f"{dated.source}:0=3"
    topics.produce_whole(dated.servers, dated.source, [(b"late", None, [], NEW_YEAR)])
    asked.carry_out(shown.resolved)
    assert dated.frontier() == {0: 3}


def test_a_reset_to_a_group_and_what_overrules_it(two: OneSink) -> None:
    two.start()
    group = topics.unique("group")
    commit(two, group, {0: 4, 1: 5})
    reset = resetting(two)
    positions = read_group(group, two.connection)
    assert news(reset.plan(parse_targets(["latest"]), positions)) == [4, 5], "the narrowest decides"
    plan = reset.plan(parse_targets([f"{two.source}:1=2"]), positions)
    assert news(plan) == [4, 2]
    reset.carry_out(plan)
    assert two.frontier() == {0: 4, 1: 2}


def checkpoint(directory: Path, *batches: object) -> Path:
    """As Spark writes it, with the last batch not committed."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True)
    for batch, offsets in enumerate(batches):
        (directory / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
        if batch < len(batches) - 1:
            (directory / "commits" / str(batch)).write_text("v1\n{}")
    return directory


@pytest.mark.parametrize("start", [True, False], ids=["first start", "reset"])
@pytest.mark.thorough("the other way", after=1)
def test_a_position_may_be_beyond_what_is_committed(sink: OneSink, tmp_path: Path, *, start: bool) -> None:
    """Spark's source reads what is not committed, unless it is told otherwise."""
    topics.produce_numbers(sink.servers, sink.source, 5)
    path = checkpoint(tmp_path / "c", {sink.source: {"0": 7}}, {sink.source: {"0": 8}})
    with topics.open_transaction(sink.servers, topics.unique("foreign"), [(sink.source, b"k", b"v")] * 3):
        if start:
            sink.start(source={"start_from": StartFrom(checkpoint=str(path))})
        else:
            sink.start()
            reset = resetting(sink)
            reset.carry_out(reset.plan(Targets(), read_checkpoint(str(path))))
        assert sink.frontier() == {0: 7}


@pytest.mark.thorough("many offsets; test_a_reset_to_a_group has those that are served")
def test_offsets_that_the_source_does_not_have_are_refused(sink: OneSink, tmp_path: Path) -> None:
    topics.produce_numbers(sink.servers, sink.source, 5)
    path = str(checkpoint(tmp_path / "c", {sink.source: {"0": 6}}, {sink.source: {"0": 6}}))
    source = {"start_from": StartFrom(checkpoint=path)}
    [finding] = purify([sink.settings(source=source)])
    assert finding.error is not None
    assert finding.error.reason is Reason.SOURCE_DATA_LOST, "validate tells it before a run does"
    refusal(lambda: sink.start(source=source), Reason.SOURCE_DATA_LOST)
    sink.start()
    plan: Callable[[], ResetPlan] = lambda: resetting(sink).plan(Targets(), read_checkpoint(path))  # noqa: E731
    refusal(plan, Reason.USAGE_INVALID)
    overruled = resetting(sink).plan(parse_targets([f"{sink.source}:0=latest"]), read_checkpoint(path))
    assert news(overruled) == [5]
