"""A PostgreSQL sink with dead letters on a real broker, where its source is too: what stands in both, counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks.contract import RowBatch
from support.sink.cell_driver import Driver
from support.sink.cell_sink import COUNT, WithLetters
from support.sink.sql_sink import SqlSink, batch


@dataclass
class LetteredSql(WithLetters, SqlSink):
    """The rows of `bad` are refused by the server."""

    bad: dict[int, str | None] = field(default_factory=dict)
    values_of: Callable[[Sequence[int]], list[tuple[str | None, ...]]] | None = None
    """The columns of source offsets, where these are others."""

    def lettered(self, step: int = COUNT) -> Driver:
        return self.driver(step, self.rows)

    def rows(self, _partition: SourcePartition, offsets: range) -> RowBatch:
        values = [("0", str(each), "row") for each in offsets] if self.values_of is None else self.values_of(offsets)
        return batch(
            offsets, [(at, self.bad.get(n, off), *rest) for n, (at, off, *rest) in zip(offsets, values, strict=True)]
        )

    # What stands there

    def rows_there(self) -> list[int]:
        return [offset for (offset,) in self.sql(f"SELECT off FROM {self.table} ORDER BY off")]

    def counted(self) -> dict[str, int]:
        """By the cell."""
        key = self.settings.id.partition_key(self.at)
        [(value,)] = self.sql(f"SELECT value::text FROM {self.progress} WHERE key = '{key}'")
        cell = json.loads(value)
        return {name: cell.get(name, 0) for name in ("next", "rows", "dead")}
