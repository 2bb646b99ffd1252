"""An expression that may fail for one row: tried, so that its failure is that row's and not its task's.

Spark's ANSI mode raises for an overflow, a division by zero or a text that is no number, and the whole task fails.
Spark has `try_add`, `try_cast` and more, but nothing public for an expression of somebody else's; within, `TryEval`
is what several of those are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from sinkpipeline.spark.java import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULT = "result"
"""The field of the struct."""


def attempt(spark: SparkSession, expression: Column) -> Column:
    """STRUCT of the expression's value, which may be null; null itself where the expression raises for the row."""
    utils = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    tried = java_class(spark, "org.apache.spark.sql.catalyst.expressions.TryEval")
    inner = utils.expression(F.struct(expression.alias(RESULT))._jc)  # noqa: SLF001
    return Column(utils.column(tried(inner)))


def result(attempted: Column) -> Column:
    return attempted.getField(RESULT)


def pinned(column: Column) -> Column:
    """The same column, which the optimiser must leave where it is.

    It would push a filter below the projection that decodes, and so decode each row twice. It doesn't push anything
    through a projection that holds an expression which it must take for non-deterministic.
    """
    return F.when(F.spark_partition_id() >= 0, column)
