"""What one pipeline does to one source record: decode, explode, filter, select. From the manifest, run by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from sinkpipeline.core.encoding import Encoding, encodings_of
from sinkpipeline.core.lookups import TableText
from sinkpipeline.core.quoting import quoted
from sinkpipeline.core.schemas import Known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sinkpipeline.core.manifest import Explode, Lookup, PostgresqlSink, Select, SinkPipeline

DecodeFormat = Literal["json", "avro", "protobuf", "csv", "text", "raw", "debezium", "change"]
OnNull = Literal["DeadLetter", "PassThrough", "Skip"]
LACKING: Mapping[str, str] = MappingProxyType({"debezium": "unavailable", "change": "unchanged"})
"""Formats of changes, and the column that names what the source's log was without."""


@dataclass(frozen=True)
class RowSelect:
    """Spark SQL expressions of `select`; what is None keeps the source record's own."""

    key: str | None = None
    value: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    partition: str | None = None
    subject: str | None = None
    """Of a message of NATS, which has it in the place of a key."""
    topic: str | None = None


@dataclass(frozen=True)
class RowColumn:
    """What goes into one column of a table."""

    expression: str
    """Spark SQL."""
    at: str
    """Its path in the manifest."""
    takes: str = "anything"
    """What its type can be given: only a `bytea` takes bytes, as any other would take their digits as a text; and no
    column of integers takes the text of a fraction, 1.0 neither."""
    may_stay: bool = False
    """Whether the table keeps what is in it where a change is without the value."""


@dataclass(frozen=True)
class TableRow:
    """The row of a table that is made of a record, in place of a `RowSelect`."""

    columns: tuple[RowColumn, ...]
    deletes: RowColumn | None = None
    """Whether it says that the row with its key goes; null: it doesn't."""
    order: RowColumn | None = None
    keeps: bool = False
    """Whether a row says which of its columns stay as they are."""

    def purpose(self, part: RowColumn) -> str:
        if part not in self.columns:
            return part.at.rpartition(".")[2]
        return "column" if part.takes == "anything" else f"column of {part.takes}"

    def parts(self) -> Iterator[RowColumn]:
        yield from self.columns
        for each in (self.deletes, self.order):
            if each is not None:
                yield each


@dataclass(frozen=True)
class RowExplode:
    """`explode`: a record gives a row for each element of an array."""

    array: str
    column: str
    """Has the element."""
    position: str | None = None
    """The column that has its place in the array, from 0."""
    most_rows: int = 1_000


@dataclass(frozen=True)
class RowLookup:
    """`lookups`: a column that holds the row of a table with the key that is looked for, or null."""

    name: str
    equals: str
    """Spark SQL of what is looked for."""
    table: TableText
    at: str
    """Its path in the manifest."""

    @property
    def place(self) -> str:
        """As errors of records name it."""
        return f"transform.{self.at.rpartition('transform.')[2]}.equals"


