"""What no status of a SinkPipeline may ever say, whatever was done to it; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

Object = dict[str, Any]

_GOOD: Final = {"Reconciling": "False", "SparkApplicationReady": "True", "Stalled": "False"}
"""What needs no message."""
_OF_A_DEATH: Final = ("Ready", "Reconciling", "SparkApplicationReady", "Stalled")
"""Conditions that tell how a driver ended, for as long as that is why none runs."""

PIPELINE, APPLICATION = "SinkPipeline", "SparkApplication"


def contradictions(resource: Object) -> list[str]:
    """Who waits for a person waits for nothing else, and nobody waits without a word."""
    found, name = _conditions(resource), resource["metadata"]["name"]
    told = []
    if all(found.get(kind, {}).get("status") == "True" for kind in ("Stalled", "Reconciling")):
        told.append(f"{name} is Stalled and Reconciling: {found}")
    wordless = [
        kind for kind in _GOOD if (each := found.get(kind)) and each["status"] != _GOOD[kind] and not each["message"]
    ]
    if wordless:
        told.append(f"{name} says nothing in {wordless}: {found}")
    return told


def untrue(recording: Sequence[Object]) -> list[str]:
    """What was told in all those lines of a recording, and was not so.

    Beside contradictions: that a driver does not answer, which none of them did; and how an earlier driver ended, at a
    later start, which is another SparkApplication, or another generation of the manifest.

    Args:
        recording: of pipelines and their SparkApplications, each with the version of the store, which grows with each
            write, whatever is written.
    """
    told = []
    starts = [
        line for line in recording if line["kind"] == APPLICATION and line["event"] == "ADDED" and _version(line) > 0
    ]
    first: dict[tuple[str, str], int] = {}
    for line in sorted((each for each in recording if each["kind"] == PIPELINE), key=_version):
        told += contradictions(line)
        found, meta, status = _conditions(line), line["metadata"], line.get("status") or {}
        silent = [kind for kind, each in found.items() if each["reason"] == "DriverUnresponsive"]
        if silent:
            told.append(f"{meta['name']} says in {silent} that its driver does not answer: {found[silent[0]]}")
        restarts = status.get("restarts") or {}
        of, words = restarts.get("lastUid", ""), restarts.get("lastMessage", "")
        telling = [kind for kind in _OF_A_DEATH if words and words in found.get(kind, {}).get("message", "")]
        if not (of and telling):
            continue
        died = next((_version(each) for each in starts if each["metadata"]["uid"] == of), None)
        later = [
            each["metadata"]["uid"]
            for each in starts
            if each["metadata"]["name"] == meta["name"] and died is not None and died < _version(each) < _version(line)
        ]
        if later:
            told.append(f"{meta['name']} tells in {telling} how {of} ended, and {later[-1]} was started since: {words}")
        generation = status.get("observedGeneration", 0)
        if generation > first.setdefault((of, words), generation):
            told.append(f"{meta['name']} tells in {telling} of generation {generation} how {of} ended before: {words}")
    return told


def _conditions(resource: Object) -> dict[str, Object]:
    return {each["type"]: each for each in (resource.get("status") or {}).get("conditions", [])}


def _version(line: Object) -> int:
    return int(line["metadata"].get("resourceVersion", 0))
