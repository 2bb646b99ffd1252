"""Where a driver's last words go: the file from which Kubernetes takes a container's termination message."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from sinkpipeline.cli.pod.vitals import Vitals
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.last_words import DONE, STOPPED, last_words

DEFAULT = Path("/dev/termination-log")

_LOG = logging.getLogger("sinkpipeline.driver")


class TerminationLog:
    """Written whenever the driver may be about to end; the last one counts."""

    def __init__(self, path: Path = DEFAULT) -> None:
        self.path = path
        self.vitals: Vitals | None = None

    def done(self, *, stopped: bool) -> None:
        if stopped:
            self._write(STOPPED, "stopped by a signal, after the running batches", "")
        else:
            self._write(DONE, "nothing is left to do", "")

    def failed(self, error: SinkPipelineError) -> None:
        self._write(error.reason.value, error.message, error.remedy)

    def _write(self, reason: str, message: str, remedy: str) -> None:
        sinks = [] if self.vitals is None else self.vitals.sinks()
        source = None if self.vitals is None else self.vitals.seen.status.get("source")
        words = last_words(reason, message, remedy, sinks, source)
        try:
            # Kubernetes mounts the very file: it is overwritten in place, and by a single call. Where it is not there,
            # this is no pod.
            create = 0 if self.path == DEFAULT else os.O_CREAT
            file = os.open(self.path, os.O_WRONLY | os.O_TRUNC | create, 0o644)
            try:
                os.write(file, words)
            finally:
                os.close(file)
        except OSError as error:
            _LOG.warning("the last words can't be written to %s: %s", self.path, error)
