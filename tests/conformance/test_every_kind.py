"""What every kind of sink keeps to, on its real server: each row arrives once, whatever is killed, lost or refused.

The scenarios are the same for all kinds; what is a kind's own stands in its adapter (`tests/support/conformance`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from servers.sql_proxy import SqlProxy
from sinkpipeline.core import troubles
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import OUTAGES
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.kafka import connection, producers
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer
from sinkpipeline.sinks import delivery, takeover, transactional
from support.conformance.child import KINDS, child
from support.conformance.kind import PROTOCOL_POINTS, REMOVAL_POINTS, RESET_POINTS, STEP, Sink, World
from support.conformance.of_kafka import KafkaSink, KafkaWorld
from support.conformance.of_nats import NatsWorld, WeakNatsWorld
from support.conformance.of_postgresql import PostgresqlWorld
from support.conformance.of_redis import RedisWorld, WeakRedisWorld
from support.conformance.of_topics import SeveralTopicsSink
from support.runs.keeper import KEEPER
from support.sink.cell_driver import Driver
from support.sink.starts import refusal
from support.waiting import wait_until
from support.worlds.faults import faulty_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
KAFKAS = {"kafka": KafkaSink, "kafka-topics": SeveralTopicsSink}
WEAK = [pytest.mark.thorough("the other guarantee of a kind")]
SEVERAL = [pytest.mark.thorough("kafka is beside it")]
A_VARIANT = [pytest.mark.long("the same of one topic is beside it, or of the other guarantee")]
OF_KIND = {
    each: WEAK if each.endswith("-at-least-once") else SEVERAL if each == "kafka-topics" else [] for each in KINDS
}
Kinds = pytest.mark.parametrize("kind", [pytest.param(each, marks=marks) for each, marks in OF_KIND.items()])
QUICK = ("nats", "postgresql", "redis")


def is_a_variant(kind: str) -> bool:
    """Of a kind that is beside it."""
    return kind == "kafka-topics" or kind.endswith("-at-least-once")


def later(kind: str, why: str) -> list[pytest.MarkDecorator]:
    """What is not in `make test`."""
    return A_VARIANT if is_a_variant(kind) else [pytest.mark.thorough(why)]


Slowly = pytest.mark.parametrize(
    "kind",
    [pytest.param(each, marks=[] if each in QUICK else later(each, "a server starts for seconds")) for each in KINDS],
)


WORLDS_OF_CELLS = {
    "nats": ("nats", NatsWorld),
    "postgresql": ("postgresql", PostgresqlWorld),
    "redis": ("valkey", RedisWorld),
    "nats-at-least-once": ("nats", WeakNatsWorld),
    "redis-at-least-once": ("valkey", WeakRedisWorld),
}
"""By kind, the fixture that is its server, and its world."""


@pytest.fixture
def world(kind: str, request: pytest.FixtureRequest) -> Iterator[World]:
    """A server of the kind, behind a proxy."""
    with ExitStack() as stack:
        if kind in KAFKAS:
            faulty = KEEPER.get("_faulty_kafka", faulty_kafka)
            stack.callback(faulty.heal)
            yield KafkaWorld(faulty, stack, KAFKAS[kind])
        else:
            fixture, make = WORLDS_OF_CELLS[kind]
            server: Any = request.getfixturevalue(fixture)
            proxy = stack.enter_context(SqlProxy(server.port))
            yield make(server, proxy, lambda: request.getfixturevalue("kafka"), stack)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "_MAX_DELAY_S", 0.11)
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.02)
    monkeypatch.setattr(delivery, "_ANNOUNCED_S", 0.0)


def points() -> list[object]:
    """In `make test` the one of each kind between its rows and their commit."""
    found: list[object] = []
    for kind, sink in KINDS.items():
        all_points = (*PROTOCOL_POINTS, *sink.points)
        first = sink.points[-1] if sink.points else "after-progress-before-commit"
        own = {first, *sink.points, "after-batch"}
        found += [
            pytest.param(kind, each, marks=marks(kind, "each point of a driver or a task", each, first, own))
            for each in all_points
            if each not in sink.never_at
        ]
    return found


def marks(kind: str, why: str, point: str, first: str | None, own: Collection[str]) -> list[pytest.MarkDecorator]:
    """`first`: in `make test`; `own`: where a variant of a kind does what the kind does not."""
    if point == first:
        return []
    return [pytest.mark.thorough(why)] if point in own else later(kind, why)


@pytest.mark.parametrize(("kind", "point"), points())
def test_a_kill_at_each_point(world: World, tmp_path: Path, point: str) -> None:
    sink = world.sink()
    killed = child(sink, tmp_path, point, step=STEP)
    killed.wait_at(point)
    killed.kill()
    sink.driver().drain()
    assert sink.delivered() == sink.once


def points_of(
    common: Sequence[str], of: Callable[[type[Sink]], Sequence[str]], why: str, first: Mapping[str, str]
) -> list[object]:
    """Of each kind: those of all, and its own. `first`: of a kind, the one in `make test`."""
    return [
        pytest.param(kind, each, marks=marks(kind, why, each, first.get(kind), {common[-1], *of(sink)}))
        for kind, sink in KINDS.items()
        for each in (*common, *of(sink))
    ]


def killed_at(point: str, world: World, tmp_path: Path, does: str) -> Sink:
    """A sink with a first batch, and who was killed as it did that to it."""
    sink = world.sink()
    sink.driver().batch()
    killed = child(sink, tmp_path, point, step=STEP, does=does)
    killed.wait_at(point)
    killed.kill()
    return sink


@pytest.mark.parametrize(
    ("kind", "point"),
    points_of(
        RESET_POINTS,
        lambda sink: sink.reset_points,
        "each point where a reset can be killed",
        {"kafka": "reset-before-commit", "postgresql": "reset-after-commit"},
    ),
)
def test_a_reset_that_is_killed_and_asked_for_again(world: World, tmp_path: Path, point: str) -> None:
    sink = killed_at(point, world, tmp_path, "reset")
    counts = point == "reset-after-commit"
    assert frontier(sink.driver()) == ([(1, 1), (1, 0)] if counts else [(0, STEP), (0, STEP)]), "all of it, or nothing"
    sink.reset()
    again = sink.driver()
    assert frontier(again) == ([(2, 1), (2, 0)] if counts else [(1, 1), (1, 0)])
    again.drain()
    assert sink.delivered() == sink.once + AGAIN


@pytest.mark.parametrize(
    ("kind", "point"),
    points_of(
        REMOVAL_POINTS,
        lambda sink: sink.removal_points,
        "each point where a removal can be killed",
        {"postgresql": "removal-before-tombstones", "kafka-topics": "removal-after-a-data-topic"},
    ),
)
def test_a_removal_that_is_killed_and_goes_on(world: World, tmp_path: Path, point: str) -> None:
    sink = killed_at(point, world, tmp_path, "remove")
    assert sink.remove() is None, "its target does not stay"
    sink.driver().drain()
    # With rows of the old target they would be there twice, with progress of the old sink they would be missing.
    assert sink.delivered() == sink.once


@Kinds
def test_two_writers_that_take_the_sink_from_each_other(world: World) -> None:
    sink = world.sink({0: 60})
    troubles_of: list[BaseException] = []

    def drive() -> None:
        try:
            for _ in range(200):
                with passing(lambda reason: reason in (Reason.SUPERSEDED, Reason.FENCED_REPEATEDLY)):
                    sink.driver(step=7).drain()
                    return
        except BaseException as error:  # noqa: BLE001 - told below
            troubles_of.append(error)

    threads = [threading.Thread(target=drive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles_of == []
    assert sink.delivered() == sink.once


@pytest.mark.parametrize("kind", [each for each in KINDS if not each.endswith("-at-least-once")])
def test_a_late_writer_of_an_older_driver_writes_nothing_more(world: World) -> None:
    """It has its partition, and its rows are on their way, when another driver starts."""
    sink = world.sink()
    late, offsets = next(sink.driver().writers())
    late.write(sink.batch(late._partition, offsets))
    sink.driver().drain()
    refusal(late.finish, Reason.SUPERSEDED)
    assert sink.delivered() == sink.once


@contextmanager
def passing(passes: Callable[[Reason], bool]) -> Iterator[None]:
    """Of an attempt after which there is another one."""
    try:
        yield
    except SinkPipelineError as error:
        if not passes(error.reason):
            raise


@Kinds
@pytest.mark.parametrize("answer", [True, pytest.param(False, marks=[pytest.mark.thorough("the other loss")])])
def test_a_commit_that_is_lost_or_its_answer(world: World, answer: bool) -> None:
    sink = world.sink()
    driver = sink.driver()
    lost = world.lose_commit(answer=answer)
    driver.drain()
    assert (lost.caught, sink.delivered()) == (1, sink.once)


@Slowly
def test_the_server_is_killed_and_comes_back(world: World) -> None:
    sink = world.sink({0: 400})
    driver = sink.driver(step=10)
    driver.pause_s = 0.1
    running = threading.Thread(target=driver.drain)
    running.start()
    wait_until(lambda: handled(driver) > 0, "rows come")
    world.restart()
    running.join()
    assert sink.delivered() == sink.once


def handled(driver: Driver) -> int:
    """As it says itself: whoever reads the target meanwhile is in the way of its server."""
    return sum(each.next for each in driver.delivery.progress.partitions.values())


@Kinds
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "re-created"])
def test_a_target_that_is_deleted(world: World, again: bool) -> None:
    sink = world.sink()
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    if again:
        sink.recreate()
    else:
        sink.delete()
    refusal(driver.drain, Reason.DATA_TOPIC_LOST)
    if again:
        assert sink.delivered() == Counter(), "nothing is written into another target"


@Kinds
def test_a_target_that_is_emptied_is_its_owner_s_own(world: World) -> None:
    sink = world.sink()
    driver = sink.driver()
    driver.batch()
    gone = sink.delivered()
    sink.empty()
    driver.drain()
    sink.driver().drain()
    assert sink.delivered() == sink.once - gone
    assert gone.total() == 2 * STEP


@Slowly
def test_a_target_that_is_full_is_waited_for(
    world: World,
    short_deadlines: None,  # noqa: ARG001 - it acts
) -> None:
    """Nothing is refused for it, and nothing is dead-lettered."""
    sink = world.sink(lettered=True)
    driver = sink.driver()
    driver.batch()
    with world.full(sink), pytest.MonkeyPatch.context() as patch:
        patch.setattr(troubles, "_OUTAGE_S", 1.0)
        with pytest.raises(SinkPipelineError) as caught:
            driver.batch()
        assert caught.value.reason in OUTAGES
    again = sink.driver()
    again.drain()
    assert (sink.delivered(), again.dead) == (sink.once, 0)


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is tried again is given up soon."""
    monkeypatch.setattr(connection, "SOCKET_TIMEOUT_MS", 1_000)
    monkeypatch.setattr(producers, "_DELIVERY_TIMEOUT_MS", 1_500)
    monkeypatch.setattr(TransactionalProducer.commit, "__defaults__", (3.0,))
    monkeypatch.setattr(PlainProducer.flush, "__defaults__", (3.0,))


