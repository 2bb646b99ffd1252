"""`sinkpipeline progress` of a pipeline of which one sink has delivered and the other one never ran."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from servers.local_kafka import LocalKafka
from sinkpipeline.cli import progress
from sinkpipeline.cli.main import cli
from sinkpipeline.core.errors import Reason, SinkPipelineError
from support.app.command import manifest
from support.app.command import sink as sink_of
from support.kafka import topics
from support.sink.one_sink import OneSink, deliver

pytestmark = pytest.mark.kafka

Call = Callable[..., Result]


@pytest.fixture
def sink(kafka: LocalKafka) -> OneSink:
    """It has delivered three of its ten records."""
    sink = OneSink(kafka.bootstrap_servers)
    topics.produce_numbers(sink.servers, sink.source, 10)
    deliver(sink, sink.start(), range(3))
    return sink


@pytest.fixture
def call(sink: OneSink, tmp_path: Path) -> Call:
    named = {"progressTopic": {"name": sink.progress, "replicationFactor": 1}}
    sinks = [sink_of("out", topic=sink.data, **named), sink_of("never", topic=f"{sink.name}-never", **named)]
    file = tmp_path / "sinkpipeline.yaml"
    file.write_text(yaml.safe_dump(manifest(sink.servers, sink.name, [sink.source], identity=sink.name, sinks=sinks)))

    def call(*more: str) -> Result:
        # Not in a process of its own, which would need seconds to import everything.
        return CliRunner().invoke(cli, ["progress", "-f", str(file), *more])

    return call


def documents(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.exception
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_a_sink_that_never_ran_is_told(sink: OneSink, call: Call) -> None:
    [ran, never] = documents(call("-o", "json"))
    of_it = {"sink": "out", "topic": sink.source, "partition": 0, "next": 3, "end": 10, "lag": 7, "rows": 3}
    assert ran | of_it == ran
    assert never == {"sink": "never"}
    text = call().stdout
    assert "sink out: ExactlyOnce" in text
    assert "sink never has no progress yet" in text


def test_one_sink_is_shown_alone(call: Call) -> None:
    assert [line["sink"] for line in documents(call("--sink", "out", "-o", "json"))] == ["out"]
    assert documents(call("--sink", "never", "-o", "json")) == [{"sink": "never"}]
    assert "never" not in call("--sink", "out").stdout
    assert call("--sink", "never").stdout == "sink never has no progress yet\n"
    refused = call("--sink", "other").exception
    assert isinstance(refused, SinkPipelineError)
    assert refused.reason is Reason.USAGE_INVALID
    assert "name one of never, out" in refused.remedy


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_watch_looks_again(sink: OneSink, call: Call, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    """At the second look there is more, and after it somebody ends the watch."""
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 2:
            raise KeyboardInterrupt
        deliver(sink, sink.start("run-2"), range(3, 8))

    monkeypatch.setattr(progress, "time", SimpleNamespace(sleep=pause))
    done = call("--watch", "-o", output)
    assert done.exit_code == 1
    assert paused == [progress._WATCH_S] * 2
    if output == "json":
        [first, second] = re.findall(r"^\[$.*?^\]$", done.stdout, re.DOTALL | re.MULTILINE)
        assert [json.loads(each)[0]["next"] for each in (first, second)] == [3, 8]
        return
    [first, second] = done.stdout.split("sink never has no progress yet\n")[:2]
    rows = re.compile(r"^out +\S+ +0 +(\d+) +10 ", re.MULTILINE)
    assert [rows.findall(each) for each in (first, second)] == [["3"], ["8"]]
    assert "rows/s" not in first, "one look has no rate"
    [rate] = re.findall(r"^sink out: ([\d,]+) rows/s$", done.stdout, re.MULTILINE)
    assert float(rate.replace(",", "")) > 0
    assert "sink never: 0 rows/s" in done.stdout
