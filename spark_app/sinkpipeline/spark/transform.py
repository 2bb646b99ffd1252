"""From the DataFrame of Spark's Kafka source to the rows that a sink writes.

One record in, at most one row out, or several where an array of it is exploded; in the source's order and partitions,
batch and streaming alike. What a record can't be decoded to stays a row, with the source's own bytes and an `error`, so
that the sink can dead-letter it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructType

from sinkpipeline.spark import columns, lookups, unavailable
from sinkpipeline.spark.attempt import attempt, pinned, result
from sinkpipeline.spark.decoding import decoded_records, hidden, record_columns
from sinkpipeline.spark.encode import encoded, encoding_error
from sinkpipeline.spark.expressions import (
    SOURCE_STRUCT,
    header_entries,
)
from sinkpipeline.spark.failures import failure, not_declared, too_many
from sinkpipeline.spark.wire import ROW, TARGET_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from sinkpipeline.core.rowplan import RowColumn, RowExplode, RowPlan, TableRow


def output_rows(df: DataFrame, plan: RowPlan) -> DataFrame:
    """The rows to write: topic, partition, offset, key, value, target_partition, timestamp_ms, headers, error.

    Of a sink that names topics, also `target_topic`. Where records may give several, also `row`: its place among
    those of its record.
    `df` is Kafka's source with `includeHeaders=true`. `target_partition` is null where the partitioner decides,
    `headers` where there are none, `error` where the record was decoded and every expression had a value. The plan has
    passed `analyse`.
    """
    schema = record_columns(df.sparkSession, plan)
    error = hidden("error", schema)
    decoded = decoded_records(df, plan, schema, error)
    if plan.explode is not None:
        decoded = _exploded(decoded, plan, plan.explode, error, schema)
    for lookup in plan.lookups:
        without = _without(decoded, plan, lookup.equals, lookup.place)
        failed = F.coalesce(without, failure(lookup.place))
        decoded = lookups.looked_up(decoded, lookup, error, hidden("equals", schema), without, failed)
    if plan.where is not None:
        decoded = _kept(decoded, plan.where, plan, error, hidden("where", schema))
    selected, of = _selected(decoded, plan, error, schema)
    source = F.col(SOURCE_STRUCT)
    own = {name: source.getField(name) for name in ("topic", "partition", "offset", "key", "value", "headers")}
    at = F.unix_millis(source.getField("timestamp"))

    def chosen(name: str, default: Column) -> Column:
        """What was selected; the record's own where nothing is, or where the record has an error."""
        of_it = of.get(_place(name))
        return default if of_it is None else F.when(F.col(error).isNull(), result(F.col(of_it))).otherwise(default)

    # Where there are no keys the subject has their place; a dead letter has the key of its record.
    subject = F.when(F.col(error).isNotNull(), own["key"]).otherwise(chosen("subject", F.lit(None).cast("binary")))
    place = [] if plan.explode is None else [F.col(hidden(ROW, schema)).alias(ROW)]
    if plan.table is not None:
        return _table_rows(selected, own, at, F.col(error), [result(F.col(each)) for each in of.values()], place)
    return selected.select(
        *(own[name].alias(name) for name in ("topic", "partition", "offset")),
        (subject if plan.keyless else chosen("key", own["key"])).alias("key"),
        chosen("value", own["value"]).alias("value"),
        chosen("partition", F.lit(None).cast("int")).alias("target_partition"),
        F.coalesce(chosen("timestamp", at), at).alias("timestamp_ms"),
        chosen("headers", own["headers"]).alias("headers"),
        F.col(error).alias("error"),
        *([chosen("topic", F.lit(None).cast("string")).alias(TARGET_TOPIC)] if plan.topics else []),
        *place,
    )


def _table_rows(
    df: DataFrame,
    own: Mapping[str, Column],
    at: Column,
    error: Column,
    fields: Sequence[Column],
    more: Sequence[Column],
) -> DataFrame:
    """With a line of the table as the value, and nothing else; what has an error is the source's own."""

    def kept(name: str) -> Column:
        return F.when(error.isNotNull(), own[name]).alias(name)

    return df.select(
        *(own[name].alias(name) for name in ("topic", "partition", "offset")),
        kept("key"),
        F.when(error.isNull(), columns.line(fields)).otherwise(own["value"]).alias("value"),
        F.lit(None).cast("int").alias("target_partition"),
        at.alias("timestamp_ms"),
        kept("headers"),
        error.alias("error"),
        *more,
    )


