"""A table of cells, and the commit: compare and set the cell first, then the rows, all in one transaction.

The lock of the cell's row keeps everybody else out until the end. A version is a random number: a server that lost its
tail, or a table that was made again, has none of those that were given before.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sinkpipeline.cells.store import NO_CELL, NOTHING, Cell, Moved, Puts, Version
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.core.records import Row
from sinkpipeline.postgresql.client import Client, Work
from sinkpipeline.postgresql.lines import text
from sinkpipeline.postgresql.settings import Upsert
from sinkpipeline.postgresql.statements import OLD_XIDS, STAGED, CellStatements, Keep, Merge, TableStatements
from sinkpipeline.sinks.failpoints import failpoint

_VERSION_BITS = 63


class PostgresqlCells:
    """The cells of sinks, and the rows of one. `rows` is None for who writes none.

    `store`: of the driver, whose task this is.
    """

    def __init__(
        self, client: Client, cells: CellStatements, rows: TableStatements | None = None, store: str = ""
    ) -> None:
        self._client = client
        self._cells = cells
        self._rows = rows
        self._store = store

    @property
    def connections(self) -> int:
        return self._client.met

    @property
    def store(self) -> str:
        return self._client.server

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Work]:
        with self._client.transaction() as work:
            self._check_store()
            yield work

    def _check_store(self) -> None:
        if self._store not in ("", self._client.server):
            raise SinkPipelineError(
                Reason.SINK_UNREACHABLE,
                "a task has met another server than its driver, or the same one after a start",
                "if several of servers take writes, end all but one; otherwise nothing: the sink starts again",
            )

    def read(self, keys: Collection[str]) -> Mapping[str, Cell]:
        with self._client.reading() as work:
            # An old primary has the run before: read there, it would be a newer driver's.
            self._check_store()
            found = {
                key: Cell(value.encode(), version) for key, value, version in work.rows(self._cells.read, (list(keys),))
            }
        return {key: found.get(key, NO_CELL) for key in keys}

    def metas(self) -> Mapping[str, Cell]:
        with self._client.reading() as work:
            found = work.rows(self._cells.metas)
        return {key: Cell(value.encode(), version) for key, value, version in found}

    def put(self, cells: Puts) -> Mapping[str, Version]:
        with self._transaction() as work:
            return self._put(work, cells)

    def find(self, prefix: str, most: int) -> Mapping[str, Version]:
        with self._client.reading() as work:
            return dict(work.rows(self._cells.find, (prefix, most)))

    def commit(
        self,
        key: str,
        value: bytes,
        version: Version,
        rows: Sequence[Row],
        beside: Puts = NOTHING,
        ids: Sequence[str | None] = (),  # noqa: ARG002 - a table has AtLeastOnce of nobody
    ) -> Version:
        if self._rows is None:
            raise ValueError("these cells have no rows")
        with self._transaction() as work:
            new = self._put(work, {key: (value, version), **beside})[key]
            failpoint("sql-after-cell")
            if rows:
                self._write(work, self._rows, rows)
                self._check_table(work, self._rows)
            failpoint("sql-before-commit")
        return new

    def _put(self, work: Work, cells: Puts) -> Mapping[str, Version]:
        """All at once, so their order doesn't count."""
        steps: dict[str, list[tuple[Any, ...]]] = {}
        versions: dict[str, Version] = {}
        for key, (value, was) in sorted(cells.items()):
            versions[key] = new = None if value is None else secrets.randbits(_VERSION_BITS)
            if value is None:
                steps.setdefault(self._cells.remove, []).append((key, was))
            elif was is None:
                steps.setdefault(self._cells.insert, []).append((key, value.decode(), new))
            else:
                steps.setdefault(self._cells.update, []).append((key, value.decode(), new, was))
        written = {
            key
            for statement, each in steps.items()
            for (key,) in work.rows(statement, [list(column) for column in zip(*each, strict=True)])
        }
        for key in cells:
            if key not in written:
                raise Moved(key)
        return versions

    def _write(self, work: Work, to: TableStatements, rows: Sequence[Row]) -> None:
        upsert = to.table.upsert
        if upsert is None:
            copied = work.copy(to.append, text(rows, numbered=False), to.table.name)
        else:
            # From here on its columns stay as they are.
            work.run(to.lock)
            self._stage(work, to)
            copied = work.copy(to.fill(upsert), text(rows, numbered=True), to.staging_name)
        _check_all(to, "took", copied, len(rows))
        if upsert is not None:
            for wave in self._waves(work, to, upsert):
                self._merge(work, to, to.merge(upsert, wave))

    def _waves(self, work: Work, to: TableStatements, upsert: Upsert) -> Sequence[int | None]:
        """What is merged one after the other; None is all at once."""
        if not upsert.keeps or not work.rows(to.any_keeps)[0][0]:
            return (None,)
        work.run(to.part(upsert))
        [(last,)] = work.rows(to.last_wave)
        return range(last + 1)

    def _merge(self, work: Work, to: TableStatements, merge: Merge) -> None:
        """Each step is about as many rows as it should be: what the table leaves out would count as delivered."""
        left = work.run(merge.mark)
        if merge.doomed is not None and merge.delete is not None:
            [(deletions, rows)] = work.rows(merge.doomed)
            if rows:
                # More may have come meanwhile.
                _check_all(to, "deleted", min(work.run(merge.delete), rows), rows)
            left -= deletions
        if left:
            put = work.run(merge.put)
            if merge.keep is not None:
                put += _put_kept(work, to, merge.keep)
            if put != left:
                [(put,)] = work.rows(merge.there)
            _check_all(to, "took", put, left)

    def _stage(self, work: Work, to: TableStatements) -> None:
        """A temporary table goes with its session, and with the transaction that made it and did not count."""
        if to.table.upsert is None:
            return
        [(there, is_spent)] = work.rows(STAGED, (to.staging, to.oid, to.staging, OLD_XIDS, to.staging))
        if there and is_spent:
            work.run(f"DROP TABLE {to.staging}")
        if not there or is_spent:
            for statement in to.stage(to.table.upsert):
                work.run(statement)

    def _check_table(self, work: Work, to: TableStatements) -> None:
        """That it is the table of the start. We hold a lock on it by now: nobody makes it another one before we end."""
        [(oid,)] = work.rows("SELECT to_regclass(%s)::oid::text", (to.name,))
        if oid != to.oid:
            raise SinkPipelineError(
                Reason.TOPICS_CHANGED, f"table {to.table.label} was dropped or re-created", "the sink starts again"
            )


def _put_kept(work: Work, to: TableStatements, keep: Keep) -> int:
    """Changes without a value that did not change: it is in the table, or nowhere.

    Raises:
        RecordRefused: there is no such row.
    """
    work.run(keep.lock)
    for number, places in work.rows(keep.missing):
        names = ", ".join(to.columns[place - 1] for place in places)
        text = f"{names} did not change, and {to.table.label} has no such row: set REPLICA IDENTITY FULL at the source"
        raise RecordRefused(Verdict(ErrorClass.UNAVAILABLE_VALUE, text), index=number)
    return work.run(keep.put)


def _check_all(to: TableStatements, did: str, found: int, asked: int) -> None:
    if found != asked:
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f"table {to.table.label} {did} {found} of {asked} rows: a trigger or a rule of it leaves rows out",
            "leave them out with transform.where in place of the trigger or rule",
        )
