"""A line of a log, for programs."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.log_lines import FORMAT, PIPELINE, RUN, Json, is_json, log_fields
from sinkpipeline.spark import session
from sinkpipeline.spark.java import AVRO_LIMITS
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.program import _Json

ENVIRONMENT = {FORMAT: "json", PIPELINE: "shop/orders", RUN: "r-1"}
FIELDS = ("time", "level", "logger", "pipeline", "run", "sink", "batch", "reason", "message", "exception")
ERROR = SinkPipelineError(Reason.BROKER_UNREACHABLE, "no answer", "wait")


def record(message: str, *given: object, level: int = logging.WARNING, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("sinkpipeline.sink", level, "", 0, message, given, more.pop("exc_info", None))
    made.created, made.msecs = 1_795_421_551.4026, 402.6
    vars(made).update(more)
    return made


def line(made: logging.LogRecord, formatter: logging.Formatter | None = None) -> dict[str, Any]:
    text = (formatter or Json(ENVIRONMENT)).format(made)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_has_its_fields() -> None:
    with log_fields(sink="enriched"), log_fields(batch=7):
        found = line(record("%s: %s; trying again in %.0f s", "enriched", ERROR, 2.0))
    assert found == {
        "time": "2026-11-23T08:12:31.402Z",
        "level": "WARN",
        "logger": "sinkpipeline.sink",
        "pipeline": "shop/orders",
        "run": "r-1",
        "sink": "enriched",
        "batch": 7,
        "reason": "BrokerUnreachable",
        "message": "enriched: BrokerUnreachable: no answer (wait); trying again in 2 s",
    }
    assert list(found) == [each for each in FIELDS if each in found]
    assert dt.datetime.fromisoformat(found["time"]).tzinfo is not None
    assert set(line(record("no more"))) == {"time", "level", "logger", "pipeline", "run", "message"}


def test_a_reason_is_of_what_is_told_or_raised() -> None:
    assert line(record("%s", "x", reason="ClockSkew"))["reason"] == "ClockSkew"
    try:
        raise ERROR
    except SinkPipelineError:
        found = line(record("a\nb", exc_info=sys.exc_info(), level=logging.CRITICAL))
    assert (found["level"], found["reason"], found["message"]) == ("FATAL", "BrokerUnreachable", "a\nb")
    assert found["exception"].startswith("Traceback (most recent call last):\n")


def test_a_line_of_the_operator_has_the_pipeline_that_it_begins_with() -> None:
    assert line(record("%s: %s", Ref("shop", "orders"), "Ready"), _Json())["pipeline"] == "shop/orders"
    assert "pipeline" not in line(record("stopped"), _Json())


@pytest.mark.parametrize("log_format", [None, "", "text", "JSON"])
def test_only_json_is_json(log_format: str | None) -> None:
    assert not is_json({} if log_format is None else {FORMAT: log_format})


def test_the_jvm_has_the_same_fields_in_the_same_order() -> None:
    text = Path(session.__file__).with_name("log4j2-json.properties").read_text()
    [template] = re.findall(r"eventTemplate = (\{.*?^\})$", text, re.DOTALL | re.MULTILINE)
    found = json.loads(template.replace("\\\n", "\n"))
    assert tuple(found) == tuple(each for each in FIELDS if each != "reason")
    assert (found["pipeline"], found["run"]) == (f"${{env:{PIPELINE}:-}}", f"${{env:{RUN}:-}}")


def test_executors_are_given_it_and_what_a_manifest_says_of_their_java_counts_more() -> None:
    conf = session._log_lines({"spark.executor.extraJavaOptions": "-Dlog4j2.configurationFile=mine"}, ENVIRONMENT)
    assert conf["spark.executor.extraJavaOptions"].endswith("log4j2-json.properties -Dlog4j2.configurationFile=mine")
    assert conf[f"spark.executorEnv.{RUN}"] == "r-1"


def test_executors_are_told_avros_limits_and_what_a_manifest_says_of_them_counts_more() -> None:
    conf = session.session_conf("local", {"spark.executor.extraJavaOptions": "-Da=b"})
    options = conf["spark.executor.extraJavaOptions"].split()
    assert options == [*(f"-D{name}={most}" for name, most in AVRO_LIMITS.items()), "-Da=b"]
