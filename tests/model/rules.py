"""What Hypothesis draws from, and what every machine is made of."""

from __future__ import annotations

import enum

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from model.little_spark import Habits
from model.scheduler import Thread
from model.world import Kind, Shape, World
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.targets import Targets

Point = tuple[str, str]
"""The role of a thread, and what it is about to do."""

LABELS = {
    "task": ["rows", "init", "send", "commit", "read", "poll", "describe"],
    "stream": ["describe", "read", "send", "commit", "job", "collect", "abort"],
    "runner": ["describe", "list", "create", "init", "send", "commit", "offsets", "read", "poll", "sleep"],
}
"""Where a thread can be stopped, by its role."""

MAX_DRIVERS = 3


class Trouble(enum.Enum):
    """What happens around a task that is held in the middle of its work."""

    LOST = "Spark takes it for lost, and tries again elsewhere"
    JOB_FAILS = "its job fails, and it isn't told"
    DRIVER_DIES = "its driver is killed, and another one starts"
    NEWER_DRIVER = "a newer driver starts beside its own"
    RESET = "a person resets its sink"


STARTS = (Trouble.JOB_FAILS, Trouble.DRIVER_DIES, Trouble.NEWER_DRIVER)
"""After which the sink is started again."""

habits = st.builds(
    Habits,
    workers=st.integers(1, 2),
    moves=st.integers(0, 1),
    retry_moves=st.booleans(),
    max_offsets=st.integers(2, 5),
    rows_at_a_time=st.integers(1, 3),
)
shapes = st.builds(
    Shape,
    partitions=st.integers(1, 2),
    sinks=st.sampled_from([1, 1, 1, 2]),
    habits=habits,
    marker_delay_s=st.sampled_from([0.0, 0.0, 0.05, 2.0]),
    remembers=st.booleans(),
    small=st.sampled_from([0, 0, 3, 100]),
)
points = st.sampled_from(sorted(LABELS)).flatmap(lambda role: st.tuples(st.just(role), st.sampled_from(LABELS[role])))
task_points = st.tuples(st.just("task"), st.sampled_from(["commit", "init", "send", "rows"]))
zombies = st.sampled_from([("init", 1), ("send", 2), ("commit", 1), ("commit", 2), ("rows", 1), ("rows", 2)])
"""What a task is about to do, for the nth time, when it is given up."""
targets = st.sampled_from([Targets(everywhere=where) for where in StartingOffsets])
records = st.lists(st.sampled_from([Kind.KEPT, Kind.KEPT, Kind.DROPPED, Kind.LARGE]), min_size=1, max_size=6)
bad_records = st.lists(st.sampled_from([Kind.KEPT, Kind.BAD, Kind.REFUSED]), min_size=1, max_size=6)
several = st.lists(st.sampled_from([Kind.SEVERAL, Kind.SEVERAL, Kind.KEPT, Kind.DROPPED]), min_size=1, max_size=6)
several_bad = st.lists(
    st.sampled_from([Kind.SEVERAL, Kind.SEVERAL_BAD, Kind.SEVERAL_REFUSED, Kind.KEPT]), min_size=1, max_size=6
)
letters = st.sampled_from("abc")
"""Each is a topic of a sink that has several."""
lists = st.sampled_from(["ab", "abc", "abc", "a", "bc"])
named_elsewhere = st.lists(st.sampled_from([Kind.KEPT, Kind.KEPT, Kind.ELSEWHERE]), min_size=1, max_size=6)
latencies = st.sampled_from([0.001, 0.004, 0.02])
few = st.integers(0, 3)
nths = st.integers(1, 6)


class Calm(RuleBasedStateMachine):
    """A driver that runs while records arrive; and what the rules of the others are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(shape=shapes, records=records)
    def begin(self, shape: Shape, records: list[Kind]) -> None:
        self.world.close()
        self.world = World(shape)
        for partition in range(shape.partitions):
            self.world.produce(partition, records)
        self.world.start_driver()

    @rule(partition=st.integers(0, 1), records=records)
    def produce(self, partition: int, records: list[Kind]) -> None:
        self.world.produce(partition % self.world.shape.partitions, records)

    @rule(seconds=st.sampled_from([0.02, 0.1, 1.0, 5.0, 61.0]))
    def work(self, seconds: float) -> None:
        self.world.scheduler.run(seconds=seconds)

    @invariant()
    def keeps_its_word(self) -> None:
        self.world.raise_violation()

    def teardown(self) -> None:
        try:
            self.world.raise_violation()
            self.world.settle()
        except Exception as error:
            error.add_note("\n".join(self.world.scheduler.trace))
            raise
        finally:
            self.world.close()

    def start_another(self, latency: float = 0.001) -> bool:
        if len(self.world.alive()) >= MAX_DRIVERS:
            return False
        self.world.start_driver(latency)
        return True

    def run_to(self, point: Point, nth: int = 1) -> Thread | None:
        """Runs until somebody stands there for the nth time; for tasks there is something to do."""
        role, label = point
        if role in ("task", "stream"):
            self.world.produce(0, [Kind.KEPT])
        return self.world.scheduler.run_to(lambda each: each.role == role and each.label == label, nth=nth)

    def hold(self, point: Point, nth: int = 1) -> Thread | None:
        thread = self.run_to(point, nth)
        if thread is not None:
            self.world.held = thread.held = True
        return thread

    def hold_a_task(self, point: tuple[str, int]) -> Thread | None:
        label, nth = point
        self.world.produce(0, [Kind.KEPT, Kind.KEPT])
        return self.hold(("task", label), nth)

    def release(self, thread: Thread | None) -> None:
        if thread is not None:
            thread.held = False

    def go_alone_to(self, thread: Thread, label: str, nth: int) -> None:
        """Lets a thread go on until it is about to do something for the nth time."""
        seen, calls = 0, -1

        def reached() -> bool:
            nonlocal seen, calls
            if thread.label == label and thread.calls != calls:
                seen, calls = seen + 1, thread.calls
            return seen >= nth

        self.world.scheduler.go_alone(thread, reached)
        thread.held = not thread.done

    def make(self, trouble: Trouble, thread: Thread) -> None:
        attempt = next((each for each in self.world.tasks() if each.thread is thread), None)
        match trouble:
            case Trouble.LOST if attempt is not None:
                attempt.lost = True
            case Trouble.JOB_FAILS if attempt is not None:
                for job in self.world.jobs():
                    job.failed |= attempt in job.attempts.values()
            case Trouble.DRIVER_DIES:
                for driver in self.world.alive():
                    if thread.process in driver.process.children:
                        driver.kill()
                self.world.start_driver()
            case Trouble.NEWER_DRIVER:
                self.start_another()
            case Trouble.RESET:
                self.world.reset(0, Targets(everywhere=StartingOffsets.EARLIEST))
            case _:
                pass  # Spark has given it up already.
