"""What a `SinkPipelineAction` asks for: what is shown of it, and the digest by which exactly that is confirmed.

What was shown is resolved to numbers, and these are what is carried out later, by whoever that is: an operator that was
started anew, or the pod of a Job. Carrying out is repeatable, as nobody may know whether it was done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.manifest.durations import parse_duration
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.reset import Move, ResetPlan
from sinkpipeline.core.targets import Targets
from sinkpipeline.core.texts import shortened

DIGEST_LENGTH = 16
MAX_TEXT = 2048
"""Characters of a preview: with the numbers it must fit into a termination message."""
MAX_RESOLVED = 512 * 1024
"""Characters of what a preview was resolved to, as JSON: it is kept in the status of the action."""
_MOST_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What would be done."""

    text: str
    """For a person."""
    resolved: Mapping[str, Any]
    """For whoever carries it out: JSON."""

    def digest(self, uid: str, number: int) -> str:
        """Of this preview, the action's `number`th: what confirms another one confirms nothing here."""
        return _digest([uid, number, dict(self.resolved)])

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "resolved": dict(self.resolved)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Preview:
        """Raises KeyError, TypeError, ValueError: it is none."""
        return cls(text=bounded(str(document["text"])), resolved=dict(document["resolved"]))


def bounded(text: str) -> str:
    return shortened(text, MAX_TEXT)


def moment_of(text: str | None, created_ms: int) -> int | None:
    """Unix milliseconds of a time, or of so long before the action was created.

    Raises:
        ValueError: it is neither.
    """
    if text is None:
        return None
    if "T" not in text:
        return created_ms - parse_duration(text)
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def preview_of_reset(plan: ResetPlan, *, data: str, exactly_once: bool, called: str = "data topic") -> Preview:
    """What a person is shown of a reset."""
    return Preview(
        text=bounded("\n".join(_lines(plan, data, called, exactly_once=exactly_once))),
        resolved=MappingProxyType({"to": _targets(plan.targets), "before": _before(plan), "after": _after(plan)}),
    )


def is_as_shown(plan: ResetPlan, resolved: Mapping[str, Any]) -> bool:
    """Whether a plan that was made again is the one that was shown."""
    return (_before(plan), _after(plan)) == (resolved["before"], resolved["after"])


def has_landed(sink: SinkId, found: Progress, resolved: Mapping[str, Any]) -> bool:
    """Whether the sink is exactly where the reset was to bring it: an earlier attempt has done it."""
    if found.meta is None or found.faults:
        return False
    frontier = {partition: state.next for partition, state in found.partitions.items()}
    return _landing(sink, found.meta.epoch, frontier) == str(resolved["after"])


def moved(sink: SinkId, why: str) -> SinkPipelineError:
    """What was confirmed is not what would be done now."""
    return SinkPipelineError(
        Reason.FRONTIER_MOVED,
        f"{sink} is not where it was when this was shown: {why}; nothing was changed",
        "look at the new preview, and confirm its digest; suspend the pipeline first if its driver delivers",
    )


def told(plan: ResetPlan, data: str, *, exactly_once: bool) -> Iterator[str]:
    """What the moves of a plan don't say, one sentence a line."""
    if plan.doubt is not None:
        yield f"warning: the progress is not believed: {plan.doubt.reason.value}: {plan.doubt.message}"
        yield "warning: it is not known how far the sink came: records may be delivered AGAIN, or SKIPPED"
    if again := sum(move.again or 0 for move in plan.moves):
        limit = ", although its guarantee is ExactlyOnce" if exactly_once else ""
        yield f"warning: up to {again} records are delivered AGAIN into {data}{limit}"
    if skipped := sum(move.skipped or 0 for move in plan.moves):
        yield f"warning: up to {skipped} records are SKIPPED: they are never delivered, and not counted as lost"


def epochs(plan: ResetPlan, data: str) -> str:
    change = f"epoch {plan.old_epoch} becomes {plan.epoch}, counts begin at 0"
    return f"{change}; what is in {data} stays; it is created if it is missing"


def _lines(plan: ResetPlan, data: str, called: str, *, exactly_once: bool) -> Iterator[str]:
    yield from told(plan, data, exactly_once=exactly_once)
    yield epochs(plan, f"{called} {data}")
    shown = plan.moves if len(plan.moves) <= _MOST_LINES else plan.moves[: _MOST_LINES - 1]
    yield from map(_line, shown)
    if len(plan.moves) > len(shown):
        yield f"and {len(plan.moves) - len(shown)} more partitions"


def _line(move: Move) -> str:
    note = f" ({move.note.value})" if move.note.value else ""
    where = ["nowhere" if each is None else str(each) for each in (move.old, move.new)]
    return f"{move.partition}: from {where[0]} to {where[1]}{note}"


def _targets(targets: Targets) -> str:
    """As `parse_targets` reads them."""
    items = sorted({**targets.imported, **targets.partitions}.items())
    return ",".join(
        f"{at.topic}:{at.partition}={to.value if isinstance(to, StartingOffsets) else to}" for at, to in items
    )


def _before(plan: ResetPlan) -> str:
    moves = [[str(each.partition), each.old, each.new, each.note.value] for each in plan.moves]
    doubt = None if plan.doubt is None else plan.doubt.reason.value
    return _digest([str(plan.sink), plan.old_epoch, plan.epoch, moves, sorted(plan.source.items()), doubt])


def _after(plan: ResetPlan) -> str:
    return _landing(plan.sink, plan.epoch, plan.frontier)


def _landing(sink: SinkId, epoch: int, frontier: Mapping[SourcePartition, int]) -> str:
    return _digest([str(sink), epoch, sorted((str(at), offset) for at, offset in frontier.items())])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]
