"""Changes of a change topic in the JVM: the row before and after each, with the types of the manifest.

    bytes ─► JSON, each column a text ─► each column by its type ─► op, table, before, after, position, ...

A stage writes a value as the database spells it, as a text where JSON has nothing that is exactly the same. So what a
text means is the manifest's to say. What does not fit its type is refused: nothing is rounded, and nothing guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.quoting import quoted
from sinkpipeline.core.rowplan import LACKING
from sinkpipeline.spark import decode
from sinkpipeline.spark.attempt import pinned
from sinkpipeline.spark.debezium import AFTER, BEFORE
from sinkpipeline.spark.debezium_values import listed, literal
from sinkpipeline.spark.expressions import SCHEMA_PATH, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column, DataFrame

    from sinkpipeline.core.rowplan import RowPlan

UNCHANGED = LACKING["change"]
OPERATIONS = ("r", "c", "u", "d", "t")
_SIDES = (BEFORE, AFTER)
_TEXT = StringType()
_POSITION = StructType(
    [StructField("lsn", LongType()), StructField("index", LongType()), StructField("half", IntegerType())]
)
_LAST_MILLI = 9_200_000_000_000_000

_DIGITS = r"^-?\d+(\.\d+)?$"
_SHORTEST_DATE, _SHORTEST_TIME = len("2024-02-29"), len("2024-02-29 12:34:56")
_LSN = r"^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$"
_IN_BINLOG = r"\.[0-9]{6,10}(\+[1-9][0-9]{0,9})?:[0-9]{1,10}$"
"""Of a binary log: a file's number, how much more it counts, and a place in it."""


def columns(row: StructType) -> StructType:
    """What expressions see of a change of such a row."""
    side = StructType([StructField(each.name, each.dataType) for each in row.fields])
    return StructType(
        [
            StructField("op", _TEXT),
            StructField("table", _TEXT),
            StructField(BEFORE, side),
            StructField(AFTER, side),
            StructField("position", _POSITION),
            StructField("committedAt", TimestampType()),
            StructField(UNCHANGED, ArrayType(_TEXT)),
        ]
    )


def row_problems(row: StructType) -> Iterator[Problem]:
    """Columns of `decode.schema` that no value is converted to."""
    for each in row.fields:
        if _value("x", each.dataType) is None:
            fact = f"column {each.name} is {each.dataType.simpleString()}, and a change has such a value as a text"
            yield Problem(SCHEMA_PATH, fact, f"use STRING, and an expression such as from_json(after.{each.name}, ...)")


def decoded(
    df: DataFrame, plan: RowPlan, row: StructType, hidden: Callable[[str], str]
) -> tuple[DataFrame, Column, Column]:
    """`df` with what expressions see, in a struct, and why a change is refused; without changes of other tables.

    Args:
        df: of the change topic.
        plan: which tables are read, and whether a change without a row is delivered.
        row: its schema, with NOT NULL.
        hidden: names of our own.
    """
    raw, record, corrupt = hidden("raw"), hidden("record"), hidden("corrupt")
    side = StructType([StructField(each.name, _TEXT) for each in row.fields])
    whole = StructType(
        [
            *(StructField(each, _TEXT) for each in ("op", "table")),
            *(StructField(each, ArrayType(_TEXT)) for each in ("pos", UNCHANGED)),
            StructField("committedAt", LongType()),
            *(StructField(each, side) for each in _SIDES),
        ]
    )
    df = df.select("*", pinned(decode.parse_json(F.col("value"), whole, corrupt)).alias(raw))
    if plan.tables:
        # What can't be read may be of any table.
        df = df.where(F.coalesce(F.col(raw).getField("table").isin(*plan.tables), F.lit(True)))
    df = df.select("*", pinned(F.expr(_record(raw, row))).alias(record))
    text, found = F.col("value").cast("string"), F.col(raw)
    broken = found.isNull() | found.getField(corrupt).isNotNull()
    why = F.lit(ErrorClass.WRONG_TYPE.error("it is no change as a stage writes one"))
    refused = decode.json_shape_error(text, broken, why)
    return df, F.col(record), F.coalesce(refused, _refusal(raw, record, row, rowless=plan.rowless))


def _record(raw: str, row: StructType) -> str:
    of = {name: f"{raw}.{name}" for name in ("op", "table")}
    for side in _SIDES:
        values = ", ".join(
            f"{literal(each.name)}, {_value(f'{raw}.{side}.{quoted(each.name)}', each.dataType)}" for each in row.fields
        )
        of[side] = f"CASE WHEN {raw}.{side} IS NOT NULL THEN named_struct({values}) END"
    of["position"] = f"CASE WHEN {_is_position(raw)} THEN {_position(raw)} END"
    of["committedAt"] = (
        f"CASE WHEN {raw}.committedAt BETWEEN -{_LAST_MILLI} AND {_LAST_MILLI} "
        f"THEN timestamp_millis({raw}.committedAt) END"
    )
    of[UNCHANGED] = (
        f"array_intersect(coalesce({raw}.{UNCHANGED}, CAST(array() AS ARRAY<STRING>)), array({listed(row.names)}))"
    )
    return f"named_struct({', '.join(f'{literal(name)}, {each}' for name, each in of.items())})"


def _is_position(raw: str) -> str:
    place = f"get({raw}.pos, 0)"
    in_log = f"({place} RLIKE r'{_LSN}' OR {place} RLIKE r'{_IN_BINLOG}')"
    return f"{in_log} AND try_cast(get({raw}.pos, 1) AS BIGINT) IS NOT NULL"


