"""Redis and Valkey Streams in the suite of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from typing_extensions import override

from servers.sql_proxy import Loss
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks.contract import RowBatch
from support.conformance.kind import IN_A_SESSION, Losing, Sink
from support.conformance.of_cells import WEAK, CellSink, CellWorld, of_topic
from support.kafka import topics
from support.sink.redis_sink import LetteredRedis, batch
from support.sink.redis_sink import RedisSink as Own


class RedisSink(CellSink):
    own: Own
    changes: ClassVar[Mapping[str, Any]] = {}
    points: ClassVar[tuple[str, ...]] = ("redis-after-commit", "redis-before-commit")

    @classmethod
    @override
    def again(cls, *arguments: str) -> RedisSink:
        address, name = arguments
        return cls(Own(address, name=name, changes=cls.changes))

    @override
    def batch(self, partition: SourcePartition, offsets: range) -> RowBatch:
        return batch(partition, offsets, self.bad)

    @override
    def delivered(self) -> Counter[tuple[int, int]]:
        return self.own.counted()

    @override
    def delete(self) -> None:
        self.own.run("DEL", self.own.stream.key)

    @override
    def recreate(self) -> None:
        self.delete()
        self.own.run("XGROUP", "CREATE", self.own.stream.key, "readers", "$", "MKSTREAM")

    @override
    def empty(self) -> None:
        self.own.run("XTRIM", self.own.stream.key, "MAXLEN", 0)

    @override
    def limit(self) -> None:
        """A row without a field is refused anyway."""


class WeakRedisSink(RedisSink):
    """Of `AtLeastOnce`, as a reader has it that keeps the keys."""

    points: ClassVar[tuple[str, ...]] = ("rows-acknowledged",)
    never_at = IN_A_SESSION
    changes = WEAK

    @override
    def delivered(self) -> Counter[tuple[int, int]]:
        by_key = {each[b"idempotency_key"]: each[b"value"].split(b"/") for each in self.own.entries()}
        return Counter((int(part), int(offset)) for part, offset in by_key.values())


class RedisWorld(CellWorld):
    makes: type[RedisSink] = RedisSink

    def sink(self, ends: dict[int, int] | None = None, *, lettered: bool = False) -> RedisSink:
        own: Own
        if lettered:
            servers, stem = self.kafka().bootstrap_servers, topics.unique("redis")
            own = LetteredRedis(self.proxy.address, servers=servers, stem=stem)
        else:
            own = Own(self.proxy.address, of_topic(ends))
        own.changes = self.makes.changes
        return self.makes(self.kept(own))

    def lose_commit(self, *, answer: bool) -> Losing:
        self.proxy.lose(b"0/0", Loss.ANSWER if answer else Loss.REQUEST)
        return self.proxy

    @contextmanager
    def full(self, sink: Sink) -> Iterator[None]:
        """Less memory than it uses, for every stream of the server."""
        assert isinstance(sink, RedisSink)
        sink.own.run("CONFIG", "SET", "maxmemory", "100kb")
        yield
        sink.own.run("CONFIG", "SET", "maxmemory", "0")


class WeakRedisWorld(RedisWorld):
    makes = WeakRedisSink
