"""Which tables a stream is about, and how their rows are read: as the log tells it, statement by statement."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from sinkpipeline.core.changes import binlog_rows
from sinkpipeline.core.changes.binlog_decimal import Read
from sinkpipeline.core.changes.binlog_events import Partial, Rows, TableMap
from sinkpipeline.core.changes.binlog_kinds import BinlogKind
from sinkpipeline.core.changes.binlog_suitable import UNCASCADE, cascading, quoted
from sinkpipeline.core.changes.binlog_values import BINARY, SPECIAL, Decode, LoggedColumn, NotServed, reader
from sinkpipeline.core.changes.pgoutput import UNCHANGED, Column, Delete, Insert, Relation, Update
from sinkpipeline.core.changes.values import Writer

_STRING = 254
_WIDTHS = (4, 16)
_HASH = re.compile(r"DB_ROW_HASH_\d+")


class Server(Protocol):
    """Says how a table is now."""

    @property
    def logs_cascades(self) -> bool:
        """Whether it logs what a foreign key changes by itself."""

    def types(self, schema: str, table: str) -> Mapping[str, str]:
        """Of each column; none where the user may not see it."""

    def cascade(self, table: str) -> str | None:
        """What a foreign key of it does to its rows by itself."""


class Tables:
    """Those that are read; of one stream."""

    def __init__(
        self,
        names: Sequence[str],
        decodes: Mapping[int, Decode | None],
        server: Server,
        kind: BinlogKind,
        *,
        folds: bool = False,
    ) -> None:
        """Makes them.

        Args:
            names: `database.table` of each.
            decodes: by the number of a collation, how its texts are read; None: they are bytes.
            server: is asked what the log does not say.
            kind: of the server.
            folds: whether it takes names of tables for the same that differ in capitals.
        """
        self._wanted = {name: number for number, name in enumerate(names)}
        self._decodes = decodes
        self._server = server
        self._kind = kind
        self._folds = folds
        self._bodies: dict[str, bytes] = {}
        """As each was last told."""
        self._open: dict[int, str] = {}
        """Those of the statement, by the numbers that it gives them."""
        self._readers: dict[str, list[Read]] = {}
        self._shown: dict[str, list[int] | None] = {}
        """Which columns of each are told; None: all."""
        self._keys: dict[int, tuple[str, ...]] = {}
        # A name in backticks has each of its own twice.
        tables = {name: name.split(".", 1)[1] for name in names}
        self._mentions = {
            name: re.compile(
                rf"(?<![\w$])(?:{re.escape(table)}|{re.escape(table.replace('`', '``'))})(?![\w$])", re.IGNORECASE
            )
            for name, table in tables.items()
        }

    def key_of(self, relation: Relation) -> tuple[str, ...]:
        """The columns of a table's primary key."""
        return self._keys.get(relation.oid, ())

    def meet(self, told: TableMap, writer: Writer) -> None:
        """A table, as it is for the rows that follow.

        Raises:
            NotServed, NotUnderstood
        """
        schema, table = binlog_rows.name_of(told.body)
        name = f"{schema}.{table}"
        if name not in self._wanted or "." in schema:
            self._open.pop(told.number, None)
            return
        self._open[told.number] = name
        if self._bodies.get(name) != told.body:
            self._learn(name, told.body, writer)
            self._bodies[name] = told.body

    def _learn(self, name: str, body: bytes, writer: Writer) -> None:
        table = binlog_rows.parse_table(body, self._kind.characters)
        types: Mapping[str, str] = {}
        hidden = {each.name for each in table.columns if self._kind.hides_types and _may_be_special(each)}
        if hidden:
            types = self._server.types(table.schema, table.name)
            if not types:
                raise NotServed(
                    f"table {name} has columns of bytes, which may be of type uuid, and the user may not see the table",
                    f"run GRANT SELECT ON {quoted(name)} for the user; or, if the table is gone, leave it out",
                )
        readers, columns = [], []
        for each in table.columns:
            kind = types.get(each.name, "") if each.name in hidden else ""
            read, spelling = reader(each, self._decode, kind if kind in SPECIAL else "")
            readers.append(read)
            columns.append(Column(each.name, True, spelling))
        number = self._wanted[name]
        self._keys[number] = tuple(table.columns[at].name for at in table.key)
        self._readers[name] = readers
        # Of a key that is a hash of texts, MariaDB logs that.
        shown = [at for at, each in enumerate(table.columns) if not _HASH.fullmatch(each.name)]
        self._shown[name] = None if len(shown) == len(columns) else shown
        columns = [columns[at] for at in shown]
        # Whatever of the old row is logged is told.
        writer.relation(Relation(number, table.schema, table.name, "f", tuple(columns)))

    def _decode(self, collation: int) -> Decode | None:
        if collation not in self._decodes:
            raise NotServed(
                f"a column has collation {collation}, which the server does not know any more",
                "convert the column to utf8mb4, or leave out its table",
            )
        return self._decodes[collation]

    def of(self, event: Rows | Partial) -> str | None:
        """The table of rows; None where it is none of ours."""
        return self._open.get(event.number)

    def rows(self, event: Rows, name: str) -> Iterator[Insert | Update | Delete]:
        """What happened to each row.

        Raises:
            NotServed, NotUnderstood
        """
        number = self._wanted[name]
        shown = self._shown[name]
        for whole, whole_after in binlog_rows.rows(event, self._readers[name]):
            row, after = whole, whole_after
            if shown is not None:
                row, after = [whole[at] for at in shown], whole_after and [whole_after[at] for at in shown]
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
        name = self.wanted(schema, table)
        if name is None:
            return None
        number = self._wanted[name]
        if name not in self._bodies:
            writer.relation(Relation(number, name.split(".", 1)[0], name.split(".", 1)[1], "f", ()))
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

    def mentioned(self, statement: str, but: Collection[tuple[str, str]] = ()) -> str | None:
        """A table of ours that a statement may be about; `but`: those that hide the tables of their names."""
        hidden = {self.wanted(*each) for each in but}
        return next((name for name in self.all_mentioned(statement) if name not in hidden), None)

    def all_mentioned(self, statement: str) -> list[str]:
        """The tables of ours that a statement may be about."""
        return [name for name, mention in self._mentions.items() if mention.search(statement)]

    def wanted(self, schema: str, table: str) -> str | None:
        """The name of a table, if it is one of ours."""
        name = f"{schema}.{table}"
        if "." in schema:
            # Where a database has a dot in its name, another one may have a table whose name looks like both.
            return None
        if name not in self._wanted and self._folds:
            return next((each for each in self._wanted if each.lower() == name.lower()), None)
        return name if name in self._wanted else None

    def all_wanted(self, names: Collection[tuple[str, str]]) -> list[str]:
        """Those of ours among some names; a name without a table stands for all of its database."""
        found = {self.wanted(*each) for each in names}
        fold = str.lower if self._folds else str
        databases = {fold(schema) for schema, table in names if not table}
        return [each for each in self._wanted if each in found or fold(each.split(".", 1)[0]) in databases]

    def forget(self) -> None:
        """How the tables are is learned anew where they come next."""
        self._bodies.clear()

    @property
    def logs_cascades(self) -> bool:
        return self._server.logs_cascades

    def decode_of(self, collation: int | None) -> Decode | None:
        """How a text of this collation is read; None where nothing is known of it."""
        return None if collation is None else self._decodes.get(collation)


def _may_be_special(column: LoggedColumn) -> bool:
    return column.type == _STRING and column.collation == BINARY and column.meta in _WIDTHS
