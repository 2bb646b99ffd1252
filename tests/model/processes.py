"""What runs the product's code: drivers, and people who reset a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.little_spark import Spark
from model.scheduler import NEVER, Process
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.failure import FailurePolicy
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.rowplan import RowPlan
from sinkpipeline.core.targets import Targets
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.sinks.reset import SinkReset
from sinkpipeline.sinks.starting import SinkStarter
from sinkpipeline.spark.query import QuerySettings
from sinkpipeline.spark.runner import SinkRunner

if TYPE_CHECKING:
    from model.world import World

_POLICY = FailurePolicy(max_consecutive_failures=8, initial_backoff_s=1.0, max_backoff_s=10.0)


class Driver:
    """One run of the pipeline: a runner for each sink, as spark/driver.py has them."""

    def __init__(self, world: World, name: str, latency_s: float) -> None:
        self.world = world
        self.process = Process(name, latency_s)
        self.spark = Spark(
            world.scheduler, world.broker, self.process, world.shape.habits, world.keeps_row, world.topic_of
        )
        self.settings = tuple(world.sinks)
        """As the manifest was when it was started."""
        self.born_in = {name: judge.epoch for name, judge in world.judges.items()}
        self.stopping = False
        self.runners: dict[str, SinkRunner] = {}
        self.runs: dict[str, set[str]] = {settings.id.sink: set() for settings in world.sinks}
        self.starters: dict[str, SinkStarter] = {}
        self._superseded = False
        world.scheduler.spawn(self.process, "main", "main", self._run)

    def stop(self) -> None:
        """SIGTERM."""
        self.stopping = True

    def kill(self) -> None:
        """The driver is gone; its workers live on for as long as they have something to do."""
        self.world.scheduler.kill(self.process)

    def _run(self) -> None:
        try:
            self._run_sinks()
        finally:
            self.process.over = True

    def _run_sinks(self) -> None:
        for settings in self.settings:
            self._make_runner(settings)
        for runner in self.runners.values():
            runner.start()
        self.world.scheduler.wait("supervise", self._is_over)
        for runner in self.runners.values():
            runner.stop()
        for runner in self.runners.values():
            runner.join(NEVER)
        self._on_change()

    def _make_runner(self, settings: SinkSettings) -> None:
        sink = settings.id.sink
        admin = Admin(settings.connection)
        source = settings.source.connection
        source_admin = admin if source == settings.connection else Admin(source)
        starter = SinkStarter(
            ports=self.world.ports(settings, source_admin, admin),
            remembered=Remembered(self.world.memory(sink)),
        )
        self.starters[sink] = starter
        self.runs[sink] = starter._runs
        self.runners[sink] = SinkRunner(
            spark=self.spark,  # type: ignore[arg-type]
            query=QuerySettings(
                rows=RowPlan(decode_format="raw"),
                trigger_ms=1000,
                max_offsets_per_trigger=100,
                small_offsets=self.world.shape.small,
            ),
            starter=starter,
            policy=_POLICY,
            on_change=self._on_change,
        )

    def _is_over(self) -> bool:
        return self.stopping or self._superseded or all(runner.ended for runner in self.runners.values())

    def _on_change(self) -> None:
        reports = [runner.report for runner in self.runners.values()]
        self._superseded |= any(each.error is not None and each.error.reason is Reason.SUPERSEDED for each in reports)
        self.world.note(self, reports)


class Person:
    """Resets a sink: is shown the plan, and says yes."""

    def __init__(self, world: World, name: str, settings: SinkSettings, targets: Targets) -> None:
        self.process = Process(name, 0.001)
        self.runs: dict[str, set[str]] = {settings.id.sink: set()}
        self._world, self._settings, self._targets = world, settings, targets
        world.scheduler.spawn(self.process, "reset", "person", self._run)

    def _run(self) -> None:
        admin = Admin(self._settings.connection)
        memory = self._world.memory(self._settings.id.sink)
        reset = SinkReset(ports=self._world.ports(self._settings, admin, admin), memory=memory)
        self.runs[self._settings.id.sink] = reset._runs
        try:
            plan = reset.plan(self._targets)
            self._world.scheduler.wait("yes?", None, 1.0)
            reset.carry_out(plan)
        except SinkPipelineError as error:
            self._world.scheduler.tell(f"{self.process.name}: {error}")
        finally:
            self.process.over = True
