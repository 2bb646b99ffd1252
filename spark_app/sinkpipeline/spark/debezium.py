"""Debezium's envelopes in the JVM: the row before and after a change, with the types of the manifest.

    bytes ─► JSON, in Connect's wrapper or without ─┐
    bytes ─► Avro of a writer's schema ─────────────┴─► raw envelope ─► each column by its kind ─► before, after, ...

What JSON says of a value is not enough: a number may be days or microseconds, a text the digits of a decimal or its
bytes. The wrapper names each column's kind. Without it only what can't be mistaken is converted, and nothing guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.debezium import (
    DATES,
    OPERATIONS,
    TIMESTAMPS,
    UNAVAILABLE,
    VARIABLE_DECIMAL,
    WITH_ROW,
    WITHOUT_ROW,
    kinds_of_avro,
)
from sinkpipeline.core.quoting import quoted
from sinkpipeline.spark import decode
from sinkpipeline.spark.attempt import attempt, pinned, result
from sinkpipeline.spark.avro import avro_columns
from sinkpipeline.spark.debezium_values import (
    binaries,
    dates,
    is_of_bytes,
    is_unavailable,
    listed,
    literal,
    texts,
    texts_as_bytes,
    times,
)
from sinkpipeline.spark.expressions import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BEFORE, AFTER, UNAVAILABLE_COLUMN = "before", "after", "unavailable"
_SIDES = (BEFORE, AFTER)


def _struct(**names: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in names.items()])


_TEXT, _NUMBER = StringType(), LongType()
_SOURCE = StructType(
    [
        *(StructField(each, _TEXT) for each in ("version", "connector", "name", "snapshot", "db", "schema", "table")),
        *(StructField(each, _NUMBER) for each in ("ts_ms", "ts_us", "ts_ns", "lsn", "xmin", "server_id", "pos", "row")),
        *(StructField(each, _TEXT) for each in ("sequence", "txId", "gtid", "file", "change_lsn", "commit_lsn")),
        *(StructField(each, _NUMBER) for each in ("thread", "event_serial_no")),
        *(StructField(each, _TEXT) for each in ("query", "scn", "commit_scn")),
    ]
)
"""Of the connectors' own fields those that say where a change was. An envelope in Avro has what its schema has."""
_CONNECT_COLUMN = _struct(
    field=_TEXT, type=_TEXT, name=_TEXT, parameters=MapType(_TEXT, _TEXT), items=_struct(type=_TEXT)
)
_CONNECT = _struct(fields=ArrayType(_struct(field=_TEXT, fields=ArrayType(_CONNECT_COLUMN))))


@dataclass(frozen=True)
class Field:
    """A column of the row."""

    name: str
    raw: DataType
    """As it is parsed."""
    type: DataType
    """As expressions see it."""
    kind: str | None = None
    """Of Avro; of JSON each record says it, or none."""


def columns(spark: SparkSession, schema: str, *, avro: bool) -> StructType:
    """What expressions see of an envelope; `schema` as a `RowPlan` has it."""
    envelope = avro_columns(spark, schema) if avro else None
    source = _SOURCE if envelope is None else envelope["source"].dataType
    row = StructType([StructField(each.name, each.type) for each in fields_of(spark, schema, avro=avro)])
    return StructType(
        [
            StructField(BEFORE, row),
            StructField(AFTER, row),
            StructField("op", StringType()),
            StructField("source", source),
            StructField("ts_ms", LongType()),
            StructField(UNAVAILABLE_COLUMN, ArrayType(StringType())),
        ]
    )


def fields_of(spark: SparkSession, schema: str, *, avro: bool) -> list[Field]:
    """The columns of the row."""
    if not avro:
        return [Field(each.name, _raw(each.dataType), each.dataType) for each in parse_schema(spark, schema).fields]
    kinds = kinds_of_avro(schema)
    row = avro_columns(spark, schema)[AFTER].dataType
    if not isinstance(row, StructType):
        raise TypeError("after is no record")
    return [Field(each.name, each.dataType, _of_kind(each, kinds), kinds.get(each.name)) for each in row.fields]


def _raw(kind: DataType) -> DataType:
    """A variant keeps what JSON said: whether it was a text or a number."""
    if isinstance(kind, StructType):
        # An hstore that is read as a struct says so by a key of its own.
        return StructType([*kind.fields, StructField(UNAVAILABLE, StringType())])
    return VariantType() if isinstance(kind, DateType | TimestampType | DecimalType | BinaryType) else kind


