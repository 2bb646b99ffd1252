"""Whether a plan can be run: its schema and every expression, asked of Spark's analyser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StructType, TimestampType

from sinkpipeline.spark import avro, changes, debezium, debezium_columns, lookups
from sinkpipeline.spark.avro import avro_columns
from sinkpipeline.spark.decoding import record_columns, visible_columns
from sinkpipeline.spark.encode import NoSchema, own_schema
from sinkpipeline.spark.expressions import (
    SCHEMA_PATH,
    ExpressionsInvalid,
    Problem,
    check_expressions,
    check_names,
    check_schema,
    column_problems,
    schema_problem,
    source_frame,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from sinkpipeline.core.rowplan import RowExplode, RowLookup, RowPlan


def analyse(spark: SparkSession, plan: RowPlan, *others: RowPlan) -> None:
    """Checks the schema and every expression; needs neither a broker nor Kafka's jars, and runs no job.

    `others`: of other sinks, which decode alike.

    Raises:
        SinkPipelineError: EXPRESSION_INVALID, with every problem and its path in the manifest; SCHEMA_UNSUPPORTED.
    """
    source = source_frame(spark)
    schema, problems = _checked(spark, plan)
    if problems:
        # Without its columns no expression has a meaning.
        raise ExpressionsInvalid(problems)
    try:
        visible = visible_columns(source, plan, schema)
    except PySparkException as refused:
        # Spark reads the schema once more, with a column of ours.
        raise ExpressionsInvalid([schema_problem(refused)]) from refused
    seen: dict[tuple[str, object], DataFrame | None] = {}
    problems = []
    for one in (plan, *others):
        if _rows_at(one) not in seen:
            seen[_rows_at(one)], wrong = _rows(spark, visible, one)
            problems += wrong
    asked = dict.fromkeys(
        (_rows_at(one), *each) for one in (plan, *others) if seen[_rows_at(one)] for each in one.expressions()
    )
    for at, path, text, purpose in asked:
        rows = seen[at]
        problems += [] if rows is None else check_expressions(rows, [(path, text, purpose)])
    if problems:
        raise ExpressionsInvalid(list(dict.fromkeys(problems)))
    if problems := [problem for one in (plan, *others) for problem in _schema_problems(spark, one)]:
        raise ExpressionsInvalid(problems)


def _rows_at(plan: RowPlan) -> tuple[str, object]:
    """Which rows its expressions are written on."""
    return plan.explode_at, plan.lookups


def _rows(spark: SparkSession, visible: DataFrame, plan: RowPlan) -> tuple[DataFrame | None, list[Problem]]:
    """What `where` and `select` see, and what is wrong with it; None where nobody knows."""
    if plan.explode is not None:
        problems = _explode_problems(visible, plan.explode, plan.explode_at)
        if problems:
            # Without its columns nothing is known of what is written on them.
            return None, problems
    rows = _with_elements(visible, plan.explode)
    for lookup in plan.lookups:
        problems = list(_lookup_problems(spark, rows, lookup))
        if problems:
            return None, problems
        rows = _with_row(spark, rows, lookup)
    return rows, []


def _seen(spark: SparkSession, plan: RowPlan) -> DataFrame:
    """What `where` and `select` see. The plan has passed `analyse`."""
    rows = _with_elements(visible_columns(source_frame(spark), plan, record_columns(spark, plan)), plan.explode)
    for lookup in plan.lookups:
        rows = _with_row(spark, rows, lookup)
    return rows


def _lookup_problems(spark: SparkSession, rows: DataFrame, lookup: RowLookup) -> Iterator[Problem]:
    schema, wrong = check_schema(spark, lookup.table.schema, lookup.table.format)
    if wrong:
        yield from (replace(each, path=f"{lookup.at}.schema") for each in wrong)
        return
    place = lookups.key_field(schema, lookup.table.key)
    if place is None:
        fact = f"there is no column {lookup.table.key} in schema; there are {', '.join(schema.names)}"
        yield Problem(f"{lookup.at}.key", fact, "name one of them")
        return
    purpose = lookups.purpose_of(schema[place].dataType)
    if purpose is None:
        fact = f"is {schema[place].dataType.simpleString().upper()}, which can be no key"
        yield Problem(f"{lookup.at}.key", fact, "use a column of STRING, DATE, or integers")
        return
    yield from check_names(rows, [(f"{lookup.at}.name", lookup.name)])
    yield from check_expressions(rows, [(f"{lookup.at}.equals", lookup.equals, purpose)])


def _with_row(spark: SparkSession, rows: DataFrame, lookup: RowLookup) -> DataFrame:
    """With the column that a lookup adds, of its type alone: what is in the table changes nothing of it."""
    # Of the very type that parsed lines have: NOT NULL of their columns is checked, and not told on.
    nothing = F.from_json(F.lit(None).cast("string"), lookups.row_type(spark, lookup))
    return rows.select("*", nothing.alias(lookup.name))


def _explode_problems(visible: DataFrame, explode: RowExplode, at: str) -> list[Problem]:
    names = [(f"{at}.explode.as", explode.column)]
    if explode.position is not None:
        names.append((f"{at}.explode.positionAs", explode.position))
    found = check_expressions(visible, [(f"{at}.explode.array", explode.array, "array")])
    return [*found, *check_names(visible, names)]


def _with_elements(visible: DataFrame, explode: RowExplode | None) -> DataFrame:
    """With what `explode` adds. In a projection, as an expression is checked by what is above its columns."""
    if explode is None:
        return visible
    element = F.get(F.expr(explode.array), F.lit(0)).alias(explode.column)
    position = [] if explode.position is None else [F.lit(0).alias(explode.position)]
    return visible.select("*", element, *position)


def _schema_problems(spark: SparkSession, plan: RowPlan) -> Iterator[Problem]:
    """STRUCTs that there is no schema for."""
    selected = selected_structs(spark, plan) if plan.encodings else {}
    for each in plan.encodings:
        try:
            own_schema(selected[each.part], each)
        except NoSchema as error:
            remedy = f"give other types and names in select.{each.part}, or another format in {each.path}"
            yield Problem(f"{plan.select_at}.select.{each.part}", str(error), remedy)


def selected_structs(spark: SparkSession, plan: RowPlan) -> dict[str, DataFrame]:
    """What is encoded, by part of the row: its STRUCT is the only column. The plan has passed `analyse`."""
    visible = _seen(spark, plan)
    return {each.part: visible.select(F.expr(getattr(plan.select, each.part))) for each in plan.encodings}


def order_kind(spark: SparkSession, plan: RowPlan) -> str | None:
    """Whether `orderBy` is a number or a time; None where there is none. The plan has passed `analyse`."""
    if plan.table is None or plan.table.order is None:
        return None
    visible = _seen(spark, plan)
    kind = visible.select(F.expr(plan.table.order.expression)).schema[0].dataType
    return "time" if isinstance(kind, TimestampType) else "number"


def _checked(spark: SparkSession, plan: RowPlan) -> tuple[StructType | None, list[Problem]]:
    """The columns of a decoded record, and what is wrong with them."""
    if plan.schema is None:
        return None, []
    if plan.decode_format == "debezium":
        return _checked_changes(spark, plan, plan.schema)
    if plan.decode_format == "change":
        row, problems = check_schema(spark, plan.schema)
        problems += changes.row_problems(row)
        return (None, problems) if problems else (changes.columns(row), [])
    if plan.decode_format in ("json", "csv"):
        return check_schema(spark, plan.schema, plan.decode_format)
    if plan.decode_format == "avro" and plan.known is None:
        # With frames it is of a registry, or was looked at before.
        schema = avro_columns(spark, avro.given_schema(spark, plan.schema, SCHEMA_PATH))
    else:
        schema = record_columns(spark, plan) or StructType()
    return schema, list(column_problems(schema))


def _checked_changes(spark: SparkSession, plan: RowPlan, text: str) -> tuple[StructType | None, list[Problem]]:
    """The same of Debezium's envelopes."""
    if plan.known is None:
        row, problems = check_schema(spark, text)
        problems += debezium_columns.row_problems(row)
        return (None, problems) if problems else (debezium.columns(spark, text, avro=False), [])
    return debezium.columns(spark, text, avro=True), []
