"""The progress topic, as it is created."""

from __future__ import annotations

from types import MappingProxyType

from sinkpipeline.core.topics import TopicRequest


def progress_request(name: str, replication_factor: int | None) -> TopicRequest:
    """The progress topic as we create it: one partition, compacted, small segments so that compaction keeps up.

    Its timestamps are the brokers': they refuse records of a machine whose clock is an hour ahead, or days behind, and
    nobody reads the timestamps of these.
    """
    return TopicRequest(
        name=name,
        partitions=1,
        replication_factor=replication_factor,
        config=MappingProxyType({"cleanup.policy": "compact"}),
        wishes=MappingProxyType(
            {
                "segment.bytes": str(64 * 1024 * 1024),
                "min.cleanable.dirty.ratio": "0.1",
                "message.timestamp.type": "LogAppendTime",
            }
        ),
    )
