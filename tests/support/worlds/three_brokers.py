"""Three brokers: topics with a replica on each, who leads what, and how to take one of them away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import ElectionType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic
from typing_extensions import override

from servers.local_kafka import LocalKafka
from support.kafka import topics
from support.kafka.streams import Stream, Verdict
from support.sink.one_sink import OneSink
from support.waiting import result_of, wait_until

BROKERS = 3
DEADLINE_S = 90.0
_COORDINATED = "__transaction_state"

_REPLICATED = {"default.replication.factor": str(BROKERS), "min.insync.replicas": "2"}
"""What a topic gets whose creator leaves it to the brokers: one of them may be down."""


@contextlib.contextmanager
def three_brokers() -> Iterator[LocalKafka]:
    with LocalKafka(brokers=BROKERS, properties=_REPLICATED) as cluster:
        # The brokers' own topic of transactions comes with the first of them.
        with topics.open_transaction(cluster.bootstrap_servers, topics.unique("first")):
            pass
        yield cluster


def create_topic(servers: str, name: str, *, partitions: int = 1, replicas: int = -1) -> None:
    """`replicas`: by default as many as the brokers give a topic by themselves."""
    new = NewTopic(name, num_partitions=partitions, replication_factor=replicas)
    topics.ask(servers, lambda client: client.create_topics([new]))
    wait_until(lambda: name in _metadata(servers).topics, f"topic {name} is there", DEADLINE_S)
    wait_until_in_sync(servers)


def _metadata(servers: str) -> ClusterMetadata:
    # A client of its own each time: one that is kept goes on asking a broker that is gone.
    return AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=topics.DEADLINE_S)


def leaders(servers: str) -> Mapping[tuple[str, int], int]:
    """The node that leads each partition of the cluster, the brokers' own topics included."""
    return {
        (name, number): int(partition.leader)
        for name, topic in _metadata(servers).topics.items()
        for number, partition in topic.partitions.items()
    }


def followers(servers: str, topic: str) -> set[int]:
    """The nodes that have a replica of the topic's first partition, and don't lead it."""
    partition = _metadata(servers).topics[topic].partitions[0]
    return {*partition.replicas} - {partition.leader}


def coordinator(servers: str, transactional_id: str) -> int:
    """The node that coordinates an id's transactions: the leader of the partition that Java's hash of it names."""
    code = 0
    for character in transactional_id:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    nodes = [node for (name, _), node in sorted(leaders(servers).items()) if name == _COORDINATED]
    return nodes[(code & 0x7FFFFFFF) % len(nodes)]


def elect_preferred_leaders(servers: str) -> None:
    """Gives every partition back to the broker that it was made for."""
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        result_of(client.elect_leaders(ElectionType.PREFERRED, None), DEADLINE_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.ELECTION_NOT_NEEDED:
            raise


def wait_until_in_sync(servers: str) -> None:
    """Waits until every replica of the cluster has caught up, so that another broker may go."""

    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def lagging() -> list[str]:
        return [
            f"{name}-{number}"
            for name, topic in client.list_topics(timeout=topics.DEADLINE_S).topics.items()
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < len(partition.replicas)
        ]

    wait_until(lambda: not lagging(), "every replica is in sync", DEADLINE_S)


@contextlib.contextmanager
def restored(cluster: LocalKafka) -> Iterator[None]:
    """Starts what was killed within, wakes what was paused, and waits until another broker may go."""
    try:
        yield
    finally:
        for node in range(1, BROKERS + 1):
            if node in cluster.pids:
                cluster.resume_broker(node)
            else:
                cluster.start_broker(node)
        wait_until_in_sync(cluster.bootstrap_servers)


@dataclass
class ReplicatedStream(Stream):
    """A source topic with a replica on every broker, judged also while leaders move."""

    @override
    def create(self) -> ReplicatedStream:
        create_topic(self.servers, self.topic, partitions=self.partitions)
        return self

    @override
    def judge(self, data_topic: str) -> Verdict:
        [verdict] = wait_until(lambda: self._judged(data_topic), f"{data_topic} can be read", DEADLINE_S)
        return verdict

    def _judged(self, data_topic: str) -> list[Verdict]:
        with contextlib.suppress(KafkaException):  # such as a leader that is not one any more
            return [super().judge(data_topic)]
        return []


class ReplicatedSink(OneSink):
    """One sink whose topics have a replica on every broker."""

    @override
    def __post_init__(self) -> None:
        create_topic(self.servers, self.source, partitions=self.partitions)
