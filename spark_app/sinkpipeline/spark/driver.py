"""The driver: runs all sinks of one pipeline until they are done, told to stop, or can't go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sinkpipeline.core import manifest
from sinkpipeline.core.errors import ExitCode, Reason, SinkPipelineError
from sinkpipeline.core.failure import FailurePolicy
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.core.status import memory_of, render
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.settings import SinkSettings, SourceSettings
from sinkpipeline.kafka.starting import SinkStarter, now_ms
from sinkpipeline.kafka.views import source_topics
from sinkpipeline.spark.query import QuerySettings
from sinkpipeline.spark.runner import SinkRunner
from sinkpipeline.spark.session import spark_session
from sinkpipeline.spark.transform import analyse

_LOG = logging.getLogger("sinkpipeline.driver")

_TICK_S = 0.25
_LAG_EVERY_S = 2.0
_STOP_DEADLINE_S = 300.0
"""How long the running batches may take to finish; their transactions end far earlier or are aborted."""

_RANK = {ExitCode.SUPERSEDED: 0, ExitCode.MANIFEST: 1, ExitCode.REFUSED: 2, ExitCode.FAILED: 3, ExitCode.DONE: 4}


@dataclass(kw_only=True)
class Driver:
    """One run of a pipeline on this machine.

    `observe` is given the status document whenever it was computed anew, about four times a second, with the rows that
    this run delivered by sink.
    """

    pipeline: manifest.SinkPipeline
    sinks: list[SinkSettings]
    master: str
    log_file: Path
    earlier_status: object | None
    until_idle: bool
    observe: Callable[[Mapping[str, Any], Mapping[str, int]], None]
    stop: threading.Event = field(default_factory=threading.Event)

    _changed: threading.Event = field(default_factory=threading.Event, init=False)
    _runners: list[SinkRunner] = field(default_factory=list, init=False)
    _status: dict[str, Any] | None = field(default=None, init=False)

    def run(self) -> None:
        """Runs until done or stopped.

        Raises:
            SinkPipelineError: the error of the sink that decides the exit code.
        """
        memories = {
            sink.id.sink: None
            if self.earlier_status is None
            else memory_of(self.earlier_status, sink.id.identity, sink.id.sink)
            for sink in self.sinks
        }
        admins = {connection: Admin(connection) for connection in self._connections()}
        source = self.sinks[0].source
        targets = self._end_offsets(source, admins[source.connection]) if self.until_idle else {}
        rows = row_plan(self.pipeline)
        with spark_session(f"sinkpipeline {self.pipeline.identity}", self.master, self._conf(), self.log_file) as spark:
            analyse(spark, rows)
            query = QuerySettings(
                rows=rows,
                trigger_ms=self.pipeline.spec.trigger.interval.milliseconds,
                max_offsets_per_trigger=self.pipeline.spec.trigger.max_offsets_per_trigger,
            )
            self._runners = [
                SinkRunner(
                    spark=spark,
                    query=query,
                    starter=SinkStarter(
                        settings=sink,
                        source_admin=admins[sink.source.connection],
                        admin=admins[sink.connection],
                    ),
                    memory=memories[sink.id.sink],
                    policy=self._policy(),
                    on_change=self._wake,
                )
                for sink in self.sinks
            ]
            for runner in self._runners:
                runner.start()
            try:
                self._supervise(admins[source.connection], targets)
            finally:
                self._stop_all()
        self._raise_outcome()

    def _connections(self) -> set[Connection]:
        return {self.sinks[0].source.connection, *(sink.connection for sink in self.sinks)}

    def _end_offsets(self, source: SourceSettings, admin: Admin) -> dict[SourcePartition, int]:
        partitions = [
            SourcePartition(name, number)
            for name, topic in source_topics(source, admin).items()
            for number in range(topic.partitions)
        ]
        return admin.end_offsets(partitions, read_committed=source.read_committed)

    def _conf(self) -> dict[str, str]:
        spark = self.pipeline.spec.spark
        return {
            **spark.conf,
            "spark.driver.cores": str(spark.driver.cores),
            "spark.driver.memory": spark.driver.memory,
            "spark.executor.instances": str(spark.executor.instances),
            "spark.executor.cores": str(spark.executor.cores),
            "spark.executor.memory": spark.executor.memory,
        }

    def _policy(self) -> FailurePolicy:
        policy = self.pipeline.spec.failure_policy
        return FailurePolicy(
            max_consecutive_failures=policy.max_consecutive_failures,
            initial_backoff_s=policy.backoff.initial.milliseconds / 1000,
            max_backoff_s=policy.backoff.max.milliseconds / 1000,
            reset_after_s=policy.reset_after.milliseconds / 1000,
        )

    def _supervise(self, source_admin: Admin, targets: Mapping[SourcePartition, int]) -> None:
        over = threading.Event()
        threading.Thread(target=self._follow_lag, args=(source_admin, over), name="lag", daemon=True).start()
        try:
            while not self.stop.is_set():
                self._publish()
                if all(runner.ended for runner in self._runners) or self._superseded():
                    return
                if self.until_idle and all(runner.ended or runner.reached(targets) for runner in self._runners):
                    return
                self._changed.wait(_TICK_S)
                self._changed.clear()
        finally:
            over.set()

    def _follow_lag(self, source_admin: Admin, over: threading.Event) -> None:
        """In a thread of its own: brokers that don't answer must hold up neither the status nor a stop."""
        while not over.is_set():
            self._update_lag(source_admin, over)
            over.wait(_LAG_EVERY_S)

    def _wake(self) -> None:
        self._changed.set()

    def _superseded(self) -> bool:
        errors = [runner.report.error for runner in self._runners]
        return any(error is not None and error.reason is Reason.SUPERSEDED for error in errors)

    def _update_lag(self, source_admin: Admin, over: threading.Event | None = None) -> None:
        ends = None
        try:
            ends = self._end_offsets(self.sinks[0].source, source_admin)
        except SinkPipelineError as error:
            _LOG.debug("lag is unknown: %s", error)
        if over is None or not over.is_set():
            for runner in self._runners:
                runner.set_ends(ends)

    def _publish(self) -> None:
        self._status = render(
            [runner.report for runner in self._runners],
            identity=self.pipeline.identity,
            generation=self.pipeline.metadata.generation,
            previous=self._status,
            now_ms=now_ms(),
        )
        self.observe(self._status, {runner.id.sink: runner.rows_this_run for runner in self._runners})

    def _stop_all(self) -> None:
        if self.stop.is_set():
            _LOG.info("stopping after the running batch; a second signal ends the run at once")
        for runner in self._runners:
            runner.stop()
        deadline = time.monotonic() + _STOP_DEADLINE_S
        for runner in self._runners:
            runner.join(max(0.0, deadline - time.monotonic()))
        try:
            self._update_lag(Admin(self.sinks[0].source.connection))
        finally:
            self._publish()

    def _raise_outcome(self) -> None:
        """The exit code is the most telling one: superseded (of one sink is enough), then a refusal, then a failure.

        A stopped run is done, whatever a sink was waiting for; a sink that failed for good is told in any case.
        """
        errors = [runner.report.error for runner in self._runners if runner.report.state.value == "Failed"]
        told = [error for error in errors if error is not None]
        if told and not (self.stop.is_set() and len(told) < len(self._runners)):
            raise min(told, key=lambda error: _RANK[error.reason.exit_code])


def row_plan(pipeline: manifest.SinkPipeline) -> RowPlan:
    """What happens to one record, from the manifest."""
    decode, transform = pipeline.spec.decode, pipeline.spec.transform
    select = transform.select
    return RowPlan(
        decode_format=decode.format.value,
        schema=decode.schema_ddl,
        on_null=decode.on_null.value,
        where=transform.where,
        select=RowSelect()
        if select is None
        else RowSelect(
            key=select.key,
            value=select.value,
            headers=select.headers,
            timestamp=select.timestamp,
            partition=select.partition,
        ),
    )
