"""What of a database goes with its pipeline: only what is certainly its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sinkpipeline.core.changes.beginning import Identity, Seen, SlotState, identity_of
from sinkpipeline.core.changes.dropping import (
    PUBLICATION,
    SLOT,
    Kept,
    made_of,
    why_publication_stays,
    why_slot_stays,
    with_made,
)
from sinkpipeline.core.changes.positions import LogPosition

KNOWN = Identity(system="1", timeline=1, database="5", slot="s", publication="9")
THERE = SlotState(plugin="pgoutput", database="5", confirmed=0x100)
SEEN = Seen(identity=KNOWN, slot=THERE, flushed=0x200, forks={})
AT = LogPosition(0x100)
BOTH = frozenset({SLOT, PUBLICATION})


def test_what_was_created_stands_beside_the_identity() -> None:
    assert made_of(with_made(KNOWN.to_meta(), BOTH)) == BOTH
    assert identity_of(with_made(KNOWN.to_meta(), BOTH)) == KNOWN
    assert with_made(KNOWN.to_meta(), ()) == KNOWN.to_meta()
    assert made_of(KNOWN.to_meta()) == frozenset(), "of a release that didn't say"
    assert made_of({"made": "slot everything"}) == {SLOT}


@pytest.mark.parametrize(
    ("made", "at", "slot", "identity", "why"),
    [
        (BOTH, AT, THERE, KNOWN, None),
        (BOTH, None, THERE, KNOWN, None),
        (BOTH, AT, replace(THERE, wal_status="lost"), KNOWN, None),
        (BOTH, AT, replace(THERE, confirmed=None), KNOWN, None),
        (BOTH, AT, THERE, replace(KNOWN, timeline=2), None),
        (frozenset({PUBLICATION}), AT, THERE, KNOWN, "nothing says"),
        (BOTH, AT, THERE, replace(KNOWN, system="2"), "another database"),
        (BOTH, AT, THERE, replace(KNOWN, database="6"), "another database"),
        (BOTH, AT, replace(THERE, plugin="test_decoding"), KNOWN, "created it again"),
        (BOTH, AT, replace(THERE, database=None), KNOWN, "created it again"),
        (BOTH, AT, replace(THERE, confirmed=0x101), KNOWN, "confirmed beyond"),
    ],
)
def test_a_slot(
    made: frozenset[str], at: LogPosition | None, slot: SlotState, identity: Identity, why: str | None
) -> None:
    found = why_slot_stays(KNOWN, made, at, replace(SEEN, slot=slot, identity=identity))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("made", "identity", "why"),
    [
        (BOTH, KNOWN, None),
        (frozenset({SLOT}), KNOWN, "nothing says"),
        (BOTH, replace(KNOWN, system="2"), "another database"),
        (BOTH, replace(KNOWN, publication="10"), "created it again"),
    ],
)
def test_a_publication(made: frozenset[str], identity: Identity, why: str | None) -> None:
    found = why_publication_stays(KNOWN, made, replace(SEEN, identity=identity))
    assert (found is None) if why is None else (found is not None and why in found)


def test_what_stays_is_told_with_what_drops_it() -> None:
    assert Kept(SLOT, "s", "why").statement == "SELECT pg_drop_replication_slot('s')"
    assert Kept(PUBLICATION, 'a"b', "why").statement == 'DROP PUBLICATION "a""b"'