def _of_kind(field: StructField, kinds: Mapping[str, str]) -> DataType:
    kind = kinds.get(field.name)
    if kind in DATES:
        return DateType()
    if kind in TIMESTAMPS:
        return TimestampType()
    return StringType() if kind == VARIABLE_DECIMAL else field.dataType


def parse_json(
    df: DataFrame, value: Column, fields: list[Field], hidden: Callable[[str], str]
) -> tuple[DataFrame, Column, Column]:
    """`df` with raw envelopes: the envelope's column, and why it is refused.

    Also MAP<STRING, STRUCT<kind, scale, base, items>> of the columns, where Connect's wrapper is there.
    """
    row = StructType([StructField(each.name, each.raw) for each in fields])
    envelope = [
        *(StructField(each, row) for each in _SIDES),
        StructField("op", StringType()),
        StructField("source", _SOURCE),
        StructField("ts_ms", LongType()),
    ]
    whole = StructType([*envelope, StructField("payload", StructType(envelope)), StructField("schema", _CONNECT)])
    parsed, corrupt = hidden("parsed"), hidden("corrupt")
    df = df.select("*", decode.parse_json(value, whole, corrupt).alias(parsed))
    alone = ", ".join(f"'{each.name}', {parsed}.{each.name}" for each in envelope)
    raw = f"coalesce({parsed}.payload, CASE WHEN {parsed} IS NOT NULL THEN named_struct({alone}) END)"
    # Two columns of a name would raise.
    kinds = result(attempt(df.sparkSession, F.expr(_KINDS.format(parsed=parsed))))
    df = df.select("*", pinned(F.expr(raw)).alias(hidden("raw")), pinned(kinds).alias(hidden("kinds")))
    found, text = F.col(parsed), value.cast("string")
    broken = found.isNull() | found.getField(corrupt).isNotNull()
    error = decode.json_shape_error(text, broken, _misfit(text, fields, hidden))
    for side, inner in zip(_SIDES, _rows(text), strict=True):
        for wrapped, why in decode.tiny_errors(inner, F.col(hidden("raw")).getField(side), row, f"{side}."):
            error = F.coalesce(error, F.when(wrapped, F.lit(why)))
    return df, F.col(hidden("raw")), error


_KINDS = (
    "map_from_entries(transform(get(filter({parsed}.schema.fields, f -> f.field = 'after'), 0).fields, c -> "
    "struct(c.field, named_struct('kind', coalesce(c.name, c.type), 'scale', try_element_at(c.parameters, 'scale'), "
    "'base', c.type, 'items', c.items.type))))"
)


def _rows(text: Column) -> list[Column]:
    """The text of each side."""
    paths = ((f"$.payload.{side}", f"$.{side}") for side in _SIDES)
    return [F.coalesce(*(F.get_json_object(text, path) for path in each)) for each in paths]


def _misfit(text: Column, fields: list[Field], hidden: Callable[[str], str]) -> Column:
    """What of an envelope does not fit; evaluated only where something does not."""
    inner = [F.from_json(each, "MAP<STRING, STRING>") for each in _rows(text)]
    places = [
        f"named_struct('name', {literal(f'{side}.{each.name}')}, 'column', {literal(each.name)}, 'at', {at}, "
        f"'type', {literal(each.type.simpleString())}, 'gone', {hidden('raw')}.{side}.{quoted(each.name)} IS NULL)"
        for at, side in enumerate(_SIDES)
        for each in fields
    ]
    first = F.get(
        F.filter(
            F.expr(f"array({', '.join(places)})"),
            lambda each: (
                each["gone"] & F.try_element_at(F.get(F.array(*inner), each["at"]), each["column"]).isNotNull()
            ),
        ),
        F.lit(0),
    )
    told = F.concat(F.lit(ErrorClass.WRONG_TYPE.error("")), first["name"], F.lit(" is not "), first["type"])
    return F.coalesce(told, F.lit(ErrorClass.WRONG_TYPE.error("it is no envelope of Debezium with such columns")))


