"""Subjects: those of cells, and which of them match.

A key's part is one token, whatever is in it: what a token can't hold is percent-encoded. The redrive of a sink has its
cells below those of the sink, as a stream takes no others for it.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from sinkpipeline.core.naming import PROTOCOL_PREFIX

_SCHEME = PROTOCOL_PREFIX.rpartition("/")[2]
"""v1: other protocols have other subjects."""
_LONGEST = 2_000
"""A server ends the connection of whoever sends a line of more than 4096 bytes, which holds the subject and a reply."""


_OF_A_SINK = ("meta", "p", "d")
"""What stands behind the name of a sink in its keys."""


def _token(part: str) -> str:
    # Of what `quote` leaves alone only the dot means something to NATS.
    return quote(part, safe="").replace(".", "%2E")


def cells_of(progress: str, prefix: str) -> str:
    """The subject below which the cells are whose keys begin so; `progress`: that of all sinks."""
    identity, sink, *rest = prefix.removeprefix(f"{PROTOCOL_PREFIX}/").rstrip("/").split("/")
    name, dot, redrive = sink.partition(".")
    own = (name, redrive) if dot else (sink,)
    return ".".join((progress, _SCHEME, *map(_token, (identity, *own, *rest))))


def metas_of(progress: str) -> str:
    """The filter for every sink's `meta`."""
    return f"{progress}.{_SCHEME}.*.*.meta"


def cell_of(progress: str, key: str) -> str:
    """The subject of a cell."""
    return cells_of(progress, key)


def key_of(progress: str, subject: str) -> str:
    """The key of the cell with this subject."""
    identity, sink, *rest = map(unquote, subject.removeprefix(f"{progress}.{_SCHEME}.").split("."))
    if rest and rest[0] not in _OF_A_SINK:
        sink, rest = f"{sink}.{rest[0]}", rest[1:]
    return "/".join((PROTOCOL_PREFIX, identity, sink, *rest))


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject, or all that a pattern stands for, is among what another pattern stands for."""
    wanted, given = pattern.split("."), subject.split(".")
    for at, part in enumerate(wanted):
        if part == ">":
            return len(given) > at
        if at >= len(given) or given[at] == ">" or part not in ("*", given[at]):
            return False
    return len(wanted) == len(given)


def why_no_subject(subject: str, *, pattern: bool = False) -> str | None:
    """What is wrong with it; None if a message can have it."""
    if not subject:
        return "is empty"
    if len(subject.encode()) > _LONGEST:
        return f"is longer than {_LONGEST} bytes"
    if any(each.isspace() or not each.isprintable() for each in subject):
        return "has a space, or a character that can't be printed"
    parts = subject.split(".")
    if not all(parts):
        return "has an empty token"
    if not pattern and any(each in ("*", ">") for each in parts):
        return "has a wildcard"
    return None
