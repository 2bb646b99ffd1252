"""Writers' schemas: how a record names its own, which are known, and how many may be.

A value begins with a *frame*: a magic byte, and an id of the registry. What the magic byte is decides what follows:

    00  the schema's number, four bytes (eight in Apicurio's older format)
    01  the schema's GUID, sixteen bytes

Confluent's newer serializers put the same bytes into a header, and leave the value to the data.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError

HEADER = "__value_schema_id"
"""The header that may hold the frame."""
MAX_WRITERS = 64
"""Each is a branch of the plan, which a record passes until it has found its own."""
MAX_UNUSABLE = 256
"""Each has words of its own in the plan."""
MAX_MISSING = 4096
"""Ids that the registry doesn't have. Of values that were never framed each may look like another one."""
GUID_FRAME = 17

_NAMED = 10

PENDING = "PendingSchema: "
"""How the error of a row begins that isn't decoded yet; the frame in hexadecimal digits follows."""


@dataclass(frozen=True)
class Writer:
    """A schema that records are written with."""

    frame: bytes
    schema: str
    """JSON that refers to nothing outside."""
    misfit: str | None = None
    """Why records of it may not fit the reader's schema; None where all of them do."""


@dataclass(frozen=True)
class Known:
    """What is known of the frames of a source."""

    id_bytes: int = 4
    asked: bool = True
    """Whether the registry is asked for what frames name; else frames are only looked at."""
    writers: tuple[Writer, ...] = ()
    unusable: tuple[Writer, ...] = ()
    """Schemas that can't be decoded with, of another kind or not Avro: no record of theirs can be decoded."""
    missing: tuple[bytes, ...] = ()
    """What the registry has no schema for; the last learnt comes last, as in all three."""

    @property
    def frames(self) -> frozenset[bytes]:
        return frozenset((*(each.frame for each in (*self.writers, *self.unusable)), *self.missing))

    def to_ask(self, frames: Iterable[bytes]) -> tuple[bytes, ...]:
        """Those of `frames` that are not known, as many as are asked for at once.

        In their own order: the first ones are those before which tasks have stopped.
        """
        known = self.frames
        return tuple(dict.fromkeys(each for each in frames if each not in known))[:MAX_MISSING]

    def learnt(
        self,
        writers: Iterable[Writer] = (),
        unusable: Iterable[Writer] = (),
        missing: Iterable[bytes] = (),
        *,
        forgets: bool = False,
    ) -> Known:
        """With these, each kind in the order in which tasks need them; of writers as many as there is room for.

        Unusable and missing ones of earlier are forgotten where they are too many with these: one that is needed again
        is asked for again, and what a task needs first is learnt first. So no number of broken records holds a sink up.

        `forgets`: so are writers, for who decodes each row once and goes on with the others.
        """
        first = tuple(writers)[:MAX_WRITERS]
        room = MAX_WRITERS - len(first) if forgets else MAX_WRITERS
        known = self.writers[-room:] if room else ()
        return replace(
            self,
            writers=(*known, *first)[:MAX_WRITERS],
            unusable=(*self.unusable, *tuple(unusable)[:MAX_UNUSABLE])[-MAX_UNUSABLE:],
            missing=(*self.missing, *tuple(missing)[:MAX_MISSING])[-MAX_MISSING:],
        )

    def no_room(self, writers: Sequence[Writer]) -> SinkPipelineError | None:
        """TooManySchemas, where none of these can be learnt."""
        if not writers or len(self.writers) < MAX_WRITERS:
            return None
        return SinkPipelineError(
            Reason.TOO_MANY_SCHEMAS,
            f"the records since the start were written with {len(self.writers) + len(writers)} schemas, and a plan "
            f"takes {MAX_WRITERS}",
            "start the pipeline again, which forgets those that no record has any more; or split the source into "
            "several pipelines",
        )


@dataclass(frozen=True, kw_only=True)
class ReaderInfo:
    """Which schema has the columns of a run; the first three are None where the manifest gives the schema itself."""

    subject: str | None = None
    version: int | None = None
    id: int | None = None
    fingerprint: str
    """SHA-256 of the schema, in hexadecimal digits."""

    def to_dict(self) -> dict[str, Any]:
        """As a status document has it."""
        known = {"subject": self.subject, "version": self.version, "id": self.id}
        return {**{name: each for name, each in known.items() if each is not None}, "fingerprint": self.fingerprint}


def in_turns(frames: Iterable[Sequence[bytes]]) -> tuple[bytes, ...]:
    """The frames of several tasks, each in its task's order: the first ones of all tasks, then the second ones, ...

    However many they are, what each task needs first is asked for first.
    """
    turns = zip_longest(*frames)
    return tuple(dict.fromkeys(each for turn in turns for each in turn if each is not None))


def pending(error: str | None) -> bytes | None:
    """The frame of a row that isn't decoded yet, by the row's error; None for any other row."""
    return bytes.fromhex(error[len(PENDING) :]) if error is not None and error.startswith(PENDING) else None


def number_of(frame: bytes) -> int | None:
    """The schema's number; None where the frame has a GUID."""
    return int.from_bytes(frame[1:], "big") if frame[0] == 0 else None


def guid_of(frame: bytes) -> str:
    """The schema's GUID."""
    return str(uuid.UUID(bytes=frame[1:]))


def names_of(frames: Sequence[bytes]) -> str:
    """For people: some of them, and how many there are."""
    told = ", ".join(map(name_of, frames[:_NAMED]))
    return told if len(frames) <= _NAMED else f"{told}, and {len(frames) - _NAMED} more"


def name_of(frame: bytes) -> str:
    """For people: such as `id 7`."""
    number = number_of(frame)
    return f"GUID {guid_of(frame)}" if number is None else f"id {number}"
