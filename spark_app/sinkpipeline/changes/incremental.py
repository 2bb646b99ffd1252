"""Tables whose rows are read while the stream goes on: an incremental snapshot.

                        the stream: everything before C │ behind C: changes, and the keys that they touch
                                                        ▼
    a snapshot of one table, which is at C ──► its rows by their key, without those that were touched
         ▲                                                        │ rows, and the key of the last one: one transaction
         └────── another one behind that key, after a while ──────┘

The rows of a snapshot are right at its place C, and neither before it nor behind it. So they wait until the stream has
come to C. From there on a row that the stream has touched is left out: what it has become is in the topic already.
Whoever applies what comes, in order, never sees a row go back.

A life that ends leaves the key of the last row. The next one goes on behind it, with another snapshot. The idea of rows
beside a log is that of Netflix's DBLog (2019), which needs a place to write marks into; the place of a snapshot, which
both kinds of databases tell, takes no right to write.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Generator, Iterator
from typing import Final

from typing_extensions import override

from sinkpipeline.changes.life import Life
from sinkpipeline.changes.ports import Chunk, Event, Heard, Kind, Parts, Read, TableSnapshot
from sinkpipeline.changes.settings import AnyDatabase
from sinkpipeline.core.changes.incremental import IncrementalMark, told
from sinkpipeline.core.changes.positions import Position
from sinkpipeline.core.changes.snapshots import before_stream
from sinkpipeline.core.changes.values import has_unchanged
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.sinks.failpoints import failpoint

_LOG = logging.getLogger("sinkpipeline.changes")

SITTING_S = 60.0
"""How long one snapshot is used: the server keeps the rows of that moment for it, and nobody alters the table."""
MOST_TOUCHED = 200_000
"""Likewise, how many keys of changed rows are remembered."""
_STRETCH_S = 0.2
"""For so long rows are read before the stream is looked at again, where it has nothing."""
_WAIT_S = 0.05
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0
_CLOSE_S = 1.0
_NOT_OF_THE_SOURCE: Final = frozenset({Reason.INTERNAL_ERROR, Reason.PROGRESS_CORRUPT})


class _End(enum.Enum):
    """Of the rows of a table."""

    END = enum.auto()


_END: Final = _End.END


class Opening:
    """A snapshot of a table, made by a thread: the server answers when transactions have ended that it waits for."""

    def __init__(self, kind: Kind, database: AnyDatabase, table: str) -> None:
        self.table = table
        self._made: TableSnapshot | None = None
        self._error: BaseException | None = None
        self._is_left = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, args=(kind, database), name="table-snapshot", daemon=True)
        self._thread.start()

    def _run(self, kind: Kind, database: AnyDatabase) -> None:
        try:
            made = kind.copy_table(database, self.table)
        except BaseException as error:  # noqa: BLE001 - whoever asks for the snapshot is told
            self._error = error
            return
        with self._lock:
            if not self._is_left:
                self._made = made
                return
        made.close()

    def taken(self) -> TableSnapshot | None:
        """The snapshot, for whoever closes it; None where it is not made yet.

        Raises:
            SinkPipelineError: why it can't be made.
        """
        if self._thread.is_alive():
            return None
        if self._error is not None:
            raise self._error
        return self._made

    def leave(self) -> None:
        """Nobody wants it any more."""
        with self._lock:
            self._is_left = True
            made, self._made = self._made, None
        if made is not None:
            made.close()
        # So that in most cases nothing is left at the server when the next stage comes.
        self._thread.join(_CLOSE_S)


class Incremental:
    """The rows of the tables that wait. Of one life of a stage, and of one thread."""

    def __init__(self, kind: Kind, database: AnyDatabase, mark: IncrementalMark) -> None:
        self.left: IncrementalMark | None = mark
        """What is still to be read, behind everything that `rows` has given."""
        self.waits_for = ""
        """Why no snapshot could be made the last time."""
        self._kind = kind
        self._database = database
        self._opening: Opening | None = None
        self._snapshot: TableSnapshot | None = None
        self._chunks: Iterator[Chunk | None] = iter(())
        self._opened_at = self._again_at = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._touched: set[bytes] = set()
        self._reached = 0
        self._owed: set[bytes] = set()
        """Keys of rows that have come by changes that do not tell all of them."""
        self._only: set[bytes] | None = None
        """Which rows are read; None: all."""
        self._knows_all = not mark.more
        """Whether `_owed` has all that are owed of the table."""
        self._is_stale = False
        """Whether keys were forgotten since the snapshot was asked for that is being made."""

    def close(self) -> None:
        if self._opening is not None:
            self._opening.leave()
            self._opening, self._is_stale = None, False
        self._stand_up()

    def touch(self, event: Event) -> None:
        """What the stream hands out: all of it is told here."""
        if self.left is None or not isinstance(event, list):
            return
        table = self.left.waiting[0]
        for change in event:
            if change.table == table:
                self._touched.add(change.key)
                if has_unchanged(change.value):
                    # Of a large value that was not touched only a row tells: it is read once more.
                    self._owed.add(change.key)
                    self.left = self.left.with_more

    def rows(self, reached: int) -> Read | None:
        """What can be handed out now, between two transactions of the stream; None: nothing before more is heard.

        Args:
            reached: everything that commits before this was handed out.

        Raises:
            SinkPipelineError: InternalError, ProgressCorrupt. What is the source's is waited for.
        """
        left = self.left
        if left is None:
            return None
        self._reached = reached
        try:
            snapshot = self._sitting(left)
            if snapshot is None or reached < snapshot.start.commit:
                return None
            chunk = next(self._chunks, _END)
            left = self.left or left
        except SinkPipelineError as trouble:
            if trouble.reason in _NOT_OF_THE_SOURCE:
                raise
            # Whatever it is: the stream goes on, and it is told.
            self._put_off(trouble)
            return None
        if chunk is None:
            return Read([])
        if isinstance(chunk, _End):
            return self._table_read(left)
        self.left = left.moved(chunk.after, len(chunk.changes))
        only = self._only
        return Read(
            [each for each in chunk.changes if each.key not in self._touched and (only is None or each.key in only)]
        )

    def _sitting(self, left: IncrementalMark) -> TableSnapshot | None:
        """The snapshot that is read; None while it is made."""
        now = time.monotonic()
        if len(self._touched) > MOST_TOUCHED:
            # What was handed out until here, the next one has; one that is being made may not have it.
            self._stand_up()
            self._touched.clear()
            self._is_stale = self._opening is not None
        if self._snapshot is not None and now - self._opened_at > SITTING_S:
            self._stand_up()
        if self._snapshot is not None:
            return self._snapshot
        if self._opening is None:
            if now >= self._again_at:
                self._opening = Opening(self._kind, self._database, left.waiting[0])
            return None
        made = self._opening.taken()
        if made is None:
            return None
        if self._is_stale:
            made.close()
            self._opening, self._is_stale = None, False
            return None
        self._opening, self._snapshot, self._opened_at = None, made, now
        self._pause_s, self.waits_for = _FIRST_PAUSE_S, ""
        self.left = left = left.by(made.key)
        self._chunks = made.read(left.after, lambda _: self._place(made.start), _WAIT_S)
        failpoint("incremental-after-opening")
        return made

    def _place(self, of_the_source: Position) -> Position:
        """Where a row stands: behind all that was handed out, and before all that comes. An index counts the rows."""
        here = before_stream(of_the_source.moved(self._reached))
        return here.moved(here.commit, 0 if self.left is None else self.left.rows)

    def _put_off(self, trouble: SinkPipelineError) -> None:
        """The stream goes on meanwhile."""
        if self.waits_for != trouble.message:
            _LOG.warning("the incremental snapshot waits: %s", trouble)
        self.waits_for = trouble.message
        self._again_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)
        self.close()

    def _table_read(self, left: IncrementalMark) -> Read:
        self._stand_up()
        self._touched.clear()
        if left.more:
            # A life that has gone on with the table does not know all of them.
            self._only = self._owed if self._knows_all else None
            self._owed, self._knows_all = set(), True
            self.left = left.from_its_beginning
            return Read([])
        self._only, self._knows_all = None, True
        self.left = left.without_first
        _LOG.info("the rows of table %s were read", left.waiting[0])
        return Read([], is_last=True)

    def _stand_up(self) -> None:
        chunks, self._chunks = self._chunks, iter(())
        if isinstance(chunks, Generator):
            chunks.close()
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None


class IncrementalLife(Life):
    """Of a stage whose progress says that tables are to be read beside the stream."""

    def __init__(self, kind: Kind, parts: Parts, state: PartitionProgress) -> None:
        super().__init__(parts.settings, parts.claimed, parts.reader, state, parts.say)
        if state.incremental is None:
            raise ValueError("no table is to be read beside the stream")
        self._tables = Incremental(kind, parts.settings.database, state.incremental)
        self._rows_at = 0.0

    @override
    def close(self) -> None:
        self._tables.close()

    @override
    def _left(self) -> IncrementalMark | None:
        return self._tables.left

    @override
    def _events(self) -> Iterator[Event]:
        events = super()._events()
        for event in events:
            self._tables.touch(event)
            yield event
            if not self._course.is_inside:
                yield from self._between(is_idle=event is None or isinstance(event, Heard))
                if self._tables.left is None:
                    break
        yield from events

    def _between(self, *, is_idle: bool) -> Iterator[Event]:
        """Rows between two transactions: at most half of the time is theirs, unless the stream has nothing."""
        began = time.monotonic()
        if not is_idle and began < self._rows_at:
            return
        while (read := self._tables.rows(self._reader.heard)) is not None:
            yield read
            if not is_idle or time.monotonic() - began > _STRETCH_S:
                break
        ended = time.monotonic()
        self._rows_at = 2 * ended - began

    @override
    def _more(self) -> dict[str, object]:
        return {"incrementalSnapshot": told(self._tables.left, self._tables.waits_for)}
