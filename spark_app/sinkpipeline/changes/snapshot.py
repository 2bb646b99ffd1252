"""The tables as they were at one moment, into the change topic, before the stream that begins there.

    what an epoch that was given up has written is taken back ──► the kind makes a snapshot
    ──► a new epoch in the progress ──► rows, and how far, in one transaction each
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

from typing_extensions import override

from sinkpipeline.changes.life import Life
from sinkpipeline.changes.ports import Copied, Event, Kind, Look, Parts, Started, at
from sinkpipeline.changes.settings import sink_settings
from sinkpipeline.core.changes.dropping import made_of, with_made
from sinkpipeline.core.changes.snapshots import SnapshotMark, before_stream, stream_start
from sinkpipeline.core.changes.values import is_read, taken_back
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.kafka.written import Written, ends
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.starting import now_ms

_LOG = logging.getLogger("sinkpipeline.changes")

_WAIT_S = 0.1


class Snapshot:
    """Of one life of a stage; of one thread."""

    def __init__(
        self, kind: Kind, parts: Parts, started: Started, has_claimed: Callable[[PartitionProgress], None]
    ) -> None:
        """`has_claimed`: called once, with the progress from which it goes on."""
        self._kind = kind
        self._parts = parts
        self._started = started
        self._has_claimed = has_claimed

    def run(self, stop: threading.Event) -> PartitionProgress | None:
        """To its end; the progress with which the stream begins. None where `stop` was set before.

        Raises:
            SinkPipelineError: whatever ends it; the next life begins it anew.
        """
        parts, state = self._parts, self._started.state
        if state is not None:
            self._has_claimed(state)
            _LOG.warning("the snapshot of epoch %d was given up: its rows are taken back", state.epoch)
            state = TakingBack(parts, state).run(stop, self._check)
            if state is None:
                return None
            failpoint("snapshot-taken-back")
        with closing(self._kind.copy(parts, self._started)) as copied:
            new = self._epoch(state, copied)
            if state is None:
                self._has_claimed(new)
            copied.open()
            failpoint("snapshot-after-opening")
            return Copying(parts, new, copied).run(stop, self._check)

    def _check(self) -> None:
        self._parts.claim.check_topics(self._parts.claimed)

    def _epoch(self, state: PartitionProgress | None, copied: Copied) -> PartitionProgress:
        """Says that a snapshot goes on, before its first row."""
        claim, claimed = self._parts.claim, self._parts.claimed
        start = before_stream(copied.start)
        if state is None:
            epoch = 0 if claimed.progress.meta is None else claimed.progress.meta.epoch
            # What is in the topic already is somebody else's, and is never taken back.
            settings = self._parts.settings
            mark = SnapshotMark(since=ends(settings.kafka, sink_settings(settings).group_id, claimed.topic))
            new = PartitionProgress(epoch=epoch, next=0, at=now_ms(), pos=start, snapshot=mark)
        else:
            known = at(state)
            if start.commit < known.commit:
                raise SinkPipelineError(
                    Reason.SOURCE_ROLLED_BACK,
                    f"{self._parts.reader.where} makes a snapshot at {start}, and was read up to {known}",
                    "find out which server this is (a standby that was behind, a backup?)",
                )
            # Where nothing was committed meanwhile, it stands where the one before does, behind it.
            start = known if start.commit == known.commit else start
            mark = SnapshotMark(since=() if state.snapshot is None else state.snapshot.since)
            new = replace(state, epoch=state.epoch + 1, at=now_ms(), pos=start, snapshot=mark)
        made = frozenset[str]() if claimed.progress.meta is None else made_of(claimed.progress.meta.source)
        claim.announce(claimed, with_made(self._started.source, made), new)
        failpoint("snapshot-after-epoch")
        return new


class _Part(Life):
    """A life that comes to an end by itself: the server is told nothing of it, as the stream has not begun."""

    def __init__(self, parts: Parts, state: PartitionProgress) -> None:
        # A snapshot is no transaction of the database.
        split = replace(parts.settings, database=replace(parts.settings.database, whole_transactions=False))
        super().__init__(split, parts.claimed, parts.reader, state, parts.say)
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

    def __init__(self, parts: Parts, state: PartitionProgress) -> None:
        super().__init__(parts, state)
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
                made.append(taken_back(key, value, place.moved(place.commit, index)))
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

    def __init__(self, parts: Parts, state: PartitionProgress, copied: Copied) -> None:
        super().__init__(parts, state)
        self._copied = copied
        self._claim = parts.claim
        self._start = stream_start(at(state))

    @override
    def _events(self) -> Iterator[Event]:
        told, place = self._told or SnapshotMark(), at(self._state)
        for done, table in enumerate(self._copied.names):
            self._told = told = replace(told, table=table, done=done)
            for changes in self._copied.read(done, place, _WAIT_S):
                # What is committed next has them.
                self._told = told = replace(told, rows=told.rows + len(changes or ()))
                place = place.moved(place.commit, place.index + len(changes or ()))
                yield changes

    @override
    def _complete(self) -> None:
        """From here on the stream counts: it must be the one that begins at the snapshot."""
        failpoint("snapshot-before-complete")
        self._check()
        self._judge(self._reader.look(at(self._state)))
        self._told = None
        # What is noted of the place where the stream begins.
        self._course.begun(self._copied.start.note)
        self._course.ended(self._start)
        self._begin()
        self._commit()
        failpoint("snapshot-after-complete")

    @override
    def _judge(self, look: Look) -> None:
        try:
            self._copied.judge(look)
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
                "tables": len(self._copied.names),
                "rows": told.rows,
                "estimatedRows": self._copied.estimate,
            }
        }