def _exploded(df: DataFrame, plan: RowPlan, explode: RowExplode, error: str, schema: StructType | None) -> DataFrame:
    """A row for each element; and one for each record that has an error, or is none to be asked."""
    tried, items, row = (hidden(each, schema) for each in ("array", "items", ROW))
    asked = F.col(error).isNull()
    if plan.on_null == "PassThrough":
        asked &= F.col(SOURCE_STRUCT).getField("value").isNotNull()
    array = F.expr(explode.array)
    without = _without(df, plan, explode.array, "transform.explode.array")
    df = df.withColumn(tried, pinned(F.when(asked & without.isNull(), attempt(df.sparkSession, array))))
    found = result(F.col(tried))
    wrong = (
        F.when(~asked, F.col(error))
        .when(without.isNotNull(), without)
        .when(F.col(tried).isNull(), failure("transform.explode.array"))
        .when(F.size(found) > explode.most_rows, too_many(explode))
    )
    df = df.withColumn(error, wrong)
    alone = F.col(error).isNotNull() | F.col(tried).isNull()
    kind = df.select(F.get(found, F.lit(0))).schema[0].dataType
    # A column of its own: Spark asks for its size before it explodes it, and would make the array twice.
    nothing = F.array(F.lit(None).cast(kind))
    df = df.withColumn(items, pinned(F.when(alone, nothing).otherwise(found)))
    kept = [F.col(each) for each in df.columns if each not in (tried, items)]
    df = df.select(*kept, F.posexplode(items).alias(row, explode.column))
    return df if explode.position is None else df.withColumn(explode.position, F.col(row))


def _kept(df: DataFrame, where: str, plan: RowPlan, error: str, kept: str) -> DataFrame:
    """The rows for which `where` holds, or fails; and those that it isn't asked about."""
    asked = F.col(error).isNull()
    if plan.on_null == "PassThrough":
        asked &= F.col(SOURCE_STRUCT).getField("value").isNotNull()
    # A branch that isn't taken is not evaluated: the expression never sees a row that isn't its own.
    without = _without(df, plan, where, "transform.where")
    tried = df.withColumn(kept, pinned(F.when(asked & without.isNull(), attempt(df.sparkSession, F.expr(where)))))
    failed = F.coalesce(without, F.when(F.col(kept).isNull(), failure("transform.where")))
    told = tried.withColumn(error, F.when(asked, failed).otherwise(F.col(error)))
    return told.where(F.col(error).isNotNull() | ~asked | result(F.col(kept))).drop(kept)


