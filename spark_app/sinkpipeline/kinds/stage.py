"""A stage beside its driver: a child process that is started, listened to, and started again after trouble.

    driver ── settings in a file ──► python -m sinkpipeline.changes ── receipts on its standard output ──► driver

A crash of either is seen by the other. What was in doubt when it died, the next one reads in the progress.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import sinkpipeline
from sinkpipeline.changes.settings import StageSettings, to_json
from sinkpipeline.core.changes.told import StageReport, error_of
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.failure import FailurePolicy, Failures, Health
from sinkpipeline.core.status import SinkState
from sinkpipeline.sinks.starting import now_ms

_LOG = logging.getLogger("sinkpipeline.changes")

COMMAND = (sys.executable, "-m", "sinkpipeline.changes")
_AGAIN_S = 0.5
_END_S = 30.0
"""For what is open when it is told to end; then it is killed, and what is open is aborted."""
_SILENT_S = 300.0
"""A stage tells how it stands every 5 s; one that says nothing for so long hangs."""
_LEVELS = {"DEBUG": logging.DEBUG, "WARNING": logging.WARNING, "ERROR": logging.ERROR}


class StageRunner:
    """Runs the stage of a pipeline in a thread, life after life. `report` may be read by any thread at any time."""

    def __init__(
        self, settings: StageSettings, policy: FailurePolicy, on_change: Callable[[], None], closing: str
    ) -> None:
        """`closing`: what a person does to close an open circuit."""
        self._settings = settings
        self._policy = policy
        self._on_change = on_change
        self._closing = closing
        self._report = StageReport(slot=settings.database.held)
        self._failures = Failures()
        self._health = Health()
        self._has_worked = False
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._heard_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="stage", daemon=True)
        self.claims = 0
        """How many lives have held their source."""

    @property
    def report(self) -> StageReport:
        with self._lock:
            return self._report

    @property
    def pid(self) -> int | None:
        """Of the process that lives; None where none does."""
        with self._lock:
            return None if self._process is None else self._process.pid

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def failure(self) -> SinkPipelineError | None:
        """Why it has failed for good."""
        report = self.report
        return report.error if report.state is SinkState.FAILED else None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Asks it to end: it commits what is open."""
        self._stop.set()
        with self._lock:
            process = self._process
        if process is not None:
            process.terminate()

    def join(self) -> None:
        """After `stop`."""
        self._thread.join(_END_S)
        with self._lock:
            process = self._process
        if process is not None:
            process.kill()
        self._thread.join(_END_S)

    def watch(self) -> None:
        """Ends a process that says nothing any more; called now and then."""
        with self._lock:
            process, heard_at = self._process, self._heard_at
        if process is not None and time.monotonic() - heard_at > _SILENT_S:
            _LOG.warning("the stage has said nothing for %.0f s, and is killed", _SILENT_S)
            process.kill()

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._report = replace(self._report, **changes)
        self._on_change()

    def _run(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="sinkpipeline-stage-") as directory:
                while not self._stop.is_set():
                    error = self._live(Path(directory, "stage.json"))
                    if error is None:
                        self._stop.wait(_AGAIN_S)
                    elif not self._may_try_again(error):
                        return
            self._change(state=SinkState.SUSPENDED)
        except Exception as error:  # noqa: BLE001 - a thread's last resort: told in the status, the stack in the log
            _LOG.debug("the stage's thread was ended by a bug", exc_info=True)
            fact = f"{type(error).__name__}: {error}"
            bug = SinkPipelineError(Reason.INTERNAL_ERROR, fact, "please report this with the log file")
            self._change(state=SinkState.FAILED, error=bug)

    def _live(self, file: Path) -> SinkPipelineError | None:
        """One life; why it ended, None where it was told to."""
        self._health = Health()
        # Only the first one takes over from another driver: later ones are of this one.
        file.write_bytes(to_json(replace(self._settings, takes_over=self.claims == 0)))
        process = subprocess.Popen(  # noqa: S603 - nothing in it is of somebody else
            [*COMMAND, str(file)],
            env={**os.environ, "PYTHONPATH": _path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A signal of the terminal is the driver's: it ends the stage in its own order.
            start_new_session=True,
        )
        with process:
            if process.stdout is None or process.stderr is None:
                raise ValueError("a process without pipes")
            with self._lock:
                self._process, self._heard_at = process, time.monotonic()
            if self._stop.is_set():
                process.terminate()
            logged = threading.Thread(target=_forward, args=(process.stderr,), daemon=True)
            logged.start()
            try:
                told = self._listen(process.stdout)
            except BaseException:
                process.kill()
                raise
            code = process.wait()
            logged.join(_END_S)
            with self._lock:
                self._process = None
        if told is not None:
            return told
        if code == 0 or self._stop.is_set():
            return None
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        remedy = "it is started again; if it happens often, look at the log, and whether memory is short"
        return SinkPipelineError(Reason.STAGE_FAILED, f"the stage ended {how}, without saying why", remedy)

    def _listen(self, receipts: IO[bytes]) -> SinkPipelineError | None:
        """To the end of its receipts; why it has failed, as it says."""
        error = None
        for line in receipts:
            if not line.endswith(b"\n"):
                # It was killed in the middle of it.
                break
            told = json.loads(line)
            now = time.monotonic()
            with self._lock:
                self._report = self._report.heard(told)
                self._heard_at = now
            match told["event"]:
                case "claimed":
                    self.claims += 1
                    _LOG.info("the stage reads %s from %s on", self._settings.database.name, self.report.position)
                case "state" | "committed":
                    self._has_worked = True
                    self._health = self._health.seen_at(now)
                case "failed":
                    error = error_of(told)
                case _:
                    pass
            self._on_change()
        return error

    def _may_try_again(self, error: SinkPipelineError) -> bool:
        """Counts a failure, reports it, and waits; false where the stage has failed for good."""
        if not error.reason.retry:
            _LOG.error("stage: %s", error)
            self._change(state=SinkState.FAILED, error=error)
            return False
        # A server that has never answered may be wrong; a stage that has worked waits for its server.
        counted = error.reason.counted or not self._has_worked
        self._failures = self._failures.after_failure(self._policy, self._health, counted=counted)
        if self._failures.circuit_is_open(self._policy):
            opened = SinkPipelineError(
                Reason.CIRCUIT_OPEN,
                f"{self._failures.consecutive} failures of the stage in a row, the last one {error.reason.value}: "
                f"{error.message}",
                f"{error.remedy}; then {self._closing}",
            )
            _LOG.error("stage: %s", opened)
            self._change(state=SinkState.FAILED, error=opened, circuit_opened_at=now_ms())
            return False
        delay = self._failures.backoff_s(self._policy)
        _LOG.warning("stage: %s; trying again in %.0f s", error, delay)
        self._change(state=SinkState.RETRYING, error=error)
        self._stop.wait(delay)
        return True


def _path() -> str:
    """Where this package is, and what else is found here."""
    ours = str(Path(sinkpipeline.__file__).parents[1])
    return os.pathsep.join(dict.fromkeys([ours, *filter(None, sys.path)]))


def _forward(lines: IO[bytes]) -> None:
    """What it logs, to our log: `2026-01-01 00:00:00,000 INFO name: text`."""
    for line in lines:
        text = line.decode(errors="replace").rstrip()
        _, _, rest = text.partition(" ")
        _, _, rest = rest.partition(" ")
        level, _, message = rest.partition(" ")
        if level in (*_LEVELS, "INFO"):
            _LOG.log(_LEVELS.get(level, logging.INFO), "stage: %s", message.partition(": ")[2] or message)
        elif text:
            _LOG.info("stage: %s", text)
