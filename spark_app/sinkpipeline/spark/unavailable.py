"""Expressions that read a value which a change is without: they have no value either, and none is made up.

PostgreSQL's log is without what is stored out of line and did not change. A column of a change names such columns:
`unavailable` of Debezium's, `unchanged` of those of a stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.spark.debezium import AFTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from sinkpipeline.core.rowplan import RowColumn

REMEDY = "set REPLICA IDENTITY FULL for the table there"


def lacking(df: DataFrame, expression: Column, path: str, named_by: str) -> Column | None:
    """STRING: why an expression of a change has no value, null where it has one; None if it reads no row behind it.

    `named_by`: the column that names what is lacking.
    """
    names = _reads(df, expression)
    if names is not None and not names:
        return None
    lacked = F.col(named_by)
    if names is not None:
        lacked = F.array_intersect(lacked, F.array(*map(F.lit, names)))
    detail = F.concat(
        F.lit(ErrorClass.UNAVAILABLE_VALUE.error(f"{path} reads after.")),
        F.array_join(lacked, ", after."),
        F.lit(f", which the server's log was without: {REMEDY}"),
    )
    return F.when(F.size(lacked) > 0, detail)


def only_reads(df: DataFrame, expression: Column) -> str | None:
    """The column of `after` that an expression is, and nothing else."""
    node = _analysed(df, expression)
    if _class(node) == "Alias":
        node = node.child()
    return _field(node)


def kept(df: DataFrame, columns: Sequence[RowColumn], named_by: str) -> Column:
    """STRING: the places of columns, from 1 on, that stay as they are in the table, as PostgreSQL writes an array."""
    places = []
    for place, each in enumerate(columns, 1):
        name = only_reads(df, F.expr(each.expression)) if each.may_stay else None
        if name is not None:
            places.append(F.when(F.array_contains(named_by, name), F.lit(str(place))))
    return F.concat(F.lit("{"), F.concat_ws(",", *places), F.lit("}"))


def _reads(df: DataFrame, expression: Column) -> list[str] | None:
    """Columns of `after` that it reads; None where that may be any."""
    found: dict[str, None] = {}
    todo = [_analysed(df, expression)]
    while todo:
        node = todo.pop()
        if (name := _field(node)) is not None:
            found[name] = None
        elif _is_after(node):
            return None
        elif not (_class(node) in ("IsNull", "IsNotNull") and _is_after(node.child())):
            children = node.children()
            todo += [children.apply(index) for index in range(children.size())]
    return list(found)


def _field(node: Any) -> str | None:
    if _class(node) != "GetStructField" or not _is_after(node.child()):
        return None
    return str(node.child().dataType().fields()[node.ordinal()].name())


def _is_after(node: Any) -> bool:
    return _class(node) == "AttributeReference" and str(node.name()) == AFTER


def _analysed(df: DataFrame, expression: Column) -> Any:
    frame: Any = df.select(expression)._jdf  # noqa: SLF001 - PySpark offers no other way
    return frame.queryExecution().analyzed().projectList().head()


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())
