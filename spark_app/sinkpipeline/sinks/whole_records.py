"""Records that came in parts, whole again.

Whatever carries rows to a sink cuts them by count and bytes, and so between two rows of one record, too. Nobody behind
this module has a part of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from sinkpipeline.sinks.contract import RowBatch, content_bytes

T = TypeVar("T")


class WholeRecords:
    """The rows of one source partition, in order: the last record is held back until it is known to be whole."""

    def __init__(self) -> None:
        self._rest: RowBatch | None = None

    def add(self, batch: RowBatch) -> Iterator[RowBatch]:
        """What is whole with this batch. Where each record has one row, that is the batch itself."""
        if batch.firsts is None:
            yield batch
            return
        rest, self._rest = self._rest, None
        if rest is not None and rest.offsets[-1] == batch.offsets[0]:
            if rest.is_too_large(0):
                # It is refused whatever else it has, and memory is not for that.
                more, batch = batch, rest
                if len(more) > 1:
                    yield rest
                    batch = more.part(1, len(more))
            else:
                batch = _continued(rest, batch)
        elif rest is not None:
            yield rest
        last = len(batch) - 1
        if last > 0:
            yield batch.part(0, last)
        self._rest = batch.part(last, last + 1)

    def rest(self) -> Iterator[RowBatch]:
        """There are no more rows."""
        rest, self._rest = self._rest, None
        if rest is not None:
            yield rest


def grouped(batch: RowBatch) -> RowBatch:
    """By records, where each row came with its record's offset."""
    offsets = batch.offsets
    firsts = [0, *(at for at in range(1, len(offsets)) if offsets[at] != offsets[at - 1])]
    found = replace(batch, offsets=[offsets[at] for at in firsts], firsts=[*firsts, len(offsets)])
    return replace(found, size=content_bytes(found))


def _continued(rest: RowBatch, batch: RowBatch) -> RowBatch:
    """A batch whose first record began before."""
    held, more = len(rest.keys), len(batch.keys)

    def both(one: list[T] | None, other: list[T] | None, nothing: T) -> list[T] | None:
        if one is None and other is None:
            return None
        return [*(one or [nothing] * held), *(other or [nothing] * more)]

    return RowBatch(
        offsets=batch.offsets,
        keys=[*rest.keys, *batch.keys],
        values=[*rest.values, *batch.values],
        target_partitions=both(rest.target_partitions, batch.target_partitions, -1),
        target_topics=both(rest.target_topics, batch.target_topics, None),
        timestamps=[*rest.timestamps, *batch.timestamps],
        headers=both(rest.headers, batch.headers, None),
        errors=both(rest.errors, batch.errors, None),
        size=rest.size + batch.size,
        firsts=[0, *(held + each for each in (batch.firsts or [0])[1:])],
    )
