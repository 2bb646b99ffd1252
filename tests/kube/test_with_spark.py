"""The headline cases with nothing played but the node: a real API server, a real broker, real Spark.

The operator runs with the rights of its chart, and rows are counted by a consumer that knows nothing of the product.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo_cluster import Kubernetes
from local_kafka import LocalKafka
from sinkpipeline.core.manifest import parse_manifest
from support import topics
from support.app import manifest
from support.streams import EXACTLY_ONCE, Stream
from support.waiting import wait_until

pytestmark = [pytest.mark.kube, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(420)]

NAMESPACE = "with-spark"
START_S = 120.0
REACTION_S = 60.0


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    with Kubernetes(tmp_path_factory.mktemp("kubernetes"), NAMESPACE) as ours:
        yield ours


class Pipeline:
    """One resource, its topics, and what kubectl shows of it."""

    def __init__(self, kubernetes: Kubernetes, kafka: LocalKafka, directory: Path) -> None:
        self.kubernetes = kubernetes
        self.servers = kafka.bootstrap_servers
        self.name = topics.unique("p")
        self.stream = Stream(self.servers, self.name).create()
        self.document = manifest(self.servers, self.name, [self.name])
        self.document["metadata"]["namespace"] = NAMESPACE
        self.data = f"{self.name}-out"
        self.progress = f"{self.name}-progress"
        self._file = directory / "pipeline.yaml"

    def apply(self, **spec: Any) -> None:
        self.document["spec"] |= spec
        # As a person would: what the model refuses, no test applies by mistake.
        parse_manifest(copy.deepcopy(self.document))
        self._file.write_text(yaml.safe_dump(self.document))
        self.kubernetes.kubectl("apply", "-f", str(self._file))

    def delete(self) -> None:
        self.kubernetes.kubectl("delete", "sinkpipeline", self.name, f"--timeout={REACTION_S:.0f}s")

    @property
    def status(self) -> dict[str, Any]:
        return self.kubernetes.status(self.name)

    @property
    def sink(self) -> dict[str, Any]:
        sinks: list[dict[str, Any]] = self.status.get("sinks") or [{}]
        return sinks[0]

    def condition(self, kind: str) -> str:
        found = self.kubernetes.condition(self.name, kind)
        return f"{found.get('status')} {found.get('reason')}"

    def until(self, condition: Callable[[], object], what: str, deadline_s: float = REACTION_S) -> None:
        try:
            wait_until(condition, what, deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status}\n{self.kubernetes.tails(self.name)}") from None

    def until_ready(self) -> None:
        self.until(lambda: self.condition("Ready") == "True Running", "the pipeline is Ready", START_S)

    def until_delivered(self) -> None:
        """All that was fed, and each row once."""
        self.until(lambda: self.stream.judge(self.data).missing == 0, "all rows are delivered", START_S)
        assert self.stream.judge(self.data) == EXACTLY_ONCE

    def remembered(self) -> list[str]:
        """The keys of the pipeline that the progress topic still has."""
        truth = topics.progress_truth(self.servers, self.progress)
        return [key for key, value in truth.items() if value is not None and f"/{NAMESPACE}.{self.name}/" in key]

    def events(self) -> str:
        return self.kubernetes.kubectl("get", "events", f"--field-selector=involvedObject.name={self.name}")


@pytest.fixture
def pipeline(kubernetes: Kubernetes, kafka: LocalKafka, tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(kubernetes, kafka, tmp_path)
    yield made
    kubernetes.kubectl("delete", "sinkpipeline", made.name, "--ignore-not-found", "--timeout=60s")


def test_rows_are_delivered_once_whatever_happens_to_the_driver(pipeline: Pipeline) -> None:
    pipeline.stream.feed(500)
    pipeline.apply()
    pipeline.until_ready()
    pipeline.until_delivered()

    # Killed: the operator notes it, and starts another one.
    pipeline.stream.feed(500)
    pipeline.kubernetes.kill_driver(pipeline.name)
    pipeline.until(lambda: pipeline.status["restarts"]["total"] == 1, "the death is noted")
    pipeline.stream.feed(500)
    pipeline.until_ready()
    pipeline.until_delivered()
    assert pipeline.status["restarts"]["lastExitCode"] == 137

    # Suspended: the driver finishes its batch and goes; Kafka tells what is left to do.
    first = pipeline.status["sparkApplication"]["configHash"]
    pipeline.apply(suspend=True)
    pipeline.until(lambda: pipeline.status["phase"] == "Suspended", "it is suspended")
    assert pipeline.kubernetes.pods() == []
    pipeline.stream.feed(25)
    pipeline.until(
        lambda: pipeline.sink.get("lag") == 100, "the lag of 4 x 25 records is told while no driver runs", 90
    )
    assert pipeline.condition("TopicsReady") == "True TopicsAsRequested"

    # Resumed with another configuration.
    pipeline.apply(suspend=False, trigger={"interval": "100ms"})
    pipeline.until_ready()
    pipeline.until_delivered()
    assert pipeline.status["sparkApplication"]["configHash"] != first
    assert pipeline.condition("ExactlyOnce") == "True Transactional"


def test_lost_topics_and_a_resource_that_comes_back(pipeline: Pipeline) -> None:
    pipeline.stream.feed(200)
    pipeline.apply()
    pipeline.until_ready()
    pipeline.until_delivered()

    # The progress topic, while a driver runs: it writes its own frontier back.
    before = topics.topic_id(pipeline.servers, pipeline.progress)
    topics.delete_topic(pipeline.servers, pipeline.progress)
    pipeline.until(lambda: pipeline.sink.get("progressTopicId") not in (None, before), "the topic is another one")
    pipeline.stream.feed(200)
    pipeline.until_delivered()
    assert "ProgressTopicRecreated" in pipeline.events()
    assert pipeline.condition("ExactlyOnce") == "True Transactional"

    # Deleted and applied again: it goes on where it was.
    pipeline.until_ready()
    pipeline.delete()
    pipeline.stream.feed(200)
    pipeline.apply()
    pipeline.until_ready()
    pipeline.until_delivered()

    # The data topic: nothing is created, and a person is needed.
    topics.delete_topic(pipeline.servers, pipeline.data)
    pipeline.until(lambda: pipeline.condition("Stalled") == "True DataTopicLost", "the data topic is lost")
    assert pipeline.condition("Ready").startswith("False")
    assert pipeline.status["phase"] == "Failed"
    assert topics.topic_id(pipeline.servers, pipeline.data) is None


def test_a_progress_topic_that_is_deleted_while_nothing_runs_is_restored_from_the_status(pipeline: Pipeline) -> None:
    pipeline.stream.feed(200)
    pipeline.apply(deletionPolicy="Delete")
    pipeline.until_ready()
    pipeline.until_delivered()
    pipeline.apply(suspend=True)
    pipeline.until(lambda: pipeline.status["phase"] == "Suspended", "it is suspended")
    pipeline.until(lambda: pipeline.sink.get("rowsDelivered") == 800, "the status knows all rows")
    topics.delete_topic(pipeline.servers, pipeline.progress)
    pipeline.stream.feed(10)
    pipeline.apply(suspend=False)
    pipeline.until_ready()
    pipeline.until(lambda: pipeline.condition("ExactlyOnce") == "Unknown ProgressRestored", "it says so")
    pipeline.until_delivered()

    # Seeded progress doesn't know who made the data topic: what isn't known to be ours stays.
    pipeline.delete()
    assert topics.topic_id(pipeline.servers, pipeline.data) is not None
    assert pipeline.remembered() == []


def test_deletion_policy_delete_takes_what_it_made(pipeline: Pipeline) -> None:
    pipeline.stream.feed(50)
    pipeline.apply(deletionPolicy="Delete")
    pipeline.until_ready()
    pipeline.until_delivered()
    pipeline.delete()
    assert topics.topic_id(pipeline.servers, pipeline.data) is None
    assert topics.topic_id(pipeline.servers, pipeline.name) is not None
    assert pipeline.remembered() == []