@dataclass(frozen=True)
class RowPlan:
    """`spec.decode` of a pipeline, the same for all of its sinks, and the transform of one of them.

    `schema` has the record's columns: for `json`, `csv`, `debezium` and `change` as DDL; for `avro`, and `debezium`
    with a registry, the reader's schema as JSON; for `protobuf` the text of a schema, or with a registry the reader's
    message as `protobuf.messages` has it; absent for `text` and `raw`, and with a registry until that was asked.
    ValueError otherwise.
    """

    decode_format: DecodeFormat
    schema: str | None = None
    on_null: OnNull = "DeadLetter"
    explode: RowExplode | None = None
    where: str | None = None
    select: RowSelect = field(default_factory=RowSelect)
    table: TableRow | None = None
    """Of a sink that writes a table."""
    keyless: bool = False
    """Whether a row has no key but the subject that `select` gives."""
    delimiter: str = ","
    """Between the fields of `csv`."""
    known: Known | None = None
    """The writers' schemas that are known, where values are framed."""
    where_at: str = "spec.transform"
    """In which transform of the manifest `where` stands, and in which one `select`, and `explode`."""
    select_at: str = "spec.transform"
    encodings: tuple[Encoding, ...] = ()
    """Of parts of `select`, each a STRUCT there."""
    explode_at: str = "spec.transform"
    message: str | None = None
    """Of `protobuf`: which one of the schema's; None: the first one."""
    largest: int | None = None
    """The most bytes of a value that is decoded where a worker has to hold many of them; a larger one is an error."""
    lookups: tuple[RowLookup, ...] = ()
    """After `explode`; each sees the columns of those before it."""
    topics: tuple[str, ...] = ()
    """Those that `select.topic` may name."""
    rowless: bool = False
    """Whether a change that has no row is delivered."""
    tables: tuple[str, ...] = ()
    """Of `change`: the tables whose changes are read; none: all."""

    def __post_init__(self) -> None:
        has_schema = self.decode_format not in ("text", "raw")
        from_registry = self.known is not None and self.known.asked
        if has_schema == (self.schema is None) and not (from_registry and self.schema is None):
            raise ValueError(
                f"decode format {self.decode_format} {'needs a' if self.schema is None else 'has no'} schema"
            )

    @property
    def lacking(self) -> str | None:
        """The column that names what a change lacks; None where records are no changes."""
        return LACKING.get(self.decode_format)

    def expressions(self) -> Iterator[tuple[str, str, str]]:
        """Every expression of `where` and `select` that is set, as (path in the manifest, SQL text, what it is for)."""
        if self.where is not None:
            yield f"{self.where_at}.where", self.where, "where"
        encoded = {each.part for each in self.encodings}
        for name in (each.name for each in fields(self.select)):
            text = getattr(self.select, name)
            if text is not None:
                yield f"{self.select_at}.select.{name}", text, "encoded" if name in encoded else name
        if self.table is not None:
            for part in self.table.parts():
                yield part.at, part.expression, self.table.purpose(part)


def row_select(select: Select | None) -> RowSelect:
    """From the manifest."""
    if select is None:
        return RowSelect()
    return RowSelect(
        key=select.key,
        value=select.value,
        headers=select.headers,
        timestamp=select.timestamp,
        partition=select.partition,
        topic=getattr(select, "topic", None),
    )


def row_explode(explode: Explode | None) -> RowExplode | None:
    """Likewise."""
    if explode is None:
        return None
    return RowExplode(
        array=explode.array,
        column=explode.as_,
        position=explode.position_as,
        most_rows=explode.max_rows_per_record,
    )


def row_lookups(lookups: Iterable[Lookup] | None, transform: str) -> tuple[RowLookup, ...]:
    """Likewise; `transform`: the path of what they stand in."""
    return tuple(
        RowLookup(each.name, each.equals, _table_text(each), f"{transform}.lookups[{index}]")
        for index, each in enumerate(lookups or ())
    )


def _table_text(lookup: Lookup) -> TableText:
    source, csv = lookup.from_, lookup.csv
    if source.config_map_ref is not None:
        origin = f"key {source.config_map_ref.key} of ConfigMap {source.config_map_ref.name}"
    else:
        origin = "from.inline" if source.file is None else f"file {source.file}"
    return TableText(
        format=lookup.format.value,
        schema=lookup.schema_text,
        key=lookup.key,
        origin=origin,
        # What is elsewhere stands here too once it was read: `kinds.given`.
        content=None if source.inline is None else source.inline.encode(),
        delimiter="," if csv is None else csv.delimiter,
        header=csv is not None and csv.header,
    )


