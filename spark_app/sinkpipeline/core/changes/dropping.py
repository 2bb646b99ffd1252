"""What of a database goes with its pipeline: the slot and the publication that a stage has created, and nothing else.

`meta.source` says beside the identity which of them a start has created. A slot that somebody has moved since, and a
publication that was made anew, are not that any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sinkpipeline.core.changes.beginning import MADE, PLUGIN, Identity, Seen
from sinkpipeline.core.changes.positions import Position

SLOT = "slot"
PUBLICATION = "publication"


def with_made(source: Mapping[str, str], made: Iterable[str]) -> dict[str, str]:
    """As `meta.source` has it."""
    words = " ".join(sorted(made))
    return {**source, MADE: words} if words else dict(source)


def made_of(source: Mapping[str, str]) -> frozenset[str]:
    """Which of `SLOT` and `PUBLICATION` a start has created, as far as is known."""
    return frozenset(source.get(MADE, "").split()) & {SLOT, PUBLICATION}


@dataclass(frozen=True)
class Kept:
    """What stays in the database."""

    what: str
    """SLOT or PUBLICATION."""
    name: str
    why: str

    @property
    def statement(self) -> str:
        """What drops it."""
        if self.what == PUBLICATION:
            name = self.name.replace('"', '""')
            return f'DROP PUBLICATION "{name}"'
        return f"SELECT pg_drop_replication_slot('{self.name}')"


def why_slot_stays(known: Identity, made: frozenset[str], at: Position | None, seen: Seen) -> str | None:
    """Why a slot that is there outlives its pipeline; None where it is to be dropped.

    Args:
        known: the source whose changes were read.
        made: what a start has created.
        at: of the progress; None where nothing was read yet.
        seen: the source as it is now; it has the slot.
    """
    slot = seen.slot
    if slot is None:
        raise ValueError("a slot that is not there is asked about")
    if SLOT not in made:
        return "nothing says that this pipeline created it"
    if not _is_same(known, seen.identity):
        return "it is of another database than the one that was read"
    if slot.plugin != PLUGIN or slot.database != known.database:
        return "somebody has created it again since"
    if at is not None and slot.confirmed is not None and slot.confirmed > at.commit:
        return "it was confirmed beyond what this pipeline has read, so somebody else reads it"
    return None


def why_publication_stays(known: Identity, made: frozenset[str], seen: Seen) -> str | None:
    """Likewise, of the publication."""
    if PUBLICATION not in made:
        return "nothing says that this pipeline created it"
    if not _is_same(known, seen.identity):
        return "it is of another database than the one that was read"
    if known.publication != seen.identity.publication:
        return "somebody has created it again since"
    return None


def _is_same(known: Identity, found: Identity) -> bool:
    return (known.system, known.database) == (found.system, found.database)
