"""What a stage does with its slot: changes into Kafka, their position in the same transaction, and back to the server.

changes, dead letters, progress: one transaction ──► committed ──► confirm, only then
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from sinkpipeline.changes.claim import Claimed
from sinkpipeline.changes.ports import Altered, Begun, Ended, Event, Heard, Look, Read, Reader, at
from sinkpipeline.changes.receipts import Receipts
from sinkpipeline.changes.settings import StageSettings
from sinkpipeline.core.changes.course import Course
from sinkpipeline.core.changes.incremental import IncrementalMark
from sinkpipeline.core.changes.lag import Lag
from sinkpipeline.core.changes.positions import Position, record_text
from sinkpipeline.core.changes.snapshots import SnapshotMark
from sinkpipeline.core.changes.values import Change
from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Verdict, encode
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.records import Row, batch_size
from sinkpipeline.core.tally import Counting, plus
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.starting import now_ms

_LOG = logging.getLogger("sinkpipeline.changes")

_WAIT_S = 0.1
_TOLD_EVERY_S = 5.0
_AT_ONCE = 500
"""Rows that are handed to the client at once."""
_WHOLE_S = 40.0
"""How long a transaction of Kafka may hold one of the database; its own time-out is 60 s."""
_OVERHEAD = 256
"""More than the frame of a record, with the header of its position."""


class Life:
    """From a slot that is held to the first trouble."""

    def __init__(
        self,
        settings: StageSettings,
        claimed: Claimed,
        reader: Reader,
        state: PartitionProgress,
        say: Receipts,
    ) -> None:
        self._settings = settings
        self._session = claimed.session
        self._limits = claimed.limits
        self._letter_limits = claimed.letter_limits
        self._reader = reader
        self._state = state
        self._say = say
        self._is_whole = settings.database.whole_transactions
        self._course = Course(at(state), settings.cuts, whole=self._is_whole)
        self._rows: list[Row] = []
        self._letters: list[Row] = []
        self._counting = Counting()
        self._changes: Counter[tuple[str, str]] = Counter()
        self._delivered = 0
        self._sizes: list[int] = []
        """How many changes the transactions of the database have that ended since the last receipt."""
        self._in_transaction = 0
        self._record: tuple[bytes, int] | None = None
        """Of the last change that was handed to Kafka."""
        self._committed_at = 0
        self._newest: int | None = None
        """When the last change that counts was committed at the database, in milliseconds; None before the first."""
        self._lag = Lag()
        self._check: Callable[[], None] = lambda: None
        self._opened_at = self._committed = self._told_at = time.monotonic()

    def close(self) -> None:
        """Nothing of it is left at the server."""

    def go_on(self, stop: threading.Event, check: Callable[[], None]) -> None:
        """Until `stop` is set. `check` is called now and then, and raises where this stage must not go on."""
        self._go(stop, check)
        self._say("ended")

    def _go(self, stop: threading.Event, check: Callable[[], None]) -> None:
        """To the end of what comes, or until `stop` is set."""
        course = self._course
        self._check = check
        # The server may never have heard, or have forgotten, what counts.
        self._confirm()
        self._tell()
        for event in self._events():
            if isinstance(event, list):
                if event:
                    self._take(event)
            elif isinstance(event, Read):
                self._take_read(event)
            else:
                self._meet(event)
            if course.is_full() or course.is_due(time.monotonic() - self._opened_at):
                self._commit()
            if stop.is_set():
                break
        if course.is_open and course.may_cut:
            self._commit()

    def _confirm(self) -> None:
        self._reader.confirm(self._course.confirmable)

    def _mark(self) -> SnapshotMark | None:
        """What the progress says of a snapshot."""
        return None

    def _left(self) -> IncrementalMark | None:
        """Likewise, of an incremental one."""
        return self._state.incremental

    def _more(self) -> dict[str, object]:
        """What else the receipts tell."""
        return {}

    def _judge(self, look: Look) -> None:
        """Raises where it can't go on with the source as it is now."""

    def _events(self) -> Iterator[Event]:
        return self._reader.read(at(self._state), _WAIT_S)

    def _meet(self, event: Begun | Ended | Heard | Altered | None) -> None:
        course = self._course
        match event:
            case Begun(note, before):
                course.begun(note, before)
                self._in_transaction = 0
            case Ended(end):
                course.ended(end)
                if self._in_transaction:
                    self._sizes.append(self._in_transaction)
                elif not course.is_open:
                    # A log in which for long nothing is of our tables: there may be no pause in it.
                    self._follow(time.monotonic())
            case Heard(commit, note):
                course.heard(commit, note)
                self._pause()
            case None:
                self._pause()
            case Altered():
                # What its rows are from here on, their changes tell.
                pass

    def _pause(self) -> None:
        """Nothing comes for a moment."""
        now = time.monotonic()
        self._send()
        if self._is_whole and self._course.is_inside and self._course.is_open:
            self._check_patience()
        self._follow(now)
        if now - self._told_at > _TOLD_EVERY_S:
            self._tell()

    def _follow(self, now: float) -> None:
        """The position goes on now and then, although no change comes."""
        if now - self._committed > self._settings.database.idle_advance_s and self._course.idle():
            self._begin()
            self._commit()

    def _take(self, changes: list[Change]) -> None:
        course = self._course
        before = course.rows
        self._hand(changes, stand=True)
        self._in_transaction += course.rows - before
        self._committed_at, self._record = changes[-1].committed_at, changes[-1].record
        if not self._rows and self._is_whole and course.is_inside:
            self._check_patience()

    def _take_read(self, read: Read) -> None:
        """What is committed next has these rows."""
        if not self._course.is_open:
            # While tables are read there may be no pause in which the position goes on.
            self._course.idle()
        if read.changes:
            self._hand(read.changes, stand=False)
        if read.is_last:
            self._begin()
            self._commit()

    def _hand(self, changes: list[Change], *, stand: bool) -> None:
        """To Kafka; `stand`: whether they stand somewhere in the stream."""
        course = self._course
        self._begin()
        for change in changes:
            key, value, headers = change.key, change.value, change.headers
            size = len(key) + len(value)
            if stand:
                course.handed(change.commit, change.nth, size)
            else:
                course.read(size)
            if size + _OVERHEAD > self._limits.message_bytes:
                exact = batch_size(value, key, headers)
                if exact > self._limits.message_bytes:
                    self._letter(change, exact)
                    continue
            self._rows.append((value, key, -1, 0, headers))
            self._changes[change.table, change.op] += 1
        if len(self._rows) >= _AT_ONCE:
            self._send()

    def _letter(self, change: Change, size: int) -> None:
        """A change that its topic does not take becomes a dead letter of the same transaction.

        Raises:
            SinkPipelineError: RecordRefused, DeadLetterFailed.
        """
        settings, topic = self._settings, self._settings.topic.name
        text = f"it has {size} bytes, and the change topic takes {self._limits.message_bytes}"
        where = f"the change at {change.at} of {change.table}"
        if settings.dead_letter is None:
            raise SinkPipelineError(
                Reason.RECORD_REFUSED,
                f"{where}: {text}",
                f"raise max.message.bytes of topic {topic} to {size} or more, or give the changes a deadLetter",
            )
        row = encode(
            DeadLetter(
                sink=settings.id,
                verdict=Verdict(ErrorClass.RECORD_TOO_LARGE, text),
                record=SourceRecord(
                    partition=settings.database.partition,
                    offset=self._nth - 1,
                    key=change.key,
                    value=change.value,
                    headers=change.headers,
                    timestamp=change.committed_at,
                ),
            )
        )
        value, key, _, _, headers = row
        letter = batch_size(value, key, headers)
        if letter <= self._letter_limits.message_bytes:
            self._letters.append(row)
            self._counting.add(ErrorClass.RECORD_TOO_LARGE.value, dead=1)
            return
        if not settings.dead_letter.drop:
            raise SinkPipelineError(
                Reason.DEAD_LETTER_FAILED,
                f"{where}: {text}; and its dead letter has {letter} bytes, and {settings.dead_letter.topic.name} takes "
                f"{self._letter_limits.message_bytes}",
                f"raise max.message.bytes of topic {settings.dead_letter.topic.name} to {letter} or more",
            )
        _LOG.warning("%s: dropped: %s", where, text)
        self._counting.add(ErrorClass.RECORD_TOO_LARGE.value, dropped=1)

    def _begin(self) -> None:
        if not self._session.is_open:
            self._session.begin()
            self._opened_at = time.monotonic()

    def _send(self) -> None:
        """Hands to the client what waits."""
        if self._rows:
            self._session.send(self._rows)
            self._delivered += len(self._rows)
            self._rows = []
        if self._letters:
            self._session.send_dead(self._letters)
            self._letters = []

    def _check_patience(self) -> None:
        if time.monotonic() - self._opened_at > _WHOLE_S:
            raise SinkPipelineError(
                Reason.TRANSACTION_TOO_LARGE,
                f"{self._reader.where}: a transaction of {self._course.rows} changes or more takes longer than "
                f"{_WHOLE_S:.0f} s, and transactions is Whole",
                "set transactions: Split",
            )

    def _commit(self) -> None:
        """Changes, dead letters and the progress, at once; only then the server is told."""
        course, state = self._course, self._state
        self._send()
        sums = self._counting.sums
        new = replace(
            state,
            next=state.next + course.rows,
            rows=state.rows + self._delivered,
            dead=state.dead + sums.dead,
            dropped=state.dropped + sums.dropped,
            by_class=plus(state.by_class, self._counting),
            at=now_ms(),
            pos=self._next(),
            snapshot=self._mark(),
            incremental=self._left(),
        )
        failpoint("after-rows-before-progress")
        self._session.commit(new)
        failpoint("after-commit")
        self._state = new
        course.has_committed()
        self._newest = self._committed_at or None
        self._confirm()
        self._committed = time.monotonic()
        self._receipt()
        self._counting, self._delivered = Counting(), 0
        self._changes.clear()
        self._sizes = []
        if self._committed - self._told_at > _TOLD_EVERY_S:
            self._tell()

    def _next(self) -> Position:
        """Where the progress stands then."""
        found = self._course.next
        return found if self._record is None else found.moved(found.commit, found.index, record_text(*self._record))

    @property
    def _nth(self) -> int:
        """The change that comes next, as those are counted that were ever delivered."""
        return self._state.next + self._course.rows

    def _receipt(self) -> None:
        changes: dict[str, dict[str, int]] = {}
        for (table, op), count in self._changes.items():
            changes.setdefault(table, {})[op] = count
        self._say(
            "committed",
            position=at(self._state).to_record()[:2],
            next=self._state.next,
            rows=self._state.rows,
            dead=self._state.dead,
            dropped=self._state.dropped,
            changes=changes,
            skipped=self._reader.skipped,
            committedAt=self._committed_at,
            transactions=self._sizes,
            **self._more(),
        )

    def _reached(self) -> int:
        """Everything that the database committed before this is in the topic."""
        course, written = self._course, at(self._state).commit
        return written if course.is_open or course.is_inside else max(written, self._reader.heard)

    def _tell(self) -> None:
        """How it stands, whether something came or not; a driver that is gone is noticed by it."""
        self._check()
        place = at(self._state)
        look = self._reader.look(place)
        self._told_at = time.monotonic()
        self._lag = self._lag.after(look.end, reached=self._reached(), committed_at=self._newest)
        self._judge(look)
        if look.told is None:
            return
        self._say(
            "state",
            position=place.to_record()[:2],
            next=self._state.next,
            lagSeconds=self._lag.seconds,
            **look.told,
            **self._more(),
        )
