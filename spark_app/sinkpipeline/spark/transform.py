"""From the DataFrame of Spark's Kafka source to the rows that a sink writes.

One row in, at most one row out, in the source's order and partitions; batch and streaming alike. What a record can't
be decoded to stays a row, with the source's own bytes and an `error`, so that the sink can dead-letter it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructType

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.spark import decode
from sinkpipeline.spark.expressions import (
    SOURCE_COLUMNS,
    SOURCE_STRUCT,
    check_expressions,
    check_schema,
    header_entries,
    invalid,
    parse_schema,
    source_frame,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sinkpipeline.core.rowplan import RowPlan

REQUIRED_CONF = {
    # Casts between texts and times in expressions use the session's zone: a replay elsewhere must give the same row.
    "spark.sql.session.timeZone": "UTC",
}
"""What the session must set; nothing here changes a session."""


def output_rows(df: DataFrame, plan: RowPlan) -> DataFrame:
    """The rows to write: topic, partition, offset, key, value, target_partition, timestamp_ms, headers, error.

    `df` is Kafka's source with `includeHeaders=true`. `target_partition` is null where the partitioner decides,
    `headers` where there are none, `error` where the record was decoded. The plan has passed `analyse`.
    """
    schema = None if plan.schema is None else parse_schema(df.sparkSession, plan.schema)
    error = _hidden("error", schema)
    decoded = _decoded(df, plan, schema, error)
    source = F.col(SOURCE_STRUCT)
    if plan.where is not None:
        # An `or` is evaluated from left to right and stops: the expression never sees a row that isn't its own.
        untouched = F.col(error).isNotNull()
        if plan.on_null == "PassThrough":
            untouched |= source.getField("value").isNull()
        decoded = decoded.where(untouched | F.expr(plan.where))
    return decoded.select(
        source.getField("topic").alias("topic"),
        source.getField("partition").alias("partition"),
        source.getField("offset").alias("offset"),
        _selected(plan.select.key, source.getField("key"), error, "binary").alias("key"),
        _value(plan, source, error).alias("value"),
        _selected(plan.select.partition, F.lit(None).cast("int"), error, "int").alias("target_partition"),
        _timestamp(decoded, plan, source, error).alias("timestamp_ms"),
        _headers(decoded, plan, source, error).alias("headers"),
        F.col(error).alias("error"),
    )


def analyse(spark: SparkSession, plan: RowPlan) -> None:
    """Checks the schema and every expression; needs neither a broker nor Kafka's jars, and runs no job.

    Raises:
        SinkPipelineError: EXPRESSION_INVALID, with every problem and its path in the manifest.
    """
    schema = None
    source = source_frame(spark)
    if plan.schema is not None:
        schema, problems = check_schema(spark, plan.schema)
        if problems:
            # Without its columns no expression has a meaning.
            raise invalid(problems)
    error = _hidden("error", schema)
    visible = _decoded(source, plan, schema, error).drop(error)
    if problems := check_expressions(visible, plan.expressions()):
        raise invalid(problems)


def _hidden(purpose: str, schema: StructType | None) -> str:
    """A column name of our own that no field of the schema has, whatever its case."""
    taken = {name.lower() for name in (schema.names if schema else ())}
    name = f"__sinkpipeline_{purpose}"
    while name in taken:
        name += "_"
    return name


def _decoded(df: DataFrame, plan: RowPlan, schema: StructType | None, error: str) -> DataFrame:
    """What expressions see, and `error`: the columns of the record, and the source record as a struct."""
    source = F.struct(*SOURCE_COLUMNS).alias(SOURCE_STRUCT)
    null = F.lit(None).cast(StringType())
    if plan.on_null == "DeadLetter":
        null = F.lit(ErrorClass.NULL_VALUE.error("the value is null"))
    missing = F.when(F.col("value").isNull(), null)
    if schema is None:
        return df.select("key", "value", source, missing.alias(error))
    parsed, corrupt = _hidden("parsed", schema), _hidden("corrupt", schema)
    found = missing.otherwise(decode.json_error(F.col("value"), F.col(parsed), schema, corrupt))
    return df.select("*", decode.parse_json(F.col("value"), schema, corrupt).alias(parsed)).select(
        *(F.col(parsed).getField(each.name).alias(each.name) for each in schema.fields),
        source,
        _pinned(found).alias(error),
    )


def _pinned(column: Column) -> Column:
    """The same column, which the optimiser must leave where it is.

    It would push a filter below the projection that decodes, and so decode each row twice. It doesn't push anything
    through a projection that holds an expression which it must take for non-deterministic.
    """
    return F.when(F.spark_partition_id() >= 0, column)


def _selected(expression: str | None, default: Column, error: str, kind: str) -> Column:
    """The expression, cast to the type that `analyse` has seen to be safe; the default where the row has an error."""
    if expression is None:
        return default
    return F.when(F.col(error).isNull(), F.expr(expression).cast(kind)).otherwise(default)


def _value(plan: RowPlan, source: Column, error: str) -> Column:
    own = source.getField("value")
    selected = _selected(plan.select.value, own, error, "binary")
    if plan.select.value is None or plan.on_null == "DeadLetter":
        return selected
    # A tombstone stays one, whatever the expression makes of the missing columns.
    return F.when(own.isNotNull(), selected)


def _timestamp(decoded: DataFrame, plan: RowPlan, source: Column, error: str) -> Column:
    own = F.unix_millis(source.getField("timestamp"))
    expression = plan.select.timestamp
    if expression is None:
        return own
    selected = F.expr(expression)
    if decoded.select(selected).schema[0].dataType.typeName() == "timestamp":
        selected = F.unix_millis(selected)
    return F.coalesce(F.when(F.col(error).isNull(), selected), own)


def _headers(decoded: DataFrame, plan: RowPlan, source: Column, error: str) -> Column:
    own = source.getField("headers")
    expression = plan.select.headers
    if expression is None:
        return own
    selected = header_entries(F.expr(expression), decoded.select(F.expr(expression)).schema[0].dataType)
    return F.when(F.col(error).isNull(), selected).otherwise(own)
