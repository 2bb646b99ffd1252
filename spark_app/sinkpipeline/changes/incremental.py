"""Tables whose rows are read while the stream goes on: an incremental snapshot.

                        the stream: everything before C │ behind C: changes, and the keys that they touch
                                                        ▼
    a snapshot of one table, which is at C ──► its rows by their key, without those that were touched
         ▲                                                        │ rows, and the key of the last one: one transaction
         └────── another one behind that key, after a while ──────┘

The rows of a snapshot are right at its place C, and neither before it nor behind it. So they wait until the stream has
come to C. From there on a row that the stream has touched is left out: what it has become is in the topic already.
Whoever applies what comes, in order, never sees a row go back.

    the stream tells that the table was emptied or altered     the snapshot is given up; the next one begins anew
    the snapshot is by another key than the one before         likewise, once the stream has come to its place
    too many keys were touched                                 the snapshot is given up; the next one goes on
    the snapshot can't be made, or ends                        it is told, and tried again after a while

A life that ends leaves the key of the last row. The next one goes on behind it, with another snapshot. The idea of rows
beside a log is that of Netflix's DBLog (2019), which needs a place to write marks into; the place of a snapshot, which
both kinds of databases tell, takes no right to write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

from typing_extensions import override

from sinkpipeline.changes.life import Life
from sinkpipeline.changes.ports import (
    Altered,
    AnotherServer,
    Batch,
    Event,
    Heard,
    Kind,
    Parts,
    Read,
    TableAway,
    TableSnapshot,
)
from sinkpipeline.changes.settings import AnyDatabase
from sinkpipeline.changes.table_reading import Ending, TableReading
from sinkpipeline.core.changes.incremental import IncrementalMark, told
from sinkpipeline.core.changes.positions import Position
from sinkpipeline.core.changes.snapshots import before_stream
from sinkpipeline.core.changes.touched import MOST_BYTES, Reshaped, Touched
from sinkpipeline.core.changes.values import Change, Writer
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.sinks.failpoints import failpoint

_LOG = logging.getLogger("sinkpipeline.changes")

MOST_TOUCHED = 200_000
"""How many keys of changed rows are remembered."""
_STRETCH_S = 0.2
"""For so long rows are read before the stream is looked at again, where it has nothing."""
_WAIT_S = 0.05
_TOLD_S = 120.0
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0
_NOT_OF_THE_SOURCE: Final = frozenset({Reason.INTERNAL_ERROR, Reason.PROGRESS_CORRUPT})


class Incremental:
    """The rows of the tables that wait. Of one life of a stage, and of one thread."""

    def __init__(
        self,
        kind: Kind,
        database: AnyDatabase,
        mark: IncrementalMark,
        placed: Callable[[TableSnapshot], Position] = lambda snapshot: snapshot.start,
    ) -> None:
        """`placed`: where a snapshot stands in the stream, as `Reader.placed`."""
        self.left: IncrementalMark | None = mark
        """What is still to be read, behind everything that `rows` has given."""
        self.waits_for = ""
        """Why the next rows can't be read, and what to do about it."""
        self._kind, self._placed = kind, placed
        self._database = database
        self._reading: TableReading | None = None
        self._snapshot: TableSnapshot | None = None
        self._writer: Writer
        self._again_at = self._read_at = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._touched = Touched()
        self._owed: set[bytes] = set()
        """Rows of which the topic may lack a part when the table was read."""
        self._only: set[bytes] | None = None
        """Which rows are read; None: all."""
        self._knows_all = not mark.more
        """Whether `_owed` has all that are owed of the table."""

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()
        self._give_up()

    def begin(self) -> None:
        """Asks for the first snapshot, before the stream hands out anything."""
        if self.left is not None:
            self._sitting(self.left)

    def touch(self, event: Event) -> None:
        """What the stream hands out: all of it is told here."""
        if self.left is None:
            return
        table = self.left.waiting[0]
        match event:
            case Altered(altered) if altered == table:
                self._begin_anew(self.left)
            case [*changes]:
                ours = [each for each in changes if each.table == table]
                if any(each.op == "t" for each in ours):
                    self._begin_anew(self.left)
                elif ours:
                    self._note(ours)
            case _:
                pass

    def _note(self, changes: list[Change]) -> None:
        try:
            owed = self._touched.note(changes, self._is_known)
        except Reshaped:
            # Which of them are owed, nobody knows.
            self._forget()
            self._knows_all, owed = False, [each.key for each in changes]
        if owed and self.left is not None:
            self._owed.update(owed)
            self.left = self.left.with_more
        if len(self._owed) > MOST_TOUCHED:
            self._owed, self._knows_all = set(), False
        if len(self._touched) > MOST_TOUCHED or self._touched.size > MOST_BYTES:
            # Also inside a transaction: only one that is committed is handed out.
            self._forget()

    def _is_known(self, key: bytes) -> bool:
        return self._only is not None and key not in self._only

    def rows(self, reached: int, nth: int, *, is_idle: bool) -> Read | None:
        """What can be handed out now, between two transactions of the stream; None: nothing before more is heard.

        Args:
            reached: everything that commits before this was handed out.
            nth: by what the next row is counted.
            is_idle: whether the stream has nothing, so that rows may be waited for.

        Raises:
            SinkPipelineError: InternalError, ProgressCorrupt. What is the source's is waited for.
        """
        if self.left is None:
            return None
        try:
            return self._next(self.left, reached, nth, _WAIT_S if is_idle else 0)
        except Reshaped:
            self._forget()
        except SinkPipelineError as trouble:
            if isinstance(trouble, AnotherServer) or trouble.reason in _NOT_OF_THE_SOURCE:
                raise
            # Whatever it is: the stream goes on, and it is told.
            self._put_off(trouble)
        return None

    def _next(self, left: IncrementalMark, reached: int, nth: int, wait_s: float) -> Read | None:
        reading, snapshot = self._reading, self._sitting(left)
        if reading is None or snapshot is None or reached < snapshot.start.commit:
            return None
        if snapshot.key != left.key and (left.key or (len(self._touched) and not snapshot.is_settled)):
            # Keys that were touched before it became another one are those of other rows.
            self._begin_anew(left.by(snapshot.key))
            return Read([])
        left = left.by(snapshot.key)
        match reading.take(wait_s):
            case Batch() as batch:
                self.waits_for = ""
                return self._handed(batch, left, snapshot, reached, nth)
            case Ending.ALL:
                return self._table_read(left)
            case Ending.LATE:
                self._give_up()
                return Read([])
            case None:
                seconds = time.monotonic() - self._read_at
                if seconds > _TOLD_S:
                    self.waits_for = (
                        f"the server has sent no row of table {left.waiting[0]} for {seconds // 60:.0f} minutes: it "
                        "looks for the next one, or sorts; nothing if a row filter lets few rows through; else look at "
                        "what the server does, and give the table a key that an index has in its order"
                    )
                return None

    def _sitting(self, left: IncrementalMark) -> TableSnapshot | None:
        """The snapshot that is read; None while it is made."""
        if self._reading is None:
            if time.monotonic() >= self._again_at:
                if not left.key:
                    # Whether its key is settled, it can tell of what is touched from here on.
                    self._touched.clear()
                self._reading = TableReading(self._kind, self._database, left)
            return None
        if self._snapshot is None and (made := self._reading.snapshot()) is not None:
            made.start = self._placed(made)
            self._snapshot, self._writer = made, made.writer()
            self._pause_s, self.waits_for = _FIRST_PAUSE_S, ""
            self._read_at = time.monotonic()
            failpoint("incremental-after-opening")
        return self._snapshot

    def _handed(self, batch: Batch, left: IncrementalMark, snapshot: TableSnapshot, reached: int, nth: int) -> Read:
        """Rows stand behind all that was handed out, and before all that comes; an index counts them."""
        relation, writer, only = snapshot.relation, self._writer, self._only
        names = tuple(each.name for each in relation.columns)
        writer.enter(before_stream(snapshot.start.moved(reached)).commit, snapshot.read_at, "null", nth)
        changes = []
        for row in batch.rows:
            key = writer.key(relation.oid, row)
            if only is None or key in only:
                whole = self._touched.row(key, names, row)
                if whole is not None:
                    changes.append(writer.read(relation.oid, whole, key))
                    self._owed.discard(key)
        self.left = left.moved(batch.after, len(batch.rows))
        self._read_at = time.monotonic()
        return Read(changes)

    def _put_off(self, trouble: SinkPipelineError) -> None:
        """The stream goes on meanwhile."""
        waits_for = f"{trouble.message}; {trouble.remedy}"
        if self.waits_for != waits_for:
            _LOG.warning("the incremental snapshot waits: %s", trouble)
        self.waits_for = waits_for
        self._again_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)
        self._give_up()
        if isinstance(trouble, TableAway) and self.left is not None and len(self.left.waiting) > 1:
            # It holds up no other.
            self._begin_anew(self.left.with_first_last)

    def _table_read(self, left: IncrementalMark) -> Read:
        self._forget()
        self.waits_for = ""
        if left.more and (self._owed or not self._knows_all):
            # A life that has gone on with the table does not know all of them.
            self._only = self._owed if self._knows_all else None
            self._owed, self._knows_all = set(), True
            self.left = left.from_its_beginning
            return Read([])
        self._only, self._knows_all = None, True
        self.left = left.without_first
        _LOG.info("the rows of table %s were read", left.waiting[0])
        return Read([], is_last=True)

    def _begin_anew(self, left: IncrementalMark) -> None:
        """Neither a snapshot that was asked for until here counts, nor the key of the last row."""
        self._forget()
        self._owed, self._only, self._knows_all = set(), None, True
        self.left = left.from_its_beginning

    def _forget(self) -> None:
        """The snapshot that is asked for next has all that was handed out until here."""
        self._give_up()
        self._touched.clear()

    def _give_up(self) -> None:
        if self._reading is not None:
            self._reading.leave()
        self._reading = self._snapshot = None


class IncrementalLife(Life):
    """Of a stage whose progress says that tables are to be read beside the stream."""

    def __init__(self, kind: Kind, parts: Parts, state: PartitionProgress) -> None:
        super().__init__(parts.settings, parts.claimed, parts.reader, state, parts.say)
        if state.incremental is None:
            raise ValueError("no table is to be read beside the stream")
        self._tables = Incremental(kind, parts.settings.database, state.incremental, parts.reader.placed)
        self._rows_at = 0.0

    @override
    def close(self) -> None:
        self._tables.close()

    @override
    def _left(self) -> IncrementalMark | None:
        return self._tables.left

    @override
    def _events(self) -> Iterator[Event]:
        self._tables.begin()
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
        while (read := self._tables.rows(self._reader.heard, self._nth, is_idle=is_idle)) is not None:
            yield read
            if not is_idle or time.monotonic() - began > _STRETCH_S:
                break
        ended = time.monotonic()
        self._rows_at = 2 * ended - began

    @override
    def _more(self) -> dict[str, object]:
        return {"incrementalSnapshot": told(self._tables.left, self._tables.waits_for)}
