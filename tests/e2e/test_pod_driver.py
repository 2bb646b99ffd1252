"""The driver as it runs in a Spark pod: started by main.py, asked over HTTP, heard by its last words."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.local_process import HOST
from servers.spark_cluster import SparkCluster
from servers.waiting import crowding
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.resume import from_status
from sinkpipeline.core.status import condition_of
from sinkpipeline.kafka.purify import purify
from sinkpipeline.kinds.resolve import resolve_sinks
from support.app.command import BY_TASKS, START_DEADLINE_S, App, by_driver, last_line, manifest, sink
from support.app.log_rules import Rules
from support.app.pod import CLUSTER, TOKEN, Pod
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.kafka.topics import delete_topic, open_transaction, produce_numbers, unique
from support.sink.driver import Driver
from support.sink.one_sink import OneSink
from support.sink.starts import refusal_soon
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

STOPPED_S = 15.0
STILL_S = 6.0
"""Spark is asked every two seconds, and a batch is planned before its tasks run."""
SLOW_RECORDS = 2000


@pytest.mark.thorough("a driver that the operator asks from its start to its end is in tests/kube/test_with_spark")
def test_it_answers_from_before_spark_until_the_last_batch_has_finished(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINKPIPELINE_OPEN_TRANSACTION_S", "1")
    monkeypatch.setenv("SINKPIPELINE_LOG_FORMAT", "json")
    name = unique("pod")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()

    with Pod(tmp_path, manifest(kafka.bootstrap_servers, name, [source.topic]), hold=True) as pod:
        first = pod.run.eventually(pod.status, "the service answers")
        assert (first["phase"], first["sinks"]) == ("Starting", [])
        assert pod.ask("/healthz", None)[0] == 200
        assert not pod.run.jvm()

        pod.release()
        # There is nothing to deliver, and somebody who would.
        pod.run.eventually(lambda: pod.condition("Ready") == "True Running", "a sink without records is Ready")
        assert pod.sinks()[name]["proved"]
        assert pod.status()["executors"] == {"registered": 1, "wanted": 1}
        source.feed(500)
        pod.until_rows(source.total)
        status = pod.status()
        assert (status["configHash"], status["pid"], status["run"]) == ("hash-1", pod.run.pid, first["run"])
        assert status["phase"] == "Running"
        for path in ("/status", "/metrics"):
            assert pod.ask(path, None)[0] == 401
            assert pod.ask(path, f"{TOKEN}x")[0] == 401
        metrics = pod.ask("/metrics")[1]
        assert f'sinkpipeline_sink_rows_delivered_total{{sink="{name}"}} {float(source.total)}' in metrics
        assert f'sinkpipeline_sink_state{{sink="{name}",state="Running"}} 1.0' in metrics
        # A batch is counted once it has ended, its rows a moment before.
        no_batch = f'sinkpipeline_sink_batches_total{{sink="{name}"}} 0.0'
        pod.run.eventually(lambda: no_batch not in pod.ask("/metrics")[1], "a batch is counted")
        pod.run.eventually(lambda: pod.status()["now"] > status["now"], "the heartbeat moves on")
        _hang_in_the_source(kafka.bootstrap_servers, source, pod, name)

        pod.app.arm("delivered-rows-before-progress")
        source.feed(1, only=0)  # a single record is in one batch; of more, the next batch could have the rest
        pod.run.until_held("delivered-rows-before-progress")
        pod.run.eventually(lambda: _waits_s(pod, name) > 0, "it is told for how long a record waits")
        pod.run._process.send_signal(signal.SIGTERM)
        pod.run.eventually(lambda: "stopping after the running batch" in pod.run.stderr, "it says that it stops")
        stopping = pod.status()["now"]
        pod.run.eventually(lambda: pod.status()["now"] > stopping, "the heartbeat moves on while a batch finishes")
        pod.app.disarm()
        assert pod.run.wait() == 0, pod.run.stderr

        words = pod.words()
    _told_in_lines(pod, name, first["run"])
    assert words["reason"] == "Stopped"
    [told] = words["sinks"]
    assert (told["name"], told["state"], told["rowsDelivered"]) == (name, "Suspended", source.total)
    # The end of the transaction has an offset, too.
    assert [sum(each["next"]) for each in told["frontier"]] == [source.total + 1]
    assert source.judge(f"{name}-out") == EXACTLY_ONCE
    # Its progress belongs to the resource of that cluster now.
    [finding] = purify(resolve_sinks(read_manifest(pod.app.manifest), None))
    assert finding.error is not None
    assert finding.error.reason is Reason.IDENTITY_IN_USE
    assert f"belongs to test/{name} of cluster {CLUSTER}" in finding.error.message


@pytest.mark.parametrize("most", [10_000, 0], ids=["of the driver", "of tasks"])
@pytest.mark.thorough("starts Spark; what is told of executors is in tests/unit/test_work and tests/kube")
@pytest.mark.long("the other kind of batch", after=1)
def test_a_driver_that_no_executor_joins_says_so_and_ends_when_it_is_told_to(
    kafka: LocalKafka, tmp_path: Path, most: int
) -> None:
    """On a cluster of Spark's own that has no worker: what a quota, or a full cluster, comes to."""
    name = unique("podalone")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    conf = {**by_driver(most)["conf"], "spark.starvation.timeout": "1s"}
    document = manifest(kafka.bootstrap_servers, name, [source.topic], spark={"conf": conf})

    with Pod(tmp_path, document, master="local-cluster[0,1,2048]") as pod:
        pod.run.eventually(lambda: pod.condition("Ready") == "False FirstBatchPending", "it is not Ready")
        pod.run.eventually(lambda: "noneSince" in pod.status()["executors"], "since when there is none is told")
        status = pod.status()
        assert (status["executors"]["registered"], status["executors"]["wanted"]) == (0, 2)
        assert (status["phase"], status["totals"]["sinksReady"], status["totals"]["lag"]) == ("Starting", "0/1", 0)
        assert "none of 2 executors registered" in condition_of(status, "Ready")["message"]

        source.feed(100)
        pod.run.eventually(lambda: "has not accepted any resources" in pod.run.stderr, "a batch waits for executors")
        assert pod.sinks()[name]["proved"] is False
        began = time.monotonic()
        assert pod.run.terminate() == 0, pod.run.stderr
        assert time.monotonic() - began < STOPPED_S * crowding()
        assert pod.words()["reason"] == "Stopped"
        assert [each["state"] for each in pod.words()["sinks"]] == ["Suspended"]


