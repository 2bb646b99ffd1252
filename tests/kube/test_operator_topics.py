"""What the resource says of its topics while no driver runs: each row of the topic policy, on a real broker.

A start is refused, or not, by the same function: what a driver then does is shown in tests/kafka.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from servers.control_plane import Cluster
from servers.local_kafka import LocalKafka
from servers.local_process import HOST
from support.kafka import topics
from support.kube.operator_lab import OperatorLab
from support.kube.scripts import End, Script
from support.kube.suspended import ANOTHER, Suspended

pytestmark = [pytest.mark.kube, pytest.mark.kafka]


@pytest.fixture
def pipeline(kafka_lab: OperatorLab, api_server: Cluster, kafka: LocalKafka, name: str) -> Iterator[Suspended]:
    yield Suspended(kafka_lab, api_server, kafka, name)
    kafka_lab.check()


@pytest.mark.thorough("waits a minute, as the operator does")
def test_what_kafka_says_while_nothing_runs(pipeline: Suspended) -> None:
    pipeline.deliver(bad=[3, 5])
    pipeline.apply()
    pipeline.until_topics("True", "TopicsAsRequested")
    status = pipeline.lab.until_status(pipeline.name, lambda seen: "lag" in seen["totals"], "the lag is known")
    assert (status["phase"], status["totals"]["lag"], status["totals"]["rowsDelivered"]) == ("Suspended", 10, 18)
    (sink,) = status["sinks"]
    assert (sink["state"], sink["frontier"][0]["next"], status["totals"]["deadLettered"]) == ("Suspended", [20], 2)
    assert sink["deadLetters"] == [{"class": "MalformedJson", "stage": "decode", "count": 2, "dropped": 0}]
    # Of a pipeline that is new to it too.
    pipeline.lab.until(lambda: "DeadLettered: copy: 2 records" in pipeline.lab.told(pipeline.name), "an event tells it")

    # And again, when the source has gone on.
    topics.produce_numbers(pipeline.sink.servers, pipeline.sink.source, 5, start=30)
    pipeline.lab.until_status(
        pipeline.name, lambda seen: seen["totals"]["lag"] == 15, "the lag has grown", deadline_s=90
    )


def test_nothing_is_made_for_a_pipeline_that_is_suspended(pipeline: Suspended) -> None:
    pipeline.apply()
    pipeline.until_topics("Unknown", "NotYetKnown")
    assert topics.topic_id(pipeline.sink.servers, pipeline.sink.data) is None
    assert topics.topic_id(pipeline.sink.servers, pipeline.sink.progress) is None


def test_a_data_topic_that_is_missing_though_rows_were_delivered(pipeline: Suspended) -> None:
    pipeline.deliver()
    pipeline.apply()
    pipeline.until_topics("True", "TopicsAsRequested")
    topics.delete_topic(pipeline.sink.servers, pipeline.sink.data)
    assert "20 rows were delivered into it" in pipeline.until_topics("False", "DataTopicLost")
    # An event follows the status that it tells of.
    pipeline.lab.until(lambda: "DataTopicLost" in pipeline.lab.told(pipeline.name), "an event tells it")
    assert topics.topic_id(pipeline.sink.servers, pipeline.sink.data) is None


def test_a_data_topic_that_somebody_made_again(pipeline: Suspended) -> None:
    pipeline.deliver()
    topics.recreate_topic(pipeline.sink.servers, pipeline.sink.data)
    pipeline.apply()
    assert "it was re-created" in pipeline.until_topics("False", "DataTopicLost")


def test_a_data_topic_that_is_missing_before_the_first_row(pipeline: Suspended) -> None:
    pipeline.deliver(rows=0)
    topics.delete_topic(pipeline.sink.servers, pipeline.sink.data)
    pipeline.apply()
    pipeline.until_topics("True", "TopicsAsRequested")


@pytest.mark.thorough("each of them is lost beside it")
def test_both_topics_are_lost_and_the_status_remembers(pipeline: Suspended) -> None:
    pipeline.deliver()
    pipeline.apply()
    pipeline.until_topics("True", "TopicsAsRequested")
    for topic in (pipeline.sink.data, pipeline.sink.progress):
        topics.delete_topic(pipeline.sink.servers, topic)
    pipeline.until_topics("False", "DataTopicLost")
    assert pipeline.lab.sink(pipeline.name)["frontier"][0]["next"] == [20], "the memory stays"


def test_a_progress_topic_that_is_lost_is_no_reason_to_forget(pipeline: Suspended) -> None:
    pipeline.deliver()
    pipeline.apply()
    pipeline.until_topics("True", "TopicsAsRequested")
    topics.delete_topic(pipeline.sink.servers, pipeline.sink.progress)
    pipeline.until_topics("Unknown", "NotYetKnown")
    sink = pipeline.lab.sink(pipeline.name)
    assert (sink["frontier"][0]["next"], sink["rowsDelivered"]) == ([20], 20)
    assert topics.topic_id(pipeline.sink.servers, pipeline.sink.progress) is None


@pytest.mark.thorough("another row of the topic policy, which tests/unit/test_topics has whole")
def test_a_source_that_was_made_again(pipeline: Suspended) -> None:
    pipeline.deliver()
    topics.recreate_topic(pipeline.sink.servers, pipeline.sink.source)
    pipeline.apply()
    pipeline.until_topics("False", "SourceRecreated")


def test_a_topic_that_drifted_is_told_and_left(pipeline: Suspended) -> None:
    pipeline.deliver()
    pipeline.apply(partitions=7)
    assert "has 1 partitions, the manifest says 7" in pipeline.until_topics("True", "Drifted")
    assert topics.partition_count(pipeline.sink.servers, pipeline.sink.data) == 1


@pytest.mark.thorough("waits for time-outs")
def test_brokers_that_do_not_answer_change_nothing(pipeline: Suspended) -> None:
    pipeline.deliver()
    pipeline.apply()
    pipeline.until_topics("True", "TopicsAsRequested")
    pipeline.lab.until_status(pipeline.name, lambda seen: "lag" in seen["totals"], "the lag is known")
    pipeline.apply(servers="127.0.0.1:9")
    pipeline.until_topics("Unknown", "BrokerUnreachable")
    sink = pipeline.lab.sink(pipeline.name)
    assert (sink["frontier"][0]["next"], sink["rowsDelivered"]) == ([20], 20)


@pytest.mark.thorough("many pipelines, and waits for time-outs")
def test_a_silent_cluster_holds_up_the_view_of_no_other(pipeline: Suspended) -> None:
    lab = pipeline.lab
    pipeline.deliver()
    with socket.create_server((HOST, 0), backlog=256) as silence:
        silent = [f"{pipeline.name}-{number}" for number in range(12)]
        for each in silent:
            manifest = lab.pipeline(each, suspend=True)
            manifest["spec"]["source"]["kafka"]["bootstrapServers"] = f"{HOST}:{silence.getsockname()[1]}"
            lab.apply(manifest)
        pipeline.apply()
        lab.until_condition(pipeline.name, "TopicsReady", "True", "TopicsAsRequested", 6)
        for each in silent:
            lab.until_condition(each, "TopicsReady", "Unknown", "BrokerUnreachable")
            lab.delete("sinkpipeline", each)


@pytest.mark.thorough("tests/kafka/test_starting has another owner")
def test_the_progress_of_another_owner_is_not_taken_for_its_own(pipeline: Suspended) -> None:
    pipeline.deliver(owner=ANOTHER)
    pipeline.apply()
    pipeline.lab.until_phase(pipeline.name, "Suspended")
    # As remembered, it would seed a progress topic that is lost, as if nobody else had that identity.
    pipeline.lab.stays(lambda: "frontier" not in pipeline.lab.sink(pipeline.name), "it remembers nothing", 8)


def test_a_driver_that_another_owner_superseded_waits_for_a_person(pipeline: Suspended) -> None:
    pipeline.deliver(owner=ANOTHER)
    lab, name = pipeline.lab, pipeline.name
    lab.drivers.play((lab.namespace, name), Script(end=End(code=4, words=("Superseded", "facts", "remedy"))))
    pipeline.apply(suspend=False)
    lab.until_condition(name, "Stalled", "True", "Superseded", 10)
    assert "nextTime" not in lab.status(name)["restarts"]


@pytest.mark.thorough("waits for brokers that are silent")
def test_a_removal_that_brokers_hold_up_says_so_soon(pipeline: Suspended) -> None:
    lab, name = pipeline.lab, pipeline.name
    pipeline.apply(servers="127.0.0.1:9", deletion_policy="Delete")
    lab.until(lambda: lab.resource(name)["metadata"].get("finalizers"), "it has the finalizer")
    lab.until_phase(name, "Suspended")
    lab.delete("sinkpipeline", name, "--wait=false")
    lab.until_condition(name, "Reconciling", "True", "RemovingTopics", 5)
    told = lab.until_condition(name, "Reconciling", "True", "KafkaNotAnswering", 20)
    assert "127.0.0.1:9 has not answered" in told["message"]
    assert lab.condition(name, "Ready")["message"] == told["message"]
    lab.until(lambda: "KafkaNotAnswering: " in lab.told(name), "an event tells it")
    [command] = re.findall(r"`(kubectl .*?)`", told["message"])
    lab.type(command)
    lab.until(lambda: lab.find("sinkpipeline", name) is None, "it is gone")


def test_a_data_topic_that_nobody_remembers_to_have_made_stays_and_is_told(pipeline: Suspended) -> None:
    lab, name = pipeline.lab, pipeline.name
    topics.create_topic(pipeline.sink.servers, pipeline.sink.data, partitions=1)
    pipeline.deliver()
    pipeline.apply(deletion_policy="Delete")
    lab.until(lambda: lab.resource(name)["metadata"].get("finalizers"), "it has the finalizer")
    lab.delete("sinkpipeline", name)
    assert "it was there before" in until_kept(pipeline)


def test_a_data_topic_whose_progress_was_restored_stays_and_says_so(pipeline: Suspended) -> None:
    """Though the pipeline created it: the status, from which the progress comes, does not remember that."""
    lab, name = pipeline.lab, pipeline.name
    pipeline.deliver()
    pipeline.apply(deletion_policy="Delete")
    pipeline.until_topics("True", "TopicsAsRequested")
    memory = pipeline.remembered()
    assert memory is not None
    topics.delete_topic(pipeline.sink.servers, pipeline.sink.progress)
    pipeline.start(memory)
    assert topics.topic_id(pipeline.sink.servers, pipeline.sink.progress) is not None
    lab.delete("sinkpipeline", name)
    assert "its progress was restored from the status" in until_kept(pipeline)


def until_kept(pipeline: Suspended) -> str:
    """What the event says of the data topic, which is there."""
    begins = f"DataTopicKept: the data topic {pipeline.sink.data} stays: "

    def told() -> list[str]:
        return [line for line in pipeline.lab.told(pipeline.name).splitlines() if line.startswith(begins)]

    [line] = pipeline.lab.until(told, "it is told")
    assert topics.topic_id(pipeline.sink.servers, pipeline.sink.data) is not None
    return line
