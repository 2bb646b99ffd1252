"""Rows of `AtLeastOnce`: each is sent by itself, many under way at once, and counts as soon as it is acknowledged.

    rows ─► acknowledged, each under an id that is the same whenever it is sent ─┐
    dead letters ─► acknowledged ─► their cells ──────────────────────────────────┴─► the progress, compared and set

What comes behind is the writer's and the driver's, as with Kafka. A crash in between sends rows again: by the id the
store, or who reads it, tells that it has them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from sinkpipeline.cells.letters import counting, sent
from sinkpipeline.cells.session import passing_outages
from sinkpipeline.cells.store import Cells, Moved
from sinkpipeline.core.deadletter import Verdict
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import InDoubt, RecordRefused
from sinkpipeline.core.records import Columns, Row
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.letters import SentLetters

MOST_AT_ONCE = 1_000
"""Rows that are under way, about."""
_MOST_BYTES = 4 * 1024 * 1024

M = TypeVar("M")


class Publisher(Protocol[M]):
    """What a kind gives: rows into its target, as messages of its own."""

    def made(self, row: Row, row_id: str) -> M | Verdict:
        """The message of a row; the verdict is why it can be none. Nothing is sent."""

    def publish(self, messages: Sequence[M]) -> None:
        """Sends them in their order, and returns only if each is acknowledged, as the sink asks for it.

        Raises:
            InDoubt: some may be there, and some not.
            RecordRefused: one is refused for what it is; `index` counts the messages, None where nobody knows which.
            SinkPipelineError: SinkRefused, TopicsChanged, ...
        """


def numbered(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """For each row the offset of its record, and its number within that record. The rows of a record stand together."""
    before, number = None, 0
    for offset in offsets:
        number = number + 1 if offset == before else 0
        before = offset
        yield offset, number


@dataclass(frozen=True)
class RowIds:
    """What a row is told by: the record that it was made of, and the epoch, as a reset asks for rows once more."""

    sink: SinkId
    partition: SourcePartition
    epoch: int

    def of(self, offsets: Sequence[int]) -> Iterator[str]:
        """For each row the id, by the offset of its record. The rows of a record stand together."""
        return itertools.starmap(self.one, numbered(offsets))

    def one(self, offset: int, number: int) -> str:
        """Of one row, by its number within its record."""
        place = f"{self._place}/{offset}"
        return f"{place}/{number}" if number else place

    @cached_property
    def _place(self) -> str:
        sink, source = self.sink, self.partition
        return f"{sink.identity}/{sink.sink}/{self.epoch}/{source.topic}/{source.partition}"


class CellSender(Generic[M]):
    """A `Sender`, of one source partition.

    Of records that a call sends none is under way before all of its rows are known to be messages.
    """

    def __init__(
        self, make: Callable[[], Publisher[M]], ids: RowIds, cells: Cells, letters: SentLetters | None
    ) -> None:
        """`make` may ask the store, which is done when the first row comes."""
        self._make = make
        self._ids = ids
        self._cells = cells
        self._letters = letters
        self._publisher: Publisher[M] | None = None
        self._waiting: list[M] = []
        self._size = 0
        self._acknowledged = 0
        """Rows since the last flush."""
        self._dead: list[Row] = []

    def send(self, rows: Iterable[Row]) -> None:
        if not isinstance(rows, Columns) or rows.sources is None:
            raise TypeError("rows of a store of cells come with the offsets of their records")
        publisher = self._made_publisher()
        for index, (row, row_id) in enumerate(zip(rows, self._ids.of(rows.sources()), strict=True)):
            message = publisher.made(row, row_id)
            if isinstance(message, Verdict):
                raise RecordRefused(message, index=index)
            self._waiting.append(message)
            self._size += len(row[0] or b"")
        if len(self._waiting) >= MOST_AT_ONCE or self._size >= _MOST_BYTES:
            self._publish()

    def send_dead(self, rows: Iterable[Row]) -> None:
        self._dead += sent(self._letters, rows)

    def flush(self) -> None:
        self._publish()
        if self._letters is not None:
            self._letters.flush()
            self._count_letters()
            self._letters.counted()
        self._acknowledged, self._dead = 0, []
        failpoint("rows-acknowledged")

    def keep(self) -> None:
        """Its clients are the worker's, which keeps them."""

    def close(self) -> None:
        self._waiting, self._size, self._acknowledged, self._dead = [], 0, 0, []
        self._publisher = None
        if self._letters is not None:
            self._letters.drop()

    def _made_publisher(self) -> Publisher[M]:
        if self._publisher is None:
            with passing_outages():
                self._publisher = self._make()
        return self._publisher

    def _publish(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if not waiting:
            return
        try:
            self._made_publisher().publish(waiting)
        except RecordRefused as refusal:
            index = None if refusal.index is None else self._acknowledged + refusal.index
            raise RecordRefused(refusal.verdict, refusal.topic, open_index=index) from refusal
        self._acknowledged += len(waiting)

    def _count_letters(self) -> None:
        """Before the progress: of a record that is handled the letter counts. After a crash it may count too early."""
        if not self._dead:
            return
        with passing_outages():
            cells = counting(self._cells, self._dead, self._ids.epoch)
        try:
            self._cells.put(cells)
        except Moved as moved:
            raise InDoubt(f"the cell {moved.key} of a dead letter was written meanwhile", aborted=True) from moved
