"""One sink on a real Redis server, without Spark: its stream, its settings, and what stands in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

import redis
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Owner
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.kind import RedisPorts
from sinkpipeline.redis_streams.settings import Connection, SinkSettings, Stream
from sinkpipeline.sinks.contract import RowBatch
from support.cells import TOPIC
from support.sink.cell_sink import CellSink, WithLetters


def of_offsets(partition: SourcePartition, offsets: range) -> RowBatch:
    """Each row says of which record it is."""
    return batch(partition, offsets)


def batch(partition: SourcePartition, offsets: range, bad: Collection[int] = ()) -> RowBatch:
    """`bad`: whose rows are no entries."""
    values = [None if each in bad else b"%d/%d" % (partition.partition, each) for each in offsets]
    return RowBatch(
        offsets=list(offsets),
        keys=[None] * len(values),
        values=values,
        target_partitions=None,
        timestamps=[0] * len(values),
        headers=None,
        errors=None,
        size=10 * len(values),
    )


@dataclass
class RedisSink(CellSink):
    """The names of one sink; every instance has its own stream. `address` may be a proxy's."""

    client_of = Client
    ports_of = RedisPorts
    make = staticmethod(of_offsets)

    @property
    @override
    def settings(self) -> SinkSettings:
        found = SinkSettings(
            id=SinkId("i", self.name),
            owner=Owner(cluster="file", name="n"),
            source=None,
            group_id="g",
            connection=Connection(server=self.address),
            stream=Stream(key=self.name),
        )
        return replace(found, **self.changes)

    @property
    def stream(self) -> Stream:
        return self.settings.stream

    def run(self, *words: Any, address: str | None = None) -> Any:
        """A command of somebody else."""
        host, _, port = (address or self.address).rpartition(":")
        with redis.Redis(host=host, port=int(port)) as other:
            return other.execute_command(*words)

    def entries(self) -> list[dict[bytes, bytes]]:
        host, _, port = self.address.rpartition(":")
        with redis.Redis(host=host, port=int(port)) as other:
            return [fields for _, fields in other.xrange(self.stream.key)]

    def counted(self) -> Counter[tuple[int, int]]:
        """How often the row of each partition and offset is there."""
        found: Counter[tuple[int, int]] = Counter()
        for each in self.entries():
            part, _, offset = each[b"value"].partition(b"/")
            found[int(part), int(offset)] += 1
        return found

    def delivered(self) -> dict[SourcePartition, list[int]]:
        """By source partition, the offsets of the rows, in the stream's order."""
        found: dict[SourcePartition, list[int]] = {each: [] for each in self.ends}
        for each in self.entries():
            part, _, offset = each[b"value"].partition(b"/")
            found[SourcePartition(TOPIC, int(part))].append(int(offset))
        return found

    @property
    def once(self) -> dict[SourcePartition, list[int]]:
        return {each: list(range(end)) for each, end in self.ends.items()}


@dataclass
class LetteredRedis(WithLetters, RedisSink):
    """With dead letters on a real broker."""
