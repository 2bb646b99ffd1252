"""A sink of several topics that is killed, or not answered, while its topics are created, added and deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.tcp_proxy import Api, Fate, Way
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Creation
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.target import KafkaTarget
from sinkpipeline.kinds import ports
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.removal import SinkRemoval
from sinkpipeline.sinks.reset import SinkReset
from sinkpipeline.sinks.starting import SinkStarter
from support.conformance.child import child
from support.conformance.kind import ENDS, PROTOCOL_POINTS, STEP
from support.conformance.of_topics import LETTERS, SeveralTopicsSink
from support.kafka import topics
from support.sink.starts import once, refusal
from support.waiting import wait_until
from support.worlds.faults import FaultyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts"), pytest.mark.timeout(240)]

ADDING_POINTS = ("starting-after-a-data-topic", *PROTOCOL_POINTS)
UNNOTED = ("starting-after-control-init", "starting-after-a-data-topic", "starting-after-data-topic")
"""Where nothing says yet who has created a topic."""
BEFORE_ITS_ID = (*UNNOTED, "starting-after-meta", "starting-before-first-start")
"""Where the progress doesn't have the id of a topic that was added: no row can be in it."""


@pytest.fixture
def sink(kafka: LocalKafka) -> SeveralTopicsSink:
    """Rows name the topics a, b and c."""
    return made(kafka.bootstrap_servers)


def made(servers: str, direct: str | None = None) -> SeveralTopicsSink:
    sink = SeveralTopicsSink(servers, direct or servers, topics.unique("topics"), ENDS)
    sink.produce()
    return sink


class Shorter(SeveralTopicsSink):
    """The same sink before its manifest was changed: it has a and b, and all rows name a."""

    letters_of_list = "ab"

    @override
    def batch(self, partition: SourcePartition, offsets: range) -> RowBatch:
        return replace(super().batch(partition, offsets), target_topics=[self.named("a") for _ in offsets])


def deliver_with_a_shorter_list(sink: SeveralTopicsSink) -> None:
    earlier = Shorter(sink.servers, sink.direct, sink.name, {})
    earlier.ends = sink.ends
    earlier.driver().batch()


def there(sink: SeveralTopicsSink) -> list[str]:
    admin = Admin(sink.settings.connection)
    return [each for each in LETTERS if admin.topics([sink.named(each)])[sink.named(each)] is not None]


def counts(sink: SeveralTopicsSink) -> Counter[str]:
    """How often each row of the sink is in all topics together, as text of partition and offset."""
    return Counter(
        each.text.strip() for letter in LETTERS for each in topics.read_committed(sink.direct, sink.named(letter))
    )


def meta(sink: SeveralTopicsSink) -> dict[str, object]:
    """The newest one, also while a transaction is open behind it, as a killed task leaves one for a minute."""
    key = sink.settings.id.meta_key.encode()
    records = topics.read_committed(sink.direct, sink.settings.progress.name, settled=False)
    return dict(next(each.document for each in reversed(records) if each.key == key))


@pytest.mark.parametrize(
    "point",
    [
        each
        if each == "starting-after-a-data-topic"
        else pytest.param(each, marks=[pytest.mark.thorough("each point of a start, and of its first batch")])
        for each in ADDING_POINTS
    ],
)
def test_a_kill_while_a_topic_is_added(sink: SeveralTopicsSink, tmp_path: Path, point: str) -> None:
    deliver_with_a_shorter_list(sink)
    killed = child(sink, tmp_path, point, step=STEP)
    killed.wait_at(point)
    killed.kill()
    noted = meta(sink)
    assert (sink.named("c") in noted["data"]) is (point not in BEFORE_ITS_ID)  # type: ignore[operator]
    assert (sink.named("c") in noted["created"]) is (point not in UNNOTED)  # type: ignore[operator]
    sink.driver().drain()
    assert counts(sink) == Counter({f"{partition}:{offset}": 1 for partition, offset in sink.once})
    kept = sink.remove()
    if point in UNNOTED[1:]:
        # As of a sink with one topic: nobody was told of the creation before the kill.
        assert kept is not None
        assert kept.name == sink.named("c")
        wait_until(lambda: there(sink) == ["c"], "the others are gone: brokers may show one a moment longer")
    else:
        assert kept is None


