"""A stream as a sink, by the command: rows and progress in one atomic batch, whatever is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.nats import LocalNats
from support.app.command import BY_TASKS, App, manifest, sink
from support.kafka.topics import read_committed, unique
from support.resource.streams import stream
from support.sink.nats_sink import messages
from support.tables import DECODE, Orders

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.thorough("starts Spark; tests/conformance and tests/spark/test_stream_rows show both halves")
def test_a_stream_and_a_topic_are_killed_and_the_server_is_stopped(
    kafka: LocalKafka, nats: LocalNats, tmp_path: Path
) -> None:
    name = unique("orders")
    source = Orders(kafka, name)
    select = {"value": "CAST(id AS STRING)", "subject": f"concat('{name}.', if(id % 50 = 49, 'a b', 'rows'))"}
    wanted = stream(
        f"{name}-stream",
        select=select,
        servers=nats.address,
        subject=None,
        of_stream={"name": name, "subjects": [f"{name}.>"]},
    )
    app = App(
        tmp_path,
        manifest(
            kafka.bootstrap_servers,
            name,
            [source.topic],
            decode=DECODE,
            spark=BY_TASKS,
            sinks=[
                sink(f"{name}-topic", topic=f"{name}-out"),
                {**wanted, "deadLetter": {"topic": {"name": f"{name}-dead"}}},
            ],
        ),
    )

    def in_topic() -> int:
        return int(app.sink_status(f"{name}-topic").get("rowsDelivered", 0))

    def in_stream() -> int:
        status = app.sink_status(f"{name}-stream")
        return int(status.get("rowsDelivered", 0)) + int(status.get("deadLettered", 0))

    def delivered() -> list[int]:
        found = messages(nats.address, name)
        return sorted(int(each[3]) for each in found if each[1].startswith(f"{name}."))

    for point in ("nats-before-batch", "after-progress-before-commit"):
        source.feed(60)
        app.arm(point)
        with app.start() as run:
            run.until_held(point)
            run.kill()
        app.disarm()
    with app.start() as run:
        run.eventually(lambda: in_stream() == in_topic() == len(source.rows), "both have all rows")
        status = app.sink_status(f"{name}-stream")
        assert (status["kind"], status["durability"]) == ("nats", "AsHeldBySink")
        before = len(source.rows)
        nats.kill()
        try:
            source.feed(60)
            run.eventually(lambda: in_topic() == len(source.rows), "the topic does not wait for the stream")
            run.until_state("Retrying", f"{name}-stream")
            assert in_stream() == before
            assert app.sink_status(f"{name}-stream")["error"]["reason"] == "SinkUnreachable"
        finally:
            nats.start()
        run.eventually(lambda: in_stream() == len(source.rows), "the stream goes on by itself")
        assert run.terminate() == 0, run.stderr
    numbers = [each[0] for each in source.rows]
    assert delivered() == [each for each in numbers if each % 50 != 49]
    listed = json.loads(app.call("dlq", "list", "-f", str(app.manifest), "-o", "json").stdout)
    assert {each["class"] for each in listed} == {"SubjectInvalid"}
    assert len(listed) >= len([each for each in numbers if each % 50 == 49])
    assert len(read_committed(source.servers, f"{name}-out")) == len(numbers)
