"""What `sinkpipeline run` delivers, and how it ends."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from support.app.command import App, last_line, manifest, sink
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.kafka.topics import (
    aborted_transaction,
    add_partitions,
    create_topic,
    delete_topic,
    open_transaction,
    produce,
    read_committed,
    topic_id,
    unique,
)
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.long("two Sparks at once; tests/kafka/test_starting supersedes a driver")
def test_the_newer_of_two_instances_takes_over(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("twins")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    document = manifest(kafka.bootstrap_servers, name, [source.topic])
    source.feed(1000)

    with App(tmp_path / "older", document).start() as older:
        older.until_rows(source.total)
        newer_app = App(tmp_path / "newer", document)
        with newer_app.start() as newer:
            newer.until_state("Running")
            assert older.wait() == 4, older.stderr
            assert last_line(older.stderr).startswith("Superseded: ")
            source.feed(1000)
            newer.until_rows(source.total)
            assert newer.terminate() == 0, newer.stderr

    assert source.judge(f"{name}-out") == EXACTLY_ONCE


@pytest.mark.each_spark
def test_transactions_of_the_source_filters_and_idle_partitions(kafka: LocalKafka, tmp_path: Path) -> None:
    """Aborted rows stay away; markers at the end, ranges without survivors and idle partitions count as read."""
    name = unique("gaps")
    servers, topic = kafka.bootstrap_servers, f"{name}-in"
    create_topic(servers, topic, partitions=4)
    produce(servers, topic, [b"keep-1", b"drop-1"], partition=0)
    aborted_transaction(servers, f"{name}-a", [(topic, b"k", b"keep-aborted")] * 5)
    with open_transaction(servers, f"{name}-c", [(topic, b"k", b"keep-2")]) as producer:
        producer.commit_transaction(10)
    produce(servers, topic, [b"drop-2"] * 100, partition=1)
    produce(servers, topic, [b"drop-3"] * 10 + [b"keep-3"] + [b"drop-4"] * 10, partition=2)
    app = App(tmp_path, manifest(servers, name, [topic], transform={"where": "CAST(value AS STRING) LIKE 'keep%'"}))

    app.run_until_idle()

    delivered = [record.text for record in read_committed(servers, f"{name}-out")]
    assert sorted(delivered) == ["keep-1", "keep-2", "keep-3"]
    assert app.status()["phase"] == "Completed"
    assert app.status()["totals"]["lag"] == 0
    assert [line["lag"] for line in app.progress()] == [0, 0, 0, 0]
    assert sum(line["rows"] for line in app.progress()) == 3


@pytest.mark.each_spark
def test_every_part_of_a_row_and_several_sinks(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("parts")
    servers, topic = kafka.bootstrap_servers, f"{name}-in"
    create_topic(servers, topic, partitions=2)
    produce(servers, topic, [(b"k", json.dumps({"id": n, "country": "NL"}).encode()) for n in range(50)])
    create_topic(servers, f"{name}-lost")
    document = manifest(
        servers,
        name,
        [topic],
        decode={"format": "json", "schema": "id BIGINT NOT NULL, country STRING"},
        transform={
            "where": "id < 40",
            "select": {
                "key": "country",
                "value": "to_json(struct(id))",
                "headers": "map('origin', kafka.topic, 'none', CAST(NULL AS STRING))",
                "timestamp": "CAST(1700000000000 + id AS BIGINT)",
                "partition": "CAST(id % 3 AS INT)",
            },
        },
        failurePolicy={"maxConsecutiveFailures": 2, "backoff": {"initial": "100ms", "max": "100ms"}},
        sinks=[
            sink("exact", topic=f"{name}-exact", progressTopic={"name": f"{name}-progress"}),
            sink(
                "relaxed",
                topic=f"{name}-relaxed",
                guarantee="AtLeastOnce",
                progressTopic={"name": f"{name}-progress"},
            ),
            {
                **sink("own", topic=f"{name}-own", progressTopic={"name": f"{name}-progress"}),
                "transform": {"where": "id >= 30", "select": {"value": "to_json(struct(id, country))"}},
            },
            {
                **sink("thinner", topic=f"{name}-thinner", progressTopic={"name": f"{name}-progress"}),
                "transform": {"where": "id < 5"},
            },
            {
                **sink("several", topic=f"{name}-several", progressTopic={"name": f"{name}-progress"}),
                "transform": {
                    "explode": {"array": "sequence(0, id % 3)", "as": "n", "maxRowsPerRecord": 2},
                    "select": {"value": "to_json(struct(id, n))"},
                },
                "deadLetter": {"topic": {"name": f"{name}-dlq"}},
            },
            sink("broken", topic=f"{name}-broken", bootstrapServers="127.0.0.1:1"),
        ],
    )
    for each in document["spec"]["sinks"]:
        # The timestamps of rows are old: the broker would soon take them.
        each["kafka"]["topic"]["config"] = {"retention.ms": "-1"}
    app = App(tmp_path, document)

    done = app.call(
        "run", "-f", str(app.manifest), "--until-idle", "--status-file", str(app.status_file), "--log-file", "spark.log"
    )

    assert done.returncode == 3, done.stderr
    assert last_line(done.stderr).startswith("CircuitOpen: ")
    for sink_name in ("exact", "relaxed"):
        records = read_committed(servers, f"{name}-{sink_name}")
        assert sorted(record.document["id"] for record in records) == list(range(40))
        for record in records:
            number = record.document["id"]
            assert (record.partition, record.timestamp, record.key) == (number % 3, 1700000000000 + number, b"NL")
            assert sorted(record.headers) == [("none", None), ("origin", topic.encode())]
    own = read_committed(servers, f"{name}-own")
    assert sorted((each.document["id"], each.key, each.document["country"]) for each in own) == [
        (number, b"k", "NL") for number in range(30, 50)
    ], "its own where and all of its own select, each record once"
    thinner = read_committed(servers, f"{name}-thinner")
    assert sorted((each.document["id"], each.partition, each.key) for each in thinner) == [
        (number, number % 3, b"NL") for number in range(5)
    ], "its own where, and the pipeline's select"
    several = [(each.document["id"], each.document["n"]) for each in read_committed(servers, f"{name}-several")]
    assert several == [(number, n) for number in range(40) for n in range(number % 3 + 1) if number % 3 < 2]
    letters = read_committed(servers, f"{name}-dlq")
    assert sorted(each.document["id"] for each in letters) == list(range(2, 50, 3)), "also those that where would drop"
    states = {each["name"]: each["state"] for each in app.status()["sinks"]}
    ended = dict.fromkeys(("exact", "relaxed", "own", "thinner", "several"), "Suspended")
    assert states == {**ended, "broken": "Failed"}
    [told] = [each for each in app.status()["sinks"] if each["name"] == "several"]
    assert (told["rowsDelivered"], told["deadLettered"]) == (len(several), len(letters))


@pytest.mark.long("starts Spark; tests/spark/test_transform has the record, tests/unit/test_runner what stops")
def test_a_record_that_cannot_be_decoded_stops_its_sink_with_its_place(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("bad")
    servers, topic = kafka.bootstrap_servers, f"{name}-in"
    create_topic(servers, topic, partitions=2)
    good = [json.dumps({"id": n}).encode() for n in range(10)]
    produce(servers, topic, [*good, b"not json", *good], partition=1)
    document = manifest(servers, name, [topic], decode={"format": "json", "schema": "id BIGINT NOT NULL"})
    app = App(tmp_path, document)

    with app.start("--until-idle") as run:
        assert run.wait() == 3, run.stderr
        told = last_line(run.stderr)

    assert told.startswith("RecordUndecodable: ")
    assert f"topic {topic}, partition 1, offset 10" in told
    assert len(read_committed(servers, f"{name}-out")) == 10
    assert app.sink_status()["state"] == "Failed"
    assert [line["next"] for line in app.progress()] == [0, 10]


@pytest.mark.long("two starts of Spark; seeds are in tests/kafka/test_starting")
def test_an_earlier_status_seeds_a_run_whose_progress_was_deleted(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("seed")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    app = App(tmp_path, manifest(kafka.bootstrap_servers, name, [source.topic]))
    source.feed(500)
    app.run_until_idle()
    delete_topic(kafka.bootstrap_servers, f"{name}-progress")
    source.feed(500)

    app.run_until_idle()

    assert source.judge(f"{name}-out") == EXACTLY_ONCE
    conditions = {each["type"]: each for each in app.status()["conditions"]}
    assert conditions["ExactlyOnce"]["status"] == "Unknown"
    assert conditions["ExactlyOnce"]["reason"] == "ProgressRestored"
    assert "at most 2000 records" in conditions["ExactlyOnce"]["message"]
    assert app.rows_delivered() == source.total


@pytest.mark.long(
    "two starts of Spark; test_topic_faults has topics that go, tests/kafka/test_starting those that come"
)
def test_topics_that_change_under_a_running_pipeline(kafka: LocalKafka, tmp_path: Path) -> None:
    """The source grows; the progress topic is deleted and comes back; the data topic is deleted and that is refused."""
    name = unique("changes")
    servers = kafka.bootstrap_servers
    source = Stream(servers, f"{name}-in", partitions=2).create()
    app = App(tmp_path, manifest(servers, name, [source.topic]))
    source.feed(500)

    with app.start() as run:
        run.until_rows(source.total)

        add_partitions(servers, source.topic, 4)
        source.partitions = 4
        source.feed(300)
        run.until_rows(source.total)

        before = topic_id(servers, f"{name}-progress")
        delete_topic(servers, f"{name}-progress")
        wait_until(lambda: topic_id(servers, f"{name}-progress") not in (None, before), "the progress topic is back")
        source.feed(300)
        run.until_rows(source.total)
        assert source.judge(f"{name}-out") == EXACTLY_ONCE
        assert "ProgressTopicRecreated" in run.stderr

        delete_topic(servers, f"{name}-out")
        assert run.wait() == 3, run.stderr
        assert last_line(run.stderr).startswith(f"DataTopicLost: data topic {name}-out is lost")

    # Also without its progress, and however often it is tried: the status goes on remembering.
    delete_topic(servers, f"{name}-progress")
    for _ in range(2):
        with app.start("--until-idle") as again:
            assert again.wait() == 3, again.stderr
            assert last_line(again.stderr).startswith("DataTopicLost: ")
        assert topic_id(servers, f"{name}-out") is None
        assert app.rows_delivered() == source.total


@pytest.mark.long("three starts of Spark; who writes a status file is in tests/unit/test_status_file")
def test_a_run_that_is_cut_short_or_killed_says_so(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("cut")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    app = App(tmp_path, manifest(kafka.bootstrap_servers, name, [source.topic]))
    source.feed(500)

    def writer() -> str:
        return app.call("progress", "-f", str(app.manifest), "--status-file", str(app.status_file)).stderr

    app.arm("after-rows-before-progress")
    with app.start() as run:
        run.until_held("after-rows-before-progress")
        assert f"process {run.pid} on" in writer()
        assert "nobody" not in writer()
        os.kill(run.pid, signal.SIGINT)
        run.eventually(lambda: "a second signal ends the run" in run.stderr, "it stops")
        os.kill(run.pid, signal.SIGINT)
        assert run.wait() == 1
        assert last_line(run.stderr).startswith("InternalError: a second signal ended the run before")
    assert "in the middle of a batch" in writer()
    app.disarm()
    with app.start() as run:
        run.until_rows(source.total)
        run.kill_driver()
    assert f"process {run.pid} on" in writer()
    assert "was killed" in writer()
    app.run_until_idle()
    assert "ended at" in writer()
    assert source.judge(f"{name}-out") == EXACTLY_ONCE


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM to the process group"])
@pytest.mark.thorough("starts Spark for each way of stopping", after=1)
def test_a_stop_lets_the_running_batch_finish(kafka: LocalKafka, tmp_path: Path, how: str) -> None:
    name = unique("stops")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    app = App(tmp_path, manifest(kafka.bootstrap_servers, name, [source.topic]))
    source.feed(500)

    app.arm("after-rows-before-progress")
    with app.start() as run:
        run.until_held("after-rows-before-progress")
        if how == "Ctrl-C":
            os.kill(run.pid, signal.SIGINT)
        else:
            os.killpg(run.pid, signal.SIGTERM)
        app.disarm()
        assert run.wait() == 0, run.stderr

    assert app.rows_delivered() == source.total, "the batch was finished, not abandoned"
    assert [line["lag"] for line in app.progress()] == [0] * source.partitions
    assert source.judge(f"{name}-out") == EXACTLY_ONCE
