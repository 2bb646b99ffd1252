"""A table that records are looked up in: parsed once, broadcast once, and asked by an expression of one row.

Not a join: in a stream Spark would collect and broadcast the table anew for each batch, by a job of its own. Spark has
nothing public that asks a broadcast variable in an expression; within, `Invoke` is what calls a method of an object.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from sinkpipeline.core.lookups import (
    ParsedLine,
    TableInfo,
    TableText,
    check_lines,
    fingerprint_of,
    invalid,
    lines_of,
    without_header,
)
from sinkpipeline.spark.attempt import attempt, pinned, result
from sinkpipeline.spark.decode import json_error, parse_json
from sinkpipeline.spark.expressions import parse_schema
from sinkpipeline.spark.java import java_class
from sinkpipeline.spark.lines import csv_error, line_of, parse_csv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from sinkpipeline.core.rowplan import RowLookup, RowPlan

_LOG = logging.getLogger("sinkpipeline.lookups")

_WHOLE = (ByteType, ShortType, IntegerType, LongType)


@dataclass(frozen=True)
class _Table:
    """One that was broadcast."""

    broadcast: Any
    """Java's own: a Map from keys to rows."""
    kind: Any
    """Java's own type of a row."""
    rows: int


class _Tables:
    """Of one Spark: a table is parsed and broadcast once, however many plans and queries look something up in it."""

    def __init__(self) -> None:
        self._made: dict[TableText, _Table] = {}
        self._lock = threading.Lock()

    def of(self, spark: SparkSession, table: TableText, at: str) -> _Table:
        with self._lock:
            if table not in self._made:
                self._made[table] = _made(spark, table, at)
            return self._made[table]


_TABLES: WeakKeyDictionary[SparkContext, _Tables] = WeakKeyDictionary()


def load(spark: SparkSession, plans: Iterable[RowPlan]) -> list[TableInfo]:
    """Reads the tables of these plans, which have passed `analyse`; what is told of each.

    Raises:
        SinkPipelineError: LookupInvalid, LookupNotUnique.
    """
    told: list[TableInfo] = []
    for each in dict.fromkeys(each for plan in plans for each in plan.lookups):
        rows, fingerprint = _table(spark, each).rows, fingerprint_of(each.table)
        _LOG.info("lookup %s: %d rows of %s, SHA-256 %s", each.name, rows, each.table.origin, fingerprint)
        told.append(TableInfo(each.name, each.table.origin, rows, fingerprint))
    return told


def checked(spark: SparkSession, plans: Sequence[RowPlan]) -> Iterator[str]:
    """As `load`, in words; tables that were not read, offline, are left out."""
    unread = dict.fromkeys(each for plan in plans for each in plan.lookups if each.table.content is None)
    for lookup in unread:
        yield f"lookup {lookup.name}: {lookup.table.origin} is not checked"
    read = [replace(plan, lookups=tuple(each for each in plan.lookups if each not in unread)) for plan in plans]
    for each in load(spark, read):
        yield f"lookup {each.name}: {each.rows} rows of {each.origin}, SHA-256 {each.fingerprint}"


def looked_up(df: DataFrame, lookup: RowLookup, error: str, tried: str, without: Column, failed: Column) -> DataFrame:
    """With the row of the table that has the key, as a struct; null where none has it, and where nothing is asked.

    Args:
        df: rows, of which those with an error ask nothing.
        lookup: what is looked for, and where.
        error: the column that has it.
        tried: a name of a column, for the meantime.
        without: why a row has no key to ask for, null where it has one.
        failed: what is wrong with a row that has none, or for which it can't be evaluated.
    """
    expression, asked = F.expr(lookup.equals), F.col(error).isNull()
    key = looked_for(expression, df.select(expression).schema[0].dataType)
    df = df.withColumn(tried, pinned(F.when(asked & without.isNull(), attempt(df.sparkSession, key))))
    df = df.withColumn(error, F.when(asked, F.when(F.col(tried).isNull(), failed)).otherwise(F.col(error)))
    # A column of its own: expressions may read it often, and it is looked up once.
    row = found(df.sparkSession, lookup, result(F.col(tried)))
    return df.withColumn(lookup.name, pinned(row)).drop(tried)


def looked_for(expression: Column, kind: DataType) -> Column:
    """As keys are: of integers it is the widest."""
    return expression.cast("bigint") if isinstance(kind, _WHOLE) else expression


def found(spark: SparkSession, lookup: RowLookup, key: Column) -> Column:
    """STRUCT of the row with that key, null where there is none. `key` is as of `looked_for`."""
    table = _table(spark, lookup)
    utils = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    literal = java_class(spark, "org.apache.spark.sql.catalyst.expressions.Literal")
    holder = literal(table.broadcast, _object(spark, "org.apache.spark.broadcast.Broadcast"))
    rows = _invoked(spark, holder, "value", _object(spark, "java.util.Map"))
    wanted = utils.expression(key._jc)  # noqa: SLF001 - there is no other way to Spark's own expressions
    return Column(utils.column(_invoked(spark, rows, "get", table.kind, wanted)))


