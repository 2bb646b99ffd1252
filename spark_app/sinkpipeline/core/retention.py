"""Whether a topic deletes rows for their age as soon as they were written: a row has its record's timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.topics import Topic

_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "604800000",
}
"""Kafka's own defaults, of a topic that is not there yet. A cluster may have others."""
_HOUR_MS = 3_600_000


def keeps_ms(topic: Topic) -> int | None:
    """How old a row may be by its own timestamp, in milliseconds; None where a topic deletes none for that."""
    config = {**_CONFIG, **topic.config}
    if "delete" not in config["cleanup.policy"].split(",") or config["message.timestamp.type"] != "CreateTime":
        return None
    kept = int(config["retention.ms"])
    return None if kept < 0 else kept


def too_old(topic: Topic, begins: Mapping[SourcePartition, int], young: Mapping[SourcePartition, int]) -> Iterator[str]:
    """A warning for a topic that `keeps_ms`, if anything is to be told.

    Args:
        topic: the data topic.
        begins: where the sink begins in each source partition.
        young: in each source partition, the first record that is not older than the topic keeps rows.
    """
    found = {each: end for each, end in young.items() if end > begins.get(each, end)}
    kept = keeps_ms(topic)
    if not found or kept is None:
        return
    first = min(found)
    more = f", and of {len(found) - 1} more partitions" if len(found) > 1 else ""
    yield (
        f"topic {topic.name} deletes rows soon after they were written: it keeps a row for {kept / _HOUR_MS:,.6g} h "
        f"(retention.ms) from its timestamp, which is that of its record, unless transform.select.timestamp says "
        f"otherwise. Records before offset {found[first]} of topic {first.topic}, partition {first.partition}{more}, "
        "are older. To keep them, give the topic retention.ms=-1 or message.timestamp.type=LogAppendTime"
    )


def redriven_too_old(topic: Topic, timestamps: Iterable[int], now_ms: int) -> Iterator[str]:
    """A warning for a topic that `keeps_ms`, if letters are to be redriven into it whose records are older.

    Args:
        topic: with its configuration.
        timestamps: of these records, in milliseconds; -1 where one has none.
        now_ms: the time.
    """
    kept = keeps_ms(topic)
    if kept is None:
        return
    old = sum(each != -1 and each < now_ms - kept for each in timestamps)
    if old:
        yield (
            f"{old} of them are of records that are older than topic {topic.name} keeps rows, which is "
            f"{kept / _HOUR_MS:,.6g} h (retention.ms): what is written of them has their timestamps, unless "
            "transform.select.timestamp says otherwise, and may be deleted within minutes. To keep it, first give the "
            "topic retention.ms=-1 or message.timestamp.type=LogAppendTime"
        )
