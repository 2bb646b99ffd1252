"""Writing a STRUCT with a schema of a registry, in the JVM: the expression, and the schema that a STRUCT has by itself.

See `core.encoding`; who asks the registry is `spark.encoder`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import StructType

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.encoding import evolvable
from sinkpipeline.spark.avro import java_words, require_avro
from sinkpipeline.spark.framing import literal
from sinkpipeline.spark.json_schema import NoJsonSchema, json_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sinkpipeline.core.encoding import Encoding

_JSON = {"timeZone": "UTC"}


class NoSchema(ValueError):
    """A STRUCT that has no schema, or not this one; its text says why."""


def encoded(struct: Column, encoding: Encoding) -> Column:
    """BINARY of a STRUCT, framed; null is null. It fails for what does not fit the schema."""
    if encoding.schema is None or encoding.frame is None:
        raise ValueError(f"{encoding.path}: its schema is not settled")
    of_json = encoding.format == "json"
    written = F.to_json(struct, _JSON).cast("binary") if of_json else to_avro(struct, encoding.schema)
    return F.concat(literal(encoding.frame), written)


def encoding_error(part: str) -> str:
    return ErrorClass.ENCODING_FAILED.error(f"select.{part} does not fit its schema, such as a null where it has none")


def own_schema(selected: DataFrame, encoding: Encoding) -> str:
    """The schema of the STRUCT that is the only column of `selected`.

    Raises:
        NoSchema: there is none for a type or a name in it.
        SinkPipelineError: NotServed.
    """
    if encoding.format == "json":
        struct = selected.schema[0].dataType
        if not isinstance(struct, StructType):
            raise NoSchema(f"it is {struct.simpleString()}, and no STRUCT")
        try:
            return json.dumps(json_schema(struct, encoding.record))
        except NoJsonSchema as error:
            raise NoSchema(str(error)) from error
    require_avro(selected.sparkSession)
    namespace, _, name = encoding.record.rpartition(".")
    jvm: Any = selected.sparkSession._jvm  # noqa: SLF001 - Spark's own Avro library, which encodes with it
    try:
        converters = jvm.org.apache.spark.sql.avro.SchemaConverters
        schema = converters.toAvroType(_kind(selected), False, name, namespace)
    except Py4JJavaError as error:
        raise NoSchema(f"Avro has no schema for it: {java_words(error)}") from error
    return json.dumps(evolvable(json.loads(str(schema.toString()))))


def check_avro(selected: DataFrame, schema: str) -> None:
    """That the STRUCT can be written with a schema.

    Raises:
        NoSchema: it can't.
        SinkPipelineError: NotServed.
    """
    spark: SparkSession = selected.sparkSession
    require_avro(spark)
    jvm: Any = spark._jvm  # noqa: SLF001 - likewise
    try:
        parsed = jvm.org.apache.avro.Schema.Parser().parse(schema)
        jvm.org.apache.spark.sql.avro.AvroSerializer(_kind(selected), parsed, False)
    except Py4JJavaError as error:
        raise NoSchema(java_words(error)) from error


def _kind(selected: DataFrame) -> Any:
    frame: Any = selected._jdf  # noqa: SLF001 - likewise
    return frame.schema().apply(0).dataType()
