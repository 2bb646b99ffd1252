"""A pipeline without a driver, whose sink has a history on a real broker."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from servers.control_plane import Cluster
from servers.local_kafka import LocalKafka
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.topics import Memory, TopicRequest
from sinkpipeline.kafka.settings import DeadLetterSettings
from support.kafka import topics
from support.kube.operator_lab import OperatorLab
from support.sink.one_sink import OneSink, deliver

ANOTHER = Owner(cluster="another-cluster", name="shop/orders")


class Suspended:
    """A suspended pipeline that has delivered 20 of its 30 records, if `deliver` was called."""

    def __init__(self, lab: OperatorLab, cluster: Cluster, kafka: LocalKafka, name: str) -> None:
        self.lab = lab
        self.name = name
        self.sink = OneSink(kafka.bootstrap_servers, name=topics.unique("topics"))
        self._cluster = cluster
        topics.produce_numbers(self.sink.servers, self.sink.source, 30)

    def deliver(self, rows: int = 20, *, owner: Owner | None = None, bad: Collection[int] = ()) -> None:
        """By a driver of that owner, by default its own; bad ones go to the dead letters."""
        letters = DeadLetterSettings(topic=TopicRequest(name=self.sink.dead))
        more: dict[str, Any] = {"id": self.id, "owner": owner or self.owner, "dead_letter": letters}
        started = self.sink.starter("run-1", **more).start()
        settings = self.sink.settings(**more)
        if rows:
            deliver(self.sink, started, range(rows), bad=bad, settings=settings)
        started.hold.close()

    def start(self, memory: Memory | None, **settings: Any) -> None:
        """As its driver would; raises SinkPipelineError."""
        self.sink.starter(memory=memory, id=self.id, owner=self.owner, **settings).start().hold.close()

    def remembered(self) -> Memory | None:
        """What its status remembers; None where it has none yet."""
        status = self.lab.status(self.name)
        return memory_of(status, self.id.identity, self.id.sink) if status.get("sinks") else None

    @property
    def id(self) -> SinkId:
        return SinkId(self._ref.replace("/", "."), "copy")

    @property
    def owner(self) -> Owner:
        return Owner(cluster=self._cluster.get("namespace", "kube-system")["metadata"]["uid"], name=self._ref)

    @property
    def _ref(self) -> str:
        return f"{self.lab.namespace}/{self.name}"

    def apply(
        self,
        *,
        servers: str | None = None,
        suspend: bool = True,
        deletion_policy: str = "Retain",
        letters: bool = False,
        **topic: Any,
    ) -> None:
        kafka = {
            "topic": {"name": self.sink.data, **topic},
            "progressTopic": {"name": self.sink.progress, "replicationFactor": 1},
        }
        source = {"bootstrapServers": servers or self.sink.servers, "topics": [self.sink.source]}
        sink: dict[str, Any] = {"name": "copy", "kafka": kafka}
        if letters:
            sink["deadLetter"] = {"topic": {"name": self.sink.dead, "replicationFactor": 1}}
        spec: dict[str, Any] = {"source": {"kafka": source}, "sinks": [sink], "suspend": suspend}
        spec["deletionPolicy"] = deletion_policy
        spec["failurePolicy"] = {"backoff": {"initial": "300ms", "max": "2s"}}
        self.lab.apply({**self.lab.pipeline(self.name), "spec": spec})

    def until_topics(self, status: str, reason: str) -> str:
        message: str = self.lab.until_condition(self.name, "TopicsReady", status, reason)["message"]
        return message
