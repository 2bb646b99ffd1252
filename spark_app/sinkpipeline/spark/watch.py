"""What Spark says of its executors and of the stages that run, asked every two seconds."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from typing_extensions import Self

from sinkpipeline.core.work import StageWork, who_moved, who_works

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("sinkpipeline.driver")

_EVERY_S = 2.0


class SparkWatch:
    """Asks in a thread of its own, as a JVM that hangs must hold up nobody; use it in a `with`.

    Neither question is of Spark's public interface. Where a Spark doesn't know one, nothing is told of executors and
    tasks, and whoever asks goes without.
    """

    def __init__(self, spark: SparkSession, on_change: Callable[[], None]) -> None:
        """`on_change`: is called where another number of executors is registered."""
        context = spark.sparkContext
        self._context: Any = context._jsc.sc()  # noqa: SLF001 - there is no other way
        self.is_local = re.fullmatch(r"local(\[.*\])?", str(context.master)) is not None
        self._on_change = on_change
        self._registered: int | None = None
        self._stages: tuple[StageWork, ...] = ()
        self._moved: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark-watch", daemon=True)

    def __enter__(self) -> Self:
        """What is known of executors is known from here on."""
        if self._look():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_EVERY_S)

    @property
    def executors(self) -> int | None:
        """How many are registered, where a local master counts as one; None where Spark doesn't tell."""
        return self._registered

    def take_who_moved(self) -> frozenset[str]:
        """The sinks of which a batch has begun, or a task ended, since this was last asked."""
        with self._lock:
            found, self._moved = self._moved, frozenset()
        return found

    @property
    def who_works(self) -> frozenset[str]:
        """The sinks of which a task runs."""
        return who_works(self._stages)

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            if not self._look():
                return

    def _look(self) -> bool:
        try:
            registered = 1 if self.is_local else int(self._context.getExecutorIds().size())
            stages = self._running_stages()
        except (Py4JError, TypeError, OSError) as error:
            if not self._over.is_set():
                _LOG.warning("Spark does not tell of its executors and stages: %s", type(error).__name__)
                _LOG.debug("asking Spark for executors and stages", exc_info=True)
            self._registered, self._stages = None, ()
            return False
        with self._lock:
            self._moved |= who_moved(self._stages, stages)
            self._stages = stages
        changed, self._registered = registered != self._registered, registered
        if changed:
            self._on_change()
        return True

    def _running_stages(self) -> tuple[StageWork, ...]:
        stages = self._context.statusStore().activeStages()
        return tuple(_read(stages.apply(number)) for number in range(stages.size()))


def _read(stage: Any) -> StageWork:
    return StageWork(
        id=(stage.stageId(), stage.attemptId()),
        # Each sink's query has a pool of its own.
        sink=stage.schedulingPool(),
        active=stage.numActiveTasks(),
        completed=stage.numCompleteTasks(),
    )
