"""What Spark and Java say, as a fact of one line."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.logger import PySparkLogger

from sinkpipeline.core.deadletter import reason_of

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException


_DEEPEST = 100
"""Of causes: Java does not forbid a circle."""


def sentence(error: PySparkException) -> str:
    """What Spark's message says, without its condition's name, state, plan and position in a text of one line."""
    message = (error.getMessage() or str(error)).strip()
    message = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", message)
    return re.split(r"\s*SQLSTATE:|\n\s*\n|\n==", message, maxsplit=1)[0].strip().replace("\n", " ")


def java_says(error: Py4JJavaError) -> str:
    """The first line of an exception that PySpark has no word for, with its class, which may be all that it says."""
    text: str = error.java_exception.toString()
    return (text.splitlines() or [""])[0][:300]


def java_words(error: Exception) -> str:
    """What Java says, without its class and stack."""
    cause = getattr(error, "java_exception", None)
    text = str(error) if cause is None else str(cause.getMessage())
    return reason_of(text.partition("SQLSTATE")[0].partition("\n\tat ")[0])


def innermost_words(error: Py4JJavaError) -> str:
    """What Java says of the innermost cause: those around it show whole schemas, and name no field."""
    cause: Any = error.java_exception
    for _ in range(_DEEPEST):
        if (inner := cause.getCause()) is None:
            break
        cause = inner
    return reason_of(str(cause.getMessage()).partition("SQLSTATE")[0])


@contextmanager
def quiet() -> Iterator[None]:
    """PySpark logs every analysis error with the JVM's stack trace; here they are answers, not accidents."""
    # Made by PySpark's own class: one made by `logging.getLogger` would not take the arguments that PySpark passes.
    loggers: list[logging.Logger] = [
        PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    ]
    before = [each.disabled for each in loggers]
    for each in loggers:
        each.disabled = True
    try:
        yield
    finally:
        for each, disabled in zip(loggers, before, strict=True):
            each.disabled = disabled
