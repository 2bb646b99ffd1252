"""Kafka in the suite of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
from typing_extensions import override

from servers.tcp_proxy import Api, Fate, Trap, Way
from sinkpipeline.core.deadletter import parse
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KafkaPorts
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings, SourceSettings
from sinkpipeline.kinds import ports
from sinkpipeline.sinks.contract import RowBatch
from support.conformance.kind import ENDS, Losing, Sink
from support.kafka import topics
from support.sink.one_sink import rows
from support.worlds.faults import FaultyKafka

_SMALL, _LARGE = 2_000, 3_000
"""Bytes."""


class KafkaSink(Sink):
    """It reaches its broker through a proxy, and the test looks at it directly."""

    reset_points = ("reset-before-commit",)
    without_partitions = Reason.SOURCE_TOPIC_MISSING

    def __init__(self, servers: str, direct: str, name: str, ends: dict[int, int], *, lettered: bool = False) -> None:
        self.servers, self.direct, self.name, self._lettered = servers, direct, name, lettered
        self.ends = {SourcePartition(f"{name}-source", each): end for each, end in ends.items()}

    def produce(self) -> None:
        if not self.ends:
            return
        source = f"{self.name}-source"
        topics.create_topic(self.direct, source, partitions=len(self.ends))
        for each, end in self.ends.items():
            if end:
                topics.produce_numbers(self.direct, source, end, partition=each.partition)

    @property
    @override
    def settings(self) -> SinkSettings:
        source: dict[str, Any] = (
            {"topics": (f"{self.name}-source",)} if self.ends else {"pattern": f"{self.name}-source"}
        )
        connection = Connection(bootstrap_servers=self.servers)
        dead = DeadLetterSettings(topic=TopicRequest(name=f"{self.name}-dead"))
        return SinkSettings(
            id=SinkId(self.name, "out"),
            owner=Owner(cluster="file", name=self.name),
            source=SourceSettings(connection=connection, **source),
            connection=connection,
            data=TopicRequest(name=self.data, config={"retention.ms": "-1"}),
            progress=progress_request(f"{self.name}-progress", None),
            dead_letter=dead if self._lettered else None,
        )

    @property
    def data(self) -> str:
        return f"{self.name}-data"

    @property
    @override
    def arguments(self) -> list[str]:
        ends = ",".join(f"{each.partition}={end}" for each, end in self.ends.items())
        return [self.servers, self.direct, self.name, ends]

    @classmethod
    @override
    def again(cls, *arguments: str) -> KafkaSink:
        servers, direct, name, ends = arguments
        found = [each.split("=") for each in ends.split(",")]
        return cls(servers, direct, name, {int(partition): int(end) for partition, end in found})

    @override
    def ports(self) -> KafkaPorts:
        settings = self.settings
        admin = Admin(settings.connection)
        return ports(settings, admin, admin)

    @override
    def batch(self, partition: SourcePartition, offsets: range) -> RowBatch:
        values: list[bytes | None] = [self._value(partition.partition, each) for each in offsets]
        keys: list[bytes | None] = [b"%d" % each for each in offsets]
        return rows(offsets, values=values, keys=keys, size=sum(map(len, filter(None, values))))

    def _value(self, partition: int, offset: int) -> bytes:
        return b"%d:%d" % (partition, offset) + b" " * (_LARGE if offset in self.bad else 0)

    @override
    def delivered(self) -> Counter[tuple[int, int]]:
        found = [each.text.strip().split(":") for each in topics.read_committed(self.direct, self.data)]
        return Counter((int(partition), int(offset)) for partition, offset in found)

    @override
    def letters(self) -> list[int]:
        found = topics.read_committed(self.direct, f"{self.name}-dead")
        return [parse(each.value, each.key, [*each.headers]).record.offset for each in found]

    @override
    def delete(self) -> None:
        topics.delete_topic(self.direct, self.data)

    @override
    def recreate(self) -> None:
        topics.recreate_topic(self.direct, self.data)

    @override
    def empty(self) -> None:
        _, end = topics.offsets(self.direct, self.data)
        topics.delete_records(self.direct, self.data, end)

    @override
    def limit(self) -> None:
        self._limit(self.data)

    def _limit(self, topic: str) -> None:
        topics.alter_topic(self.direct, topic, {"max.message.bytes": str(_SMALL)})

    @override
    def close(self) -> None:
        """Its clients end with their users."""


class _Trapped:
    """Counts what was lost since it was made."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap

    @property
    def caught(self) -> int:
        return self._trap.caught


@dataclass(frozen=True)
class KafkaWorld:
    faulty: FaultyKafka
    stack: Any
    made: type[KafkaSink] = KafkaSink

    def sink(self, ends: dict[int, int] | None = None, *, lettered: bool = False) -> KafkaSink:
        found = {0: 12} if lettered else ENDS if ends is None else ends
        name = topics.unique("kind")
        sink = self.made(self.faulty.servers, self.faulty.direct, name, found, lettered=lettered)
        sink.produce()
        return sink

    def lose_commit(self, *, answer: bool) -> Losing:
        way = Way.ANSWERS if answer else Way.REQUESTS
        return _Trapped(self.stack.enter_context(self.faulty.proxy.trap(Api.END_TXN, way, Fate.CUT)))

    @contextmanager
    def full(self, sink: Sink) -> Iterator[None]:  # noqa: ARG002 - all of its topics are in one place
        """No file of the broker may grow: it ends, as one does whose disk is full, and starts once there is room."""
        [pid] = self.faulty.kafka.pids.values()
        psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (1, psutil.RLIM_INFINITY))
        yield
        self.restart()

    def restart(self) -> None:
        self.faulty.kafka.kill_broker(1)
        self.faulty.kafka.start_broker(1)