@Kinds
@pytest.mark.parametrize(
    "bad",
    [{4}, pytest.param({2, 7, 11}, marks=[pytest.mark.thorough("several of them")]), set(range(12))],
    ids=["alone", "among others", "all"],
)
def test_rows_that_the_server_refuses_are_dead_letters_and_the_others_arrive(world: World, bad: set[int]) -> None:
    sink = world.sink(lettered=True)
    # What stands alone in its commit, and what stands among others.
    driver = sink.driver(step=1 if len(bad) == 1 else 12)
    sink.limit()
    sink.bad = frozenset(bad)
    driver.drain()
    assert sorted(sink.letters()) == sorted(bad), "each once, where nothing else went wrong"
    assert sink.delivered() == Counter({each: count for each, count in sink.once.items() if each[1] not in bad})
    assert driver.dead == len(bad)


@Kinds
def test_a_reset_under_a_running_driver(world: World) -> None:
    sink = world.sink()
    driver = sink.driver()
    driver.batch()
    sink.reset()
    refusal(driver.batch, Reason.SUPERSEDED)
    again = sink.driver()
    assert frontier(again) == [(1, 1), (1, 0)]
    again.drain()
    assert sink.delivered() == sink.once + AGAIN


AGAIN = Counter([(0, 1), (0, 2), (0, 3), *((1, each) for each in range(STEP))])
"""What a reset has delivered once more, of what a first batch had delivered."""


