"""A record that Spark can't read at all, whatever its value is: its timestamp is in nanoseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from support.app.command import App, manifest, sink
from support.kafka.topics import create_topic, produce_whole, read_committed, texts, unique

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]


NANOSECONDS = 1_714_979_289_123_456_789


def sinks_of(app: App) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = app.status().get("sinks", [])
    return found


@pytest.mark.thorough("starts Spark twice for a producer's mistake; its cause is in tests/unit/test_causes")
def test_it_is_named_and_can_be_skipped_as_the_error_says(kafka: LocalKafka, tmp_path: Path) -> None:
    servers, name = kafka.bootstrap_servers, unique("untimed")
    topic = f"{name}-in"
    create_topic(servers, topic, partitions=2, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    times = {"a": 1_714_979_289_123, "b": NANOSECONDS, "c": 1_714_979_289_124}
    produce_whole(servers, topic, [(each.encode(), None, [], at) for each, at in times.items()], partition=1)
    app = App(tmp_path, manifest(servers, name, [topic], sinks=[sink(name)]))

    with app.start() as run:
        run.eventually(lambda: [each["state"] for each in sinks_of(app)] == ["Failed"], "the sink has stopped", 120)
    [error] = [each["error"] for each in sinks_of(app)]
    assert error["reason"] == "RecordUndecodable"
    assert f"topic {topic}, partition 1, offset 1 can't be read" in error["message"]
    assert str(NANOSECONDS) in error["message"]
    to = error["remedy"].partition(f"reset sink {name} to ")[2].partition(", ")[0]
    assert to == f"{topic}:1=2"

    reset = app.call("reset", "-f", str(app.manifest), "--sink", name, "--to", to, "--yes")
    assert reset.returncode == 0, reset.stderr
    app.run_until_idle()
    assert texts(read_committed(servers, f"{name}-out")) == ["c"]
