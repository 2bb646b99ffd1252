"""What a status says of records that could not be delivered, and what of it is new. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class First:
    """A class of which the status before knew none."""

    sink: str
    letters: Mapping[str, Any]
    """Its entry in `deadLetters`."""
    dropped: bool
    """Whether it is the first that was dropped, or else the first that was dead-lettered."""

    @property
    def count(self) -> int:
        count: int = self.letters["dropped" if self.dropped else "count"]
        return count


def letters_of(sink: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The entries of `deadLetters`, where there are any."""
    return sink.get("deadLetters") or []


def firsts(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[First]:
    """By what is stored, so that no operator after this one says it again; and anew after a reset."""
    old = {sink["name"]: sink for sink in before.get("sinks", ())}
    for sink in after.get("sinks", ()):
        known = old.get(sink["name"], {})
        if known.get("epoch") != sink.get("epoch"):
            known = {}
        if "deadLettered" in known and "deadLetters" not in known:
            # Written by a release that counted no classes, or kept by a CRD that has none: nobody knows what is new.
            continue
        earlier = {each["class"]: each for each in letters_of(known)}
        for each in letters_of(sink):
            for dropped, key in ((False, "count"), (True, "dropped")):
                if each[key] and not earlier.get(each["class"], {}).get(key):
                    yield First(sink["name"], each, dropped)
