"""The file of `--status-file`: the status document of a run from a file, and who writes it.

    {..., "writer": {"pid": 4711, "host": "box", "at": "2026-11-22T17:00:00Z", "end": "Finished"}}

`end` is absent while the run goes on, and stays absent where it was killed: what the file says of its sinks is then of
`at`, when the run last wrote.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sinkpipeline.core.earlier_status import write_over
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.status import Phase, timestamp

_HEARTBEAT_S = 10.0
_SILENT_AFTER_S = 60.0
"""Whoever has not written for so long runs no more, as far as another machine can tell."""

_FINISHED, _CUT_SHORT = "Finished", "CutShort"
"""How a run ended: by itself or as it was told to; or in the middle of a batch."""
_COMPLETED = "Completed"
"""The phase of a run with --until-idle that has delivered all that was there."""


def read_status(path: Path) -> object | None:
    """The document of an earlier run; None where there is none.

    Raises:
        SinkPipelineError: StatusFileInvalid.
    """
    try:
        document: object = parse_json(path.read_text())
    except FileNotFoundError:
        if path.parent.is_dir():
            return None
        raise SinkPipelineError(
            Reason.STATUS_FILE_INVALID, f"{path} can't be written: {path.parent} is no directory", "create it"
        ) from None
    except (OSError, ValueError) as error:
        raise SinkPipelineError(
            Reason.STATUS_FILE_INVALID,
            f"the earlier status in {path} can't be read: {error}",
            "a lost progress topic would be restored from this file: repair it, or name another file",
        ) from error
    return document


class StatusFile:
    """Replaces the file as a whole: where the status changed, and every ten seconds to say that it is still written."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """`clock`: Unix seconds.

        Raises:
            SinkPipelineError: StatusFileInvalid.
        """
        self._path = path
        self._clock = clock
        try:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise SinkPipelineError(
                Reason.STATUS_FILE_INVALID,
                f"{path} can't be written: {error}",
                "a lost progress topic would be restored from this file: name a file in a writable directory",
            ) from error
        self._text = self._read()
        self._trouble = ""
        self._last: Mapping[str, Any] | None = None
        self._beat_at = float("-inf")

    def write(self, status: Mapping[str, Any]) -> None:
        """A failure is told once and the run goes on: the progress topic is the truth, this is a copy."""
        self._write(status, {})

    def end(self, *, completed: bool = False) -> None:
        """The run has ended, and nobody writes the file any more.

        Args:
            completed: all that was to be delivered was, so that the pipeline is not suspended: it is done.
        """
        if self._last is not None:
            done = completed and self._last.get("phase") == Phase.SUSPENDED.value
            self._write({**self._last, **({"phase": _COMPLETED} if done else {})}, {"end": _FINISHED})

    def cut_short(self) -> None:
        """The process ends now, in the middle of a batch."""
        if self._last is not None:
            self._write(self._last, {"end": _CUT_SHORT})

    def _write(self, status: Mapping[str, Any], end: Mapping[str, str]) -> None:
        self._last = status
        there = self._read()
        document = _parse(there)
        merged = write_over(document, status, own=there == self._text)
        if merged is None:
            return
        now = self._clock()
        if not end and now - self._beat_at < _HEARTBEAT_S and _without_writer(document) == merged:
            return
        writer = {"pid": os.getpid(), "host": socket.gethostname(), "at": timestamp(int(now * 1000)), **end}
        text = json.dumps({**merged, "writer": writer}, indent=2) + "\n"
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with part.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
        except OSError as error:
            if str(error) != self._trouble:
                logging.getLogger("sinkpipeline").warning("the status can't be written to %s: %s", self._path, error)
                self._trouble = str(error)
        else:
            self._text, self._trouble, self._beat_at = text, "", now

    def _read(self) -> str:
        try:
            return self._path.read_text()
        except (OSError, ValueError):
            return ""


@dataclass(frozen=True, kw_only=True)
class Here:
    """What can be known of a writer from where we are."""

    host: str
    now: float
    """Unix seconds."""
    runs: Callable[[int], bool]
    """Whether a process of this machine runs."""

    @classmethod
    def and_now(cls) -> Here:
        return cls(host=socket.gethostname(), now=time.time(), runs=_runs)


def who_writes(document: object, path: Path, here: Here) -> str | None:
    """A sentence on whether what a status file says is of now; None where a release wrote it that didn't tell."""
    try:
        writer = document["writer"]  # type: ignore[index]
        pid, host, at = int(writer["pid"]), str(writer["host"]), str(writer["at"])
        ago_s = here.now - datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()
        end = writer.get("end")
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    run = f"process {pid} on {host}"
    if end is not None:
        how = "ended" if end == _FINISHED else "was ended in the middle of a batch"
        return f"nobody writes {path} any more: {run} {how} at {at}"
    gone = not here.runs(pid) if host == here.host else ago_s > _SILENT_AFTER_S
    if gone:
        return f"nobody writes {path} any more: {run} was killed; what the file says of its sinks is of {at}"
    return f"{run} writes {path}, last at {at}"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Somebody else's.
        return True
    return True


def _without_writer(document: object) -> object:
    if not isinstance(document, Mapping):
        return document
    return {name: value for name, value in document.items() if name != "writer"}


def _parse(text: str) -> object:
    try:
        document: object = parse_json(text)
    except ValueError:
        return None
    return document
