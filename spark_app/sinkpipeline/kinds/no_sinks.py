"""In place of the driver of the sinks, where there are none: the change topic is all that a pipeline delivers.

It tells and waits as that driver does, and starts no Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sinkpipeline.core.manifest import SinkPipeline
from sinkpipeline.core.served import Observation
from sinkpipeline.core.status import render
from sinkpipeline.sinks.starting import now_ms

_TICK_S = 0.25


@dataclass(kw_only=True)
class NoSinks:
    """One run of a pipeline without sinks. `observe`: as the driver's, four times a second."""

    pipeline: SinkPipeline
    observe: Callable[[Observation], None]
    until_idle: bool = False
    closing: str = "start the pipeline again"
    """What a person does to close an open circuit."""
    stop: threading.Event = field(default_factory=threading.Event)
    completed: bool = field(default=False, init=False)
    """Whether it has ended because `until_idle` was reached, not because it was stopped."""
    _status: dict[str, Any] | None = field(default=None, init=False)

    def run(self) -> None:
        """Until it is stopped; where the run ends by itself, the stage has come to its end before."""
        self.publish()
        if self.until_idle:
            self.completed = True
            return
        while not self.stop.wait(_TICK_S):
            self.publish()

    def publish(self) -> None:
        """Tells how the run stands; of one thread."""
        self._status = render(
            (),
            identity=self.pipeline.identity,
            generation=self.pipeline.metadata.generation,
            previous=self._status,
            now_ms=now_ms(),
        )
        self.observe(Observation(status=self._status, counts=MappingProxyType({}), supervising=True))
