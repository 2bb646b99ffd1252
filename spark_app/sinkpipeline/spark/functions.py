"""Functions of jars, which the expressions of a session may call (`spec.spark.functions`).

Spark takes whatever is registered so for deterministic, and has no way to be told otherwise. What it knows not to be
(a function of a catalog or of an extension that says so) is refused where expressions are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sinkpipeline.core.manifest import JavaFunction
from sinkpipeline.spark.expressions import ExpressionsInvalid, Problem
from sinkpipeline.spark.said import java_says, quiet, sentence

_PATH = "spec.spark.functions"
_REMEDY = (
    "name a public class that implements one of org.apache.spark.sql.api.java.UDF0 to UDF22, and give its jar to "
    "--jars; on a cluster it is in the image"
)


def register_functions(spark: SparkSession, functions: Sequence[JavaFunction] | None) -> None:
    """Once for each session, before anything asks what an expression means.

    Raises:
        ExpressionsInvalid: with every problem.
    """
    with quiet():
        problems = [each for at, function in enumerate(functions or ()) for each in _registered(spark, at, function)]
    if problems:
        raise ExpressionsInvalid(list(dict.fromkeys(problems)))


def _registered(spark: SparkSession, at: int, function: JavaFunction) -> Iterator[Problem]:
    path = f"{_PATH}[{at}]"
    session: Any = spark._jsparkSession  # noqa: SLF001 - PySpark's own way takes other notations of a type too
    parser = session.sessionState().sqlParser()
    try:
        taken = _taken(spark, parser, function.name)
    except Py4JJavaError as error:
        remedy = "correct what it says of catalogs, or give their jars to --jars"
        yield Problem("spec.spark.conf", java_says(error), remedy)
        return
    if taken is not None:
        yield Problem(f"{path}.name", taken, "give it another name")
        return
    kind = None
    if function.returns is not None:
        try:
            kind = parser.parseDataType(function.returns)
        except PySparkException as error:
            yield Problem(f"{path}.returns", sentence(error), "write a Spark SQL type such as STRING or ARRAY<BIGINT>")
            return
    try:
        session.udf().registerJava(function.name, function.class_name, kind)
    except PySparkException as error:
        yield Problem(f"{path}.className", sentence(error), _REMEDY)
    except Py4JError as error:
        # What Java says of a class that it can't link.
        cause = java_says(error) if isinstance(error, Py4JJavaError) else type(error).__name__
        yield Problem(f"{path}.className", cause, _REMEDY)


def _taken(spark: SparkSession, parser: Any, name: str) -> str | None:
    """Why no function can have that name."""
    if spark.catalog.functionExists(name):
        # Spark would take the new one from now on, also where our own decoding calls it.
        return f"Spark has a function {name} already"
    try:
        called = parser.parseExpression(f"{name}(1)").getClass().getSimpleName()
    except PySparkException:
        called = ""
    return None if called == "UnresolvedFunction" else f"{name}(...) means something else in SQL"
