"""A pipeline that goes on for a query of Spark with Spark's own Kafka sink: what is there twice, and what is not."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as At
from pyspark.sql import SparkSession

from servers.local_kafka import LocalKafka
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.manifest import StartFrom
from sinkpipeline.kafka.source.positions import read_checkpoint
from support.app.command import App
from support.cookbook import recipe, typed
from support.kafka import topics
from support.sink.one_sink import OneSink, deliver

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@dataclass(frozen=True)
class OwnSink:
    """A query from one topic to another, which has delivered all, and was killed before it committed its last batch."""

    checkpoint: Path
    last_batch: int


def run_own_sink(spark: SparkSession, servers: str, source: str, data: str, directory: Path) -> OwnSink:
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 8)
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", data)
        .option("checkpointLocation", str(directory))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    commits = directory / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    # Spark's sink has written a batch before Spark commits it: a kill in between leaves just this.
    for file in (commits / str(last), commits / f".{last}.crc"):
        file.unlink(missing_ok=True)
    return OwnSink(directory, last)


def test_at_most_one_batch_is_there_twice_and_which_is_known_before(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path
) -> None:
    sink = OneSink(kafka.bootstrap_servers)
    topics.create_topic(sink.servers, sink.data)
    topics.produce_numbers(sink.servers, sink.source, 20)
    own = run_own_sink(spark, sink.servers, sink.source, sink.data, tmp_path / "checkpoint")
    topics.produce_numbers(sink.servers, sink.source, 5, start=20)

    found = read_checkpoint(str(own.checkpoint))
    assert (found.batch, found.overlap) == (own.last_batch, {sink.at(): OffsetRange(16, 20)})

    started = sink.start(source={"start_from": StartFrom(checkpoint=str(own.checkpoint))})
    deliver(sink, started, range(started.progress.partitions[sink.at()].next, 25))
    assert Counter(sink.delivered()) == {str(number): 2 if 16 <= number < 20 else 1 for number in range(25)}


@pytest.mark.thorough("the command beside Spark's sink; the same without it is above")
def test_stop_import_go_on(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    """As docs/coming-from-elsewhere.md and docs/cookbook.md have it, by the command."""
    printed, servers = recipe("Coming from Spark's own sink"), kafka.bootstrap_servers
    source, data = "tickets-raw", "tickets"
    topics.create_topic(servers, source, partitions=2)
    topics.create_topic(servers, data, partitions=3)
    for partition in range(2):
        topics.produce_numbers(servers, source, 10, partition=partition, start=100 * partition)
    own = run_own_sink(spark, servers, source, data, tmp_path / "checkpoint")
    between = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    for partition in range(2):
        topics.produce_numbers(servers, source, 5, partition=partition, start=100 * partition + 10)
    app = App(tmp_path / "app", {})
    here = {"kafka:9092": servers, "/mnt/checkpoints/tickets": str(own.checkpoint)}
    app.manifest.write_text(typed(printed, here))

    shown = app.call("validate", "-f", str(app.manifest))
    assert shown.returncode == 0, shown.stderr
    overlap = read_checkpoint(str(own.checkpoint)).overlap
    ranges = ", ".join(f"{at} from {part.start} to {part.end - 1}" for at, part in sorted(overlap.items()))
    assert f"batch {own.last_batch} was begun and not committed: up to 4 records may be written" in shown.stdout
    assert ranges in shown.stdout

    app.run_until_idle()

    twice = {str(100 * at.partition + offset) for at, part in overlap.items() for offset in range(part.start, part.end)}
    everything = {str(100 * partition + offset) for partition in range(2) for offset in range(15)}
    assert Counter(topics.texts(topics.read_committed(servers, data))) == {
        each: 2 if each in twice else 1 for each in everything
    }

    # A reset comes to the same place.
    reset = ["reset", "-f", str(app.manifest), "--sink", data, "--to-checkpoint", str(own.checkpoint), "--dry-run"]
    again = app.call(*reset)
    assert again.returncode == 0, again.stderr
    assert f"batch {own.last_batch} was begun and not committed" in again.stderr
    assert f"up to {30 - 16} records are delivered AGAIN" in again.stderr
    assert frontier(app) == {0: 15, 1: 15}

    # It does what it has shown, and so to a group and to a time.
    group = topics.unique("connect")
    with closing(Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})) as member:
        member.commit(offsets=[At(source, 0, 3), At(source, 1, 7)], asynchronous=False)
    ends = {at.partition: offset for at, offset in read_checkpoint(str(own.checkpoint)).next.items()}
    for target, begins in {
        ("--to-checkpoint", str(own.checkpoint)): ends,
        ("--to-group", group): {0: 3, 1: 7},
        ("--to", between): {0: 10, 1: 10},
    }.items():
        done = app.call(*reset[:-3], *target, "--yes")
        assert done.returncode == 0, done.stderr
        assert frontier(app) == begins


def frontier(app: App) -> dict[int, int]:
    """Where the sink goes on, by source partition, as `sinkpipeline progress` reads it."""
    return {line["partition"]: line["next"] for line in app.progress()}