def _position(raw: str) -> str:
    """Of `["0/325D0F70",467]` or `["mariadb-bin.000003:4711",2000000]`.

    With a third number where an update has changed the key, and so is two changes.
    """
    place = f"get({raw}.pos, 0)"
    high, low = (f"CAST(conv(substring_index({place}, '/', {at}), 16, 10) AS BIGINT)" for at in (1, -1))
    file = f"substring_index(substring_index({place}, '.', -1), ':', 1)"
    base, more = (f"try_cast(substring_index({file}, '+', {at}) AS BIGINT)" for at in (1, -1))
    number = f"({base} + CASE WHEN contains({file}, '+') THEN {more} ELSE 0 END)"
    offset = f"try_cast(substring_index({place}, ':', -1) AS BIGINT)"
    lsn = (
        f"CASE WHEN {place} RLIKE r'{_LSN}' THEN shiftleft({high}, 32) | {low} "
        f"ELSE shiftleft({number}, 32) | {offset} END"
    )
    return (
        f"named_struct('lsn', {lsn}, 'index', try_cast(get({raw}.pos, 1) AS BIGINT), "
        f"'half', coalesce(try_cast(get({raw}.pos, 2) AS INT), 0))"
    )


def _value(text: str, kind: DataType) -> str | None:  # noqa: PLR0911 - one for each type
    """SQL of a value as the database spells it; null where it is none of the type. None where nothing is of it.

    A cast takes more than a database says, and of that some for something else: only that is looked at, as a regular
    expression for each value would take most of the time.
    """
    cast = f"try_cast({text} AS {kind.simpleString()})"
    # Spark takes what is behind a day for a time of it, and would not see the era.
    of_era = f"NOT endswith({text}, 'BC')"
    match kind:
        case StringType() if kind == _TEXT:
            return text
        case BooleanType():
            return f"CASE {text} WHEN 'true' THEN true WHEN 'false' THEN false END"
        case ByteType() | ShortType() | IntegerType() | LongType():
            return cast
        case FloatType() | DoubleType():
            # A number that is too large would be infinite; 1d and 1f are Java's.
            return (
                f"CASE WHEN abs({cast}) < CAST('Infinity' AS DOUBLE) AND right({text}, 1) BETWEEN '0' AND '9' "
                f"OR {text} IN ('NaN', 'Infinity', '-Infinity') THEN {cast} END"
            )
        case DecimalType():
            # Most often it has just as many digits as its type.
            fits = f"CAST({cast} AS STRING) = {text} OR {text} RLIKE r'{_DIGITS}' AND {_fits(text, kind)}"
            return f"CASE WHEN {fits} THEN {cast} END"
        case DateType():
            return f"CASE WHEN length({text}) >= {_SHORTEST_DATE} AND {of_era} THEN {cast} END"
        case TimestampType():
            # A time of day with its zone may be as long.
            dated = f"length({text}) >= {_SHORTEST_TIME} AND locate('-', {text}) BETWEEN 5 AND 8"
            return f"CASE WHEN {dated} AND {of_era} THEN {cast} END"
        case TimestampNTZType():
            zoned = " AND ".join(f"NOT contains(substr({text}, {_SHORTEST_TIME}), '{each}')" for each in "+-Z")
            return f"CASE WHEN length({text}) >= {_SHORTEST_TIME} AND {of_era} AND {zoned} THEN {cast} END"
        case BinaryType():
            return f"try_to_binary({text}, 'base64')"
        case _:
            return None


def _fits(text: str, kind: DecimalType) -> str:
    """Digits that a type does not have are not rounded away."""
    whole = rf"length(trim(LEADING '0' FROM regexp_extract({text}, r'^-?(\d*)', 1)))"
    fraction = rf"length(trim(TRAILING '0' FROM regexp_extract({text}, r'\.(\d*)$', 1)))"
    return f"{whole} <= {kind.precision - kind.scale} AND {fraction} <= {kind.scale}"


def _refusal(raw: str, record: str, row: StructType, *, rowless: bool) -> Column:
    """Why a change is refused that is one JSON object of the right shape."""
    op = f"{raw}.op"
    missing, wrong = ErrorClass.MISSING_FIELD.error, ErrorClass.WRONG_TYPE.error
    cases = {
        f"{op} IS NULL": missing("op is null or absent: it is no change as a stage writes one"),
        f"{op} NOT IN ({listed(OPERATIONS)})": wrong(f"op is none of {', '.join(OPERATIONS)}"),
        f"{raw}.table IS NULL": missing("table is null or absent"),
        f"{record}.position IS NULL": missing("pos is absent, or no position"),
        f"{op} IN ('r', 'c', 'u') AND {raw}.after IS NULL": missing(
            "after is null or absent, and op says that there is a row"
        ),
        f"{op} = 'd' AND {raw}.before IS NULL": missing("before is null or absent, and op says that there was a row"),
    }
    if not rowless:
        cases[f"{op} = 't'"] = ErrorClass.NO_ROW.error("op is t: the change is of no row (decode.change.withoutRow)")
    for side in _SIDES:
        for each in row.fields:
            at = f"{side}.{quoted(each.name)}"
            lost = f"{raw}.{at} IS NOT NULL AND {record}.{at} IS NULL"
            if each.dataType != _TEXT:
                cases[lost] = wrong(f"{side}.{each.name} is no {each.dataType.simpleString()}")
    for each in row.fields:
        if not each.nullable:
            name = literal(each.name)
            gone = f"{record}.after IS NOT NULL AND {record}.after.{quoted(each.name)} IS NULL"
            cases[f"{gone} AND NOT array_contains({record}.{UNCHANGED}, {name})"] = missing(
                f"after.{each.name} is null or absent"
            )
    whens = [f"WHEN {test} THEN {literal(error)}" for test, error in cases.items()]
    return F.expr(f"CASE {' '.join(whens)} END")
