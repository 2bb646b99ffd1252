"""`sinkpipeline reset` as a person or a script calls it: what it asks, against a driver that runs, and killed."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.cli import reset as reset_command
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import Owner
from sinkpipeline.sinks.starting import StartedSink
from support.app.command import BY_TASKS, COMMAND, App, Run, last_line, manifest
from support.app.command import sink as sink_of
from support.kafka.streams import Stream
from support.kafka.topics import produce_numbers, read_committed, texts, unique
from support.sink.one_sink import OneSink, deliver

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


class Pipeline:
    """A sink that has delivered three of five records, and the command that resets it."""

    def __init__(self, kafka: LocalKafka, directory: Path) -> None:
        self.sink = OneSink(kafka.bootstrap_servers)
        named = {"progressTopic": {"name": self.sink.progress, "replicationFactor": 1}}
        document = manifest(
            kafka.bootstrap_servers,
            self.sink.name,
            [self.sink.source],
            identity=self.sink.name,
            sinks=[sink_of("out", topic=self.sink.data, **named)],
        )
        self.app = App(directory, document)
        self.servers = kafka.bootstrap_servers
        produce_numbers(self.servers, self.sink.source, 5)
        deliver(self.sink, self.start("first"), range(3))

    def start(self, run: str) -> StartedSink:
        """As a run of the command would."""
        return self.sink.start(run, owner=Owner(cluster="file", name=f"test/{self.sink.name}"))

    def command(self, *more: str) -> list[str]:
        return [str(COMMAND), "reset", "-f", str(self.app.manifest), "--sink", "out", *more]

    def call(self, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            env=self.app.environment,
            check=False,
        )

    def answer(self, text: str, *more: str) -> subprocess.CompletedProcess[str]:
        """The command on a terminal, to which a person types `text`."""
        ours, its = pty.openpty()
        try:
            os.write(ours, text.encode())
            return subprocess.run(
                self.command(*more),
                stdin=its,
                capture_output=True,
                text=True,
                timeout=120,
                env=self.app.environment,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(its)

    @property
    def state(self) -> tuple[int, int]:
        """Epoch and next offset, whole: as the next start finds them."""
        progress = self.start(unique("run")).progress
        assert progress.meta is not None
        partition = progress.partitions[self.sink.at()]
        assert partition.epoch == progress.meta.epoch
        return partition.epoch, partition.next


@pytest.fixture
def pipeline(kafka: LocalKafka, tmp_path: Path) -> Pipeline:
    return Pipeline(kafka, tmp_path)


@pytest.mark.kafka
@pytest.mark.thorough(
    "each point of one case; tests/kafka/test_reset has crashes, and a reset by the command is beside it"
)
def test_it_is_killed_at_every_point(pipeline: Pipeline) -> None:
    epoch, offset = pipeline.state
    for point in (
        "starting-after-control-init",
        "starting-after-meta",
        "reset-before-transaction",
        "reset-before-commit",
        "reset-after-commit",
    ):
        pipeline.app.arm(point)
        with Run(pipeline.app, pipeline.command("--to", "earliest", "--yes")) as resetting:
            resetting.until_held(point)
            resetting.kill()
        pipeline.app.disarm()
        assert pipeline.state == ((1, 0) if point == "reset-after-commit" else (epoch, offset)), point

    deliver(pipeline.sink, pipeline.start("last"), range(5))
    assert Counter(pipeline.sink.delivered()) == {"0": 2, "1": 2, "2": 2, "3": 1, "4": 1}


@pytest.mark.kafka
def test_a_person_is_asked_and_a_script_is_not(pipeline: Pipeline) -> None:
    shown = pipeline.call("--to", "earliest", "--dry-run", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == [
        {
            "sink": "out",
            "topic": pipeline.sink.source,
            "partition": 0,
            "from": 3,
            "to": 0,
            "again": 3,
            "skipped": 0,
            "note": "",
        }
    ]
    assert f"up to 3 records are delivered AGAIN into {pipeline.sink.data}" in shown.stderr

    declined = pipeline.answer("n\n", "--to", "latest")
    assert declined.returncode == 1
    assert [line.split() for line in declined.stdout.splitlines()] == [
        ["SINK", "TOPIC", "PARTITION", "FROM", "TO", "AGAIN", "SKIPPED", "NOTE"],
        ["out", pipeline.sink.source, "0", "3", "5", "0", "2"],
    ]
    assert "up to 2 records are SKIPPED" in declined.stderr
    assert last_line(declined.stderr).endswith("nothing was changed")
    assert pipeline.state == (0, 3)

    agreed = pipeline.answer("y\n", "--to", f"{pipeline.sink.source}:0=1")
    assert agreed.returncode == 0, agreed.stderr
    assert "epoch 1" in last_line(agreed.stderr)
    assert pipeline.state == (1, 1)


WRONG: dict[str, dict[str, Any]] = {
    "another sink": {"sink": "nobody"},
    "another target": {"to": ["soon"]},
    "a day that there is not": {"to": ["2026-02-29T00:00:00Z"]},
    "no target": {"to": []},
    "two others to go on for": {"to_checkpoint": "/c", "to_group": "g"},
    "nobody to ask": {"yes": False},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command_line_is_refused_before_anything_is_asked_of_a_broker(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    app = App(tmp_path, manifest("127.0.0.1:9", "p", ["t"]))
    arguments: dict[str, Any] = {"sink": "p", "to": ["earliest"], "yes": True, **WRONG[name]}
    asked = reset_command.Request(manifest=app.manifest, **arguments)

    with pytest.raises(SinkPipelineError) as caught:
        reset_command.reset(asked)

    assert caught.value.reason is Reason.USAGE_INVALID
    assert name != "nobody to ask" or "--yes" in caught.value.remedy


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long("three starts of Spark; tests/kafka/test_reset resets under a driver")
def test_against_a_driver_that_runs(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("again")
    source = Stream(kafka.bootstrap_servers, f"{name}-in", partitions=2).create()
    # Tasks don't notice a reset that has only begun; a driver that delivers itself does.
    document = manifest(kafka.bootstrap_servers, name, [source.topic], spark=BY_TASKS)
    app, other = App(tmp_path / "run", document), App(tmp_path / "reset", document)
    command = [str(COMMAND), "reset", "-f", str(other.manifest), "--sink", name, "--to", "earliest", "--yes"]
    source.feed(100)

    with app.start() as run:
        run.until_rows(source.total)
        other.arm("starting-after-control-init")
        with Run(other, command) as resetting:
            # It has shown what it would do, and the driver delivers on.
            resetting.until_held("starting-after-control-init")
            source.feed(50)
            run.until_rows(source.total)
            other.release("starting-after-control-init")
            assert resetting.wait() == 3, resetting.stderr
        assert last_line(resetting.stderr).startswith("FrontierMoved: ")
        assert run.wait() == 4, run.stderr
    assert re.match(r"Superseded: .*, or a reset .* \(after a reset start the pipeline again; ", last_line(run.stderr))

    with Run(other, command) as resetting:
        assert resetting.wait() == 0, resetting.stderr
    assert {(line["next"], line["rows"]) for line in app.progress()} == {(0, 0)}

    assert app.sink_status()["rowsDelivered"] == source.total, "the status file is of before the reset"
    app.run_until_idle()
    counts = Counter(texts(read_committed(kafka.bootstrap_servers, f"{name}-out")))
    assert (len(counts), set(counts.values())) == (source.total, {2})
    status = app.sink_status()
    assert (status["epoch"], status["rowsDelivered"], status["lag"], status["lost"]) == (1, source.total, 0, 0)
