"""What Spark and Java say, as a fact of one line."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException


def sentence(error: PySparkException) -> str:
    """What Spark's message says, without its condition's name, state, plan and position in a text of one line."""
    message = (error.getMessage() or str(error)).strip()
    message = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", message)
    return re.split(r"\s*SQLSTATE:|\n\s*\n|\n==", message, maxsplit=1)[0].strip().replace("\n", " ")


def java_says(error: Py4JJavaError) -> str:
    """The first line of an exception that PySpark has no word for."""
    text: str = error.java_exception.toString()
    return (text.splitlines() or [""])[0][:300]


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