def converted(
    df: DataFrame,
    raw: Column,
    refused: Column,
    fields: list[Field],
    row: StructType | None,
    hidden: Callable[[str], str],
    *,
    rowless: bool,
) -> tuple[DataFrame, Column, Column]:
    """`df` with what expressions see, in a struct, and why an envelope is refused.

    Each step is pinned: the optimiser would put a struct's fields wherever one of them is read, and so grow the plan by
    all steps times each other.

    Args:
        df: with raw envelopes.
        raw: the envelope.
        refused: why it is refused already.
        fields: the columns of the row.
        row: as the manifest has it, with NOT NULL; None where that is the schema's business.
        hidden: names of our own.
        rowless: whether a change without a row is delivered.
    """
    names = {each: hidden(each) for each in ("envelope", "given", "tried", "values", "record", "refused")}
    df = df.select("*", pinned(raw).alias(names["envelope"]))
    envelope, given, tried, values = (names[each] for each in ("envelope", "given", "tried", "values"))
    kinds = hidden("kinds") if row is not None else None
    groups = _groups(fields, kinds)
    df = _with(df, given, _struct_of({name: _values(of, envelope, kinds) for name, of in groups.items()}))
    df = _with(df, tried, _struct_of({name: _CONVERT[name](f"{given}.{name}") for name in groups}))
    places = {
        (side, each.name): f"get({tried}.{name}, {index})"
        for name, of in groups.items()
        for index, (side, each) in enumerate(of)
    }
    sides = {side: _side(side, fields, envelope, places) for side in _SIDES}
    tests = {each.name: is_unavailable(f"{envelope}.after.{quoted(each.name)}", each.raw) for each in fields}
    lacks = [f"CASE WHEN {test} THEN {literal(name)} END" for name, test in tests.items() if test is not None]
    sides[UNAVAILABLE_COLUMN] = f"filter(CAST(array({', '.join(lacks)}) AS ARRAY<STRING>), x -> x IS NOT NULL)"
    df = _with(df, values, _struct_of(sides))
    kept = {
        each.name: f"{values}.after.{quoted(each.name)}"
        if tests[each.name] is None
        else f"CASE WHEN NOT array_contains({values}.{UNAVAILABLE_COLUMN}, {literal(each.name)}) "
        f"THEN {values}.after.{quoted(each.name)} END"
        for each in fields
    }
    record = {
        BEFORE: f"{values}.before",
        AFTER: f"CASE WHEN {values}.after IS NOT NULL THEN {_struct_of(kept)} END",
        **{name: f"{envelope}.{name}" for name in ("op", "source", "ts_ms")},
        UNAVAILABLE_COLUMN: f"{values}.{UNAVAILABLE_COLUMN}",
    }
    df = _with(df, names["record"], _struct_of(record))
    arrays = [(side, each) for side in _SIDES for each in fields if kinds is not None and is_of_bytes(each.type)]
    others = [
        texts_as_bytes(f"{side}.{each.name}", f"{envelope}.{side}.{quoted(each.name)}", f"{_said(each, kinds)}.items")
        for side, each in arrays
    ]
    error = _refusal(groups, others, row, names, rowless=rowless)
    df = df.select("*", pinned(F.coalesce(refused, error)).alias(names["refused"]))
    return df, F.col(names["record"]), F.col(names["refused"])


_Group = list[tuple[str, Field]]
_CONVERT: Mapping[str, Callable[[str], str]] = {"dates": dates, "times": times, "texts": texts, "binaries": binaries}


def _groups(fields: list[Field], kinds: str | None) -> dict[str, _Group]:
    """Which columns are converted, and how; for both sides."""
    found: dict[str, _Group] = {}
    for side in _SIDES:
        for each in fields:
            if (name := _group(each, kinds)) is not None:
                found.setdefault(name, []).append((side, each))
    return found


def _group(field: Field, kinds: str | None) -> str | None:
    if kinds is None and (field.raw == field.type or field.kind is None):
        # Avro's own types are read as they are.
        return None
    match field.type:
        case DateType():
            return "dates"
        case TimestampType():
            return "times"
        case BinaryType():
            return "binaries"
        case StringType() | DecimalType():
            return "texts"
        case _:
            return None


def _values(of: _Group, envelope: str, kinds: str | None) -> str:
    """As `debezium_values` takes them."""
    return f"array({', '.join(_one_value(side, each, envelope, kinds) for side, each in of)})"


def _said(field: Field, kinds: str | None) -> str:
    return f"try_element_at({kinds}, {literal(field.name)})"