def _selected(
    df: DataFrame, plan: RowPlan, error: str, schema: StructType | None
) -> tuple[DataFrame, Mapping[str, str]]:
    """With a column of what each expression selected gave, and the error of one that failed; their names by place."""
    typed = _typed(df, plan) if plan.table is None else _fields(df, plan, plan.table)
    # The name of a column may be any text, a dot too.
    of = {name: hidden(str(number), schema) for number, name in enumerate(typed)}
    without = {name: _without(df, plan, text, name) for name, text in _texts(df, plan).items()}
    asked = {name: F.col(error).isNull() for name in typed}
    asked |= {name: asked[name] & each.isNull() for name, each in without.items()}
    if _VALUE in asked and plan.on_null == "PassThrough":
        # A tombstone stays one, whatever the expression makes of the missing columns.
        asked[_VALUE] &= F.col(SOURCE_STRUCT).getField("value").isNotNull()
    spark = df.sparkSession
    # Pinned: Spark would take what two expressions share out of what is tried, and its failure would be the task's.
    tried = df.withColumns(
        {of[name]: pinned(F.when(asked[name], attempt(spark, each))) for name, each in typed.items()}
    )
    failures = [*without.values()]
    failures += [F.when(asked[name] & F.col(of[name]).isNull(), failure(name)) for name in typed]
    if plan.topics:
        is_one = F.coalesce(result(F.col(of[_TOPIC])).isin(*plan.topics), F.lit(False))
        failures.append(F.when(asked[_TOPIC] & ~is_one, not_declared()))
    written: dict[str, str] = {_place(each.part): hidden(f"{each.part}_encoded", schema) for each in plan.encodings}
    if not written:
        return tried.withColumn(error, F.coalesce(F.col(error), *failures)), of
    structs = {name: F.col(of[name]) for name in written}
    kinds = {name: df.select(typed[name]).schema[0].dataType for name in written}
    encodings: dict[str, Column] = {
        place: attempt(spark, encoded(result(structs[place]), kinds[place], each))
        for place, each in ((_place(each.part), each) for each in plan.encodings)
    }
    # What gave no STRUCT has failed before.
    tried = tried.withColumns({written[name]: F.when(structs[name].isNotNull(), encodings[name]) for name in written})
    failures += [
        F.when(
            structs[_place(each.part)].isNotNull() & F.col(written[_place(each.part)]).isNull(),
            F.lit(encoding_error(each.part)),
        )
        for each in plan.encodings
    ]
    return tried.withColumn(error, F.coalesce(F.col(error), *failures)), {**of, **written}


def _typed(df: DataFrame, plan: RowPlan) -> dict[str, Column]:
    """The expressions of `select`, cast to the types that `analyse` has seen to be safe."""
    found: dict[str, Column] = {}
    encoded_parts = {each.part for each in plan.encodings}
    for name, text in ((each.name, getattr(plan.select, each.name)) for each in fields(plan.select)):
        if text is None:
            continue
        expression, place = F.expr(text), _place(name)
        match name:
            case "headers":
                found[place] = header_entries(expression, df.select(expression).schema[0].dataType)
            case "timestamp":
                is_time = df.select(expression).schema[0].dataType.typeName() == "timestamp"
                found[place] = F.unix_millis(expression) if is_time else expression
            case _ if name in encoded_parts:
                found[place] = expression
            case "topic":
                found[place] = expression.cast("string")
            case _:
                found[place] = expression.cast("int" if name == "partition" else "binary")
    return found


def _place(part: str) -> str:
    """Of an expression of `select`, as the manifest names it."""
    return f"transform.select.{part}"


_VALUE, _TOPIC = _place("value"), _place("topic")


def _fields(df: DataFrame, plan: RowPlan, row: TableRow) -> dict[str, Column]:
    """The fields of a table's row, in their order, as text."""
    found: dict[str, Column] = {}
    for part in row.parts():
        expression = F.expr(part.expression)
        kind = df.select(expression).schema[0].dataType
        if part is row.deletes:
            text = columns.flag(expression)
        elif part is row.order:
            text = columns.order(expression, kind)
        else:
            text = columns.field(expression, kind)
        found[_within_sink(part)] = text
    if row.keeps and plan.lacking is not None:
        found["kept"] = unavailable.kept(df, row.columns, plan.lacking)
    return found


def _within_sink(part: RowColumn) -> str:
    """As the manifest names it there."""
    return part.at.partition("].")[2]


def _texts(df: DataFrame, plan: RowPlan) -> dict[str, str]:
    """Expressions that may read what a change is without, by name; a column that stays as it is in the table may."""
    if plan.lacking is None:
        return {}
    if plan.table is None:
        texts = {_place(each.name): getattr(plan.select, each.name) for each in fields(plan.select)}
        return {name: text for name, text in texts.items() if text is not None}
    return {
        _within_sink(part): part.expression
        for part in plan.table.parts()
        if not part.may_stay or unavailable.only_reads(df, F.expr(part.expression)) is None
    }


def _without(df: DataFrame, plan: RowPlan, text: str, path: str) -> Column:
    """Why an expression of a change has no value; null where it has one."""
    found = None if plan.lacking is None else unavailable.lacking(df, F.expr(text), path, plan.lacking)
    return F.lit(None).cast(StringType()) if found is None else found
