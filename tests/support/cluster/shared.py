"""What the processes of one `make e2e` share: who of them installs, and a folder for what they have seen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

RUN: Final = "SINKPIPELINE_E2E"
"""The name of the run, which `python -m cluster run` gives; a process without one is a run of its own."""


class Shared:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.recorded = directory / "recorded"
        self._run = os.environ.get(RUN) or uuid.uuid4().hex
        directory.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """Whether this process is the first one of its run; the others wait until it has left."""
        mark = self.directory / "run"
        with (self.directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            first = not mark.exists() or mark.read_text() != self._run
            if first:
                shutil.rmtree(self.recorded, ignore_errors=True)
                self.recorded.mkdir()
            yield first
            # Not where it failed: the next one tries again.
            mark.write_text(self._run)
