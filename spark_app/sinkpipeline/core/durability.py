"""Whether rows that a sink has acknowledged can be lost, and how.

Kafka replicates, and syncs no disk: one copy alone is gone with its machine's memory.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from sinkpipeline.core.manifest.durations import Duration
from sinkpipeline.core.topics import Topic, TopicRequest

REPLICAS = 3
IN_SYNC = 2
"""With these, one broker can be lost, and another one be down, and no acknowledged record is lost."""


class Durability(str, enum.Enum):
    """How safely a sink keeps acknowledged rows. `ExactlyOnce` holds only as long as it keeps them."""

    COMMITTED = "Committed"
    """If one machine crashes, no acknowledged row is lost."""
    AS_HELD_BY_SINK = "AsHeldBySink"
    """The sink may lose acknowledged rows, and their progress with them: each row is once in what it still holds."""
    SERVER_WINDOW = "ServerWindow"
    """Of AtLeastOnce: what is sent again is stored once, if it comes within the server's window for duplicates."""
    AT_RISK = "AtRisk"
    """If one machine crashes, acknowledged rows may be lost while their progress, or a part of it, is kept."""


def of_topics(topics: Iterable[Topic]) -> Durability | None:
    """Of rows and progress in these topics; None where their configuration is not known."""
    kept = [_copies(topic) for topic in topics]
    if any(copies is not None and copies < IN_SYNC for copies in kept):
        return Durability.AT_RISK
    return None if None in kept else Durability.COMMITTED


def _copies(topic: Topic) -> int | None:
    """How many brokers have a record that is acknowledged, at least."""
    in_sync = topic.config.get("min.insync.replicas")
    if in_sync is None:
        return 1 if topic.replication_factor == 1 else None
    return min(int(in_sync), topic.replication_factor)


def durability(topic: Topic) -> tuple[str, ...]:
    """Warns if records of a topic can be lost, by its own configuration; no warning if that is not known."""
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


def window(milliseconds: int | None) -> dict[str, str]:
    """What a sink's document says of the window for duplicates."""
    return {} if milliseconds is None else {"duplicateWindow": str(Duration(milliseconds))}


def tier(sink: Mapping[str, Any]) -> str:
    """Of a sink's document, for a person: its guarantee, and what that holds by."""
    found = ", ".join(str(sink[name]) for name in ("guarantee", "durability") if name in sink)
    return f"{found} of {sink['duplicateWindow']}" if "duplicateWindow" in sink else found
