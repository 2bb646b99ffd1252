"""What a driver tells those who ask it: the body of `GET /status`, from the status document of its run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sinkpipeline.core.batch_counts import BatchCounts
from sinkpipeline.core.status import timestamp

LIMIT_BYTES = 256 * 1024
START_ALLOWANCE_S = 600.0
"""How long it may take from a driver's first word to its supervising loop: Spark starts."""

STARTING: Mapping[str, Any] = MappingProxyType({"phase": "Starting", "conditions": [], "totals": {}, "sinks": []})
"""Before the manifest was read."""

_TEXT = 512


@dataclass(frozen=True, kw_only=True)
class RunCounts:
    """What one sink did since this driver began; the status counts across all drivers."""

    rows: int = 0
    batches: BatchCounts = field(default_factory=BatchCounts)
    failures: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By reason; those that were tried again too."""
    waits_s: float | None = None
    """For how long the oldest record waits, at least; None while the lag is unknown."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the driver knows at one moment."""

    status: Mapping[str, Any]
    """The status document."""
    counts: Mapping[str, RunCounts]
    """By sink."""
    supervising: bool
    """Whether Spark has started: from then on the driver says something four times a second."""


@dataclass(frozen=True, kw_only=True)
class DriverInfo:
    """Who serves."""

    config_hash: str | None
    run: str
    """A uuid of this driver process."""
    pid: int


def status_body(status: Mapping[str, Any], driver: DriverInfo, now_ms: int, *, supervising: bool = True) -> bytes:
    """UTF-8 JSON of at most `LIMIT_BYTES`: the status document with `configHash`, `now`, `pid`, `run`, `supervising`.

    A document that is larger loses frontiers, the largest ones first; `truncated` then names their sinks. The errors'
    texts and conditions are cut before, which no document needs that has fewer than some ten thousand partitions.

    Args:
        status: the status document.
        driver: who serves it.
        now_ms: when the supervising loop last went round, Unix milliseconds.
        supervising: whether that loop goes round yet: before it, `now` stands still.
    """
    sinks = told_sinks(status, driver)
    head = {
        "configHash": driver.config_hash,
        "now": timestamp(now_ms),
        "pid": driver.pid,
        "run": driver.run,
        "supervising": supervising,
    }
    document = {**status, **head, "sinks": sinks}
    body = _encode(document)
    if len(body) <= LIMIT_BYTES:
        return body
    document["conditions"] = [{**each, "message": each["message"][:_TEXT]} for each in status["conditions"]]
    document["sinks"] = sinks = [_with_short_texts(sink) for sink in sinks]
    if "source" in document:
        document["source"] = _with_short_texts(document["source"])
    body, truncated = _encode(document), []
    for number in sorted(range(len(sinks)), key=lambda number: -len(_encode(sinks[number].get("frontier")))):
        if len(body) <= LIMIT_BYTES:
            break
        sinks[number] = {key: value for key, value in sinks[number].items() if key != "frontier"}
        truncated.append(sinks[number]["name"])
        body = _encode({**document, "truncated": truncated})
    return body


def told_sinks(status: Mapping[str, Any], driver: DriverInfo) -> list[dict[str, Any]]:
    """The entries of `status.sinks`; a circuit that is open here opened, or stayed open, under this configuration."""
    known = {} if driver.config_hash is None else {"configHash": driver.config_hash}
    return [
        {**sink, "circuit": {**sink["circuit"], **known}} if "circuit" in sink else dict(sink)
        for sink in status["sinks"]
    ]


def _with_short_texts(sink: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: sink[key] for key in ("error", "openTransaction") if key in sink}
    return {**sink, **{key: {name: text[:_TEXT] for name, text in each.items()} for key, each in texts.items()}}


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
