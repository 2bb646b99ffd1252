"""The tables as they were when the slot was made, into the change topic, before the stream that begins there.

    what an epoch that was given up has written is taken back ──► its slot is dropped
    ──► a slot with its snapshot ──► a new epoch in the progress ──► rows, and how far, in one transaction each
    ──► one commit says that it is complete ──► the stream

A snapshot is gone with the connection that made it, so a life that ends leaves nothing to go on from. The next one
begins anew. Rows that were deleted meanwhile would stay with whoever has read them: so each row of the topic is deleted
again, by a change of its key, before the next snapshot begins.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from typing_extensions import override

from sinkpipeline.changes.claim import Claim, Claimed
from sinkpipeline.changes.life import Life
from sinkpipeline.changes.postgresql.exported import Exported
from sinkpipeline.changes.postgresql.reader import Event, Reader
from sinkpipeline.changes.receipts import Receipts
from sinkpipeline.changes.settings import StageSettings, sink_settings
from sinkpipeline.changes.start import Begun, at
from sinkpipeline.core.changes.beginning import Identity, SlotState, check_copied
from sinkpipeline.core.changes.dropping import made_of, with_made
from sinkpipeline.core.changes.snapshots import SnapshotMark, before_stream, stream_start
from sinkpipeline.core.changes.values import is_read, taken_back
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.kafka.written import Written
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.starting import now_ms

_LOG = logging.getLogger("sinkpipeline.changes")

_WAIT_S = 0.1


class Parts(NamedTuple):
    """What a life of a stage has, whatever it does."""

    settings: StageSettings
    claim: Claim
    claimed: Claimed
    reader: Reader
    say: Receipts


class Snapshot:
    """Of one life of a stage; of one thread."""

    def __init__(self, parts: Parts, begun: Begun, has_claimed: Callable[[PartitionProgress], None]) -> None:
        """`has_claimed`: called once, with the progress from which it goes on."""
        self._parts = parts
        self._begun = begun
        self._has_claimed = has_claimed

    def run(self, stop: threading.Event) -> PartitionProgress | None:
        """To its end; the progress with which the stream begins. None where `stop` was set before.

        Raises:
            SinkPipelineError: whatever ends it; the next life begins it anew.
        """
        parts, begun, state = self._parts, self._begun, self._begun.state
        if state is not None:
            self._has_claimed(state)
            _LOG.warning("the snapshot of epoch %d was given up: its rows are taken back", state.epoch)
            state = TakingBack(parts, begun.identity, state).run(stop, self._check)
            if state is None:
                return None
            failpoint("snapshot-taken-back")
        with closing(self._made(begun, state)) as exported:
            new = self._epoch(begun, state, exported)
            if state is None:
                self._has_claimed(new)
            exported.open(self._tables)
            failpoint("snapshot-after-opening")
            return Copying(parts, begun.identity, new, exported).run(stop, self._check)

    def _check(self) -> None:
        self._parts.claim.check_topics(self._parts.claimed)

    def _made(self, begun: Begun, state: PartitionProgress | None) -> Exported:
        """The slot: what is left of an earlier one is dropped."""
        reader = self._parts.reader
        self._tables = reader.tables(begun.version)
        if begun.slot is not None:
            _LOG.warning("slot %s is dropped and made anew", begun.identity.slot)
            reader.drop_slot(begun.slot)
            failpoint("snapshot-after-drop")
        made = reader.export(begun.version)
        failpoint("stage-after-creation")
        if state is not None and before_stream(made.start) <= at(state):
            made.close()
            raise SinkPipelineError(
                Reason.SOURCE_ROLLED_BACK,
                f"{reader.where} makes a slot at {before_stream(made.start)}, and was read up to {at(state)}",
                "find out which server this is (a standby that was behind, a backup?)",
            )
        return made

    def _epoch(self, begun: Begun, state: PartitionProgress | None, exported: Exported) -> PartitionProgress:
        """Says that a snapshot goes on, before its first row."""
        claim, claimed = self._parts.claim, self._parts.claimed
        start = before_stream(exported.start)
        if state is None:
            epoch = 0 if claimed.progress.meta is None else claimed.progress.meta.epoch
            new = PartitionProgress(epoch=epoch, next=0, at=now_ms(), pos=start, snapshot=SnapshotMark())
        else:
            mark = SnapshotMark(since=() if state.snapshot is None else state.snapshot.since)
            new = replace(state, epoch=state.epoch + 1, at=now_ms(), pos=start, snapshot=mark)
        made = frozenset[str]() if claimed.progress.meta is None else made_of(claimed.progress.meta.source)
        claim.announce(claimed, with_made(begun.identity.to_meta(), made), new)
        failpoint("snapshot-after-epoch")
        return new


class _Part(Life):
    """A life that comes to an end by itself: the server is told nothing of it, as the stream has not begun."""

    def __init__(self, parts: Parts, identity: Identity, state: PartitionProgress) -> None:
        # A snapshot is no transaction of the database.
        split = replace(parts.settings, database=replace(parts.settings.database, whole_transactions=False))
        super().__init__(split, parts.claimed, parts.reader, identity, state, parts.say)
        self._told: SnapshotMark | None = state.snapshot

    def run(self, stop: threading.Event, check: Callable[[], None]) -> PartitionProgress | None:
        """The progress at its end; None where `stop` was set before."""
        self._go(stop, check)
        if stop.is_set():
            self._say("ended")
            return None
        self._complete()
        return self._state

    def _complete(self) -> None:
        """Everything is committed."""

    @override
    def _confirm(self) -> None:
        return None

    @override
    def _mark(self) -> SnapshotMark | None:
        return self._told


class TakingBack(_Part):
    """Deletes the rows of an epoch that was given up, by changes at its own positions."""

    def __init__(self, parts: Parts, identity: Identity, state: PartitionProgress) -> None:
        super().__init__(parts, identity, state)
        since = () if self._told is None else self._told.since
        group_id = sink_settings(parts.settings).group_id
        self._written = Written(parts.settings.kafka, group_id, parts.claimed.topic, since, is_read)

    @override
    def run(self, stop: threading.Event, check: Callable[[], None]) -> PartitionProgress | None:
        with closing(self._written):
            return super().run(stop, check)

    @override
    def _events(self) -> Iterator[Event]:
        place = at(self._state)
        index = place.index
        for records in self._written.read():
            made = []
            for key, value in records:
                made.append(taken_back(key, value, place.lsn, index))
                index += 1
            if self._told is not None:
                # What is committed next has everything up to there.
                self._told = replace(self._told, since=self._written.at)
            yield made or None

    @override
    def _complete(self) -> None:
        # Behind the last row there may be what is none. The next epoch says that it was passed over.
        mark = self._state.snapshot
        self._state = replace(self._state, snapshot=None if mark is None else replace(mark, since=self._written.at))

    @override
    def _more(self) -> dict[str, object]:
        return {"snapshot": {"phase": "TakingBack", "epoch": self._state.epoch}}


class Copying(_Part):
    """Reads the tables."""

    def __init__(self, parts: Parts, identity: Identity, state: PartitionProgress, exported: Exported) -> None:
        super().__init__(parts, identity, state)
        self._exported = exported
        self._claim = parts.claim
        self._estimate = sum(each.estimate for each in exported.tables)
        self._start = stream_start(at(state))

    @override
    def _events(self) -> Iterator[Event]:
        told = self._told or SnapshotMark()
        writer = self._exported.writer()
        for done, table in enumerate(self._exported.tables):
            self._told = told = replace(told, table=f"{table.relation.schema}.{table.relation.name}", done=done)
            for changes in self._exported.read(table, writer, _WAIT_S):
                # What is committed next has them.
                self._told = told = replace(told, rows=told.rows + len(changes or ()))
                yield changes

    @override
    def _complete(self) -> None:
        """From here on the stream counts, which begins with the slot: it must be the one of the snapshot."""
        failpoint("snapshot-before-complete")
        self._check()
        self._judge(self._reader.slot())
        self._told = None
        self._course.ended(self._start)
        self._begin()
        self._commit()
        failpoint("snapshot-after-complete")

    @override
    def _judge(self, slot: SlotState | None) -> None:
        try:
            check_copied(slot, self._identity, self._start, self._reader.where)
        except SinkPipelineError:
            # Perhaps a newer driver has made it anew: then this one is superseded, and nothing is lost.
            self._claim.check_ours()
            raise

    @override
    def _more(self) -> dict[str, object]:
        told = self._told
        if told is None:
            return {"snapshot": None}
        return {
            "snapshot": {
                "phase": "Reading",
                "epoch": self._state.epoch,
                "table": told.table,
                "tablesDone": told.done,
                "tables": len(self._exported.tables),
                "rows": told.rows,
                "estimatedRows": self._estimate,
            }
        }
