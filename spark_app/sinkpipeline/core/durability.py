"""What is to be feared for records that a topic has acknowledged. Kafka replicates, and syncs no disk."""

from __future__ import annotations

from sinkpipeline.core.topics import Topic, TopicRequest

REPLICAS = 3
IN_SYNC = 2
"""With which one broker can be lost, and another one be down, without losing a record that was acknowledged."""


def durability(topic: Topic) -> tuple[str, ...]:
    """What is to be feared for the records of a topic, by its own facts; nothing where they are not known."""
    in_sync = topic.config.get("min.insync.replicas")
    facts = []
    if 0 < topic.replication_factor < REPLICAS:
        facts.append(f"has {topic.replication_factor} of {REPLICAS} replicas")
    if in_sync is not None and int(in_sync) < IN_SYNC:
        facts.append(f"acknowledges a record that {in_sync} has (min.insync.replicas)")
    if not facts:
        return ()
    fear = "a broker that is lost can take acknowledged records with it"
    remedy = f"use replication factor {REPLICAS} and min.insync.replicas={IN_SYNC}"
    return (f"{topic.name} {' and '.join(facts)}: {fear}; {remedy}",)


def as_requested(request: TopicRequest) -> Topic:
    """A topic that is not there yet, as far as its request says what it will be."""
    return Topic(
        name=request.name,
        id="",
        partitions=request.partitions or 0,
        replication_factor=request.replication_factor or 0,
        config=request.config,
    )
