"""Judges what a driver says, and its silence. There is one object for each pipeline.

How long a sink has stood still, the driver says itself, and the status has it too; if a driver doesn't say it, it is
reckoned here. An operator that has just started knows nothing of earlier answers. So it waits a little longer before it
calls a driver unresponsive, and it keeps the earlier operator's verdict until the driver shows that it lives.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkpipeline.core.served import START_ALLOWANCE_S
from sinkpipeline.core.status import SinkState, instant
from sinkpipeline_operator.observe.driver_client import Answer

_LOG = logging.getLogger("sinkpipeline.reconcile")

_SILENCES = 3
"""So many questions without an answer, and the driver counts as unresponsive."""
_SILENT_S = 10.0
"""But not sooner: on a busy node a driver that works may be silent for some seconds."""
_SILENT = "the driver's pod runs, and its status service does not answer"
_USELESS = "the driver's pod runs, and what its status service answers can't be used"
_STILL_S = 60.0
"""A driver whose supervising loop stands still for so long hangs, though it answers."""


@dataclass(frozen=True)
class Heard:
    document: Mapping[str, Any] | None
    """The best that is known of what the driver says."""
    trouble: str = ""
    """Why it counts as unresponsive; empty where it doesn't."""


@dataclass(kw_only=True)
class Hearing:
    """Remembers what one driver has said; times are of one monotonic clock, ours."""

    pipeline: str = ""
    """Whose driver it is, for the log."""
    _silences: int = 0
    _silent_since: float = 0.0
    _listens: bool = False
    _document: Mapping[str, Any] | None = None
    _heartbeat: tuple[str, str] | None = None
    _beat_at: float = 0.0
    _doubt: str = ""
    """What an earlier operator has said of it, and it has not disproved."""
    _last: Heard | None = None
    _optional: Collection[str] = ()
    _waiting: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Of sinks behind their source, whose driver tells no clock of its own: the frontier, and since when it is so."""

    def hear(
        self,
        answer: Answer | None,
        *,
        is_new: bool,
        patience_s: float,
        now: float,
        before: str = "",
        optional: Collection[str] = (),
    ) -> Heard:
        """Takes in an answer, or that there was none.

        Args:
            answer: None where nobody could be asked.
            is_new: whether the driver may not listen yet; False once is False until there is nobody to ask.
            patience_s: for how long a frontier may stand still while records wait.
            now: seconds.
            before: why the status says that it is unresponsive; empty where it doesn't.
            optional: sinks that may stand still, as Ready does not depend on them.
        """
        if answer is not None and not answer.is_news:
            return Heard(None, before) if self._last is None else self._last
        self._optional = optional
        self._last = self._take_in(answer, is_new=is_new, patience_s=patience_s, now=now, before=before)
        return self._last

    def _take_in(self, answer: Answer | None, *, is_new: bool, patience_s: float, now: float, before: str) -> Heard:
        if answer is None:
            self._silences, self._listens, self._document, self._waiting, self._doubt = 0, False, None, {}, ""
            return Heard(None)
        never_heard = self._heartbeat is None
        self._listens = self._listens or not is_new or answer.document is not None or answer.is_refused
        if answer.document is None:
            self._silences += 1
            if self._silences == 1:
                self._silent_since = now
                _LOG.info("%s: the driver does not answer: %s", self.pipeline, answer.trouble)
            long = answer.is_refused or now - self._silent_since >= _SILENT_S
            if self._silences < _SILENCES or not long:
                # What it has just said is still the best that is known.
                return Heard(self._document, before if never_heard else "")
            why = f"{_USELESS}: {answer.trouble}" if answer.is_refused else _SILENT
            return Heard(None, why if self._listens else "")
        self._silences, self._document = 0, answer.document
        trouble = self._hangs(answer.document, now) or self._stands(patience_s, now)
        if never_heard:
            # Its next word, if it has one, shows whether that is over.
            self._doubt = before
        elif self._beat_at == now:
            self._doubt = ""
        return Heard(answer.document, trouble or self._doubt)

    def _hangs(self, document: Mapping[str, Any], now: float) -> str:
        """By its own clock, so that nothing depends on ours being the same."""
        heartbeat = (str(document.get("run")), str(document.get("now")))
        if heartbeat != self._heartbeat:
            self._heartbeat, self._beat_at = heartbeat, now
        # Until Spark has started there is no loop that could go round: a liveness probe waits as long.
        patience_s = _STILL_S if document.get("supervising", True) else START_ALLOWANCE_S
        return (
            "the driver answers, but the time in its answers stands still, so its supervising loop hangs"
            if now - self._beat_at >= patience_s
            else ""
        )

    def _stands(self, patience_s: float, now: float) -> str:
        document = self._document or {}
        behind = {
            str(sink["name"]): sink
            for sink in document.get("sinks", [])
            if sink.get("state") == SinkState.RUNNING.value and sink.get("lag") and sink["name"] not in self._optional
        }
        frontiers = {name: json.dumps(sink.get("frontier")) for name, sink in behind.items() if not _tells(sink)}
        before = self._waiting
        self._waiting = {
            name: before[name] if name in before and before[name][0] == frontier else (frontier, now)
            for name, frontier in frontiers.items()
        }
        still_s = {name: _told_still_s(document, sink) for name, sink in behind.items() if _tells(sink)}
        still_s |= {name: now - since for name, (_, since) in self._waiting.items()}
        still = sorted(name for name, seconds in still_s.items() if seconds >= patience_s)
        if not still:
            return ""
        return f"records wait in the source, and {', '.join(still)} made no progress for {patience_s:.0f} s"


def _tells(sink: Mapping[str, Any]) -> bool:
    """Whether its driver is of a release that tells how long a sink stands still, tasks of a long batch included."""
    return "proved" in sink


def _told_still_s(document: Mapping[str, Any], sink: Mapping[str, Any]) -> float:
    """By the driver's clock alone, so that nothing depends on ours being the same."""
    now, since = instant(document.get("now")), instant(sink.get("stillSince"))
    return 0.0 if now is None or since is None else (now - since) / 1000
