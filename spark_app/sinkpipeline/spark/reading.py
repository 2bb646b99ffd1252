"""A run whose records come from a database: a stage that reads its changes, and the driver of the sinks beside it.

The driver reads the change topic as it reads any other topic. What it tells of the sinks is told with the stage's part.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sinkpipeline.changes.settings import StageSettings
from sinkpipeline.core.changes.told import with_source
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.failure import FailurePolicy
from sinkpipeline.core.served import Observation
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kinds.no_sinks import NoSinks
from sinkpipeline.kinds.stage import StageRunner
from sinkpipeline.sinks.starting import now_ms
from sinkpipeline.spark.driver import Driver

_LOG = logging.getLogger("sinkpipeline.changes")

_TICK_S = 0.25
_LOOK_EVERY_S = 2.0


class Reading:
    """One run of such a pipeline."""

    def __init__(self, driver: Driver | NoSinks, settings: StageSettings) -> None:
        """`driver`: of the sinks, if there are any; it does not run yet."""
        self._driver = driver
        self._settings = settings
        self._observe, driver.observe = driver.observe, self._told
        self._status: Mapping[str, Any] | None = None
        """As it was last told."""
        self._last: Observation | None = None
        """As the driver told it."""
        self._changed = threading.Event()
        self._failed_first = False
        """Whether the run ends because the stage has failed, not because it was told to."""
        policy = FailurePolicy.of(driver.pipeline.spec.failure_policy)
        self.stage = StageRunner(settings, policy, self._look, driver.closing)

    def run(self) -> None:
        """Runs until done or stopped.

        Raises:
            SinkPipelineError: of the stage, if it has failed for good; else of the sinks, as the driver.
        """
        self._driver.publish()
        self.stage.start()
        try:
            if self._wait():
                self._driver.run()
        finally:
            # After the sinks: what it has committed is there for the next run in any case.
            self.stage.stop()
            self.stage.join()
            self._tell()
        error = self.stage.failure
        if error is not None and self._failed_first:
            raise error

    def _wait(self) -> bool:
        """Until there is something for the sinks to read, or, of a run that ends by itself, all of it; false: stopped.

        A topic that is there is read also while the database is away.
        """
        looked_at = 0.0
        end, topic = None, self._settings.topic.name
        while not self._driver.stop.is_set():
            report = self.stage.report
            if self.stage.claims and not self._driver.until_idle:
                return True
            if self._driver.until_idle:
                end = end or (report.server_end if self.stage.claims else None)
                if end is not None and report.reached(end):
                    return True
            elif report.is_in_trouble and time.monotonic() - looked_at > _LOOK_EVERY_S:
                if self._is_there(topic):
                    return True
                looked_at = time.monotonic()
            self._driver.publish()
            self._changed.wait(_TICK_S)
            self._changed.clear()
        return False

    def _is_there(self, topic: str) -> bool:
        try:
            return Admin(self._settings.kafka).topics([topic])[topic] is not None
        except SinkPipelineError as error:
            _LOG.debug("the change topic is not known: %s", error)
            return False

    def _look(self) -> None:
        """Something has changed of the stage."""
        if self.stage.failure is not None and not self._driver.stop.is_set():
            self._failed_first = True
            self._driver.stop.set()
        self._changed.set()

    def _told(self, seen: Observation) -> None:
        self.stage.watch()
        self._last = seen
        self._tell()

    def _tell(self) -> None:
        if self._last is not None:
            self._status = with_source(self._last.status, self.stage.report, self._status, now_ms())
            self._observe(replace(self._last, status=self._status))
