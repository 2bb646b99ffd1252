"""Redis and Valkey Streams in the suite of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.redis import LocalRedis
from servers.sql_proxy import Loss, SqlProxy
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Settings
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.redis_streams.kind import RedisPorts
from sinkpipeline.sinks.contract import RowBatch
from support.cells import TOPIC
from support.conformance.kind import ENDS, STEP, Losing, Sink
from support.kafka import topics
from support.sink.cell_driver import Driver
from support.sink.redis_letters import LetteredRedis
from support.sink.redis_sink import RedisSink as Own
from support.sink.redis_sink import batch


class RedisSink(Sink):
    points = ("redis-after-commit", "redis-before-commit")

    def __init__(self, own: Own) -> None:
        self.own, self.ends = own, own.ends

    @property
    @override
    def settings(self) -> Settings:
        return self.own.settings

    @property
    @override
    def arguments(self) -> list[str]:
        return [self.own.address, self.own.name]

    @classmethod
    @override
    def again(cls, *arguments: str) -> RedisSink:
        address, name = arguments
        return cls(Own(address, name=name))

    @override
    def ports(self) -> RedisPorts:
        return self.own.ports()

    @override
    def batch(self, partition: SourcePartition, offsets: range) -> RowBatch:
        return batch(partition, offsets, self.bad)

    @override
    def delivered(self) -> Counter[tuple[int, int]]:
        return self.own.counted()

    @override
    def letters(self) -> list[int]:
        assert isinstance(self.own, LetteredRedis)
        return [each.record.offset for each in self.own.letters()]

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

    @override
    def driver(self, step: int = STEP, remembered: Remembered | None = None) -> Driver:
        found = super().driver(step, remembered)
        self.own.workers.append(found.worker)
        return found

    @override
    def close(self) -> None:
        self.own.close()


@dataclass(frozen=True)
class RedisWorld:
    """`kafka` has the dead letters; its proxy is before the server."""

    server: LocalRedis
    proxy: SqlProxy
    kafka: Callable[[], LocalKafka]
    stack: ExitStack

    def sink(self, ends: dict[int, int] | None = None, *, lettered: bool = False) -> RedisSink:
        own: Own
        if lettered:
            servers = self.kafka().bootstrap_servers
            own = LetteredRedis(self.proxy.address, servers=servers, stem=topics.unique("redis"))
            own.produce()
        else:
            found = ENDS if ends is None else ends
            own = Own(self.proxy.address, ends={SourcePartition(TOPIC, each): end for each, end in found.items()})
        self.stack.callback(own.close)
        return RedisSink(own)

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

    def restart(self) -> None:
        self.server.kill()
        self.server.start()
