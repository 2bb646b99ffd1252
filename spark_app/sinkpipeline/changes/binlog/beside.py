"""One table as it was at one place of the log, beside whoever reads the log."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from sinkpipeline.changes.binlog import copying, look
from sinkpipeline.changes.binlog.copying import CopiedTable
from sinkpipeline.changes.binlog.dialect import Dialect
from sinkpipeline.changes.binlog.reader import name_of
from sinkpipeline.changes.binlog.wire import SqlFault, Wire
from sinkpipeline.changes.cancellation import Cancellation
from sinkpipeline.changes.ports import BATCH_BYTES, BATCH_ROWS, Batch, TableAway
from sinkpipeline.changes.settings import AnyDatabase, BinlogSettings
from sinkpipeline.core.changes.binlog_suitable import keyless, quoted, quoted_name
from sinkpipeline.core.changes.pgoutput import Values
from sinkpipeline.core.changes.positions import Position
from sinkpipeline.core.changes.values import Writer
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.progress import corrupt

CHUNK: Final = 20_000
"""Rows that one statement reads."""
_NUMBERED: Final = frozenset({"enum", "set", "bit"})
"""Their values are ordered by their numbers, and compared as texts."""
_NUMBERS: Final = _NUMBERED | {
    *("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "float", "double"),
}
_BYTES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_NUMBER: Final = re.compile(r"-?[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)
_HEX: Final = re.compile(r"([0-9a-f]{2})*")


class TableExport:
    """A `TableSnapshot`."""

    is_settled = True
    """The stream has statements by which a table becomes another one."""

    def __init__(self, dialect: Dialect, settings: BinlogSettings, name: str, cancellation: Cancellation) -> None:
        """Makes it.

        Raises:
            SinkPipelineError: SourceUnreachable, SourceUnsuitable, AuthenticationFailed, SecretNotFound.
        """
        self._settings = settings
        self._kind, self._where = dialect.kind, name_of(dialect.kind, settings)
        self._user = settings.connection.user
        self._cancellation = cancellation
        self.server = ""
        with contextlib.ExitStack() as undo:
            self._wire = self._connected()
            undo.callback(self._wire.close)
            with self._told():
                [(self._user,)] = self._wire.rows("SELECT current_user()")
                self.server = look.server(self._wire, dialect.kind)
            with self._told():
                self._take(dialect, name)
            undo.pop_all()

    def _take(self, dialect: Dialect, name: str) -> None:
        copying.prepare(self._wire)
        self.start: Position = dialect.snapshot(self._wire, (name,), self._connected, begins=False)
        self.read_at = look.clock(self._wire, 0).clock
        # From here on nobody alters it; what was altered since the snapshot is refused when it is read.
        look.touch(self._wire, (name,))
        self._table: CopiedTable = copying.copied_table(self._wire, 0, name)
        if not self._table.key:
            raise TableAway.of(keyless(name, self._where))
        if hidden := [each for each in self._table.key if each not in self._table.types]:
            raise TableAway(
                Reason.SOURCE_UNSUITABLE,
                f"the user of {self._where} may not read column {hidden[0]} of table {name}, which is of its key",
                f"run GRANT SELECT ON {quoted(name)} for the user",
            )
        self.key, self.relation = self._table.order, self._table.relation
        self._wire.wait_long()

    def close(self) -> None:
        self._wire.close()

    def read(self, after: Sequence[str]) -> Iterator[Batch | None]:
        """The rows behind a key, in its order."""
        table, last = self._table, tuple(after)
        width = len(table.convert)
        while True:
            rows: list[Values] = []
            count = size = 0
            with self._told():
                for row in self._wire.read(statement(table, last, self._wire.literal)):
                    rows.append(table.values(row[:width]))
                    count, last = count + 1, tuple(map(_text, row[width:]))
                    size += sum(len(each) for each in row if each is not None)
                    if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
                        yield Batch(rows, last)
                        rows, size = [], 0
            if rows:
                yield Batch(rows, last)
            if count < CHUNK:
                return

    def writer(self) -> Writer:
        return self._table.writer(self.start, self.read_at, large_as_text=self._settings.large_integers_as_text)

    def _connected(self) -> Wire:
        wire = Wire(self._settings.connection, self._where)
        self._cancellation.add(wire.cancel)
        if self.server and (found := look.server(wire, self._kind)) != self.server:
            wire.close()
            raise look.another_server(self._kind, self._where, self.server, found)
        return wire

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        with copying.told(self._where, self._user, self._kind):
            try:
                yield
            except SqlFault as fault:
                if not (fault.is_of_no_table or fault.is_of_no_right):
                    raise
                raise TableAway(
                    Reason.SOURCE_UNSUITABLE,
                    f"{self._where}: {fault.text}, and its rows are to be read",
                    "nothing if it was dropped: the next start leaves it out; else run GRANT SELECT on it for the user",
                ) from fault


def statement(table: CopiedTable, after: Sequence[str], literal: Callable[[str], str]) -> str:
    """What reads the rows behind a key, and the key of each beside them.

    Raises:
        SinkPipelineError: ProgressCorrupt.
    """
    types = [table.types[each] for each in table.key]
    # By its name alone, a column of these is compared as a text, and ordered as a number.
    order = [
        f"{quoted_name(each)}{'+0' if kind in _NUMBERED else ''}" for each, kind in zip(table.key, types, strict=True)
    ]
    told = [f"CAST({each} AS DOUBLE)" if kind == "float" else each for each, kind in zip(order, types, strict=True)]
    where = ""
    if after:
        if len(after) != len(order):
            raise corrupt(f"the progress of an incremental snapshot has a key of {len(after)} columns of {table.name}")
        values = [_literal(kind, text, literal, table.name) for kind, text in zip(types, after, strict=True)]
        where = f" WHERE {behind(order, values)}"
    by = ", ".join(map(quoted_name, table.key))  # so that an index serves it
    return (
        f"SELECT {table.columns}, {', '.join(told)} FROM {quoted(table.name)}{where}"  # noqa: S608 - names are quoted
        f" ORDER BY {by} LIMIT {CHUNK}"
    )


def behind(names: Sequence[str], values: Sequence[str]) -> str:
    """The condition that a key comes behind another one, as an index serves it: of (a, b) > (x, y) a server reads all.

    `a >= x AND (a > x OR (a = x AND (b > y)))`
    """
    name, value = names[0], values[0]
    if len(names) == 1:
        return f"{name} > {value}"
    return f"{name} >= {value} AND ({name} > {value} OR ({name} = {value} AND {behind(names[1:], values[1:])}))"


def _text(value: Any) -> str:
    """A part of a key, as progress has it."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _literal(kind: str, text: str, literal: Callable[[str], str], table: str) -> str:
    if kind in _NUMBERS:
        if not _NUMBER.fullmatch(text):
            raise corrupt(f"the progress of an incremental snapshot has {text!r} as a number of a key of {table}")
        return text
    if kind in _BYTES:
        if not _HEX.fullmatch(text):
            raise corrupt(f"the progress of an incremental snapshot has {text!r} as bytes of a key of {table}")
        return f"x'{text}'"
    return literal(text)


def _copy_table(dialect: Dialect, settings: AnyDatabase, name: str, cancellation: Cancellation) -> TableExport:
    if not isinstance(settings, BinlogSettings):
        raise TypeError(f"a table of {settings.name} is asked for what a server with a binary log has")
    return TableExport(dialect, settings, name, cancellation)


def copy_table_of(dialect: Dialect) -> Callable[[AnyDatabase, str, Cancellation], TableExport]:
    """What makes a snapshot of one table of a server of a kind."""
    return partial(_copy_table, dialect)
