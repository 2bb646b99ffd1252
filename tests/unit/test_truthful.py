"""What a status may never say is found in a recording of them."""

from __future__ import annotations

from typing import Any

import pytest

from support.resource.truthful import APPLICATION, PIPELINE, untrue

Object = dict[str, Any]

DEATH = {"lastUid": "first", "lastMessage": "the driver was killed"}
GOOD = {"Stalled": "False", "Reconciling": "False", "SparkApplicationReady": "True", "Ready": "True"}


def started(uid: str, version: int) -> Object:
    meta = {"name": "orders", "uid": uid, "resourceVersion": str(version)}
    return {"kind": APPLICATION, "event": "ADDED", "metadata": meta}


def told(version: int, generation: int = 1, *, dead: bool = True, **conditions: tuple[str, str]) -> Object:
    """`<status> <reason>` and message of each condition that is not good."""
    found = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (verdict, message) in {
            **{kind: (f"{good} Settled", "") for kind, good in GOOD.items()},
            **conditions,
        }.items()
        for status, _, reason in [verdict.partition(" ")]
    ]
    status = {"observedGeneration": generation, "conditions": found, "restarts": DEATH if dead else {}}
    meta = {"name": "orders", "uid": "p", "resourceVersion": str(version)}
    return {"kind": PIPELINE, "event": "MODIFIED", "metadata": meta, "status": status}


def of_the_death(version: int, generation: int = 1) -> Object:
    return told(version, generation, SparkApplicationReady=("False OOMKilled", DEATH["lastMessage"]))


FIRST, NEXT = started("first", 1), started("next", 5)
CASES: dict[str, tuple[list[Object], str]] = {
    "a death, and the next start": ([FIRST, of_the_death(3), of_the_death(4), NEXT, told(6)], ""),
    "without a death": ([FIRST, told(2, dead=False)], ""),
    "of the driver before": ([FIRST, of_the_death(3), NEXT, of_the_death(6)], "next was started since"),
    # Watches of two kinds tell in any order.
    "in another order": ([NEXT, of_the_death(4), FIRST], ""),
    "of a manifest before": ([FIRST, of_the_death(3, 1), of_the_death(4, 2)], "of generation 2 how first ended before"),
    "a person and itself": (
        [told(2, Stalled=("True QuotaExceeded", "no room"), Reconciling=("True BackingOff", "soon"))],
        "is Stalled and Reconciling",
    ),
    "without a word": ([told(2, Reconciling=("True Starting", ""))], "says nothing in ['Reconciling']"),
    "no answer": ([told(2, SparkApplicationReady=("Unknown DriverUnresponsive", "30 s"))], "does not answer"),
}  # fmt: skip


@pytest.mark.parametrize("row", CASES)
def test_what_is_not_so_is_found(row: str) -> None:
    recording, words = CASES[row]
    found = untrue(recording)
    assert len(found) == bool(words)
    assert words in "".join(found)
