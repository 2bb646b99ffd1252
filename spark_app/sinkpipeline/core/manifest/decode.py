"""How records are decoded and transformed: `spec.decode`, `spec.transform` and `transform` of a sink.

Decides only the shape. Whether a schema or an expression means something is Spark's to say, before the first batch.
"""

import enum
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Bounds, Part, StringMap
from sinkpipeline.core.manifest.lookup import ConfigMapRef, Lookups
from sinkpipeline.core.manifest.names import (
    AVRO_OF_A_RECORD,
    COLUMN_NAME,
    NOT_BLANK,
    ColumnName,
    Delimiter,
    Expression,
    RecordName,
    SchemaText,
    TableOfChanges,
    avro_fault,
)
from sinkpipeline.core.manifest.problems import Fault, fault_error, refuse
from sinkpipeline.core.manifest.registry import SchemaRegistry

MAX_TABLES = 100
MAX_ROWS_PER_RECORD = 100_000
"""Fewer than one transaction of Kafka takes; a commit of any kind has a whole record at least."""


class DecodeFormat(str, enum.Enum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    CSV = "csv"
    TEXT = "text"
    RAW = "raw"
    DEBEZIUM = "debezium"
    CHANGE = "change"


class OnNull(str, enum.Enum):
    """What a tombstone is: a record that can't be decoded, a value like any other, or nothing."""

    DEAD_LETTER = "DeadLetter"
    PASS_THROUGH = "PassThrough"  # noqa: S105 - no password
    SKIP = "Skip"


def _on_null_of(data: dict[str, Any]) -> OnNull:
    if data.get("format") in (DecodeFormat.DEBEZIUM, DecodeFormat.CHANGE):
        # It follows the envelope of a deletion, and says the same again, to who compacts the topic.
        return OnNull.SKIP
    # A raw record is delivered as it is, and null is what it is.
    return OnNull.PASS_THROUGH if data.get("format") is DecodeFormat.RAW else OnNull.DEAD_LETTER


class Csv(Part):
    """How a line is cut into fields."""

    delimiter: Delimiter = ","
    """What stands between two fields: one character."""


class WithoutRow(str, enum.Enum):
    """What a change is that is not of a row."""

    DEAD_LETTER = "DeadLetter"
    PASS_THROUGH = "PassThrough"  # noqa: S105 - no password


class Debezium(Part):
    """What a change of Debezium's is."""

    without_row: WithoutRow = WithoutRow.DEAD_LETTER
    """What becomes of a truncation (op t) and of a message (op m). DeadLetter: it is a record that can't be delivered.
    PassThrough: it is delivered with before and after null, so that where and select decide by op."""


def distinct_tables(tables: tuple[str, ...]) -> tuple[str, ...]:
    """Refuses a table that is named twice."""
    for index, table in enumerate(tables):
        if table in tables[:index]:
            refuse("name each table once", f'repeats "{table}"', (index,))
    return tables


class Change(Part):
    """Which changes of a change topic are read, and what one is that has no row."""

    tables: (
        Annotated[
            tuple[TableOfChanges, ...], Field(min_length=1, max_length=MAX_TABLES), AfterValidator(distinct_tables)
        ]
        | None
    ) = None
    """Tables as schema.table, such as public.orders: changes of others are not delivered. Left out, all tables of the
    topic."""
    without_row: WithoutRow = WithoutRow.DEAD_LETTER
    """What becomes of a truncation (op t). DeadLetter: it is a record that can't be delivered. PassThrough: it is
    delivered with before and after null, so that where and select decide by op."""


class Decode(Part):
    """How the value of a record is decoded."""

    format: DecodeFormat
    """json: one JSON object that fits `schema`; avro: one Avro record; protobuf: one message; csv: one line whose
    fields fit `schema`; text: UTF-8; raw: key and value are delivered as bytes; debezium: a change of a row, in
    Debezium's envelope: with `schema` JSON, with schemaRegistry Avro; change: a change of a row, as a stage of this
    project reads it from a database."""
    schema_text: SchemaText | None = Field(default=None, alias="schema")
    """For json and csv a Spark DDL schema such as `id BIGINT NOT NULL, amount DOUBLE`; json with schemaRegistry may be
    without. For debezium and change likewise, of the row that changes. For avro the Avro schema of all records, as
    JSON, and for protobuf the text of a .proto file. At most 65536 bytes. avro, protobuf and debezium are without it
    where there is schemaRegistry."""
    schema_config_map_ref: ConfigMapRef | None = None
    """A key of a ConfigMap that holds what `schema` would; read when the driver starts."""
    message: RecordName | None = None
    """For protobuf: the full name of the message, such as shop.Order; left out, the first one of the schema."""
    csv: Csv | None = None
    """For csv: how a line is cut into fields; left out, at commas."""
    debezium: Debezium | None = None
    """For debezium: what becomes of changes that have no row."""
    change: Change | None = None
    """For change: of which tables, and what becomes of changes that have no row."""
    schema_registry: SchemaRegistry | None = None
    """Each value begins with the id of its writer's schema, and this registry has the schemas."""
    on_null: OnNull = Field(default_factory=_on_null_of)
    """What becomes of a null value (a tombstone). DeadLetter: it is a record that can't be decoded (the default for
    json, avro, protobuf, csv and text). PassThrough: it is delivered as null (the default for raw). Skip: it is not
    delivered (the default for debezium and change, where a record before it has said the deletion)."""

    @property
    def gives_schema(self) -> bool:
        """Here, or in a ConfigMap."""
        return self.schema_text is not None or self.schema_config_map_ref is not None

    @property
    def asks_registry(self) -> bool:
        """Whether schemas are asked for; else frames are all that is looked at."""
        of_registry = self.format in _OF_WRITERS or not self.gives_schema
        return self.schema_registry is not None and of_registry

    @model_validator(mode="after")
    def _schema_fits_format(self) -> Self:
        faults = [each for each in _faults(self) if each is not None]
        if faults:
            raise fault_error(faults)
        return self


def _faults(decode: Decode) -> Iterator[Fault | None]:
    # What is in a ConfigMap is in place of a schema, and keeps its rules.
    at = ("schema",) if decode.schema_config_map_ref is None else ("schemaConfigMapRef",)
    if decode.schema_text is not None and decode.schema_config_map_ref is not None:
        yield Fault("remove it, or schema", "stands beside schema", at)
    yield _schema_fault(decode, at)
    yield _registry_fault(decode)
    yield _csv_fault(decode)
    yield _message_fault(decode)
    if decode.debezium is not None and decode.format is not DecodeFormat.DEBEZIUM:
        yield Fault("remove it, or use format debezium", _no_meaning(decode.format), ("debezium",))
    if decode.change is not None and decode.format is not DecodeFormat.CHANGE:
        yield Fault("remove it, or use format change", _no_meaning(decode.format), ("change",))


_DDL = 'give a Spark DDL schema such as "id BIGINT NOT NULL, amount DOUBLE"'
_ROW = "give the columns of the row as DDL for JSON, such as id BIGINT NOT NULL; or schemaRegistry for Avro"
_OF_DDL = (DecodeFormat.JSON, DecodeFormat.CSV, DecodeFormat.CHANGE)
_FRAMED = (DecodeFormat.JSON, DecodeFormat.AVRO, DecodeFormat.PROTOBUF, DecodeFormat.DEBEZIUM)
_OF_WRITERS = (DecodeFormat.AVRO, DecodeFormat.PROTOBUF)
"""A record of them can be read only by its writer's schema, or by one that is for all."""


def _schema_fault(decode: Decode, at: tuple[str, ...]) -> Fault | None:
    form = decode.format
    if form in _OF_DDL:
        if decode.gives_schema or (form is DecodeFormat.JSON and decode.schema_registry is not None):
            return None
        return Fault(_DDL, f"is missing, and format {form.value} needs it", at)
    if form is DecodeFormat.DEBEZIUM:
        return _row_fault(decode, at)
    if form in _OF_WRITERS:
        return _schema_of_writers(decode, at)
    right = "remove it, or use json, avro, protobuf, csv, debezium or change"
    return Fault(right, _no_meaning(form), at) if decode.gives_schema else None


def _row_fault(decode: Decode, at: tuple[str, ...]) -> Fault | None:
    if decode.gives_schema and decode.schema_registry is not None:
        right = "remove it: the columns are those of the reader's schema"
        return Fault(right, "stands beside schemaRegistry", at)
    if not decode.gives_schema and decode.schema_registry is None:
        return Fault(_ROW, "is missing, and debezium needs it", at)
    return None


def _schema_of_writers(decode: Decode, at: tuple[str, ...]) -> Fault | None:
    schema, avro = decode.schema_text, decode.format is DecodeFormat.AVRO
    if decode.gives_schema and decode.schema_registry is not None:
        right = "make it schemaRegistry.reader.schema" if avro else "remove it, or schemaRegistry, which has the schema"
        return Fault(right, "stands beside schemaRegistry", at)
    if not decode.gives_schema and decode.schema_registry is None:
        what = "an Avro schema as JSON" if avro else "the text of a .proto file"
        return Fault(f"give {what}, or schemaRegistry", f"is missing, and {decode.format.value} needs it", at)
    wrong = avro_fault(schema) if avro and schema is not None else None
    return None if wrong is None else Fault(AVRO_OF_A_RECORD, wrong, at)


def _registry_fault(decode: Decode) -> Fault | None:
    registry, form = decode.schema_registry, decode.format
    if registry is None:
        return None
    if form not in _FRAMED:
        return Fault("remove it, or use json, avro, protobuf or debezium", _no_meaning(form), ("schemaRegistry",))
    if form is DecodeFormat.JSON:
        return _json_fault(registry, gives_schema=decode.gives_schema)
    if form is DecodeFormat.PROTOBUF and registry.reader is not None and registry.reader.schema_text is not None:
        at = ("schemaRegistry", "reader", "schema")
        return Fault("give a version of the subject", "is an Avro schema, and the format is protobuf", at)
    return None


def _json_fault(registry: SchemaRegistry, *, gives_schema: bool) -> Fault | None:
    if not gives_schema:
        if registry.reader is None or registry.reader.schema_text is None:
            return None
        at: tuple[str, ...] = ("schemaRegistry", "reader", "schema")
        return Fault("give decode.schema, a Spark DDL schema", "is an Avro schema, and the format is json", at)
    if registry.only_frames:
        return None
    given = {"subject": registry.subject, "subjectNameStrategy": registry.subject_name_strategy}
    at = ("schemaRegistry", next((name for name, each in given.items() if each is not None), "reader"))
    return Fault("remove it, or decode.schema, which has the columns", "stands beside decode.schema", at)


def _csv_fault(decode: Decode) -> Fault | None:
    if decode.csv is None or decode.format is DecodeFormat.CSV:
        return None
    return Fault("remove it, or use format csv", _no_meaning(decode.format), ("csv",))


def _message_fault(decode: Decode) -> Fault | None:
    if decode.message is None or decode.format is DecodeFormat.PROTOBUF:
        return None
    return Fault("remove it, or use format protobuf", _no_meaning(decode.format), ("message",))


def _no_meaning(form: DecodeFormat) -> str:
    return f"has no meaning for format {form.value}"


class Select(Part):
    """Spark SQL expressions for the parts of the delivered record; None leaves that part as it is."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})
    parts: ClassVar[str] = "key, value, headers, timestamp or partition"

    key: Expression | None = None
    """The key, STRING or BINARY; left out, the source record's."""
    value: Expression | None = None
    """The value, STRING or BINARY; left out, the source record's."""
    headers: Expression | None = None
    """The headers, MAP<STRING, STRING or BINARY> or ARRAY<STRUCT<key, value>>; left out, the source record's."""
    timestamp: Expression | None = None
    """The timestamp, TIMESTAMP or BIGINT milliseconds; left out or null, the source record's."""
    partition: Expression | None = None
    """The partition, INT; left out or null, the partitioner decides."""

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if self == type(self).model_construct():
            refuse(f"give {self.parts}, or leave select out", "is empty")
        return self


MAX_COLUMNS = 256
_MAX_COLUMN = 4096


def misnamed(columns: StringMap) -> list[Fault]:
    """Columns of a table whose names no table has."""
    return [
        Fault("use names of 1 to 63 characters of ASCII", "has a name that a column can't have", (name,))
        for name in columns
        if not re.fullmatch(COLUMN_NAME, name)
    ]


def _column_expressions(columns: StringMap) -> StringMap:
    faults = misnamed(columns)
    faults += [
        Fault("write a Spark SQL expression, or leave the column out", "is empty", (name,))
        for name, text in columns.items()
        if not re.fullmatch(NOT_BLANK, text)
    ]
    if faults:
        raise fault_error(faults)
    return columns


class SinkSelect(Select):
    """Spark SQL expressions for what one sink delivers of a record."""

    parts: ClassVar[str] = "key, value, headers, timestamp, partition, topic, subject or columns"

    topic: Expression | None = None
    """For a kafka sink with topics: the name of one of them, STRING. A record for which it is null, or another name, is
    a dead letter of class TopicNotDeclared."""

    subject: Expression | None = None
    """For a nats sink alone: the subject, STRING; left out or null, nats.subject."""
    columns: (
        Annotated[StringMap, Bounds(MAX_COLUMNS, _MAX_COLUMN, NOT_BLANK), AfterValidator(_column_expressions)] | None
    ) = None
    """For a postgresql sink alone, in place of the others: an expression for each column of its table. A column that is
    left out is the record's column of that name."""


class Explode(Part):
    """Several rows of one record: one for each element of an array, as Spark's explode gives them."""

    array: Expression
    """A Spark SQL expression of ARRAY<...>. A record whose array is empty or null is not delivered. At most 16384
    bytes."""
    as_: ColumnName = Field("col", alias="as")
    """The column that holds the element, for where and select."""
    position_as: ColumnName | None = None
    """The column that holds the element's place in the array, INT, from 0; left out, there is none."""
    max_rows_per_record: Annotated[int, Field(ge=1, le=MAX_ROWS_PER_RECORD)] = 1_000
    """The most rows of a record. A record that would give more is a dead letter of class TooManyRows."""


class Transform(Part):
    """What happens to one record, for all sinks that have no transform of their own: row by row."""

    explode: Explode | None = None
    """Makes several rows of one record; where and select apply to each row. All rows of a record are delivered, or
    none."""
    lookups: Lookups | None = None
    """Small tables that each row is looked up in, one after the other, before where and select."""
    where: Expression | None = None
    """A Spark SQL condition; records for which it is not true are not delivered. At most 16384 bytes."""
    select: Select | None = None
    """Spark SQL expressions for the parts of the delivered record; what is left out stays as it was read."""


class SinkTransform(Part):
    """What happens to one record for one sink: what it gives stands in place of the pipeline's."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    explode: Explode | None = None
    """Several rows of one record, in place of all of spec.transform.explode."""
    lookups: Lookups | None = None
    """Small tables, in place of all of spec.transform.lookups; [] for none."""
    where: Expression | None = None
    """A Spark SQL condition in place of spec.transform.where ("true" for all records). At most 16384 bytes."""
    select: SinkSelect | None = None
    """Spark SQL expressions in place of all of spec.transform.select; what is left out stays as it was read."""

    @model_validator(mode="after")
    def _transforms_something(self) -> Self:
        if self == SinkTransform.model_construct():
            refuse("give explode, lookups, where or select, or leave transform out", "is empty")
        return self
