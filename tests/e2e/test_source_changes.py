"""A source that loses records, grows, and is read by another list of topics or on more cores from run to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from support.app.command import BY_TASKS, App, Run, last_line, manifest
from support.kafka import topics
from support.kafka.streams import EXACTLY_ONCE, Stream, Verdict, judge
from support.kafka.topics import unique

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

PATIENCE_S = 180.0


def lose(app: App, source: Stream, offsets: int) -> None:
    """Deletes that many offsets behind the frontier, in every partition. The status may be a batch behind it."""
    for line in app.progress():
        topics.delete_records(source.servers, source.topic, line["next"] + offsets, partition=line["partition"])


def between_two_batches(run: Run, source: Stream) -> None:
    """Holds the driver when it has delivered everything, and feeds what its next batch will read."""
    run.app.arm("after-batch")
    source.feed(10)
    run.until_held("after-batch")
    while any(line["lag"] for line in run.app.progress()):
        # The batch began in the middle of the feeding.
        run.app.arm("after-batch")
        run.app.release("after-batch")
        run.until_held("after-batch")
    source.feed(10)


@pytest.fixture
def creating_kafka() -> Iterator[LocalKafka]:
    """A broker that creates every topic that a client asks for without saying that it may not."""
    with LocalKafka(properties={"auto.create.topics.enable": "true"}) as kafka:
        yield kafka


@pytest.mark.thorough("a start of Spark; tests/spark and the model show that a task learns it")
def test_a_read_that_fails_in_the_middle_of_a_range_ends_no_range(kafka: LocalKafka, tmp_path: Path) -> None:
    """Behind many Arrow batches: Spark closes the connection of the task, as if there were no more rows."""
    servers, name, count = kafka.bootstrap_servers, unique("cut"), 40_000
    source = f"{name}-in"
    topics.create_topic(servers, source)
    topics.produce(servers, source, [(b"%d" % each, b"x" * 1_000) for each in range(count)])
    document = manifest(servers, name, [source], spark=BY_TASKS)
    document["spec"]["source"]["kafka"]["onDataLoss"] = "Skip"
    app = App(tmp_path, document)
    app.arm("after-init")
    with app.start("--master", "local[1]", "--until-idle") as run:
        run.until_held("after-init")
        # Spark has given the task what the connection takes, and waits.
        topics.delete_records(servers, source, count - 1_000)
        app.release("after-init")
        assert run.wait(PATIENCE_S) == 0, run.stderr
    found = [int(each.key or b"") for each in topics.read_committed(servers, f"{name}-out")]
    lost = app.status()["totals"]["lost"]
    assert sorted(found) == [*range(count - 1_000 - lost), *range(count - 1_000, count)]
    assert 0 < lost <= count - 1_000


@pytest.mark.long("two starts of Spark and a broker of its own; tests/kafka/test_source_faults has the losses")
def test_a_source_that_loses_records_while_it_is_read_and_then_all(creating_kafka: LocalKafka, tmp_path: Path) -> None:
    """In the middle of a batch, and between two of them; while that is to be skipped, it is no failure.

    At last it is deleted under a task, and with it what the task writes to: no client of ours brings a topic back.
    """
    servers, name = creating_kafka.bootstrap_servers, unique("loses")
    source = Stream(servers, f"{name}-in", partitions=2).create()
    document = manifest(servers, name, [source.topic], spark=BY_TASKS)
    document["spec"]["source"]["kafka"]["onDataLoss"] = "Skip"
    document["spec"]["failurePolicy"]["maxConsecutiveFailures"] = 2
    app = App(tmp_path, document)
    source.feed(30)

    def until_lost(offsets: int) -> None:
        run.eventually(lambda: app.status()["totals"]["lost"] == offsets, f"{offsets} are lost", PATIENCE_S)

    app.arm("after-init")
    # One core: the second partition is read only after the task of the first.
    with app.start("--master", "local[1]") as run:
        run.until_held("after-init")
        lose(app, source, 5)
        app.release("after-init")
        until_lost(5)
        for lost in (11, 17):
            between_two_batches(run, source)
            lose(app, source, 3)
            app.release("after-batch")
            until_lost(lost)
        run.until_rows(source.total - 17)
        assert run.stderr.count("SourceDataLost: skipped") == 3
        assert source.judge(f"{name}-out") == Verdict(duplicates=0, missing=17, foreign=0, disorder=0)
        assert sum(line["lost"] for line in app.progress()) == 17

        between_two_batches(run, source)
        lose(app, source, 3)
        app.arm("after-init")
        app.release("after-batch")
        run.until_held("after-init")
        for topic in (deleted := [source.topic, f"{name}-out", f"{name}-progress"]):
            topics.delete_topic(servers, topic)
        app.release("after-init")
        assert run.wait(PATIENCE_S) == 3, run.stderr
        assert last_line(run.stderr).startswith(f"SourceTopicMissing: source topic {source.topic} was deleted while")

    assert app.sink_status()["error"]["reason"] == "SourceTopicMissing"
    again = app.call("run", "-f", str(app.manifest), "--until-idle", "--status-file", str(app.status_file))
    assert again.returncode == 3
    assert last_line(again.stderr).startswith(f"SourceTopicMissing: source topic {source.topic} does not exist")
    assert [topics.topic_id(servers, topic) for topic in deleted] == [None] * 3


@pytest.mark.long("half a minute of waiting; tests/unit/test_runner has slow sources")
def test_a_source_that_is_told_to_answer_late(kafka: LocalKafka, tmp_path: Path) -> None:
    servers, name = kafka.bootstrap_servers, unique("late")
    source = Stream(servers, f"{name}-in", partitions=1).create()
    document = manifest(servers, name, [source.topic])
    # Until there are so many bytes, the broker holds its answer back for longer than a task waits by default.
    late = {"fetch.min.bytes": "1000000", "fetch.max.wait.ms": "12000"}
    document["spec"]["source"]["kafka"]["properties"] = late
    document["spec"]["failurePolicy"]["maxConsecutiveFailures"] = 1
    app = App(tmp_path, document)
    source.feed(30)
    app.run_until_idle()
    assert source.judge(f"{name}-out") == EXACTLY_ONCE


class Topics:
    """The source topics of one pipeline, and the rows that are to come of them."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers = servers
        self.name = name
        self.expected: set[str] = set()
        self._fed: Counter[tuple[str, int]] = Counter()

    def create(self, letter: str, partitions: int) -> Stream:
        return Stream(self.servers, f"{self.name}-{letter}", partitions=partitions).create()

    def feed(self, stream: Stream, rows: int) -> None:
        stream.feed(rows)
        for partition in range(stream.partitions):
            begin = self._fed[stream.topic, partition]
            self.expected |= {f"{stream.topic}/{partition}:{number}" for number in range(begin, begin + rows)}
            self._fed[stream.topic, partition] += rows

    def grow(self, stream: Stream, partitions: int) -> None:
        topics.add_partitions(self.servers, stream.topic, partitions)
        stream.partitions = partitions