def row_type(spark: SparkSession, lookup: RowLookup) -> StructType:
    return parse_schema(spark, lookup.table.schema)


def key_field(schema: StructType, key: str) -> int | None:
    """Its place; None where there is no such column. Names of columns are not case sensitive."""
    return next((place for place, each in enumerate(schema.fields) if each.name.lower() == key.lower()), None)


def purpose_of(kind: DataType) -> str | None:
    """What is asked of `equals` for a key of this type; None where it can be no key."""
    if isinstance(kind, _WHOLE):
        return "equals of integers"
    if isinstance(kind, DateType):
        return "equals of DATE"
    # By its bytes alone: with a collation other texts would be the same key too.
    return "equals of STRING" if kind == StringType() else None


def _table(spark: SparkSession, lookup: RowLookup) -> _Table:
    return _TABLES.setdefault(spark.sparkContext, _Tables()).of(spark, lookup.table, lookup.at)


def _made(spark: SparkSession, table: TableText, at: str) -> _Table:
    if table.content is None:
        raise ValueError(f"{at}: the table was not read")
    schema = parse_schema(spark, table.schema)
    place = key_field(schema, table.key)
    if place is None:
        raise ValueError(f"{at}: a table without its key passes no analysis")
    lines = without_header(lines_of(table.content), at, table, schema.names)
    source = pa.table(
        {
            "number": pa.array([each.number for each in lines], pa.int32()),
            "value": pa.array([each.content for each in lines], pa.binary()),
        }
    )
    try:
        # So few rows are Spark's in the driver: no job is run, which would have to wait for executors.
        parsed = _parsed(spark.createDataFrame(source), table, schema, place)
        told = parsed.select("number", "key", "error").collect()
        check_lines(at, table, (ParsedLine(each.number, each.key, each.error) for each in told))
        return _broadcast(spark, parsed.select("key", "row"), len(lines))
    except (PySparkException, Py4JError) as error:
        raise invalid(at, table, str(error).splitlines()[0], "correct it, then start again") from error


def _parsed(lines: DataFrame, table: TableText, schema: StructType, place: int) -> DataFrame:
    """number, error, key and row of each line; strictly, as records are."""
    corrupt, value, parsed = "__sinkpipeline_corrupt", F.col("value"), F.col("parsed")
    if table.format == "csv":
        lines, line = lines.withColumn("line", line_of(value)), F.col("line")
        made = result(attempt(lines.sparkSession, parse_csv(line, table.schema, schema, table.delimiter, corrupt)))
        error = csv_error(value, line, parsed, schema, table.delimiter, corrupt)
    else:
        made = parse_json(value, schema, corrupt)
        error = json_error(value, parsed, schema, corrupt)
    key = looked_for(parsed.getField(schema[place].name), schema[place].dataType)
    row = F.struct(*(parsed.getField(each.name).alias(each.name) for each in schema.fields))
    df = lines.select("*", made.alias("parsed"))
    return df.select("number", error.alias("error"), key.alias("key"), row.alias("row"))


def _broadcast(spark: SparkSession, entries: DataFrame, count: int) -> _Table:
    """Of keys and rows, which stay Spark's own, and pass Python at no time."""
    frame: Any = entries._jdf  # noqa: SLF001 - PySpark offers no other way
    execution, jvm = frame.queryExecution(), spark._jvm  # noqa: SLF001 - see above
    catalyst: Any = jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
    found = catalyst.util.GenericArrayData(execution.executedPlan().executeCollect())
    kind = jvm.org.apache.spark.sql.types.ArrayType(frame.schema(), False)  # type: ignore[union-attr]
    by_key = catalyst.expressions.MapFromEntries(catalyst.expressions.Literal(found, kind)).eval(None)
    keys, rows = (frame.schema().apply(place).dataType() for place in (0, 1))
    rows_of_keys = catalyst.util.ArrayBasedMapData.toJavaMap(
        by_key.keyArray().toObjectArray(keys), by_key.valueArray().toObjectArray(rows)
    )
    context: Any = spark.sparkContext._jsc  # noqa: SLF001 - PySpark's own broadcasts hold pickles
    return _Table(context.broadcast(rows_of_keys), rows, count)


def _object(spark: SparkSession, name: str) -> Any:
    of_java = java_class(spark, "java.lang.Class").forName(name)
    return java_class(spark, "org.apache.spark.sql.types.ObjectType")(of_java)


def _invoked(spark: SparkSession, target: Any, method: str, kind: Any, *arguments: Any) -> Any:
    """Null where an argument is; deterministic."""
    array = java_class(spark, "java.util.ArrayList")
    given = array()
    for each in arguments:
        given.add(each)
    to_seq = java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq
    nothing = to_seq(array())
    invoke = java_class(spark, "org.apache.spark.sql.catalyst.expressions.objects.Invoke")
    return invoke(target, method, kind, to_seq(given), nothing, True, True, True)
