"""Each format's values as columns, and why a value is refused that has none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructType

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.spark import avro, changes, debezium, decode, framing
from sinkpipeline.spark.attempt import attempt, pinned, result
from sinkpipeline.spark.avro import avro_columns
from sinkpipeline.spark.exact import invalid_texts
from sinkpipeline.spark.expressions import SOURCE_COLUMNS, SOURCE_STRUCT, parse_schema
from sinkpipeline.spark.lines import csv_error, line_of, parse_csv, text_error, text_of

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import Column, DataFrame, SparkSession

    from sinkpipeline.core.rowplan import RowPlan
    from sinkpipeline.core.schemas import Known


def visible_columns(source: DataFrame, plan: RowPlan, schema: StructType | None) -> DataFrame:
    """What expressions see."""
    error = hidden("error", schema)
    return decoded_records(source, plan, schema, error).drop(error)


def record_columns(spark: SparkSession, plan: RowPlan) -> StructType | None:
    if plan.schema is None:
        return None
    match plan.decode_format:
        case "avro":
            return avro_columns(spark, plan.schema)
        case "debezium":
            return debezium.columns(spark, plan.schema, avro=plan.known is not None)
        case "change":
            return changes.columns(parse_schema(spark, plan.schema))
        case "protobuf":
            found: StructType = _protobuf().protobuf_columns(spark, plan)
            return found
        case _:
            return parse_schema(spark, plan.schema)


def hidden(purpose: str, schema: StructType | None) -> str:
    """A column name of our own that no field of the schema has, whatever its case."""
    taken = {name.lower() for name in (schema.names if schema else ())}
    name = f"__sinkpipeline_{purpose}"
    while name in taken:
        name += "_"
    return name


def decoded_records(df: DataFrame, plan: RowPlan, schema: StructType | None, error: str) -> DataFrame:
    """What expressions see, and `error`: the columns of the record, and the source record as a struct."""
    source = F.struct(*SOURCE_COLUMNS).alias(SOURCE_STRUCT)
    null = F.lit(None).cast(StringType())
    if plan.on_null == "DeadLetter":
        null = F.lit(ErrorClass.NULL_VALUE.error("the value is null"))
    missing = F.when(F.col("value").isNull(), null)
    if plan.on_null == "Skip":
        df = df.where(F.col("value").isNotNull())
    if plan.decode_format == "text":
        return df.select(
            "key",
            text_of(F.col("value")).alias("value"),
            source,
            missing.otherwise(text_error(F.col("value"))).alias(error),
        )
    if schema is None:
        return df.select("key", "value", source, missing.alias(error))
    of_format = _changes if plan.lacking is not None else _parsed
    with_parsed, record, refused = of_format(df, plan, schema)
    return with_parsed.select(
        *(record.getField(each.name).alias(each.name) for each in schema.fields),
        source,
        pinned(missing.otherwise(refused)).alias(error),
    )


def _parsed(df: DataFrame, plan: RowPlan, schema: StructType) -> tuple[DataFrame, Column, Column]:
    """`df` with what its values were parsed to, the record's struct, and why a value that is not null is refused.

    What is parsed is a column, so that nothing is parsed twice.
    """
    parsed, corrupt = hidden("parsed", schema), hidden("corrupt", schema)
    content, framed = F.col("value"), F.col(hidden("frame", schema))
    refused = F.lit(None).cast(StringType())
    if plan.known is not None:
        df, content = _unframed(df, plan.known, schema, paths=plan.decode_format == "protobuf")
        refused = (
            framing.known_error(framed, plan.known)
            if plan.known.asked
            else framing.frame_error(framed, plan.known.id_bytes)
        )
    if plan.decode_format == "json":
        found = df.select("*", decode.parse_json(content, schema, corrupt).alias(parsed))
        fits = decode.json_error(content, F.col(parsed), schema, corrupt)
        return found, F.col(parsed), F.coalesce(refused, fits)
    spark, reader = df.sparkSession, plan.schema or ""
    if plan.decode_format == "csv":
        line = hidden("line", schema)
        df = df.select("*", line_of(content).alias(line))
        made = attempt(spark, parse_csv(F.col(line), reader, schema, plan.delimiter, corrupt))
        found = df.select("*", result(made).alias(parsed))
        return found, F.col(parsed), csv_error(content, F.col(line), F.col(parsed), schema, plan.delimiter, corrupt)
    if plan.decode_format == "protobuf":
        made = _protobuf().parse_protobuf(plan, schema, framed, content, refused)
        found = df.select("*", made.alias(parsed))
        fits = _protobuf().protobuf_error(plan, content, F.col(parsed))
        return found, result(F.col(parsed)), F.coalesce(refused, fits)
    if plan.known is None:
        found = df.select("*", avro.parse_alone(spark, content, reader).alias(parsed))
        return found, *_of_avro(F.col(parsed), schema, avro.alone_error(F.col(parsed)))
    names = hidden("frame", schema), hidden("body", schema)
    made = avro.parse_framed(spark, *names, reader, schema, plan.known)
    found = df.select("*", made.alias(parsed))
    return found, *_of_avro(F.col(parsed), schema, avro.framed_error(framed, F.col(parsed), plan.known))


def _of_avro(parsed: Column, schema: StructType, error: Column) -> tuple[Column, Column]:
    record = avro.record(parsed)
    return record, F.coalesce(error, invalid_texts(record, schema))


def _protobuf() -> ModuleType:
    """Only who reads Protobuf pays for its library, a tenth of a second of each start."""
    from sinkpipeline.spark import protobuf  # noqa: PLC0415

    return protobuf


def _changes(df: DataFrame, plan: RowPlan, schema: StructType) -> tuple[DataFrame, Column, Column]:
    """The same of changes of rows."""
    spark, text = df.sparkSession, plan.schema or ""
    named = partial(hidden, schema=schema)
    if plan.decode_format == "change":
        return changes.decoded(df, plan, parse_schema(spark, text), named)
    fields = debezium.fields_of(spark, text, avro=plan.known is not None)
    if plan.known is None:
        df, raw, refused = debezium.parse_json(df, F.col("value"), fields, named)
        return debezium.converted(df, raw, refused, fields, parse_schema(spark, text), named, rowless=plan.rowless)
    df, raw, refused = _parsed(df, replace(plan, decode_format="avro"), avro_columns(spark, text))
    return debezium.converted(df, raw, refused, fields, None, named, rowless=plan.rowless)


def _unframed(df: DataFrame, known: Known, schema: StructType, *, paths: bool) -> tuple[DataFrame, Column]:
    """`df` with the frames of its values, and what follows them."""
    framed, content = hidden("frame", schema), hidden("body", schema)
    value, headers = F.col("value"), F.col("headers")
    with_frame = df.select("*", framing.frame(value, headers, known.id_bytes, paths=paths).alias(framed))
    return with_frame.select("*", framing.body(value, headers, F.col(framed), paths=paths).alias(content)), F.col(
        content
    )
