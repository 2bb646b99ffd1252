"""What a scripted driver does, as a document that a test writes while the driver runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

HANG: Final = "hang"
LATE: Final = "late"
GARBAGE: Final = "garbage"
LARGE: Final = "large"
REDIRECT: Final = "redirect"
BROKEN: Final = "broken"
"""Ways not to answer `/status`: never; after the operator's patience; with what is no document; with more bytes than
anybody wants; with another address; with 500."""

LATE_S: Final = 4.0
"""Longer than the operator waits for an answer."""


@dataclass(frozen=True, kw_only=True)
class SinkScript:
    """What is told of one sink."""

    state: str = "Running"
    rows: int = 0
    dead: int = 0
    dropped: int = 0
    dead_by_class: Mapping[str, int] = field(default_factory=dict)
    """Added to `dead`."""
    dropped_by_class: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0
    next: tuple[int, ...] = (0,)
    """The frontier of the one source topic."""
    lag: int | None = 0
    held_back: int | None = None
    open_transaction: tuple[str, str] | None = None
    """Message, remedy."""
    epoch: int = 0
    data_id: str = "data-1"
    progress_id: str = "progress-1"
    error: tuple[str, str, str] | None = None
    """Reason, message, remedy."""
    circuit_opened_at: int | None = None
    """Unix milliseconds."""
    may_duplicate: int | None = None
    known: bool = True
    """Whether there is progress to tell."""
    proved: bool | None = True
    """Whether it has shown that it delivers; None: its driver is of a release that didn't tell."""
    tasks_run: bool = False
    """Whether tasks of a batch run."""


@dataclass(frozen=True, kw_only=True)
class SourceScript:
    """What is told of the stage of a pipeline that reads a database."""

    state: str = "Running"
    position: str | None = "0/3279E770"
    index: int = 4
    changes: int = 7
    lag_bytes: int | None = 64
    retained_bytes: int | None = 4096
    safe_bytes: int | None = None
    at_risk: str | None = None
    snapshot: Mapping[str, Any] | None = None
    incremental: Mapping[str, Any] | None = None
    error: tuple[str, str, str] | None = None
    """Reason, message, remedy."""


@dataclass(frozen=True, kw_only=True)
class End:
    """How it ends by itself."""

    code: int = 0
    signal: int | None = None
    """Ends by this signal instead."""
    words: tuple[str, str, str] | None = None
    """Reason, message and remedy of its last words; without them it says nothing."""
    raw: str | None = None
    """What stands in the termination log instead of last words."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a driver does; a sink that is not named runs and has nothing to do."""

    sinks: Mapping[str, SinkScript] = field(default_factory=dict)
    source: SourceScript = SourceScript()
    """Told if the pipeline reads a database."""
    answer: str | None = None
    """How it fails to answer `/status`."""
    lie: tuple[tuple[str | int, ...], Any] | None = None
    """Where in its answer something else stands than would be right, and what."""
    token: str | None = None
    """Which token it wants instead of the one that it was given."""
    listens: bool = True
    frozen: bool = False
    """The supervising loop hangs: `now` stands still."""
    supervising: bool = True
    """Whether that loop has begun: Spark starts before it does."""
    executors: int | None = 2
    """How many are registered, of the two that it wants; None: it is of a release that didn't tell."""
    clock_ahead_s: int = 0
    """How far its clock goes before ours."""
    end: End | None = None
    ignores_sigterm: bool = False
    """While this is so; a signal that came meanwhile counts afterwards."""

    def write(self, path: Path) -> None:
        """At once: a reader sees the whole of the old one or the whole of the new one."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(dataclasses.asdict(self)))
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Script:
        document: dict[str, Any] = json.loads(path.read_text())
        sinks = {name: SinkScript(**_tuples(sink)) for name, sink in document.pop("sinks").items()}
        end = document.pop("end")
        source = SourceScript(**_tuples(document.pop("source")))
        return cls(**document, sinks=sinks, source=source, end=None if end is None else End(**_tuples(end)))


def _tuples(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in document.items()}