@pytest.mark.long("two starts of Spark; tests/kafka/test_starting has topics and partitions that come")
def test_other_topics_other_partitions_and_other_cores(kafka: LocalKafka, tmp_path: Path) -> None:
    servers, name = kafka.bootstrap_servers, unique("grows")
    source = Topics(servers, name)
    first = source.create("a", 4)
    # Spark would look for the pattern anywhere in a name.
    topics.create_topic(servers, f"{name}-a-copy")
    topics.produce(servers, f"{name}-a-copy", [b"0:of another topic"])
    select = {"value": "concat(kafka.topic, '/', CAST(value AS STRING))"}
    document = manifest(servers, name, [], transform={"select": select})
    reads: dict[str, Any] = document["spec"]["source"]["kafka"]
    del reads["topics"]
    reads["topicPattern"] = f"{name}-[a-c]"
    app = App(tmp_path, document)

    source.feed(first, 20)
    with app.start("--master", "local[1]") as run:
        run.until_rows(len(source.expected))
        source.grow(first, 8)
        source.feed(first, 10)
        run.until_rows(len(source.expected))
        second = source.create("b", 2)
        source.feed(second, 10)
        run.until_rows(len(source.expected))
        app.arm("delivered-rows-before-progress")
        source.feed(first, 10)
        run.until_held("delivered-rows-before-progress")
        run.kill()
    app.disarm()
    assert list(tmp_path.glob("tmp/sinkpipeline-checkpoint-*")), "Spark's own memory is left, and does not compete"

    # Grown while nothing runs, one topic left out and another listed, on four cores.
    source.grow(first, 12)
    third = source.create("c", 2)
    source.feed(first, 10)
    source.feed(third, 10)
    second.feed(5)
    del reads["topicPattern"]
    reads["topics"] = [first.topic, third.topic]
    app.write(document)
    with app.start("--master", "local[4]") as run:
        run.until_rows(len(source.expected))
        assert judge(topics.read_committed(servers, f"{name}-out"), source.expected) == EXACTLY_ONCE
        frontier = {entry["topic"]: len(entry["next"]) for entry in app.sink_status()["frontier"]}
        assert frontier == {first.topic: 12, second.topic: 2, third.topic: 2}, "what is left out keeps its progress"

        between_two_batches(run, first)
        lose(app, first, 3)
        app.release("after-batch")
        assert run.wait(PATIENCE_S) == 3, run.stderr
        assert last_line(run.stderr).startswith("SourceDataLost: ")
        assert "3 offsets are lost" in last_line(run.stderr)
        assert app.sink_status()["error"]["reason"] == "SourceDataLost"