def _one_value(side: str, field: Field, envelope: str, kinds: str | None) -> str:
    raw = f"{envelope}.{side}.{quoted(field.name)}"
    kind, scale, base, is_text = literal(field.kind or ""), "CAST(NULL AS STRING)", "CAST(NULL AS STRING)", "false"
    text = f"CAST({raw} AS STRING)"
    if kinds is not None:
        said = _said(field, kinds)
        kind, scale, base = f"{said}.kind", f"{said}.scale", f"{said}.base"
    if isinstance(field.raw, VariantType):
        text, is_text = f"try_variant_get({raw}, '$', 'string')", f"schema_of_variant({raw}) = 'STRING'"
    elif field.kind == VARIABLE_DECIMAL:
        # As JSON has it.
        text = f"""concat('{{"scale":', {raw}.scale, ',"value":"', base64({raw}.value), '"}}')"""
    whole = fraction = "CAST(NULL AS INT)"
    if isinstance(field.type, DecimalType):
        whole, fraction = str(field.type.precision - field.type.scale), str(field.type.scale)
    return (
        f"named_struct('name', {literal(f'{side}.{field.name}')}, 'column', {literal(field.name)}, "
        f"'type', {literal(field.type.simpleString())}, 'text', {text}, 'kind', {kind}, 'scale', {scale}, "
        f"'base', {base}, 'quoted', {is_text}, 'whole', {whole}, 'fraction', {fraction})"
    )


def _side(side: str, fields: list[Field], envelope: str, places: Mapping[tuple[str, str], str]) -> str:
    of = {}
    for each in fields:
        found = places.get((side, each.name), f"{envelope}.{side}.{quoted(each.name)}")
        if isinstance(each.type, StructType) and each.raw != each.type:
            inner = _struct_of({name: f"{found}.{quoted(name)}" for name in each.type.names})
            found = f"CASE WHEN {found} IS NOT NULL THEN {inner} END"
        is_digits = (side, each.name) in places and isinstance(each.type, DecimalType)
        of[each.name] = f"try_cast({found} AS {each.type.simpleString()})" if is_digits else found
    return f"CASE WHEN {envelope}.{side} IS NOT NULL THEN {_struct_of(of)} END"


def _refusal(
    groups: Mapping[str, _Group],
    others: list[str],
    row: StructType | None,
    names: Mapping[str, str],
    *,
    rowless: bool,
) -> Column:
    """Why an envelope that was parsed is refused."""
    op, after = f"{names['envelope']}.op", f"{names['values']}.after"
    lacks = f"{names['values']}.{UNAVAILABLE_COLUMN}"
    cases = {
        f"{op} IS NULL": ErrorClass.MISSING_FIELD.error("op is null or absent: it is no envelope of Debezium"),
        f"{op} NOT IN ({listed(OPERATIONS)})": ErrorClass.WRONG_TYPE.error(f"op is none of {', '.join(OPERATIONS)}"),
        f"{op} IN ({listed(WITH_ROW)}) AND {after} IS NULL": ErrorClass.MISSING_FIELD.error(
            "after is null or absent, and op says that there is a row"
        ),
    }
    if not rowless:
        no_row = ErrorClass.NO_ROW.error("op is t or m: the change is of no row (decode.debezium.withoutRow)")
        cases[f"{op} IN ({listed(WITHOUT_ROW)})"] = no_row
    whens = [f"WHEN {test} THEN {literal(error)}" for test, error in cases.items()]
    wrong = literal(ErrorClass.WRONG_TYPE.error(""))
    lost = [
        f"get(filter(zip_with({names['given']}.{name}, {names['tried']}.{name}, (x, y) -> CASE WHEN "
        f"x.text IS NOT NULL AND y IS NULL AND NOT array_contains({lacks}, x.column) THEN "
        f"concat({wrong}, x.name, ' is no ', x.type, ' by what the record says of it') END), x -> x IS NOT NULL), 0)"
        for name in groups
    ]
    error = F.expr(f"coalesce(CASE {' '.join(whens)} END, {', '.join([*lost, *others, 'CAST(NULL AS STRING)'])})")
    if row is None:
        return error
    found = F.when(error.isNotNull(), error)
    for path, gone in decode.missing_fields(row):
        absent = gone(F.col(after)) & ~F.array_contains(F.col(lacks), path.partition(".")[0])
        found = found.when(absent, F.lit(ErrorClass.MISSING_FIELD.error(f"after.{path} is null or absent")))
    return found


def _with(df: DataFrame, name: str, expression: str) -> DataFrame:
    return df.select("*", pinned(F.expr(expression)).alias(name))


def _struct_of(of: Mapping[str, str]) -> str:
    """There is nothing to convert of some rows: then it has a field that nobody reads."""
    inner = ", ".join(f"{literal(name)}, {each}" for name, each in (of or {"_": "0"}).items())
    return f"named_struct({inner})"
