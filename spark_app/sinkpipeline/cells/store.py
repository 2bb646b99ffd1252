"""What a backend gives: a cell for each key, read with its version, and written only if it has that version still.

The keys are those of the progress topic (`core/naming.py`): one for `meta`, one for each source partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeAlias

from sinkpipeline.core.records import Row

Version: TypeAlias = int | None
"""Of a cell; None where there is none yet.

It means something only while the store keeps what it has told. Where a store that goes back would give one twice, it is
good on the connection on which it was read: on another one a write is refused as `InDoubt`, which does not count.
"""


@dataclass(frozen=True)
class Cell:
    """As it was read; `value` is None where there is none."""

    value: bytes | None
    version: Version


NO_CELL = Cell(None, None)

Puts: TypeAlias = Mapping[str, tuple[bytes | None, Version]]
"""By key, what a cell is to hold, None where it is to be removed, and the version that it must have still."""
NOTHING: Puts = MappingProxyType({})


class Moved(Exception):
    """A cell has another version than was given; nothing was written."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Cells(Protocol):
    """The cells of one sink, and its rows.

    Raises (all methods):
        InDoubt: it was asked for, and may be done or not.
        SinkPipelineError: SinkUnreachable, SinkRefused, ...
    """

    @property
    def connections(self) -> int:
        """How many were made so far, or led to another server than before, which may be a store that went back."""

    @property
    def store(self) -> str:
        """Which store has answered last, where a kind can tell. Of two that were one once, each may take writes."""

    def read(self, keys: Collection[str]) -> Mapping[str, Cell]:
        """For certain: what this tells was committed, and nothing that was committed before is missing."""

    def metas(self) -> Mapping[str, Cell]:
        """By key, the `meta` of every sink whose cells are kept in the same place; what else is told is passed over."""

    def put(self, cells: Puts) -> Mapping[str, Version]:
        """Writes cells in this order, each if it has that version still, and tells the new ones; None removes a cell.

        Where not all of it is written at once, a crash leaves the first of them: so `meta` comes last.

        Raises:
            Moved: one has not; those before it may be written.
        """

    def find(self, prefix: str, most: int) -> Mapping[str, Version]:
        """Some of the cells whose keys begin so, at most so many; none only where there is none."""

    def commit(
        self,
        key: str,
        value: bytes,
        version: Version,
        rows: Sequence[Row],
        beside: Puts = NOTHING,
        ids: Sequence[str | None] = (),
    ) -> Version:
        """Rows and a cell, and those beside it, at once: all of it, or nothing.

        `ids`: of each row by what its readers know it again, as of rows of `AtLeastOnce`; none where they need not. A
        store that knows ids itself takes a row that it has for written, and may write the others before the cells.

        Raises:
            Moved: a cell has another version.
            RecordRefused: a row is refused for what it is; `index` counts the rows, None where nobody knows which.
        """
