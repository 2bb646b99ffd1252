"""The last words of a driver: JSON that fits into Kubernetes' termination log, whatever there is to say.

    {"reason": "DataTopicLost", "message": ..., "remedy": ..., "sinks": [as in the status, without lag and guarantee],
     "source": {as in the status, without what was so at that moment}}     where a stage reads a database

Too long texts are cut; where that is not enough, sinks lose their counts by class, their frontiers, the largest ones
first, and then more.
What is left is always a whole document.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sinkpipeline.core.texts import shortened

LIMIT_BYTES = 4096
"""The kubelet reads no more of a termination log."""

DONE = "Done"
STOPPED = "Stopped"
"""Reasons of an end without an error: it ended by itself, or SIGTERM ended it."""

_SINK_KEYS = (
    "name",
    "state",
    "circuit",
    "error",
    "epoch",
    "dataTopicId",
    "dataTopics",
    "progressTopicId",
    "mayBeDuplicated",
    "rolledBack",
    "counted",
    "rowsDelivered",
    "deadLettered",
    "dropped",
    "lost",
    "lastProgressTime",
    "frontier",
    "deadLetters",
)


_SOURCE_KEYS = ("state", "slot", "circuit", "error", "position", "index", "changes", "deadLettered", "dropped")


class _Detail(enum.IntEnum):
    """How much is told of a sink."""

    STATE = 0
    REASON = 1
    ERROR = 2
    COUNTS = 3
    FRONTIER = 4
    CLASSES = 5


_LADDER = (
    *((_Detail.CLASSES, length) for length in (2048, 1024, 512, 256)),
    *((_Detail.FRONTIER, length) for length in (2048, 1024, 512, 256)),
    *((_Detail.COUNTS, length) for length in (2048, 1024, 512, 256)),
    *((_Detail.ERROR, length) for length in (256, 128)),
    *((_Detail.REASON, length) for length in (256, 128)),
    *((_Detail.STATE, length) for length in (256, 128, 64)),
)
"""What is tried one after the other: the detail of sinks, and the length of texts in characters."""


def last_words(
    reason: str,
    message: str,
    remedy: str,
    sinks: Sequence[Mapping[str, Any]],
    source: Mapping[str, Any] | None = None,
) -> bytes:
    """UTF-8 JSON of at most `LIMIT_BYTES`.

    Args:
        reason: a `Reason`, or `DONE` or `STOPPED`.
        message: the facts.
        remedy: what a person can do; empty where nothing is to be done.
        sinks: the entries of `status.sinks` as far as they are known.
        source: `status.source`; None where records come from Kafka.
    """
    head: dict[str, Any] = {}
    for detail, length in _LADDER:
        head = {"reason": reason, "message": _cut(message, length), "remedy": _cut(remedy, length)}
        if source is not None:
            head["source"] = _brief(source, _SOURCE_KEYS, detail, length)
        told = [_entry(sink, detail, length) for sink in sinks]
        if _fits(head, told):
            return _encode(head, _with_frontiers(head, told, sinks) if detail is _Detail.COUNTS else told)
    return _encode(head, [])


def _with_frontiers(
    head: Mapping[str, Any], told: list[dict[str, Any]], sinks: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """As many frontiers as fit, the small ones first."""
    known = [number for number, sink in enumerate(sinks) if "frontier" in sink]
    for number in sorted(known, key=lambda number: len(json.dumps(sinks[number]["frontier"]))):
        more = [*told]
        more[number] = {**told[number], "frontier": sinks[number]["frontier"]}
        if not _fits(head, more):
            break
        told = more
    return told


def _entry(sink: Mapping[str, Any], detail: _Detail, length: int) -> dict[str, Any]:
    return _brief(sink, _SINK_KEYS, detail, length)


def _brief(told: Mapping[str, Any], keys: Sequence[str], detail: _Detail, length: int) -> dict[str, Any]:
    """The first four of the keys are told longest."""
    entry = {key: told[key] for key in keys if key in told}
    if detail < _Detail.CLASSES:
        entry.pop("deadLetters", None)
    if detail < _Detail.FRONTIER:
        entry.pop("frontier", None)
    if detail < _Detail.COUNTS:
        entry = {key: entry[key] for key in keys[:4] if key in entry}
    if "error" in entry:
        error = entry["error"]
        entry["error"] = {key: text if key == "reason" else _cut(text, length) for key, text in error.items()}
        if detail < _Detail.ERROR:
            entry["error"] = {"reason": error["reason"]}
    if detail < _Detail.ERROR:
        entry.pop("circuit", None)
    if detail < _Detail.REASON:
        entry.pop("error", None)
    return entry


def _cut(text: str, length: int) -> str:
    # A lone surrogate, as in a file name that is no UTF-8, can't be encoded.
    return shortened(text.encode(errors="replace").decode(), length)


def _fits(head: Mapping[str, Any], sinks: Sequence[Mapping[str, Any]]) -> bool:
    return len(_encode(head, sinks)) <= LIMIT_BYTES


def _encode(head: Mapping[str, Any], sinks: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps({**head, "sinks": list(sinks)}, ensure_ascii=False, separators=(",", ":")).encode()
