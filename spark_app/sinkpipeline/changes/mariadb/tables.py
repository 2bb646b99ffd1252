"""Which tables a stream is about, and how their rows are read: as the log tells it, statement by statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from sinkpipeline.core.changes import binlog_rows
from sinkpipeline.core.changes.binlog import Rows, TableMap
from sinkpipeline.core.changes.binlog_beginning import UNCASCADE, cascading, quoted
from sinkpipeline.core.changes.binlog_values import BINARY, SPECIAL, LoggedColumn, NotServed, Read, reader
from sinkpipeline.core.changes.pgoutput import UNCHANGED, Column, Delete, Insert, Relation, Update
from sinkpipeline.core.changes.values import Writer

_STRING = 254
_WIDTHS = (4, 16)


class Server(Protocol):
    """Says how a table is now."""

    def types(self, schema: str, table: str) -> Mapping[str, str]:
        """Of each column; none where the user may not see it."""

    def cascade(self, table: str) -> str | None:
        """What a foreign key of it does to its rows by itself."""


class Tables:
    """Those that are read; of one stream."""

    def __init__(
        self,
        names: Sequence[str],
        codecs: Mapping[int, str | None],
        server: Server,
    ) -> None:
        """Makes them.

        Args:
            names: `database.table` of each.
            codecs: by the number of a collation, Python's name of its character set.
            server: is asked what the log does not say.
        """
        self._wanted = {name: number for number, name in enumerate(names)}
        self._codecs = codecs
        self._server = server
        self._bodies: dict[str, bytes] = {}
        """As each was last told."""
        self._open: dict[int, str] = {}
        """Those of the statement, by the numbers that it gives them."""
        self._readers: dict[str, list[Read]] = {}
        self._keys: dict[int, tuple[str, ...]] = {}
        self._mentions = {
            name: re.compile(rf"(?<![\w$]){re.escape(name.split('.', 1)[1])}(?![\w$])", re.IGNORECASE) for name in names
        }

    def key_of(self, relation: Relation) -> tuple[str, ...]:
        """The columns of a table's primary key."""
        return self._keys.get(relation.oid, ())

    def meet(self, told: TableMap, writer: Writer) -> None:
        """A table, as it is for the rows that follow.

        Raises:
            NotServed, NotUnderstood
        """
        name = ".".join(binlog_rows.name_of(told.body))
        if name not in self._wanted:
            self._open.pop(told.number, None)
            return
        self._open[told.number] = name
        if self._bodies.get(name) != told.body:
            self._learn(name, told.body, writer)
            self._bodies[name] = told.body

    def _learn(self, name: str, body: bytes, writer: Writer) -> None:
        table = binlog_rows.parse_table(body)
        types: Mapping[str, str] = {}
        if any(_may_be_special(each) for each in table.columns):
            types = self._server.types(table.schema, table.name)
            if not types:
                raise NotServed(
                    f"table {name} has columns of bytes, which may be of type uuid, and the user may not see the table",
                    f"run GRANT SELECT ON {quoted(name)} for the user; or, if the table is gone, leave it out",
                )
        readers, columns = [], []
        for each in table.columns:
            kind = types.get(each.name, "") if _may_be_special(each) else ""
            read, spelling = reader(each, self._codec, kind if kind in SPECIAL else "")
            readers.append(read)
            columns.append(Column(each.name, True, spelling))
        number = self._wanted[name]
        self._keys[number] = tuple(table.columns[at].name for at in table.key)
        self._readers[name] = readers
        # Whatever of the old row is logged is told.
        writer.relation(Relation(number, table.schema, table.name, "f", tuple(columns)))

    def _codec(self, collation: int) -> str:
        found = self._codecs.get(collation)
        if found is None:
            raise NotServed(
                f"a column has collation {collation}, whose character set can't be read",
                "convert the column to utf8mb4, or leave out its table",
            )
        return found

    def of(self, event: Rows) -> str | None:
        """The table of rows; None where it is none of ours."""
        return self._open.get(event.number)

    def rows(self, event: Rows, name: str) -> Iterator[Insert | Update | Delete]:
        """What happened to each row.

        Raises:
            NotServed, NotUnderstood
        """
        number = self._wanted[name]
        for row, after in binlog_rows.rows(event, self._readers[name]):
            match event.op:
                case "c":
                    if UNCHANGED in row:
                        raise NotServed(
                            f"a row of table {name} was logged without all of its columns",
                            "run SET GLOBAL binlog_row_image = 'FULL', and end the session that has set it otherwise",
                        )
                    yield Insert(number, row)
                case "u" if after is not None:
                    yield Update(number, row, UNCHANGED not in row, after)
                case _:
                    yield Delete(number, row, UNCHANGED not in row)

    def emptied(self, schema: str, table: str, writer: Writer) -> int | None:
        """The number of a table that was emptied, by which `writer` knows it; None where it is none of ours."""
        name = f"{schema}.{table}"
        number = self._wanted.get(name)
        if number is not None and name not in self._bodies:
            writer.relation(Relation(number, schema, table, "f", ()))
        return number

    def check_cascades(self) -> None:
        """A foreign key was made that changes rows by itself.

        Raises:
            NotServed: it is of a table of ours.
        """
        for name in self._wanted:
            action = self._server.cascade(name)
            if action is not None:
                raise NotServed(cascading(name, action), UNCASCADE)

    def mentioned(self, statement: str) -> str | None:
        """A table of ours that a statement may be about."""
        return next((name for name, found in self._mentions.items() if found.search(statement)), None)


def _may_be_special(column: LoggedColumn) -> bool:
    return column.type == _STRING and column.collation == BINARY and column.meta in _WIDTHS
