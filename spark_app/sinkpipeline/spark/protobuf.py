"""Protobuf in Spark: a column that Python workers make of many values at once, before an expression sees the record."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructField, StructType

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.protobuf.compiler import NotProtobuf, compiled
from sinkpipeline.protobuf.messages import Message, Path, columns_of, message_of
from sinkpipeline.protobuf.reading import ERROR, RESULT, Reader
from sinkpipeline.spark.expressions import SCHEMA_PATH, ExpressionsInvalid, Problem, parse_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from sinkpipeline.core.rowplan import RowPlan

_TOO_LARGE = ErrorClass.RECORD_TOO_LARGE.error("the value is larger than the batches that it travels with")
"""Nobody reads it: such a row is marked on the wire where `RowPlan.largest` is set, and read without that."""


def require_protobuf(spark: SparkSession) -> None:
    """Raises: SinkPipelineError: NotServed, where Spark has no functions of Python that take Arrow."""
    if not hasattr(F, "arrow_udf"):
        raise SinkPipelineError(
            Reason.NOT_SERVED,
            f"format protobuf needs Spark 4.1, and this one is {spark.version}",
            "use Spark 4.1",
        )


def protobuf_columns(spark: SparkSession, plan: RowPlan) -> StructType:
    """The columns of the message that a plan reads.

    Raises:
        ExpressionsInvalid: the manifest's own schema has none.
        SinkPipelineError: NotServed.
    """
    require_protobuf(spark)
    return parse_schema(spark, columns_of(_message(plan)))


def parse_protobuf(plan: RowPlan, schema: StructType, framed: Column, content: Column, refused: Column) -> Column:
    """STRUCT<result, error> of the values for which `refused` is null and which are not too large."""
    asked = refused.isNull() if plan.largest is None else refused.isNull() & ~_is_large(content, plan.largest)
    frame = F.lit(None).cast("binary") if plan.known is None else framed
    reader = Reader(_message(plan), _paths(plan))

    def read(framed: pa.Array, content: pa.Array) -> pa.Array:
        return reader(framed.to_pylist(), content.to_pylist())

    # Its overloads want a kind of function, which Spark takes from the hints above, and warns of being told.
    vectorized: Any = F.arrow_udf
    # Else Spark may take it for something that it can have twice.
    column: Column = vectorized(read, _type(schema)).asNondeterministic()(frame, F.when(asked, content))
    return column


def protobuf_error(plan: RowPlan, content: Column, parsed: Column) -> Column:
    """STRING: why a value, which is not null and has a frame that is known, is refused; null if it fits."""
    error = parsed.getField(ERROR)
    if plan.largest is None:
        return error
    return F.when(_is_large(content, plan.largest), F.lit(_TOO_LARGE)).otherwise(error)


def paths_text(paths: frozenset[Path]) -> str:
    """Where a message stands in its file, as a plan has it."""
    return " ".join(".".join(map(str, each)) for each in sorted(paths))


def _is_large(content: Column, largest: int) -> Column:
    return F.octet_length(content) > largest


def _type(schema: StructType) -> StructType:
    return StructType([StructField(RESULT, schema), StructField(ERROR, StringType())])


def _message(plan: RowPlan) -> Message:
    text = plan.schema or ""
    if plan.known is not None:
        return Message.from_text(text)
    try:
        return _given(text, plan.message)
    except NotProtobuf as error:
        remedy = "give a .proto file with a message that does not hold itself, and its name in decode.message"
        raise ExpressionsInvalid([Problem(SCHEMA_PATH, str(error), remedy)]) from error


@lru_cache(maxsize=16)
def _given(text: str, name: str | None) -> Message:
    message = message_of(compiled(text), name)
    columns_of(message)
    return message


def _paths(plan: RowPlan) -> dict[bytes, frozenset[Path]] | None:
    if plan.known is None:
        return None
    return {
        each.frame: frozenset(tuple(map(int, path.split("."))) for path in each.schema.split())
        for each in plan.known.writers
    }
