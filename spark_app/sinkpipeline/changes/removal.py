"""Removing a stage for good: what `deletionPolicy: Delete` asks for.

It is removed as a sink is (`sinks/removal.py`): nobody may write any more, the change topic goes if a start has created
it, and last the progress. Between fence and topic, the slot and the publication are dropped that a start has created.
The progress is what knows that: so whoever is killed in between finds it again, and nothing is dropped twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field

from typing_extensions import override

from sinkpipeline.changes.postgresql.reader import Reader
from sinkpipeline.changes.settings import StageSettings
from sinkpipeline.core.changes.beginning import Identity, Seen, identity_of
from sinkpipeline.core.changes.dropping import (
    PUBLICATION,
    SLOT,
    Kept,
    made_of,
    why_publication_stays,
    why_slot_stays,
)
from sinkpipeline.core.changes.positions import Position
from sinkpipeline.core.ledger_ports import Hold
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, Progress
from sinkpipeline.core.topics import Topic
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.removal import KeptTopic, SinkRemoval

_LOG = logging.getLogger("sinkpipeline.removal")


@dataclass(kw_only=True)
class StageRemoval(SinkRemoval):
    """Removes one stage. It can be repeated: the second time there is nothing left to do."""

    stage: StageSettings
    kept: list[Kept] = field(default_factory=list, init=False)
    """What stays in the database."""
    _reader: Reader | None = field(default=None, init=False)
    _at: Position | None = field(default=None, init=False)

    @override
    def carry_out(self) -> KeptTopic | None:
        """Does it.

        Returns, Raises: as `SinkRemoval`; also SourceUnreachable, AuthenticationFailed, SourceUnsuitable, SlotBusy.
        """
        meta = self._meta()
        if meta is None:
            # No start has come so far that there would be anything.
            return super().carry_out()
        self._meet(meta)
        # Before anybody is fenced: a database that is away is waited for.
        with closing(Reader(self.stage.postgresql)) as self._reader:
            return super().carry_out()

    @override
    def doomed(self) -> tuple[str, ...]:
        """The change topic, the slot and the publication, as the progress says. The database is not asked."""
        meta = self._meta()
        if meta is None:
            return ()
        self._meet(meta)
        topics = super().doomed()
        names = {SLOT: self.stage.postgresql.slot.name, PUBLICATION: self.stage.postgresql.publication.name}
        return (*topics, *(f"{what} {names[what]}" for what in sorted(made_of(meta.source))))

    def _meta(self) -> Meta | None:
        return None if self._ledger.place() is None else self._ledger.metas().get(self.settings.id.meta_key)

    @override
    def _take_over(
        self, hold: Hold, topic: Topic, known: Progress, meta: Meta, partitions: Iterable[SourcePartition]
    ) -> Progress:
        progress = super()._take_over(hold, topic, known, meta, partitions)
        state = progress.partitions.get(self.stage.postgresql.partition)
        self._at = None if state is None or state.snapshot is not None else state.pos
        return progress

    @override
    def _delete_data_topic(self, hold: Hold, meta: Meta) -> KeptTopic | None:
        self.kept = []
        if self._reader is not None:
            self._drop(self._reader, meta)
        failpoint("removal-after-slot")
        return super()._delete_data_topic(hold, meta)

    def _drop(self, reader: Reader, meta: Meta) -> None:
        """The slot first: it needs no publication to be dropped, and a stage that was frozen would need both."""
        made = made_of(meta.source)
        try:
            known = identity_of(meta.source)
        except ValueError:
            return
        seen = reader.seen()
        self._drop_slot(reader, known, made, seen)
        name = self.stage.postgresql.publication.name
        if not seen.identity.publication:
            return
        why = why_publication_stays(known, made, seen)
        if why is not None:
            self.kept.append(Kept(PUBLICATION, name, why))
        else:
            _LOG.info("%s: publication %s of %s is dropped", self.settings.id, name, reader.where)
            reader.drop_publication()

    def _drop_slot(self, reader: Reader, known: Identity, made: frozenset[str], seen: Seen) -> None:
        if seen.slot is None:
            return
        name = self.stage.postgresql.slot.name
        why = why_slot_stays(known, made, self._at, seen)
        if why is not None:
            self.kept.append(Kept(SLOT, name, why))
            return
        _LOG.info("%s: slot %s of %s is dropped", self.settings.id, name, reader.where)
        reader.drop_slot(seen.slot)
