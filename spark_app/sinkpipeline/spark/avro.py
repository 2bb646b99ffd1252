"""Avro in the JVM, by Spark's own `from_avro`: what a value decodes to, and what schemas mean.

`from_avro` alone is not enough. It takes one writer's schema, and in its permissive mode a value that doesn't fit gives
the same nulls as a record of nulls. So each writer has a branch, and each decode is tried (`attempt`). It leaves the
bytes behind a value unread: read with a schema of something else, a value is often a record. So an end of our own
follows each, and must be found there.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BinaryType, StructField, StructType

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.schemas import MAX_WRITERS, Known
from sinkpipeline.spark.attempt import RESULT, attempt, result
from sinkpipeline.spark.expressions import ExpressionsInvalid, Problem, source_frame
from sinkpipeline.spark.framing import among, frame_error, incompatible, literal, pending_error, undecodable
from sinkpipeline.spark.java import AVRO_LIMITS, java_class
from sinkpipeline.spark.said import java_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, SparkSession

_STRICT = {"mode": "FAILFAST"}
_A_RECORD = "give an Avro record that is not recursive as the reader's schema"
PARSER = "org.apache.avro.Schema$Parser"
"""Of Spark's own Avro library, which decodes."""
_RECORD, _THEN = "record", "end"
_END = bytes.fromhex("e3176b2fc9584d90a4d1720b3e86f51c")
"""Its first byte is none of the others, so that nothing stands between a value and it unseen."""
_MALFORMED = ErrorClass.MALFORMED_AVRO.error("the value is not of its writer's schema")


def require_avro(spark: SparkSession) -> None:
    """Makes the driver's JVM ready to decode.

    Raises:
        SinkPipelineError: NotServed, where Spark is without its Avro module.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way to know
    if isinstance(jvm.org.apache.spark.sql.avro.AvroDataToCatalyst, JavaPackage):
        raise SinkPipelineError(
            Reason.NOT_SERVED,
            f"format avro needs spark-avro, and this Spark, {spark.version}, is without it",
            "use Spark 4.1, which has it here",
        )
    # On a cluster this JVM runs before we do. Avro reads its limits when it decodes for the first time.
    for name, most in AVRO_LIMITS.items():
        if jvm.java.lang.System.getProperty(name) is None:
            jvm.java.lang.System.setProperty(name, str(most))


def avro_columns(spark: SparkSession, reader: str) -> StructType:
    """The columns of a reader's schema.

    Raises:
        SinkPipelineError: SchemaUnsupported, NotServed.
    """
    require_avro(spark)
    try:
        decoded = source_frame(spark).select(from_avro("value", reader, _STRICT).alias("value"))
        kind = decoded.schema["value"].dataType
    except (PySparkException, Py4JError) as error:
        raise _unsupported(f"Spark can't read the schema: {java_words(error)}") from error
    if not isinstance(kind, StructType):
        raise _unsupported(f"the schema is {kind.simpleString()}, and no record")
    return kind


def parse_alone(spark: SparkSession, value: Column, schema: str) -> Column:
    """What `record` takes, of values that all have one schema and no frame; null where one doesn't fit."""
    return F.when(value.isNotNull(), _tried(spark, value, schema, schema))


def record(parsed: Column) -> Column:
    """The struct of the columns; it means nothing where there is an error."""
    return result(parsed).getField(_RECORD)


def alone_error(parsed: Column) -> Column:
    """STRING: why a value, which is not null, is refused; null if it fits."""
    return F.when(_is_unfit(parsed), F.lit(_MALFORMED))


def _tried(spark: SparkSession, body: Column, writer: str, reader: str) -> Column:
    decoded = from_avro(F.concat(body, literal(_END)), _with_end(writer), {**_STRICT, "avroSchema": _with_end(reader)})
    return attempt(spark, decoded)


def _is_unfit(parsed: Column) -> Column:
    """Whether a value can't be decoded, or is not all that its schema describes."""
    return parsed.isNull() | (result(parsed).getField(_THEN) != literal(_END))