@pytest.mark.long(
    "two drivers of Spark and a worker; a cluster without one is beside it, `make e2e` takes executors away"
)
def test_executors_that_are_lost_in_the_middle_of_a_batch_are_told_and_a_stop_does_not_wait_for_them(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", HOST)
    name = unique("podlosing")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    source.feed(50)
    spark = {**BY_TASKS, "executor": {"instances": 1, "cores": 1, "memory": "512m"}}
    document = manifest(kafka.bootstrap_servers, name, [source.topic], spark=spark)
    app = App(tmp_path, parse_manifest(document).to_document())

    with SparkCluster(tmp_path, app.environment) as cluster:
        wait_until(lambda: cluster.is_up, "the master is up")
        with Pod(tmp_path, document, master=cluster.master) as pod:
            pod.run.eventually(lambda: "noneSince" in pod.status().get("executors", {}), "it waits for an executor")
            assert pod.condition("Ready") == "False FirstBatchPending"
            cluster.start_worker()
            pod.until_rows(source.total)
            pod.run.eventually(lambda: pod.condition("Ready") == "True Running", "a batch has come through")
            assert pod.status()["executors"] == {"registered": 1, "wanted": 1}

            pod.app.arm("after-rows-before-progress")
            source.feed(1, only=0)
            pod.run.until_held("after-rows-before-progress")
            cluster.kill_worker()
            pod.app.disarm()
            pod.run.eventually(lambda: "noneSince" in pod.status()["executors"], "that nobody is there is told")
            began = time.monotonic()
            assert pod.run.terminate() == 0, pod.run.stderr
            assert time.monotonic() - began < STOPPED_S * crowding()
            assert pod.words()["reason"] == "Stopped"

    with Pod(tmp_path / "next", document) as after:
        after.until_rows(source.total)
        assert after.run.terminate() == 0, after.run.stderr
    assert source.judge(f"{name}-out") == EXACTLY_ONCE


@pytest.mark.long("a batch that takes ten seconds of a core; the clock is in tests/unit/test_work")
def test_a_batch_that_takes_long_does_not_stand_still(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("podslow")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    source.feed(SLOW_RECORDS // source.partitions)
    slow = "size(filter(sequence(1, 60000), x -> hash(x, value) = 7)) >= 0"
    document = manifest(kafka.bootstrap_servers, name, [source.topic], transform={"where": slow})

    with Pod(tmp_path, document) as pod:
        pod.run.eventually(lambda: pod.sinks().get(name, {}).get("lag"), "records wait")
        seen: list[tuple[float, float]] = []

        def is_through() -> bool:
            sink = pod.sinks()[name]
            if not sink["rowsDelivered"]:
                seen.append((time.monotonic(), pod.stands_still_s(name)))
            return bool(sink["rowsDelivered"] == source.total)

        pod.run.eventually(is_through, "one batch has delivered all", 2 * START_DEADLINE_S)
        took = seen[-1][0] - seen[0][0]
        assert took > 2 * STILL_S, f"the batch took only {took:.0f} s"
        assert max(still for _, still in seen) <= STILL_S, seen
        assert pod.run.terminate() == 0, pod.run.stderr
    assert source.judge(f"{name}-out") == EXACTLY_ONCE


def _waits_s(pod: Pod, sink: str) -> float:
    found = re.search(rf'^sinkpipeline_sink_lag_seconds{{sink="{sink}"}} (\S+)$', pod.ask("/metrics")[1], re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def _told_in_lines(pod: Pod, name: str, run: str) -> None:
    """For programs: driver and JVM, whose own words before its configuration is read are no JSON."""
    lines = [Rules().apply(line) for line in pod.run.stderr.splitlines()]
    assert [each.line for each in lines if each.time is None and not each.line.startswith("WARNING: ")] == []
    about = {(each.labels["pipeline"], each.metadata["run"]) for each in lines if each.time is not None}
    assert about == {(f"test/{name}", run)}
    [waits] = [each for each in lines if each.metadata.get("reason") == "SourceTransactionOpen"]
    assert waits.labels["level"] == "WARN"
    assert name in {each.labels.get("sink") for each in lines}


def _hang_in_the_source(servers: str, source: Stream, pod: Pod, name: str) -> None:
    """A transaction that is open for too long is told of, and once it ends its rows come, each once."""

    def told() -> tuple[int | None, bool, str]:
        status = pod.status()
        [each] = status["sinks"]
        return each.get("heldBack"), "openTransaction" in each, condition_of(status, "SinksHealthy")["reason"]

    pod.run.eventually(lambda: told() == (0, False, "NoErrors"), "nothing is held back")
    with open_transaction(servers, unique("foreign")) as producer:
        for value in source.next_rows(20, 0):
            producer.produce(source.topic, value, value, 0)
        assert producer.flush(30) == 0
        pod.run.eventually(lambda: told() == (20, True, "SourceTransactionOpen"), "it is told of")
        assert pod.sinks()[name]["lag"] == 0
        assert f"{name}-in" in pod.sinks()[name]["openTransaction"]["message"]
        assert f'sinkpipeline_sink_held_back_offsets{{sink="{name}"}} 20.0' in pod.ask("/metrics")[1]
        producer.commit_transaction()
    pod.run.eventually(lambda: told() == (0, False, "NoErrors"), "it is told of no more")
    pod.until_rows(source.total)


@pytest.mark.thorough("starts Spark; last words are in tests/unit/test_service_last_words and in tests/kube")
def test_a_lost_data_topic_outlives_the_pod_in_its_last_words(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: without --master, Spark's is what spark-submit is given."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[2,4] pyspark-shell")
    name = unique("podlost")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    source.feed(500)

    with Pod(tmp_path, manifest(kafka.bootstrap_servers, name, [source.topic]), master=None) as pod:
        pod.until_rows(source.total)
        delete_topic(kafka.bootstrap_servers, f"{name}-out")
        assert pod.run.wait() == 3, pod.run.stderr

        words = pod.words()
        assert last_line(pod.run.stderr).startswith("DataTopicLost: ")
    assert words["reason"] == "DataTopicLost"
    assert f"{name}-out" in words["message"]
    assert "sinkpipeline reset" in words["remedy"]
    [told] = words["sinks"]
    assert (told["state"], told["error"]["reason"], told["rowsDelivered"]) == ("Failed", "DataTopicLost", source.total)


@pytest.mark.long("two starts of Spark; tests/kafka/test_starting has seeds, test_run a status as one")
def test_a_resume_document_seeds_a_deleted_progress_topic(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("podseed")
    document = manifest(kafka.bootstrap_servers, name, [f"{name}-in"])
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    source.feed(500)
    with Pod(tmp_path / "first", document) as first:
        first.until_rows(source.total)
        status = first.status()
        assert first.run.terminate() == 0, first.run.stderr
    delete_topic(kafka.bootstrap_servers, f"{name}-progress")
    source.feed(500)

    with Pod(tmp_path / "second", document, resume=from_status(status, f"test.{name}")) as second:
        second.run.eventually(second.sinks, "it knows its sinks")
        assert second.sinks()[name]["rowsDelivered"] >= status["totals"]["rowsDelivered"], "what is remembered is told"
        second.until_rows(source.total)
        conditions = {each["type"]: each for each in second.status()["conditions"]}
        assert second.run.terminate() == 0, second.run.stderr

    assert conditions["ExactlyOnce"]["status"] == "Unknown"
    assert conditions["ExactlyOnce"]["reason"] == "ProgressRestored"
    assert source.judge(f"{name}-out") == EXACTLY_ONCE


@pytest.mark.long("three starts of Spark; tests/kube/test_operator_endings has circuits")
def test_a_circuit_stays_open_for_its_configuration_only(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("podcircuit")
    servers, identity = kafka.bootstrap_servers, f"test.{name}"
    source = Stream(servers, f"{name}-in").create()
    source.feed(100)
    good = sink("good", topic=f"{name}-good", progressTopic={"name": f"{name}-progress"})
    broken = sink("broken", topic=f"{name}-broken", progressTopic={"name": f"{name}-progress"})
    document = manifest(
        servers,
        name,
        [source.topic],
        failurePolicy={"maxConsecutiveFailures": 1},
        sinks=[good, {**broken, "kafka": {**broken["kafka"], "bootstrapServers": "127.0.0.1:1"}}],
    )

    with Pod(tmp_path / "first", document) as first:
        first.run.eventually(lambda: first.sinks().get("broken", {}).get("state") == "Failed", "its circuit opens")
        first.until_rows(source.total)
        status = first.status()
        opened = {each["name"]: each for each in status["sinks"]}["broken"]["circuit"]
        assert opened["configHash"] == "hash-1"
        assert 'sinkpipeline_sink_failures_total{reason="BrokerUnreachable",sink="broken"}' in first.ask("/metrics")[1]
        # The other sink would have gone on.
        assert first.run.terminate() == 0, first.run.stderr
        told = {each["name"]: each for each in first.words()["sinks"]}
        assert (told["good"]["state"], told["broken"]["state"]) == ("Suspended", "Failed")
        assert told["broken"]["error"]["reason"] == "CircuitOpen"

    source.feed(100)
    resume = from_status(status, identity)
    with Pod(tmp_path / "same", document, resume=resume) as same:
        same.run.eventually(same.sinks, "it knows its sinks")
        assert same.sinks()["broken"]["state"] == "Failed", "from the start"
        same.until_rows(source.total)
        found = same.sinks()["broken"]
        assert (found["state"], found["circuit"]) == ("Failed", opened)
        assert found["error"] == {each["name"]: each for each in status["sinks"]}["broken"]["error"]
        assert "sinkpipeline_sink_failures_total{reason" not in same.ask("/metrics")[1], "nothing was tried"
        assert same.run.terminate() == 0, same.run.stderr

    mended = {**document, "spec": {**document["spec"], "sinks": [good, broken]}}
    with Pod(tmp_path / "other", mended, config_hash="hash-2", resume=resume) as other:
        other.until_rows(2 * source.total)
        assert "circuit" not in other.sinks()["broken"]
        assert other.run.terminate() == 0, other.run.stderr

    assert source.judge(f"{name}-good") == EXACTLY_ONCE
    assert source.judge(f"{name}-broken") == EXACTLY_ONCE


def test_only_the_named_owner_is_adopted(kafka: LocalKafka) -> None:
    kept = OneSink(kafka.bootstrap_servers)
    produce_numbers(kept.servers, kept.source, 30)
    with Driver(kept) as old:
        old.batch(10)
        owner = old.starter.settings.owner
        new = replace(owner, cluster=CLUSTER)
        for adopt in (None, replace(owner, name="another/pipeline"), new):
            with pytest.raises(SinkPipelineError) as caught:
                Driver(kept, owner=new, adopt=adopt).start()
            assert caught.value.reason is Reason.IDENTITY_IN_USE

        with Driver(kept, owner=new, adopt=owner) as adopter:
            refusal_soon(old.delivery.check_world, Reason.SUPERSEDED)
            adopter.until(30)

        with pytest.raises(SinkPipelineError) as caught:
            Driver(kept).start()
        assert caught.value.reason is Reason.IDENTITY_IN_USE, "the sink is the adopter's now"
    assert len(kept.delivered()) == 30
