"""A table of a PostgreSQL database as a sink: `spec.sinks[].postgresql`."""

import enum
import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Bounds, Part, StringMap
from sinkpipeline.core.manifest.decode import MAX_COLUMNS, misnamed
from sinkpipeline.core.manifest.kafka import SERVERS_SCHEMA, SecretRef, Tls, checked_servers
from sinkpipeline.core.manifest.names import SQL_TYPE, Expression, SqlName
from sinkpipeline.core.manifest.problems import Fault, fault_error

DEFAULT_SCHEMA = "public"
DEFAULT_PROGRESS_SCHEMA = "sinkpipeline"
MAX_KEY_COLUMNS = 32
"""PostgreSQL's own bound of an index."""
_MAX_TYPE = 128


class WriteMode(str, enum.Enum):
    """What a row is to the table."""

    APPEND = "Append"
    UPSERT = "Upsert"


def _servers(text: str) -> str:
    return checked_servers(text, "pg-0:5432,pg-1:5432")


Servers = Annotated[str, AfterValidator(_servers), SERVERS_SCHEMA]


class PostgresqlAuth(Part):
    """As whom we connect; without `tls` the connection is not encrypted."""

    username: SqlName
    """The role."""
    password_secret_ref: SecretRef | None = None
    """The key of a Secret that holds the password. Left out where the server asks for none, or for a certificate."""
    tls: Tls | None = None
    """Encrypts the connection, and checks the server's certificate and name; `{}` trusts the certificate authorities of
    the image."""


def _column_types(columns: StringMap) -> StringMap:
    faults = misnamed(columns)
    right = 'use the name of a type, such as bigint, numeric(10,2) or "timestamp with time zone"'
    faults += [
        Fault(right, "is no type", (name,)) for name, text in columns.items() if not re.fullmatch(SQL_TYPE, text)
    ]
    if not columns:
        faults.append(Fault("name the columns that are written, each with its type", "is empty"))
    if faults:
        raise fault_error(faults)
    return columns


_INTEGERS = frozenset(
    {
        *("smallint", "integer", "int", "bigint", "int2", "int4", "int8"),
        *("smallserial", "serial", "bigserial", "serial2", "serial4", "serial8"),
    }
)


class Table(Part):
    """The table that rows are written to, and how it is created where it is missing."""

    schema_name: SqlName = Field(default=DEFAULT_SCHEMA, alias="schema")
    """The schema; it never changes."""
    name: SqlName
    """The table; it never changes: another table is another sink."""
    columns: Annotated[StringMap, Bounds(MAX_COLUMNS, _MAX_TYPE, SQL_TYPE), AfterValidator(_column_types)]
    """The columns that are written, with their types, such as `id: bigint`. A table that is there may have more of
    them; one that differs is reported, not altered."""
    primary_key: Annotated[tuple[SqlName, ...], Field(max_length=MAX_KEY_COLUMNS)] = ()
    """For writeMode Upsert: the columns whose values a row replaces. A table that is there needs a unique key of
    them."""

    @model_validator(mode="after")
    def _has_its_key(self) -> Self:
        faults = [
            Fault("name columns of the table", f'names "{name}", which is not among columns', ("primaryKey", index))
            if name not in self.columns
            else Fault("name each column once", f'repeats "{name}"', ("primaryKey", index))
            for index, name in enumerate(self.primary_key)
            if name not in self.columns or name in self.primary_key[:index]
        ]
        if faults:
            raise fault_error(faults)
        return self

    def takes(self, column: str) -> str:
        """What its type can be given: bytes (what Spark calls BINARY), integers, or anything that the server reads."""
        kind = self.columns[column].lower()
        return "bytes" if kind == "bytea" else "integers" if kind in _INTEGERS else "anything"

    @property
    def in_order(self) -> tuple[str, ...]:
        """Its columns: those of the key, then the others by name, as a mapping has no order."""
        return (*self.primary_key, *(name for name in self.columns if name not in self.primary_key))


class PostgresqlSink(Part):
    """A table of a PostgreSQL database. The progress is in the same database, and written in the same transaction."""

    servers: Servers
    """host:port of the server, several separated by commas: the one that takes writes is used."""
    database: SqlName
    """The database."""
    auth: PostgresqlAuth
    """As whom to connect."""
    table: Table
    """The table that rows are written to."""
    write_mode: WriteMode = WriteMode.APPEND
    """Append: each record becomes a new row. Upsert: it replaces the row with the same primaryKey."""
    delete_when: Expression | None = None
    """For Upsert: a Spark SQL condition. If it is true for a record, the row with the record's primaryKey is
    deleted."""
    order_by: Expression | None = None
    """For Upsert: a Spark SQL expression, BIGINT or TIMESTAMP. A change with a smaller value never replaces one with a
    larger value of the same primaryKey. Left out, the change that is committed last counts."""
    progress_schema: SqlName = DEFAULT_PROGRESS_SCHEMA
    """The schema that holds the progress; it never changes, and several sinks may share it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        faults = list(_faults(self))
        if faults:
            raise fault_error(faults)
        return self

    def is_same_table(self, other: "PostgresqlSink") -> bool:
        """As far as the manifest tells: one server can have several names."""
        return _place(self) == _place(other)


def _place(sink: PostgresqlSink) -> tuple[str, str, str, str]:
    return sink.servers.lower(), sink.database, sink.table.schema_name, sink.table.name


def _faults(sink: PostgresqlSink) -> Iterator[Fault]:
    if sink.write_mode is WriteMode.UPSERT:
        if not sink.table.primary_key:
            yield Fault("name the columns of the key", "is missing, and Upsert needs it", ("table", "primaryKey"))
    else:
        given = {
            ("table", "primaryKey"): sink.table.primary_key,
            ("deleteWhen",): sink.delete_when,
            ("orderBy",): sink.order_by,
        }
        for at, value in given.items():
            if value:
                yield Fault("remove it, or set writeMode: Upsert", "has no meaning for writeMode Append", at)
    if sink.progress_schema == sink.table.schema_name:
        yield Fault("keep the progress in a schema of its own", "is the table's schema too", ("progressSchema",))
