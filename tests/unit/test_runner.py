"""One sink's life over tries that last long: played on a clock of its own, with no Spark."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from sinkpipeline.core.batch_counts import BatchCounts
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.failure import FailurePolicy
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.status import SinkState
from sinkpipeline.sinks.contract import UnknownSchemas
from sinkpipeline.spark import runner

HOUR_S = 3600.0


@dataclass
class World:
    """What the sink meets, and the time that it takes."""

    batch_s: float
    """How long a batch tries before it fails."""
    commits_s: float = 0.0
    """For how long batches are delivered before that one."""
    refusals: list[Reason] = field(default_factory=list)
    """Of its starts, one after the other."""
    learning: list[Reason | None] = field(default_factory=list)
    """What becomes of asking for schemas, each time that a batch meets an unknown one; None: they are told."""
    fails_by: Reason = Reason.BATCH_FAILED
    slow_s: float = 0.0
    """How long the source lets a query wait."""
    exact: bool = True
    """Whether nothing is in doubt after a batch."""
    ends_after: int = 50
    now: float = 0.0
    starts: int = 0
    patience: list[float] = field(default_factory=list)
    """Of its queries."""
    waits: list[float] = field(default_factory=list)
    """Between its starts."""
    proved: list[bool | None] = field(default_factory=list)
    """What its reports said of that, one after the other, each time that it was another word."""


class Clock:
    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now


class Stop(threading.Event):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        self._world.now += timeout or 0.0
        self._world.waits.append(timeout or 0.0)
        return self.is_set()


class Query:
    def __init__(self, world: World, patience_s: float, on_trigger: Any) -> None:
        self._world, self._began, self._patience_s = world, world.now, patience_s
        self._on_trigger = on_trigger
        world.patience.append(patience_s)
        self.error: Exception | None = None
        self.counts = BatchCounts()

    def wait(self, timeout_s: float) -> bool:
        self._world.now += timeout_s
        ran = self._world.now - self._began
        if self._patience_s < self._world.slow_s:
            self.error = SinkPipelineError(Reason.SOURCE_SLOW, "no record in time", "x")
            return True
        if self._world.learning:
            self.error = UnknownSchemas((bytes(5),))
            return True
        if ran < self._world.commits_s:
            self.counts = self.counts.with_batch(0.1, [])
            self._on_trigger(found_records=True)
        elif ran >= self._world.commits_s + self._world.batch_s:
            self.error = SinkPipelineError(self._world.fails_by, "a worker was killed, four times", "x")
            return True
        return False

    def check_world(self) -> bool:
        """A batch holds the lock, but for the time before Spark begins the first one."""
        return self._world.now - self._began < 5

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


def life(world: World, monkeypatch: pytest.MonkeyPatch) -> runner.SinkRunner:
    """A sink with a record that waits, until its thread ends."""

    def start() -> Any:
        world.starts += 1
        if world.refusals:
            raise SinkPipelineError(world.refusals.pop(0), "refused", "lift it")
        if world.starts > world.ends_after:
            sink._stop.set()
        source = SourcePartition("in", 0)
        progress = Progress(partitions={source: PartitionProgress(epoch=0, next=0)})
        return SimpleNamespace(warn=lambda *_: None, progress=progress, drift=(), hold=Closed())

    for name, stand_in in {
        "SinkQuery": lambda *_a, patience_s, on_trigger, **_k: Query(world, patience_s, on_trigger),
        "SinkDelivery": lambda *_a: SimpleNamespace(exact=world.exact, close=lambda: None),
        "time": Clock(world),
        "jvm_is_gone": lambda _spark: False,
        "InheritableThread": threading.Thread,
    }.items():
        monkeypatch.setattr(runner, name, stand_in)
    identity = SimpleNamespace(sink="out")
    source = SimpleNamespace(properties={})
    settings = SimpleNamespace(id=identity, owner=None, exactly_once=True, source=source)
    starter: Any = SimpleNamespace(
        settings=settings,
        start=start,
        durability=lambda: None,
        duplicate_window_ms=lambda: None,
        remembered=Remembered(),
    )

    def note() -> None:
        if world.proved[-1:] != [sink.report.proved]:
            world.proved.append(sink.report.proved)

    nothing: Any = None

    def learn(_frames: object) -> None:
        reason = world.learning.pop(0)
        if reason is not None:
            raise SinkPipelineError(reason, "the registry is away", "wait")

    query: Any = SimpleNamespace(small_offsets=0, schemas=SimpleNamespace(learn=learn))
    sink = runner.SinkRunner(spark=nothing, query=query, starter=starter, policy=FailurePolicy(), on_change=note)
    sink._stop = Stop(world)
    sink.set_ends({SourcePartition("in", 0): 10}, None)
    sink._run()
    return sink


class Closed:
    def close(self) -> None: ...


@pytest.mark.parametrize("batch_s", [30.0, 660.0, HOUR_S])
def test_a_batch_that_always_fails_opens_the_circuit_however_long_it_takes(
    batch_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(batch_s)
    sink = life(world, monkeypatch)
    assert sink.report.error is not None
    assert (sink.report.error.reason, world.starts) == (Reason.CIRCUIT_OPEN, 5)


def test_a_batch_that_fails_after_each_time_of_health_opens_none(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = FailurePolicy()
    world = World(30.0, commits_s=policy.reset_after_s + 10, ends_after=3 * policy.max_consecutive_failures)
    assert life(world, monkeypatch).report.state is SinkState.SUSPENDED
    assert world.starts == world.ends_after + 1


def test_a_sink_whose_batch_fails_has_to_show_again_that_it_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(HOUR_S, commits_s=60, ends_after=3)
    assert life(world, monkeypatch).report.proved is False
    assert world.proved == [False, *[True, False] * 3], "by its first batch, until it fails"


def test_a_refusal_that_may_be_lifted_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(HOUR_S, refusals=[Reason.AUTHORIZATION_FAILED] * 9)
    sink = life(world, monkeypatch)
    assert sink.report.error is not None
    assert sink.report.error.reason is Reason.CIRCUIT_OPEN, "it ran, and its batches failed"
    assert (world.starts, world.waits.count(FailurePolicy().max_backoff_s)) == (9 + 5, 9)


def test_a_log_in_that_worked_is_tried_once_more_before_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    passing = World(HOUR_S, commits_s=60, fails_by=Reason.AUTHENTICATION_FAILED, ends_after=3)
    assert life(passing, monkeypatch).report.state is SinkState.SUSPENDED
    assert FailurePolicy().max_backoff_s not in passing.waits, "it went on at once, each time"

    never = World(0, fails_by=Reason.AUTHENTICATION_FAILED, ends_after=3)
    life(never, monkeypatch)
    assert never.waits.count(FailurePolicy().max_backoff_s) == 3, "it has never worked"


def test_any_other_refusal_waits_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(HOUR_S, refusals=[Reason.DATA_TOPIC_LOST])
    sink = life(world, monkeypatch)
    assert (sink.report.state, world.starts) == (SinkState.FAILED, 1)


def test_a_slow_source_is_given_more_time_with_each_try_and_opens_no_circuit(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(HOUR_S, commits_s=60, slow_s=150, ends_after=7)
    sink = life(world, monkeypatch)
    assert sink.report.state is SinkState.SUSPENDED
    # A batch came through with 160 s; the next failure is another one's, and begins anew.
    assert world.patience == [10, 20, 40, 80, 160, 10, 20]


@pytest.mark.parametrize("exact", [True, False])
def test_a_schema_that_is_learnt_costs_a_query_and_counts_as_no_failure(
    exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(HOUR_S, commits_s=60, learning=[None] * 9, fails_by=Reason.DATA_TOPIC_LOST, exact=exact)
    sink = life(world, monkeypatch)
    assert sink.counts.failures == {Reason.DATA_TOPIC_LOST.value: 1}, "of the tenth query"
    assert (len(world.patience), world.starts) == (10, 1 if exact else 10), "what is in doubt is for a start"
    assert world.waits == [], "nobody waits for what is there"


def test_a_registry_that_is_away_is_waited_for_and_opens_no_circuit(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Reason.SCHEMA_REGISTRY_UNREACHABLE
    world = World(HOUR_S, commits_s=60, learning=[*[away] * 9, None], fails_by=Reason.DATA_TOPIC_LOST)
    sink = life(world, monkeypatch)
    assert world.starts == 10
    assert sink.counts.failures == {away.value: 9, Reason.DATA_TOPIC_LOST.value: 1}, "it ran, with all that it learnt"
    assert world.waits[:4] == [5, 10, 20, 40]


def test_too_many_schemas_wait_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(HOUR_S, learning=[Reason.TOO_MANY_SCHEMAS])
    sink = life(world, monkeypatch)
    assert (sink.report.state, world.starts) == (SinkState.FAILED, 1)
