"""One sink's life in a driver: start, run the query, and start again after trouble, until it is told to stop or fails.

Each sink has a thread of its own, so a broken one holds up no other.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from sinkpipeline.core.batch_counts import BatchCounts
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.failure import FailurePolicy, Failures, Health, fetch_patience_s
from sinkpipeline.core.first_report import first_report
from sinkpipeline.core.held_back import HeldBack
from sinkpipeline.core.log_lines import log_fields
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import reaches
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.resume import OpenCircuit
from sinkpipeline.core.served import RunCounts
from sinkpipeline.core.status import SinkReport, SinkState
from sinkpipeline.core.work import proves
from sinkpipeline.sinks.contract import OversizedRecord, Restart, UnknownSchemas
from sinkpipeline.sinks.delivery import SinkDelivery
from sinkpipeline.sinks.small_batches import SmallBatches
from sinkpipeline.sinks.starting import SinkStarter, now_ms
from sinkpipeline.spark.beyond import Beyond
from sinkpipeline.spark.query import QuerySettings, SinkQuery
from sinkpipeline.spark.session import jvm_is_gone
from sinkpipeline.spark.source import broker_waits_s

_LOG = logging.getLogger("sinkpipeline.sink")

_CHECK_EVERY_S = 2.0
_WAIT_S = 0.5
_RESTART_DELAY_S = 0.5


class SinkRunner:
    """Runs one sink in a thread. `report` may be read by any thread at any time."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        query: QuerySettings,
        starter: SinkStarter,
        policy: FailurePolicy,
        on_change: Callable[[], None],
        circuit: OpenCircuit | None = None,
        closing: str = "start the pipeline again",
    ) -> None:
        """`circuit`: still open, so that nothing is started; `closing`: what a person does to close one."""
        self._spark = spark
        self._query_settings = query
        self._starter = starter
        self._policy = policy
        self._failures = Failures()
        self._health = Health()
        """Of the last start."""
        self._works = False
        """Whether the last start worked: it delivered something, or topics and progress were as they should be."""
        self._started = False
        self._owes_a_start = False
        """Whether a stop has to wait for one more start, which settles what the last one left open."""
        self._counted = True
        """Whether Arrow batches are bounded by a count of small rows; once a large one was met, they are measured."""
        self._small = SmallBatches(starter.settings, query.small_offsets)
        self._parked = False
        self._broker_waits_s = broker_waits_s(starter.settings.source)
        self._patience_s = fetch_patience_s(self._broker_waits_s)
        self._beyond = Beyond()
        self._on_change = on_change
        self._executors: int | None = None
        self._idled = False
        """Whether the last start's query has found no record at a trigger."""
        self._stop = threading.Event()
        self._lock = threading.Lock()
        settings = starter.settings
        self.id = settings.id
        self._circuit = circuit
        self._closing = closing
        self._report = first_report(settings, starter.remembered.memory, circuit)
        self.rows_this_run = 0
        self._query: SinkQuery | None = None
        self._batches = BatchCounts()
        """Of the queries before the current one."""
        self._failed: Counter[str] = Counter()
        # Spark's local properties are per thread: a plain thread would share the JVM thread of another.
        self._thread = InheritableThread(target=self._run_logged, name=f"sink-{settings.id.sink}", daemon=True)

    @property
    def report(self) -> SinkReport:
        """Lag is of this frontier: reckoned when it is asked for, from the end offsets as last seen."""
        with self._lock:
            return self._beyond.of(self._report)

    @property
    def frontier(self) -> Mapping[SourcePartition, int]:
        """Where it has come to; nothing before its first start."""
        progress = self.report.progress if self._started else None
        return {} if progress is None else {each: state.next for each, state in progress.partitions.items()}

    @property
    def counts(self) -> RunCounts:
        """What this sink did since the driver began."""
        with self._lock:
            batches = self._batches if self._query is None else self._batches + self._query.counts
            waits_s = self._beyond.waits_s
            return RunCounts(rows=self.rows_this_run, batches=batches, failures=dict(self._failed), waits_s=waits_s)

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be expected of it: also while it waits as long as others go on."""
        return self._parked or not self._thread.is_alive()

    def start(self) -> None:
        if self._circuit is None:
            self._thread.start()
        else:
            with log_fields(sink=self.id.sink):
                _LOG.warning("%s: is not started: %s", self.id.sink, self._circuit.error)

    def stop(self) -> None:
        """Asks the sink to end after the running batch."""
        self._stop.set()

    def abandon(self) -> None:
        """After `stop`: the running batch is not waited for."""
        with self._lock:
            query = self._query
        if query is not None:
            query.abandon()

    def join(self, timeout_s: float) -> None:
        if self._circuit is None:
            self._thread.join(timeout_s)

    def reached(self, targets: Mapping[SourcePartition, int]) -> bool:
        """Whether the frontier has come to these offsets."""
        progress = self.report.progress
        return (
            self._started
            and progress is not None
            and all(
                partition in progress.partitions and reaches(progress.partitions[partition].next, end)
                for partition, end in targets.items()
            )
        )

    def set_ends(self, ends: Mapping[SourcePartition, int] | None, held_back: HeldBack | None) -> None:
        """The source's end offsets as last seen, and what is held back beyond; None where they are unknown."""
        with self._lock:
            self._beyond.see(ends, held_back, self._report.progress)

    def set_executors(self, registered: int | None) -> None:
        """How many there are; None where that can't be known."""
        self._executors = registered

    def _change(self, **changes: object) -> None:
        with self._lock:
            self._report = replace(self._report, **changes)  # type: ignore[arg-type]
        self._on_change()

    def _run_logged(self) -> None:
        with log_fields(sink=self.id.sink):
            self._run()

    def _run(self) -> None:
        try:
            while not self._stop.is_set() or self._owes_a_start:
                try:
                    self._start_and_run()
                except Restart as restart:
                    if not self._start_again(restart):
                        return
                except SinkPipelineError as error:
                    in_vain = error.reason is Reason.SOURCE_SLOW and not self._health.was_seen
                    self._patience_s = fetch_patience_s(self._broker_waits_s, self._patience_s if in_vain else None)
                    if not self._may_try_again(error):
                        return
                except (Py4JError, ConnectionError) as error:
                    lost = f"the connection to Spark's JVM was lost ({type(error).__name__})"
                    if not self._may_try_again(SinkPipelineError(Reason.SPARK_FAILED, lost, "look at the log file")):
                        return
            self._change(state=SinkState.SUSPENDED)
        except Exception as error:  # noqa: BLE001 - a thread's last resort: told in the status, the stack in the log
            _LOG.debug("%s: ended by a bug", self.id.sink, exc_info=True)
            bug = SinkPipelineError(
                Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}", "please report this with the log file"
            )
            self._count_failure(bug)
            self._change(state=SinkState.FAILED, error=bug)
        finally:
            self._starter.remembered.let_go()

    def _start_again(self, restart: Restart) -> bool:
        """At once and uncounted; but a start that has not proved to work before counts as a failure."""
        # Also before a stop: nobody after this driver knows its frontier for certain, if the progress topic is lost.
        self._owes_a_start = True
        if isinstance(restart, UnknownSchemas):
            return True  # They are learnt; what is in doubt is for the start.
        if isinstance(restart, OversizedRecord):
            self._counted = False
        if not self._works and not self._stop.is_set():
            return self._may_try_again(SinkPipelineError(Reason.TOPICS_CHANGED, str(restart), "it is started again"))
        _LOG.info("%s: starting again: %s", self.id.sink, restart)
        self._change(state=SinkState.STARTING)
        self._stop.wait(_RESTART_DELAY_S)
        return True

    def _learn(self, unknown: UnknownSchemas) -> None:
        """At once and uncounted, as each schema is learnt once; an error where the registry can't tell."""
        self._owes_a_start = True
        _LOG.info("%s: a new query: %s", self.id.sink, unknown)
        self._change(state=SinkState.STARTING)
        if self._query_settings.schemas is not None:
            self._query_settings.schemas.learn(unknown.frames)

    def _start_and_run(self) -> None:
        self._health, self._works, self._idled = Health(), False, False
        self._owes_a_start = False
        started = self._starter.start()
        started.warn(self.id.sink, _LOG)
        self._change(
            progress=started.progress,
            drift=started.drift,
            durability=self._starter.durability(),
            duplicate_window_ms=self._starter.duplicate_window_ms(),
        )
        self._started = True
        if self._stop.is_set():
            started.hold.close()
            self._change(error=None)
            return
        delivery = SinkDelivery(self._starter, started, self._progressed, self._small if self._counted else None)
        with contextlib.closing(delivery):
            while self._run_query(delivery):
                pass

    def _run_query(self, delivery: SinkDelivery) -> bool:
        """Until it ends; whether another one follows at once, with schemas that this one has met.

        That one goes on like the next batch would: nothing is open, so there is nothing to fence, and nothing to read.
        """
        query = SinkQuery(
            self._spark,
            self._query_settings,
            self._starter.settings,
            delivery,
            on_trigger=self._triggered,
            counted=self._counted,
            patience_s=self._patience_s,
        )
        with self._lock:
            self._query = query
        try:
            query.start()
            self._owes_a_start = False
            self._change(state=SinkState.RUNNING, error=None)
            self._follow(query)
        except UnknownSchemas as unknown:
            self._learn(unknown)
            if not delivery.exact:
                raise
            return True
        finally:
            query.stop()
            query.close()
            with self._lock:
                self._batches += query.counts
                self._query = None
        return False

    def _follow(self, query: SinkQuery) -> None:
        """Until the query ends or shall end; raises why it ended."""
        checked, before = time.monotonic(), query.counts
        while not query.wait(_WAIT_S):
            if self._stop.is_set():
                self._end(query)
                return
            if query.counts is not before:
                before = query.counts
                self._health = self._health.seen_at(time.monotonic())
            self._prove_idle()
            if time.monotonic() - checked >= _CHECK_EVERY_S:
                self._look(query)
                checked = time.monotonic()
        if query.error is not None:
            raise query.error
        if not self._stop.is_set():
            raise SinkPipelineError(Reason.SPARK_FAILED, "the query ended without a reason", "it is started again")

    def _end(self, query: SinkQuery) -> None:
        """A clean stop: the running batch has finished well, in the world that it began in."""
        query.stop()
        if query.error is not None:
            raise query.error
        query.check_world()
        query.delivery.snapshot()

    def _look(self, query: SinkQuery) -> None:
        """Between batches. A look alone says that it works only where no record waits, or a batch was delivered."""
        if not query.check_world():
            return
        self._works = True
        if self._health.was_seen or self.report.lag == 0:
            self._health = self._health.seen_at(time.monotonic())

    def _progressed(self, progress: Progress, rows: int) -> None:
        self.rows_this_run += rows
        self._works = True
        self._change(progress=progress)

    def _triggered(self, *, found_records: bool) -> None:
        if not found_records:
            self._idled = True
        elif not self._report.proved:
            self._change(proved=True)

    def _prove_idle(self) -> None:
        report = self.report
        if not report.proved and proves(idled=self._idled, lag=report.lag, executors=self._executors):
            self._change(proved=True)

    def _wait_for_others(self, error: SinkPipelineError) -> bool:
        """A refusal that somebody may have lifted, as by granting a right, is looked at again while other sinks go on.

        Where none goes on the driver ends, and whoever runs it decides.
        """
        _LOG.info("%s: is looked at again in %.0f s", self.id.sink, self._policy.max_backoff_s)
        self._parked = True
        self._on_change()
        self._stop.wait(self._policy.max_backoff_s)
        if self._stop.is_set():
            return False
        self._parked = False
        _LOG.info("%s: trying again after %s", self.id.sink, error.reason.value, extra={"reason": error.reason.value})
        return True

    def _was_logged_in(self, error: SinkPipelineError) -> bool:
        """Whether a log-in that worked is refused: perhaps a token that was not renewed in time.

        Only a new client can tell, so the sink is started once more.
        """
        return error.reason is Reason.AUTHENTICATION_FAILED and self._works

    def _count_failure(self, error: SinkPipelineError) -> None:
        with self._lock:
            self._failed[error.reason.value] += 1

    def _may_try_again(self, error: SinkPipelineError) -> bool:
        """Counts a failure, reports it, and waits; false where the sink has failed for good."""
        self._count_failure(error)
        if error.reason.retry and jvm_is_gone(self._spark) and not self._stop.is_set():
            # Nothing here can be tried again. An open circuit would wait for a person; this is for whoever runs us.
            _LOG.error("%s: %s", self.id.sink, error)
            gone = "Spark has stopped, or its JVM is gone: it was killed, perhaps for want of memory, or crashed"
            remedy = "start the pipeline again; the log file may tell why, or raise spark.driver.memory"
            self._change(state=SinkState.FAILED, error=SinkPipelineError(Reason.SPARK_FAILED, gone, remedy))
            return False
        if not error.reason.retry and not self._was_logged_in(error):
            _LOG.error("%s: %s", self.id.sink, error)
            self._change(state=SinkState.FAILED, error=error, proved=False)
            return error.reason.heals and self._wait_for_others(error)
        # An address that has never answered may be wrong; a sink that has worked waits for its cluster.
        counted = error.reason.counted or not (self._started or self._starter.remembered.memory is not None)
        self._failures = self._failures.after_failure(self._policy, self._health, counted=counted)
        if self._failures.circuit_is_open(self._policy):
            opened = SinkPipelineError(
                Reason.CIRCUIT_OPEN,
                f"{self._failures.consecutive} failures in a row, the last one {error.reason.value}: {error.message}",
                f"{error.remedy}; then {self._closing}",
            )
            _LOG.error("%s: %s", self.id.sink, opened)
            self._change(state=SinkState.FAILED, error=opened, circuit_opened_at=now_ms())
            return False
        delay = self._failures.backoff_s(self._policy)
        _LOG.warning("%s: %s; trying again in %.0f s", self.id.sink, error, delay)
        # Whatever it did before, it has to show again that it can: a batch may fail each time that it is tried.
        self._change(state=SinkState.RETRYING, error=error, proved=False)
        self._stop.wait(delay)
        return True
