"""The driver: runs all sinks of one pipeline until they are done, told to stop, or can't go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sinkpipeline.core import manifest
from sinkpipeline.core.batch import SMALL_OFFSETS
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.failure import FailurePolicy
from sinkpipeline.core.first_report import first_report
from sinkpipeline.core.lookups import TableInfo
from sinkpipeline.core.manifest.operation import SMALL_BATCHES
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.outcome import need_executors, outcome, waits
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.resume import OpenCircuit, Resume
from sinkpipeline.core.rowplan import row_plan, rows_of, rows_of_all
from sinkpipeline.core.served import Observation, RunCounts
from sinkpipeline.core.status import SinkReport, SinkState, render
from sinkpipeline.core.work import Executors, StillClock
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.source.ends import SourceEnds
from sinkpipeline.kafka.source.lag_groups import EVERY_S, LagGroups
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.resolve import SinkSettings, ordered_by
from sinkpipeline.sinks.starting import SinkStarter, now_ms
from sinkpipeline.spark.analysis import analyse, order_kind
from sinkpipeline.spark.functions import register_functions
from sinkpipeline.spark.lookups import load
from sinkpipeline.spark.patience import telling
from sinkpipeline.spark.query import QuerySettings
from sinkpipeline.spark.runner import SinkRunner
from sinkpipeline.spark.schemas import Schemas, asked_of, planned
from sinkpipeline.spark.session import conf_of, spark_session, with_jars
from sinkpipeline.spark.source import with_allowed_endpoints
from sinkpipeline.spark.watch import SparkWatch

_LOG = logging.getLogger("sinkpipeline.driver")

_TICK_S = 0.25
_LAG_EVERY_S = 2.0
_REGISTRY_EVERY_S = 5.0
_LAST_LAG_S = 15.0
"""For brokers that don't answer: nobody should take a driver that ends for one that hangs."""
_STOP_DEADLINE_S = 300.0
"""How long the running batches may take to finish; their transactions end far earlier or are aborted."""
_NOBODY_S = 5.0
"""A batch that nobody works on is not waited for: with no executor for so long it is ended as it is."""