def row_plan(pipeline: SinkPipeline) -> RowPlan:
    """What happens to one record, from the manifest; of a sink with a transform of its own, `rows_of` it."""
    decode, transform = pipeline.spec.decode, pipeline.spec.transform
    registry, of_changes = decode.schema_registry, (decode.debezium, decode.change)
    return RowPlan(
        decode_format=decode.format.value,
        schema=decode.schema_text,
        on_null=decode.on_null.value,
        delimiter="," if decode.csv is None else decode.csv.delimiter,
        known=None if registry is None else Known(id_bytes=registry.id_format.size, asked=decode.asks_registry),
        message=decode.message,
        explode=row_explode(transform.explode),
        lookups=row_lookups(transform.lookups, "spec.transform"),
        where=transform.where,
        select=row_select(transform.select),
        rowless=any(each is not None and each.without_row.value == "PassThrough" for each in of_changes),
        tables=(decode.change.tables or ()) if decode.change is not None else (),
    )


def rows_of(rows: RowPlan, pipeline: SinkPipeline, sink: str) -> RowPlan:
    """The plan of one sink, with its encodings: what it transforms itself stands in place of what the pipeline does."""
    index, of = next((at, each) for at, each in enumerate(pipeline.spec.sinks) if each.name == sink)
    own, place = of.transform, f"spec.sinks[{index}]"
    if own is not None and own.explode is not None:
        rows = replace(rows, explode=row_explode(own.explode), explode_at=f"{place}.transform")
    if own is not None and own.lookups is not None:
        rows = replace(rows, lookups=row_lookups(own.lookups, f"{place}.transform"))
    if own is not None and own.where is not None:
        rows = replace(rows, where=own.where, where_at=f"{place}.transform")
    if of.postgresql is not None:
        columns = None if own is None or own.select is None else own.select.columns
        table = _table_row(of.postgresql, columns or {}, place, follows=rows.lacking is not None)
        return replace(rows, select=RowSelect(), table=table)
    if of.nats is not None:
        select = None if own is None or own.select is None else own.select
        chosen = replace(row_select(select), subject=None if select is None else select.subject)
        return replace(rows, select=chosen, select_at=f"{place}.transform", keyless=True)
    if of.redis is not None:
        return replace(rows, select=row_select(None if own is None else own.select), select_at=f"{place}.transform")
    rows = replace(rows, encodings=encodings_of(of, place))
    if own is not None and own.select is not None:
        rows = replace(rows, select=row_select(own.select), select_at=f"{place}.transform")
    if of.kafka is not None and of.kafka.topics is not None:
        rows = replace(rows, topics=tuple(each.name for each in of.kafka.topics))
    return rows


def _table_row(sink: PostgresqlSink, selected: Mapping[str, str], place: str, *, follows: bool) -> TableRow:
    """What is not selected is the record's column of that name; of a change (`follows`), that of its row."""
    upsert = sink.write_mode.value == "Upsert"
    key = sink.table.primary_key if upsert else ()
    columns = [
        RowColumn(
            selected.get(name) or (_of_change(name, key) if follows else quoted(name)),
            f"{place}.transform.select.columns.{name}"
            if name in selected
            else f"{place}.postgresql.table.columns.{name}",
            sink.table.takes(name),
            may_stay=follows and upsert and name not in key,
        )
        for name in sink.table.in_order
    ]
    return TableRow(
        columns=tuple(columns),
        deletes=None if sink.delete_when is None else RowColumn(sink.delete_when, f"{place}.postgresql.deleteWhen"),
        order=None if sink.order_by is None else RowColumn(sink.order_by, f"{place}.postgresql.orderBy"),
        keeps=follows and upsert,
    )


def _of_change(name: str, key: tuple[str, ...]) -> str:
    """A deletion has its key in the row before it."""
    after = f"after.{quoted(name)}"
    return f"coalesce({after}, before.{quoted(name)})" if name in key else after


def rows_of_all(rows: RowPlan, pipeline: SinkPipeline) -> list[RowPlan]:
    """The plans of all sinks, in their order."""
    return [rows_of(rows, pipeline, sink.name) for sink in pipeline.spec.sinks]