@pytest.mark.thorough("another point; a kill while a topic is added is in make test")
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(each, marks=[pytest.mark.thorough("each point; after-commit is in the shorter stage")])
        if each != "after-commit"
        else each
        for each in ADDING_POINTS
    ],
)
@pytest.mark.parametrize("again", [True, pytest.param(False, marks=[pytest.mark.thorough("the other loss")])])
@pytest.mark.long("each point; two are enough to see that it is told", after=6)
def test_an_added_topic_that_is_lost_after_a_kill(
    sink: SeveralTopicsSink, tmp_path: Path, point: str, *, again: bool
) -> None:
    """From the moment on from which rows may be in it, nobody goes on without it."""
    deliver_with_a_shorter_list(sink)
    killed = child(sink, tmp_path, point, step=STEP)
    killed.wait_at(point)
    killed.kill()
    if topics.topic_id(sink.direct, sink.named("c")) is not None:
        topics.delete_topic(sink.direct, sink.named("c"))
    if again:
        topics.create_topic(sink.direct, sink.named("c"))
    if point in BEFORE_ITS_ID:
        sink.driver().drain()
        assert counts(sink).total() == sink.once.total()
        return
    error = refusal(sink.driver, Reason.DATA_TOPIC_LOST)
    assert sink.named("c") in error.message
    assert ("c" in there(sink)) is again, "nothing is created in its place"


@pytest.mark.thorough("another point; a kill while a topic is added is in make test")
@pytest.mark.parametrize(
    ("way", "fate"),
    [
        (Way.ANSWERS, Fate.CUT),
        pytest.param(Way.REQUESTS, Fate.CUT, marks=[pytest.mark.thorough("another loss")]),
        pytest.param(Way.ANSWERS, Fate.LOST, marks=[pytest.mark.thorough("another loss")]),
        pytest.param(Way.REQUESTS, Fate.LOST, marks=[pytest.mark.thorough("another loss")]),
    ],
)
def test_an_answer_that_is_lost_between_two_creations(
    faulty: FaultyKafka,
    short_requests: None,  # noqa: ARG001 - it acts
    way: Way,
    fate: Fate,
) -> None:
    sink = made(faulty.servers, faulty.direct)
    of_b = sink.named("b").encode()
    with (
        # The first request only asks whether it could be created.
        faulty.proxy.trap(Api.CREATE_TOPICS, way, Fate.FORWARDED, containing=of_b),
        faulty.proxy.trap(Api.CREATE_TOPICS, way, fate, containing=of_b) as trap,
    ):
        start(sink)
    assert trap.caught == 1
    sink.driver().drain()
    assert sink.delivered() == sink.once
    created = meta(sink)["created"]
    assert isinstance(created, dict)
    assert {sink.named("a"), sink.named("c")} <= created.keys(), "what was certain stays so"
    kept = sink.remove()
    assert (kept is None) is (sink.named("b") in created)
    wait_until(lambda: there(sink) == ([] if kept is None else ["b"]), "what the sink has made for certain is gone")


def start(sink: SeveralTopicsSink, **changes: Any) -> list[Reason]:
    """One driver starts, as often as it takes: why it had to begin again."""
    admin = Admin(sink.settings.connection)
    starter = SinkStarter(ports=ports(replace(sink.settings, **changes), admin, admin))
    refused: list[Reason] = []
    while True:
        try:
            starter.start().hold.close()
        except SinkPipelineError as error:
            refused.append(error.reason)
            if not error.reason.retry or len(refused) > 5:
                raise
        else:
            return refused


def test_of_topics_that_can_t_all_be_created_none_is(sink: SeveralTopicsSink) -> None:
    data = sink.settings.data
    wrong = replace(data.parts[2], config={"retention.ms": "soon"})
    error = refusal(
        lambda: start(sink, data=replace(data, parts=(*data.parts[:2], wrong))), Reason.TOPIC_CREATION_FAILED
    )
    assert sink.named("c") in error.message
    assert there(sink) == []


