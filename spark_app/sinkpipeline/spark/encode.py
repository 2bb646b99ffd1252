"""Writing a STRUCT with a schema of a registry, in the JVM: the expression, and the schema that a STRUCT has by itself.

See `core.encoding`; who asks the registry is `spark.encoder`.
"""

from __future__ import annotations

import json
import math
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sinkpipeline.core.avro_fit import misfit
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.encoding import evolvable
from sinkpipeline.spark.avro import PARSER, require_avro
from sinkpipeline.spark.framing import literal
from sinkpipeline.spark.java import java_class
from sinkpipeline.spark.json_schema import NoJsonSchema, json_schema
from sinkpipeline.spark.places import places
from sinkpipeline.spark.said import innermost_words, java_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from sinkpipeline.core.encoding import Encoding
    from sinkpipeline.spark.places import Test

_JSON = {
    "timeZone": "UTC",
    # What a session may set otherwise, or would cut: microseconds.
    "ignoreNullFields": "true",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_LAST_YEAR = 9999
"""Of the dates of JSON Schema; before the year 1 Spark counts years of another era."""


class NoSchema(ValueError):
    """A STRUCT that has no schema, or not this one; its text says why."""


def encoded(struct: Column, kind: DataType, encoding: Encoding) -> Column:
    """BINARY of a STRUCT of this kind, framed; null is null. It fails for what does not fit the schema."""
    if encoding.schema is None or encoding.frame is None:
        raise ValueError(f"{encoding.path}: its schema is not settled")
    of_json = encoding.format == "json"
    written = F.to_json(struct, _JSON).cast("binary") if of_json else to_avro(struct, encoding.schema)
    framed = F.concat(literal(encoding.frame), written)
    unwritable = _unwritable(struct, kind, of_json=of_json)
    return framed if unwritable is None else F.when(unwritable, F.raise_error(F.lit("unwritable"))).otherwise(framed)


def _unwritable(value: Column, kind: DataType, *, of_json: bool) -> Column | None:
    """Whether it holds a value that Spark would write as something else; None where its type has no such values."""
    wanted = _UNLIKE | (_UNLIKE_IN_JSON if of_json else {})
    found = [each.any(value, wanted[type(each.kind)]) for each in places(kind, tuple(wanted))]
    return reduce(or_, found) if found else None


def _is_no_text(text: Column) -> Column:
    return ~F.is_valid_utf8(text)


def _is_no_number(number: Column) -> Column:
    return F.isnan(number) | (F.abs(number) == math.inf)


def _is_beyond(time: Column) -> Column:
    return ~F.year(time).between(1, _LAST_YEAR)


_UNLIKE: dict[type[DataType], Test] = {StringType: _is_no_text}
"""Spark's strings are any bytes: to_json puts U+FFFD in place of some, Avro's readers refuse them."""
_UNLIKE_IN_JSON: dict[type[DataType], Test] = {
    # JSON has no such numbers, and to_json writes texts.
    **dict.fromkeys((FloatType, DoubleType), _is_no_number),
    **dict.fromkeys((DateType, TimestampType, TimestampNTZType), _is_beyond),
}


def encoding_error(part: str) -> str:
    detail = "a null where it has none, a text that is no UTF-8, or with json NaN or a year after 9999"
    return ErrorClass.ENCODING_FAILED.error(f"select.{part} does not fit its schema, such as {detail}")


def own_schema(selected: DataFrame, encoding: Encoding) -> str:
    """The schema of the STRUCT that is the only column of `selected`.

    Raises:
        NoSchema: there is none for a type or a name in it.
        SinkPipelineError: NotServed.
    """
    struct = selected.schema[0].dataType
    if not isinstance(struct, StructType):
        raise NoSchema(f"it is {struct.simpleString()}, and no STRUCT")
    for pair in _same_names(struct, ""):
        raise NoSchema(pair)
    if encoding.format == "json":
        try:
            return json.dumps(json_schema(struct, encoding.record))
        except NoJsonSchema as error:
            raise NoSchema(str(error)) from error
    require_avro(selected.sparkSession)
    namespace, _, name = encoding.record.rpartition(".")
    try:
        converters = java_class(selected.sparkSession, "org.apache.spark.sql.avro.SchemaConverters")
        schema = converters.toAvroType(_kind(selected), False, name, namespace)
    except Py4JJavaError as error:
        raise NoSchema(f"Avro has no schema for it: {java_words(error)}") from error
    text = json.dumps(evolvable(json.loads(str(schema.toString()))))
    # Else it would be registered, and then no row could be written with it.
    _check_writable(selected, text)
    return text


def check_avro(selected: DataFrame, encoding: Encoding, schema: str) -> None:
    """That the STRUCT can be written with a schema of somebody else, and means the same there.

    Raises:
        NoSchema: it can't.
        SinkPipelineError: NotServed.
    """
    if (fact := misfit(json.loads(own_schema(selected, encoding)), json.loads(schema))) is not None:
        raise NoSchema(fact)
    _check_writable(selected, schema)


def _check_writable(selected: DataFrame, schema: str) -> None:
    spark: SparkSession = selected.sparkSession
    require_avro(spark)
    try:
        parsed = java_class(spark, PARSER)().parse(schema)
        java_class(spark, "org.apache.spark.sql.avro.AvroSerializer")(_kind(selected), parsed, False)
    except Py4JJavaError as error:
        raise NoSchema(innermost_words(error)) from error


def _same_names(kind: DataType, at: str) -> Iterator[str]:
    """Fields that Spark doesn't tell apart: of two, Avro would be given one."""
    match kind:
        case StructType():
            seen: dict[str, str] = {}
            for each in kind.fields:
                # As Java compares without case: no letter differs in upper case and is the same in lower case.
                folded = each.name.upper().lower()
                if folded in seen:
                    yield f"fields {at}{seen[folded]} and {at}{each.name} have the same name but for its case"
                seen[folded] = each.name
                yield from _same_names(each.dataType, f"{at}{each.name}.")
        case ArrayType():
            yield from _same_names(kind.elementType, at)
        case MapType():
            yield from _same_names(kind.valueType, at)
        case _:
            pass


def _kind(selected: DataFrame) -> Any:
    frame: Any = selected._jdf  # noqa: SLF001 - likewise
    return frame.schema().apply(0).dataType()
