"""Whether a plan can be run: its schema and every expression, asked of Spark's analyser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StructType, TimestampType

from sinkpipeline.spark import avro, debezium, debezium_columns
from sinkpipeline.spark.avro import avro_columns
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
from sinkpipeline.spark.transform import record_columns, visible_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from sinkpipeline.core.rowplan import RowExplode, RowPlan


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
    exploded: dict[str, DataFrame | None] = {}
    problems = []
    for one in (plan, *others):
        if one.explode_at not in exploded:
            wrong = [] if one.explode is None else _explode_problems(visible, one.explode, one.explode_at)
            problems += wrong
            # Without its columns nothing is known of what is written on them.
            exploded[one.explode_at] = None if wrong else _with_elements(visible, one.explode)
    asked = dict.fromkeys(
        (one.explode_at, *each) for one in (plan, *others) if exploded[one.explode_at] for each in one.expressions()
    )
    for at, path, text, purpose in asked:
        seen = exploded[at]
        problems += [] if seen is None else check_expressions(seen, [(path, text, purpose)])
    if problems:
        raise ExpressionsInvalid(list(dict.fromkeys(problems)))
    if problems := [problem for one in (plan, *others) for problem in _schema_problems(spark, one)]:
        raise ExpressionsInvalid(problems)


def _explode_problems(visible: DataFrame, explode: RowExplode, at: str) -> list[Problem]:
    names = [(f"{at}.explode.as", explode.column)]
    if explode.position is not None:
        names.append((f"{at}.explode.positionAs", explode.position))
    found = check_expressions(visible, [(f"{at}.explode.array", explode.array, "array")])
    return [*found, *check_names(visible, names)]


def _with_elements(visible: DataFrame, explode: RowExplode | None) -> DataFrame:
    """What `where` and `select` see. In a projection, as an expression is checked by what is above its columns."""
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
    visible = _with_elements(visible_columns(source_frame(spark), plan, record_columns(spark, plan)), plan.explode)
    return {each.part: visible.select(F.expr(getattr(plan.select, each.part))) for each in plan.encodings}


def order_kind(spark: SparkSession, plan: RowPlan) -> str | None:
    """Whether `orderBy` is a number or a time; None where there is none. The plan has passed `analyse`."""
    if plan.table is None or plan.table.order is None:
        return None
    visible = _with_elements(visible_columns(source_frame(spark), plan, record_columns(spark, plan)), plan.explode)
    kind = visible.select(F.expr(plan.table.order.expression)).schema[0].dataType
    return "time" if isinstance(kind, TimestampType) else "number"


def _checked(spark: SparkSession, plan: RowPlan) -> tuple[StructType | None, list[Problem]]:
    """The columns of a decoded record, and what is wrong with them."""
    if plan.schema is None:
        return None, []
    if plan.decode_format == "debezium":
        return _checked_changes(spark, plan, plan.schema)
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