@pytest.mark.thorough("another point; a kill while a topic is added is in make test")
@pytest.mark.parametrize("reason", [Reason.BROKER_UNREACHABLE, Reason.TOPICS_CHANGED])
def test_what_was_created_before_an_error_is_remembered(
    reason: Reason, sink: SeveralTopicsSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who begins again finds it there, and has made it all the same. An outage alone ends no start."""
    create, failing = Admin._answered_creation, [sink.named("b")]

    def fails_once(admin: Admin, request: TopicRequest) -> Creation:
        if request.name in failing:
            failing.remove(request.name)
            raise SinkPipelineError(reason, "gone", "wait")
        return create(admin, request)

    monkeypatch.setattr(Admin, "_answered_creation", fails_once)
    assert start(sink) == ([] if reason is Reason.BROKER_UNREACHABLE else [reason])
    sink.driver().drain()
    assert sink.remove() is None
    wait_until(lambda: there(sink) == [], "all topics are gone")


def test_a_topic_that_is_lost_while_another_one_is_added_is_not_created(
    sink: SeveralTopicsSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when the start looked, with rows in it."""
    deliver_with_a_shorter_list(sink)
    create = KafkaTarget.create

    def too_late(found: KafkaTarget, known: Topic | None = None) -> Creation:
        monkeypatch.setattr(KafkaTarget, "create", create)
        topics.delete_topic(sink.direct, sink.named("a"))
        return create(found, known)

    monkeypatch.setattr(KafkaTarget, "create", too_late)
    error = refusal(lambda: start(sink), Reason.DATA_TOPIC_LOST)
    assert sink.named("a") in error.message
    assert there(sink) == ["b", "c"]


# Removals


def removal(sink: SeveralTopicsSink, announced: Iterable[str] | None = None) -> SinkRemoval:
    told = None if announced is None else frozenset(sink.named(each) for each in announced)
    return SinkRemoval(ports=sink.ports(), announced=told)


def killed() -> None:
    raise RuntimeError("killed")


def test_only_what_was_announced_is_deleted_also_after_a_kill(
    sink: SeveralTopicsSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.driver().drain()
    assert removal(sink).doomed() == tuple(sink.all_named)
    error = refusal(removal(sink, "ab").carry_out, Reason.TOPICS_CHANGED)
    assert f"data topic {sink.named('c')} would be deleted" in error.message
    assert there(sink) == ["a", "b", "c"]
    with monkeypatch.context() as patched:
        once("removal-after-a-data-topic", killed, patched)
        with pytest.raises(RuntimeError, match="killed"):
            removal(sink, "abc").carry_out()
    wait_until(lambda: there(sink) == ["b", "c"], "the first one is gone")
    assert removal(sink).doomed() == (sink.named("b"), sink.named("c"))
    assert removal(sink, "abc").carry_out() is None, "who has announced all of them has announced these"
    wait_until(lambda: there(sink) == [], "all are gone")


@pytest.mark.thorough("another point; a kill while a topic is added is in make test")
def test_what_somebody_creates_in_place_of_a_deleted_topic_stays(
    sink: SeveralTopicsSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.driver().drain()
    with monkeypatch.context() as patched:
        once("removal-after-a-data-topic", killed, patched)
        with pytest.raises(RuntimeError, match="killed"):
            removal(sink).carry_out()
    topics.create_topic(sink.direct, sink.named("a"))
    kept = removal(sink).carry_out()
    assert kept is not None
    assert kept.name == sink.named("a")
    wait_until(lambda: there(sink) == ["a"], "the others are gone")


@pytest.mark.thorough("another point; a kill while a topic is added is in make test")
@pytest.mark.parametrize(
    "several", [True, pytest.param(False, marks=[pytest.mark.thorough("the same of a sink with one topic")])]
)
def test_a_topic_that_is_replaced_in_the_middle_of_a_removal_stays(
    sink: SeveralTopicsSink, monkeypatch: pytest.MonkeyPatch, *, several: bool
) -> None:
    """Kafka deletes topics by their names."""
    sink.letters_of_list = "abc" if several else "c"
    changes: dict[str, Any] = {} if several else {"data": replace(sink.settings.data.parts[0])}
    start(sink, **changes)
    settings = replace(sink.settings, **changes)
    admin = Admin(settings.connection)
    removing = SinkRemoval(ports=ports(settings, admin, admin))
    kept_of = SinkRemoval._kept

    def replaced(self: SinkRemoval, *args: Any) -> dict[str, str]:
        found = kept_of(self, *args)
        monkeypatch.setattr(SinkRemoval, "_kept", kept_of)
        topics.recreate_topic(sink.direct, sink.named("c"))
        return found

    monkeypatch.setattr(SinkRemoval, "_kept", replaced)
    refusal(removing.carry_out, Reason.TOPICS_CHANGED)
    kept = removing.carry_out()
    assert kept is not None
    assert kept.name == sink.named("c")
    wait_until(lambda: there(sink) == ["c"], "the others are gone")


# Resets


@pytest.mark.parametrize("point", ["starting-after-meta", "reset-before-transaction", "reset-after-commit"])
@pytest.mark.thorough("tests/conformance kills resets at each point; here with another list")
def test_a_reset_to_a_shorter_list_that_is_killed(
    sink: SeveralTopicsSink, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """All of it counts, or nothing: the list is refused until the reset has landed."""
    sink.driver().drain()
    sink.letters_of_list = "ab"
    refusal(sink.driver, Reason.DATA_TOPIC_REMOVED)
    resetting = SinkReset(ports=sink.ports())
    plan = resetting.plan(parse_targets(["latest"]))
    with monkeypatch.context() as patched:
        once(point, killed, patched)
        with pytest.raises(RuntimeError, match="killed"):
            resetting.carry_out(plan)
    if point != "reset-after-commit":
        refusal(sink.driver, Reason.DATA_TOPIC_REMOVED)
        again = SinkReset(ports=sink.ports())
        again.carry_out(again.plan(parse_targets(["latest"])))
    assert sink.driver().delivery.progress.rows == 0
    assert set(meta(sink)["data"]) == {sink.named("a"), sink.named("b")}  # type: ignore[call-overload]
    assert there(sink) == ["a", "b", "c"], "a reset deletes nothing"
