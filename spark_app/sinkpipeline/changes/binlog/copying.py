"""The tables as they were at one moment, and where the log was then.

How a server tells the place that belongs to a snapshot is for its dialect. Nothing of this outlives the connection.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sinkpipeline.changes.binlog import look
from sinkpipeline.changes.binlog.reader import Reader
from sinkpipeline.changes.binlog.wire import SqlFault, Wire, refused
from sinkpipeline.changes.ports import Look, Parts, Started
from sinkpipeline.core.changes.binlog_beginning import check_there
from sinkpipeline.core.changes.binlog_kinds import BinlogKind
from sinkpipeline.core.changes.binlog_suitable import quoted, quoted_name
from sinkpipeline.core.changes.binlog_values import encoded, shortest
from sinkpipeline.core.changes.pgoutput import Column, Relation, Values
from sinkpipeline.core.changes.positions import BinlogPosition, Position
from sinkpipeline.core.changes.spelling import Spelling
from sinkpipeline.core.changes.values import Change, Writer
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.sinks.failpoints import failpoint

_AT_ONCE = 500
_LOCK_S = 20
"""Less than a connection waits for an answer: so it is told what was waited for."""
_CHANGED = 1412
_LOCKED = 1205
_COLUMNS = (
    "SELECT column_name, data_type, column_type, coalesce(collation_name, '') FROM information_schema.columns"
    " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_ESTIMATE = "SELECT coalesce(table_rows, 0) FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


@dataclass(frozen=True, kw_only=True)
class CopiedTable:
    """One that a snapshot reads."""

    relation: Relation
    key: tuple[str, ...]
    order: str
    """By what its key is ordered: columns, their types and their collations."""
    types: Mapping[str, str]
    """Of its columns."""
    columns: str
    """As SQL asks for them."""
    convert: tuple[Callable[[Any], str], ...]
    """From what the server answers to what a change has."""
    estimate: int

    @property
    def name(self) -> str:
        return f"{self.relation.schema}.{self.relation.name}"

    def writer(self, at: Position, read_at: int, *, large_as_text: bool) -> Writer:
        """Of its rows, the first one at `at`; `read_at`: Unix milliseconds of the server."""
        made = Writer(lambda _: self.key, large_as_text=large_as_text, place_text=lambda commit: at.moved(commit).place)
        made.enter(at.commit, read_at, "null", at.index)
        made.relation(self.relation)
        return made

    def values(self, row: Sequence[Any]) -> Values:
        """Of a row as the server answers it, what a change has."""
        return [None if value is None else convert(value) for value, convert in zip(row, self.convert, strict=True)]


def prepare(wire: Wire) -> None:
    """A connection that takes a snapshot. SqlFault, SinkPipelineError: SourceUnreachable."""
    wire.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    wire.rows(f"SET SESSION lock_wait_timeout = {_LOCK_S}")


def copied_table(wire: Wire, number: int, name: str) -> CopiedTable:
    """A table as it is now; `number`: by which changes know it. SqlFault, SinkPipelineError: SourceUnreachable."""
    schema, table = name.split(".", 1)
    columns = wire.rows(_COLUMNS, (schema, table))
    made = [_column(column, kind.lower(), full.lower()) for column, kind, full, _ in columns]
    names = ", ".join(sql for sql, _, _ in made)
    [(estimate,)] = wire.rows(_ESTIMATE, (schema, table))
    spelled = (Column(column[0], True, spelling) for column, (_, spelling, _) in zip(columns, made, strict=True))
    key, ordered = look.key_of(wire, name), {row[0]: f"{row[0]} {row[2]} {row[3]}" for row in columns}
    return CopiedTable(
        relation=Relation(number, schema, table, "f", tuple(spelled)),
        key=key,
        order=", ".join(ordered.get(each, each) for each in key),
        types={column: kind.lower() for column, kind, _, _ in columns},
        columns=names,
        convert=tuple(convert for _, _, convert in made),
        estimate=int(estimate),
    )


class Exported:
    """Of one thread; closed by whoever has it.

    Raises (all methods):
        SinkPipelineError: SourceUnreachable, and what their own docstrings name.
    """

    def __init__(self, reader: Reader) -> None:
        """Takes the snapshot.

        Raises:
            SinkPipelineError: also SourceUnsuitable, AuthenticationFailed, SecretNotFound.
        """
        self._settings = settings = reader.settings
        self._where = reader.where
        self._kind, self._user = reader.dialect.kind, reader.user
        self._tables: list[CopiedTable] = []
        self._wire = reader.connected()
        try:
            with self._told():
                prepare(self._wire)
                start = reader.dialect.snapshot(self._wire, settings.tables, reader.connected, begins=True)
                self._read_at = look.clock(self._wire, 0).clock
            self.start: Position = reader.with_executed(start)
        except BaseException:
            self._wire.close()
            raise

    def close(self) -> None:
        self._wire.close()

    def open(self) -> None:
        """Holds the tables as they are, so that nobody alters one before it is read.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        with self._told():
            # What was altered since the snapshot is refused by the server when it is read.
            look.touch(self._wire, self._settings.tables)
            self._tables = [copied_table(self._wire, number, name) for number, name in enumerate(self._settings.tables)]

    @property
    def names(self) -> list[str]:
        """Of the tables."""
        return list(self._settings.tables)

    @property
    def estimate(self) -> int:
        """How many rows the tables may have."""
        return sum(each.estimate for each in self._tables)

    def judge(self, look_: Look) -> None:
        """That the log still has what comes behind the snapshot.

        Raises:
            SinkPipelineError: also SourceDataLost.
        """
        if not isinstance(self.start, BinlogPosition):
            raise TypeError(f"{self.start} is no place in a binary log")
        check_there(self.start, look_.state, self._where)

    def read(self, number: int, at: Position, wait_s: float) -> Iterator[list[Change] | None]:
        """The rows of a table.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        _ = wait_s
        table = self._tables[number]
        writer = table.writer(at, self._read_at, large_as_text=self._settings.large_integers_as_text)
        changes: list[Change] = []
        with self._told():
            for row in self._wire.read(f"SELECT {table.columns} FROM {quoted(table.name)}"):  # noqa: S608 - quoted
                changes.append(writer.read(number, table.values(row)))
                if len(changes) >= _AT_ONCE:
                    yield changes
                    changes = []
        if changes:
            yield changes

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        with told(self._where, self._user, self._kind):
            yield


@contextlib.contextmanager
def told(where: str, user: str, kind: BinlogKind) -> Iterator[None]:
    """What refusals mean while a snapshot is made."""
    try:
        yield
    except SqlFault as fault:
        if fault.code in (_CHANGED, _LOCKED):
            raise SinkPipelineError(
                Reason.SOURCE_UNREACHABLE,
                f"{where}: {fault.text}: a table is altered while the snapshot is made",
                "nothing: the snapshot begins anew",
            ) from fault
        raise refused(fault, where, user, kind) from fault


def _column(name: str, kind: str, full: str) -> tuple[str, int, Callable[[Any], str]]:  # noqa: PLR0911 - a type each
    """How a column is asked for, how JSON has it, and how its value is made, so that it is as the log's is."""
    sql = quoted_name(name)
    match kind:
        case "tinyint" | "smallint" | "mediumint" | "int" | "year":
            return sql, Spelling.NUMBER, _whole
        case "bigint":
            return sql, Spelling.LARGE, _whole
        case "float":
            # As a text a server gives six digits of it.
            return f"CAST({sql} AS DOUBLE)", Spelling.NUMBER, _float
        case "double":
            # One with a number of digits behind the point is printed with these.
            return f"{sql} + 0e0", Spelling.NUMBER, _double
        case "vector":
            return f"CAST({sql} AS BINARY)", Spelling.TEXT, _text
        case "decimal":
            return sql, Spelling.TEXT, _decimal
        case "timestamp":
            return sql, Spelling.TEXT, _timestamp
        case "bit":
            found = re.search(r"\((\d+)\)", full)
            count = int(found[1]) if found else 1
            return sql, Spelling.TEXT, lambda value: f"{int.from_bytes(value, 'big'):0{count}b}"
        case _:
            return sql, Spelling.TEXT, _text


def _whole(value: Any) -> str:
    # A column with ZEROFILL has zeros before it.
    return str(int(value))


def _double(value: Any) -> str:
    return repr(float(value))


def _float(value: Any) -> str:
    return shortest(float(value))


def _decimal(value: Any) -> str:
    text = str(value)
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, point, rest = digits.partition(".")
    return f"{sign}{whole.lstrip('0') or '0'}{point}{rest}"


def _timestamp(value: Any) -> str:
    text = str(value)
    return text if text.startswith("0000-00-00") else f"{text}+00"


def _text(value: Any) -> str:
    return encoded(value) if isinstance(value, bytes) else str(value)


def copy(parts: Parts, started: Started) -> Exported:
    """Takes a snapshot.

    Raises:
        SinkPipelineError: as `Exported`.
    """
    _ = started
    made = Exported(parts.reader)
    failpoint("stage-after-creation")
    return made