@dataclass(kw_only=True)
class Driver:
    """One run of a pipeline, by `sinkpipeline run` or in a pod.

    `observe` is given the status document before Spark starts, and whenever it was computed anew, about four times a
    second, from then until the sinks have stopped.
    """

    pipeline: manifest.SinkPipeline
    sinks: list[SinkSettings]
    resume: Resume
    observe: Callable[[Observation], None]
    master: str | None
    """None: what spark-submit gives."""
    log_file: Path | None
    """Spark's log; None: stderr."""
    until_idle: bool = False
    jars: Sequence[str] = ()
    """Beside those of Spark; in a pod they are in its image."""
    config_hash: str | None = None
    """Of the configuration that runs; a run from a file has none, and no circuit stays open for it."""
    closing: str = "start the pipeline again"
    """What a person does to close an open circuit."""
    stop: threading.Event = field(default_factory=threading.Event)

    _changed: threading.Event = field(default_factory=threading.Event, init=False)
    _runners: list[SinkRunner] = field(default_factory=list, init=False)
    _status: dict[str, Any] | None = field(default=None, init=False)
    _watch: SparkWatch | None = field(default=None, init=False)
    _executors: Executors | None = field(default=None, init=False)
    _still: StillClock = field(default_factory=StillClock, init=False)
    _trouble: SinkPipelineError | None = field(default=None, init=False)
    """Why no sink can begin yet."""
    _reader: Mapping[str, Any] | None = field(default=None, init=False)
    _tables: Sequence[TableInfo] = field(default=(), init=False)
    _abandoned: bool = field(default=False, init=False)
    _groups: LagGroups = field(init=False)
    completed: bool = field(default=False, init=False)
    """Whether it has ended because `until_idle` was reached, not because it was stopped."""

    def __post_init__(self) -> None:
        self._groups = LagGroups(self.sinks)

    def run(self) -> None:
        """Runs until done or stopped.

        Raises:
            SinkPipelineError: the error of the sink that decides the exit code.
        """
        self.publish()
        if self.stop.is_set() or self._open_circuits().keys() >= {sink.id.sink for sink in self.sinks}:
            self._raise_outcome()
            return
        clients, source = Clients(), self.sinks[0].source
        source_admin = clients.admin(source.connection)
        targets = SourceEnds(source, source_admin).read() if self.until_idle else {}
        rows = row_plan(self.pipeline)
        with (
            clients,
            self._session() as spark,
            SparkWatch(spark, self._wake) as self._watch,
        ):
            register_functions(spark, self.pipeline.spec.spark.functions)
            schemas = self._read_schemas(spark)
            if self.stop.is_set():
                return
            plans = rows_of_all(rows, self.pipeline)
            if schemas is None:
                analyse(spark, *plans)
            else:
                schemas.analyse(plans)
            # What is read here counts until the run ends.
            self._tables = load(spark, plans)
            query = QuerySettings(
                rows=rows,
                schemas=schemas,
                trigger_ms=self.pipeline.spec.trigger.interval.milliseconds,
                max_offsets_per_trigger=self.pipeline.spec.trigger.max_offsets_per_trigger,
                small_offsets=int(self.pipeline.spec.spark.conf.get(SMALL_BATCHES, SMALL_OFFSETS)),
            )
            # Numbers that order changes are kept, and of another type they would mean something else.
            self.sinks = [
                ordered_by(sink, order_kind(spark, planned(rows_of(rows, self.pipeline, sink.id.sink), schemas)))
                for sink in self.sinks
            ]
            self._runners = [
                SinkRunner(
                    spark=spark,
                    query=query.of_sink(spark, self.pipeline, sink),
                    starter=SinkStarter(
                        ports=clients.later(sink),
                        remembered=Remembered(self.resume.memories.get(sink.id.sink)),
                    ),
                    policy=FailurePolicy.of(self.pipeline.spec.failure_policy),
                    on_change=self._wake,
                    circuit=self._open_circuits().get(sink.id.sink),
                    closing=self.closing,
                )
                for sink in self.sinks
            ]
            for runner in self._runners:
                runner.set_executors(self._watch.executors)
                if self.stop.is_set():
                    runner.stop()
                runner.start()
            try:
                self._supervise(source_admin, targets)
            finally:
                self._stop_all()
        self._raise_outcome()

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        with ExitStack() as stack:
            with telling("starting Spark", _LOG.info):
                name = f"sinkpipeline {self.pipeline.identity}"
                session = stack.enter_context(spark_session(name, self.master, self._conf(), self.log_file))
            _LOG.info("Spark runs; the sinks start")
            yield session

    def _read_schemas(self, spark: SparkSession) -> Schemas | None:
        """Where there is a registry: waits for its answer, as without the reader's schema there are no columns."""
        settings = self.sinks[0].source.registry
        if settings is None:
            return None
        while not self.stop.is_set():
            try:
                schemas = Schemas(spark, asked_of(settings), settings)
            except SinkPipelineError as error:
                if not error.reason.retry:
                    raise
                _LOG.warning("%s; trying again in %.0f s", error, _REGISTRY_EVERY_S)
                self._trouble = error
                self.publish()
                self.stop.wait(_REGISTRY_EVERY_S)
            else:
                self._trouble, self._reader = None, schemas.reader.info.to_dict()
                return schemas
        self._trouble = None
        self.publish()
        return None

    def _open_circuits(self) -> Mapping[str, OpenCircuit]:
        """Those that stay open, by sink."""
        return {} if self.config_hash is None else self.resume.open_circuits(self.config_hash)

    def _reports(self) -> list[SinkReport]:
        sinks = {sink.name: sink for sink in self.pipeline.spec.sinks}
        return [
            replace(report, required=sinks[report.name].required, kind=sinks[report.name].kind)
            for report in self._told()
        ]

    def _told(self) -> list[SinkReport]:
        if self._runners:
            return [runner.report for runner in self._runners]
        memories, circuits = self.resume.memories, self._open_circuits()
        first = [first_report(sink, memories.get(sink.id.sink), circuits.get(sink.id.sink)) for sink in self.sinks]
        if self._trouble is None:
            return first
        # A sink whose circuit is open doesn't wait for it, and must not forget why that opened.
        return [
            each if each.circuit_opened_at is not None else replace(each, state=SinkState.RETRYING, error=self._trouble)
            for each in first
        ]

    def _registered(self) -> int | None:
        """The executors that Spark has now; None where that is not known."""
        return None if self._watch is None else self._watch.executors

    def _conf(self) -> dict[str, str]:
        conf = with_jars(conf_of(self.pipeline.spec.spark), self.jars)
        return with_allowed_endpoints(conf, self.sinks[0].source.connection)

    def _supervise(self, source_admin: Admin, targets: Mapping[SourcePartition, int]) -> None:
        over = threading.Event()
        threading.Thread(target=self._follow_lag, args=(source_admin, over), name="lag", daemon=True).start()
        if self._groups.wanted:
            threading.Thread(target=self._commit_groups, args=(over,), name="groups", daemon=True).start()
        try:
            while not self.stop.is_set():
                self.publish()
                if all(runner.ended for runner in self._runners) or self._superseded():
                    return
                if self.until_idle and all(runner.ended or runner.reached(targets) for runner in self._runners):
                    self.completed = True
                    return
                self._changed.wait(_TICK_S)
                self._changed.clear()
        finally:
            over.set()

    def _follow_lag(self, source_admin: Admin, over: threading.Event) -> None:
        """In a thread of its own: brokers that don't answer must hold up neither the status nor a stop."""
        ends = SourceEnds(self.sinks[0].source, source_admin)
        while not over.is_set():
            self._update_lag(ends, over)
            over.wait(_LAG_EVERY_S)

    def _commit_groups(self, over: threading.Event) -> None:
        """Likewise in a thread of its own. After the progress: what a report has is committed there."""
        while not over.wait(EVERY_S):
            self._groups.write(self._frontiers())

    def _frontiers(self) -> dict[str, Mapping[SourcePartition, int]]:
        return {runner.id.sink: runner.frontier for runner in self._runners}

    def _wake(self) -> None:
        self._changed.set()

    def _superseded(self) -> bool:
        errors = [report.error for report in self._reports()]
        return any(error is not None and error.reason is Reason.SUPERSEDED for error in errors)

    def _update_lag(self, source: SourceEnds, over: threading.Event | None = None) -> None:
        ends = None
        try:
            ends = source.read()
        except SinkPipelineError as error:
            _LOG.debug("lag is unknown: %s", error)
        if over is None or not over.is_set():
            for runner in self._runners:
                runner.set_ends(ends, None if ends is None else source.held_back)

    def publish(self) -> None:
        """Tells how the run stands; of one thread."""
        now = now_ms()
        reports = self._timed(self._reports(), now)
        self._status = render(
            reports,
            identity=self.pipeline.identity,
            generation=self.pipeline.metadata.generation,
            previous=self._status,
            now_ms=now,
            executors=self._look_at_executors(reports, now),
            reader=self._reader,
            tables=self._tables,
        )
        counts = {sink.id.sink: RunCounts() for sink in self.sinks}
        counts |= {runner.id.sink: runner.counts for runner in self._runners}
        self.observe(Observation(status=self._status, counts=counts, supervising=bool(self._runners)))

    def _timed(self, reports: Iterable[SinkReport], now: int) -> list[SinkReport]:
        """With how long each sink has stood still."""
        moved = frozenset() if self._watch is None else self._watch.take_who_moved()
        work = frozenset() if self._watch is None else self._watch.who_works
        # Where there is nobody who could move anything, that is what is told, by a clock of its own.
        nobody = self._registered() == 0
        return [
            replace(
                report,
                still_since=self._still.seen(
                    report.name,
                    report.progress,
                    waits=False if nobody else waits(report),
                    moved=report.name in moved,
                    works=report.name in work,
                    now_ms=now,
                ),
            )
            for report in reports
        ]

    def _look_at_executors(self, reports: Iterable[SinkReport], now: int) -> Executors | None:
        """What is told of them; None where Spark does not tell."""
        registered = self._registered()
        for runner in self._runners:
            runner.set_executors(registered)
        if registered is None:
            self._executors = None
            return None
        before = self._executors or Executors(registered=registered, wanted=self._wanted())
        self._executors = before.seen(registered, needed=need_executors(reports), now_ms=now)
        return self._executors

    def _wanted(self) -> int | None:
        spark = self.pipeline.spec.spark
        if self._watch is not None and self._watch.is_local:
            return 1
        dynamic = spark.conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
        return None if dynamic else spark.executor.instances

    def _stop_all(self) -> None:
        if self.stop.is_set():
            _LOG.info("stopping after the running batch; a second signal ends the run at once")
        for runner in self._runners:
            runner.stop()
        began = somebody_at = time.monotonic()
        while not all(runner.ended for runner in self._runners) and time.monotonic() < began + _STOP_DEADLINE_S:
            # Whoever asks is still answered: a batch may take its time to finish.
            self.publish()
            if self._registered() != 0:
                somebody_at = time.monotonic()
            elif time.monotonic() - somebody_at >= _NOBODY_S:
                self._abandon()
            self._changed.wait(_TICK_S)
            self._changed.clear()
        source = self.sinks[0].source
        ends = SourceEnds(source, Admin(source.connection))
        last = threading.Thread(target=self._update_lag, args=(ends,), daemon=True)
        # A newer driver tells its own, which may be far ahead by now.
        frontiers = {} if self._superseded() else self._frontiers()
        groups = threading.Thread(target=LagGroups(self.sinks).write, args=(frontiers,), daemon=True)
        for thread in (last, groups):
            thread.start()
        for thread in (last, groups):
            thread.join(_LAST_LAG_S)
        self.publish()

    def _abandon(self) -> None:
        """Nobody works on the running batches."""
        if not self._abandoned:
            self._abandoned = True
            what = "the running batch is ended as it is; the next run delivers what it has not committed"
            _LOG.warning("no executor is registered: %s", what)
        for runner in self._runners:
            runner.abandon()

    def _raise_outcome(self) -> None:
        """The exit code is the most telling one: superseded (of one sink is enough), then a refusal, then a failure.

        A stopped run is done, whatever a sink was waiting for, and also where some of its sinks failed, before the stop
        or while a batch finished: the others would have gone on. Their errors stand in the status. Where every sink has
        failed, the stop came to a run that was over, and the error is told. One that is not required fails by itself.
        """
        reports = self._reports()
        error = outcome(reports, stopped=self.stop.is_set())
        if error is not None:
            raise error
        for report in reports:
            if report.state is SinkState.FAILED and not report.required:
                _LOG.warning("%s: has failed, and is not required: %s", report.name, report.error)