@lru_cache(maxsize=4 * MAX_WRITERS)
def _with_end(schema: str) -> str:
    """Of a value with `_END` behind it: a decoder leaves what follows a value unread, whatever it is."""
    end = {"type": "fixed", "name": "sinkpipeline_end", "size": len(_END)}
    fields = [{"name": _RECORD, "type": json.loads(schema)}, {"name": _THEN, "type": end}]
    return json.dumps({"type": "record", "name": "sinkpipeline_value", "fields": fields})


def parse_framed(
    spark: SparkSession, framed: str, content: str, reader: str, columns: StructType, known: Known
) -> Column:
    """What `record` takes, of framed values, a branch for each writer; null where one doesn't fit, or isn't known.

    `framed` and `content` are columns by their names.
    """
    branches: Column | None = None
    for each in known.writers:
        named, decoded = _branch(spark, framed, content, reader, each.frame, each.schema)
        branches = F.when(named, decoded) if branches is None else branches.when(named, decoded)
    with_end = StructType([StructField(_RECORD, columns), StructField(_THEN, BinaryType())])
    nothing = F.lit(None).cast(StructType([StructField(RESULT, with_end)]))
    return nothing if branches is None else branches.otherwise(nothing)


@lru_cache(maxsize=4 * MAX_WRITERS)
def _branch(
    spark: SparkSession, framed: str, content: str, reader: str, frame: bytes, writer: str
) -> tuple[Column, Column]:
    """Whether a value names this writer, and what it decodes to: kept, so that a new plan costs its new writers."""
    return F.col(framed) == literal(frame), _tried(spark, F.col(content), writer, reader)


def framed_error(framed: Column, parsed: Column, known: Known) -> Column:
    """STRING: why a value, which is not null, is refused, or isn't decoded yet; null if it fits."""
    error = undecodable(frame_error(framed, known.id_bytes), framed, known)
    for each in known.writers:
        if each.misfit is not None:
            bad = _is_unfit(parsed) & (framed == literal(each.frame))
            error = error.when(bad, incompatible(each.frame, each.misfit))
    if known.writers:
        written = among(framed, [each.frame for each in known.writers])
        error = error.when(_is_unfit(parsed) & written, F.lit(_MALFORMED))
    return error.when(parsed.isNull(), pending_error(framed))


def whole_schema(spark: SparkSession, text: str, references: Iterable[str] = ()) -> str:
    """The schema as JSON that refers to nothing outside; the schemas that it refers to come first.

    Raises:
        SinkPipelineError: SchemaUnsupported.
    """
    parser = java_class(spark, PARSER)()
    try:
        for each in references:
            parser.parse(each)
        return str(parser.parse(text).toString())
    except Py4JJavaError as error:
        raise _unsupported(f"the schema can't be read: {java_words(error)}") from error


def given_schema(spark: SparkSession, text: str, path: str) -> str:
    """The schema that stands in the manifest at `path`, as `whole_schema`.

    Raises:
        ExpressionsInvalid: Spark has no columns for it. That is no state of the world: an edit alone mends it.
        SinkPipelineError: NotServed.
    """
    try:
        schema = whole_schema(spark, text)
        avro_columns(spark, schema)
    except SinkPipelineError as error:
        if error.reason is not Reason.SCHEMA_UNSUPPORTED:
            raise
        raise ExpressionsInvalid([Problem(path, error.message, _A_RECORD)]) from error
    return schema


def misfit(spark: SparkSession, reader: str, writer: str) -> str | None:
    """Why not every record of the writer's schema can be read by the reader's, by Avro's rules; None where each can."""
    parser = java_class(spark, PARSER)
    schemas = [parser().parse(each) for each in (reader, writer)]
    found = java_class(spark, "org.apache.avro.SchemaCompatibility").checkReaderWriterCompatibility(*schemas)
    if found.getType().name() == "COMPATIBLE":
        return None
    found = found.getResult().getIncompatibilities()
    told = [f"{each.getLocation()} {each.getType().name()}: {each.getMessage()}" for each in found]
    return "; ".join(told) or "it does not fit the reader's"


def _unsupported(fact: str) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.SCHEMA_UNSUPPORTED,
        fact,
        f"{_A_RECORD}, in decode.schema or schemaRegistry.reader",
    )
