"""The errors of rows for which an expression of the manifest has no value, or one that can't be taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from sinkpipeline.core.deadletter import ErrorClass

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sinkpipeline.core.rowplan import RowExplode


def failure(expression: str) -> Column:
    causes = "an overflow, a division by zero, a cast that does not fit, a function that fails"
    detail = f"{expression} has no value for it: {causes}"
    return F.lit(ErrorClass.EVALUATION_FAILED.error(detail))


def too_many(explode: RowExplode) -> Column:
    detail = f"transform.explode.array has more elements than maxRowsPerRecord, {explode.most_rows}"
    return F.lit(ErrorClass.TOO_MANY_ROWS.error(detail))


def not_declared() -> Column:
    detail = "transform.select.topic has null for it, or a name that is none of kafka.topics"
    return F.lit(ErrorClass.TOPIC_NOT_DECLARED.error(detail))
