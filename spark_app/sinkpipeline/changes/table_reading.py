"""A snapshot of one table, made and read by a thread: a server may let both wait, and the stream goes on meanwhile.

a snapshot is made ──► its rows, a few batches ahead ──► whoever takes them
      for at most SITTING_S, whether somebody takes them or not; then it is closed
"""

from __future__ import annotations

import enum
import math
import queue
import threading
import time
from contextlib import closing, suppress
from typing import Final

from sinkpipeline.changes.cancellation import Cancellation
from sinkpipeline.changes.ports import Batch, Kind, TableSnapshot
from sinkpipeline.changes.settings import AnyDatabase
from sinkpipeline.core.changes.incremental import IncrementalMark

SITTING_S = 60.0
"""How long one snapshot is used, or until its first rows have come: the server keeps the rows of that moment for it,
and nobody alters the table."""
_AHEAD: Final = 4
_LOOK_S: Final = 0.2
_CLOSE_S: Final = 1.0


class Ending(enum.Enum):
    """Why no more rows come."""

    ALL = enum.auto()
    """The table has no more."""
    LATE = enum.auto()
    """The snapshot was used for long enough: the next one goes on."""


class TableReading:
    """The rows of the first table that waits, behind the last one that is in the topic."""

    def __init__(self, kind: Kind, database: AnyDatabase, mark: IncrementalMark) -> None:
        self._mark = mark
        self._made: TableSnapshot | None = None
        self._refusal: BaseException | None = None
        self._ahead: queue.Queue[Batch | Ending | BaseException] = queue.Queue(_AHEAD)
        self._cancellation = Cancellation()
        self._thread = threading.Thread(target=self._run, args=(kind, database), name="table-reading", daemon=True)
        self._thread.start()

    def snapshot(self) -> TableSnapshot | None:
        """Whose rows these are; None where it is not made yet.

        Raises:
            SinkPipelineError: why it can't be made.
        """
        if self._refusal is not None:
            raise self._refusal
        return self._made

    def take(self, wait_s: float) -> Batch | Ending | None:
        """The next rows; None where nothing comes for so long.

        Raises:
            SinkPipelineError: why the next ones can't be read.
        """
        try:
            found = self._ahead.get(timeout=wait_s) if wait_s else self._ahead.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def leave(self) -> None:
        """Nobody wants the rest. Does not wait until nothing of it is left at the server."""
        self._cancellation.set()

    def close(self) -> None:
        """Likewise, and waits for a moment, so that in most cases nothing is left when the next stage comes."""
        self.leave()
        self._thread.join(_CLOSE_S)

    def _run(self, kind: Kind, database: AnyDatabase) -> None:
        try:
            with closing(kind.copy_table(database, self._mark.waiting[0], self._cancellation)) as made:
                self._made = made
                ending = self._read(made)
        except BaseException as error:  # noqa: BLE001 - whoever takes the rows is told
            if self._made is None:
                self._refusal = error
            else:
                self._put(error)
            return
        self._put(ending)

    def _read(self, made: TableSnapshot) -> Ending:
        until = time.monotonic() + SITTING_S
        has_come = False
        for batch in made.read(self._mark.by(made.key).after):
            if batch is not None:
                # One that nobody has taken, the next snapshot has again.
                if not has_come:
                    has_come, until = True, max(until, time.monotonic() + SITTING_S)
                if not self._put(batch, until):
                    return Ending.LATE
            # Where the server has to look for long until the first row, the next snapshot would, too.
            if self._cancellation.is_set or (has_come and time.monotonic() > until):
                return Ending.LATE
        return Ending.ALL

    def _put(self, item: Batch | Ending | BaseException, until: float = math.inf) -> bool:
        while not self._cancellation.is_set and time.monotonic() < until:
            with suppress(queue.Full):
                self._ahead.put(item, timeout=_LOOK_S)
                return True
        return False