def frontier(driver: Driver) -> list[tuple[int, int]]:
    """Epoch and next offset of each partition."""
    states = driver.delivery.progress.partitions
    return [(states[each].epoch, states[each].next) for each in sorted(states)]


def started(sink: Sink) -> Driver:
    """As a runner would: what may be tried again is. Very many partitions have no leaders yet for a while."""
    for _ in range(20):
        with passing(lambda reason: reason.retry):
            return sink.driver()
    raise AssertionError("it never started")


FILLED = 10


@pytest.mark.parametrize(
    ("kind", "partitions"),
    [
        *(pytest.param(kind, each, marks=marks) for kind, marks in OF_KIND.items() for each in (0, 1)),
        *(pytest.param(kind, 300, marks=later(kind, "many partitions")) for kind in KINDS),
        *(pytest.param(kind, 1_500, marks=pytest.mark.long("a minute; 300 are the same code")) for kind in KINDS),
    ],
)
def test_none_one_and_many_partitions(world: World, partitions: int) -> None:
    # Of very many only some have records: of the others it matters how they are begun.
    sink = world.sink({each: int(each < FILLED) for each in range(partitions)})
    if not partitions and sink.without_partitions is not None:
        refusal(sink.driver, sink.without_partitions)
        return
    started(sink)
    driver = started(sink)
    states = driver.delivery.progress.partitions
    assert {each: state.next for each, state in states.items()} == dict.fromkeys(sink.ends, 0)
    driver.drain()
    assert sink.delivered() == sink.once
    assert sink.once.total() == min(partitions, FILLED)
