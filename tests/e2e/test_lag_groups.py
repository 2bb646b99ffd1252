"""Offsets for tools that show lag: the driver's own, and a run without them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.source.groups import Groups
from support.app.command import App, manifest
from support.kafka import topics
from support.kafka.streams import Stream
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.long("starts Spark; tests/kafka/test_lag_groups commits without it")
def test_a_driver_commits_its_frontier_while_it_runs_and_at_its_end_unless_another_one_does(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    name = topics.unique("lag")
    source = Stream(kafka.bootstrap_servers, f"{name}-in", partitions=2).create()
    document = manifest(kafka.bootstrap_servers, name, [source.topic])
    document["spec"]["source"]["kafka"]["commitGroupOffsets"] = True
    app, groups = App(tmp_path / "older", document), Groups(Connection(bootstrap_servers=kafka.bootstrap_servers))

    def offsets() -> dict[SourcePartition, int]:
        return groups.offsets(f"sinkpipeline.test.{name}.{name}")

    def frontier() -> dict[SourcePartition, int]:
        return {SourcePartition(line["topic"], line["partition"]): line["next"] for line in app.progress()}

    source.feed(100)
    with app.start() as run:
        run.until_rows(source.total)
        wait_until(lambda: sum(offsets().values()) == source.total, "they are committed while it runs")
        source.feed(50)
        run.until_rows(source.total)
        wait_until(lambda: sum(offsets().values()) == source.total, "these too")

        # It sleeps while a newer one takes over and delivers: what it knows at its end is older than what is told.
        os.kill(run.pid, signal.SIGSTOP)
        newer_app = App(tmp_path / "newer", document)
        with newer_app.start() as newer:
            source.feed(50)
            newer.until_rows(source.total)
            wait_until(lambda: sum(offsets().values()) == source.total, "the newer one commits")
            os.kill(run.pid, signal.SIGCONT)
            assert run.wait() == 4, run.stderr
            assert offsets() == frontier()
            assert newer.terminate() == 0, newer.stderr
    assert offsets() == frontier()
    assert sum(offsets().values()) == source.total
