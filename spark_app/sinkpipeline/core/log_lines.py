"""A line of a log, for people and for programs: the same fields from driver, Python workers and JVM. Pure."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from typing_extensions import override

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.printable import printable

FORMAT, PIPELINE, RUN = "SINKPIPELINE_LOG_FORMAT", "SINKPIPELINE_LOG_PIPELINE", "SINKPIPELINE_LOG_RUN"
"""Variables of the environment: executors, their workers and the JVM's configuration (`log4j2-json.properties`) read
them too."""
_JSON = "json"
_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
"""Python's words and the JVM's."""
_NONE: Mapping[str, object] = MappingProxyType({})

_fields: ContextVar[Mapping[str, object]] = ContextVar("fields", default=_NONE)


def is_json(environment: Mapping[str, str]) -> bool:
    return environment.get(FORMAT) == _JSON


@contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """What this thread logs meanwhile is about these: `sink`, `batch`."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


class Plain(logging.Formatter):
    """What others say is in it as it is shown, and does nothing to the terminal that shows it."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class Json(logging.Formatter):
    """One document a line, in ASCII: nothing in it ends the line, or steers a terminal."""

    def __init__(self, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        """`environment`: read for each line, as a driver learns its names after it has begun."""
        super().__init__()
        self._environment = environment

    @override
    def format(self, record: logging.LogRecord) -> str:
        moment = dt.datetime.fromtimestamp(record.created, dt.timezone.utc)
        document = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": _LEVELS.get(record.levelname, record.levelname),
            "logger": record.name,
            **{name: value for name, value in self.fields(record).items() if value not in (None, "")},
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document)

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """What the line is about; a field without a value is left out."""
        get = self._environment.get
        return {"pipeline": get(PIPELINE), "run": get(RUN), **_fields.get(), "reason": _reason(record)}


def _reason(record: logging.LogRecord) -> str | None:
    """Of `extra`, else of an error that the line tells."""
    given: object = getattr(record, "reason", None)
    if isinstance(given, str):
        return given
    told = record.args if isinstance(record.args, tuple) else ()
    raised = record.exc_info[1] if record.exc_info else None
    return next((each.reason.value for each in (*told, raised) if isinstance(each, SinkPipelineError)), None)
