"""NATS in the suite of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.nats import LocalNats
from servers.sql_proxy import Loss, SqlProxy
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Settings
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.nats.kind import NatsPorts
from sinkpipeline.sinks.contract import RowBatch
from support.cells import TOPIC
from support.conformance.kind import ENDS, STEP, Losing, Sink
from support.kafka import topics
from support.sink.cell_driver import Driver
from support.sink.nats_letters import LetteredNats
from support.sink.nats_sink import NatsSink as Own
from support.sink.nats_sink import batch

_SMALL, _LARGE = 2_000, 3_000
"""Bytes."""


class NatsSink(Sink):
    points = ("nats-before-batch",)
    never_at = frozenset({"starting-after-data-topic"})
    """The stream is there with the place of the progress."""

    def __init__(self, own: Own) -> None:
        self.own, self.ends = own, own.ends

    @property
    @override
    def settings(self) -> Settings:
        return self.own.settings

    @property
    @override
    def arguments(self) -> list[str]:
        ends = ",".join(f"{each.partition}={end}" for each, end in self.ends.items())
        return [self.own.address, self.own.name, ends]

    @classmethod
    @override
    def again(cls, *arguments: str) -> NatsSink:
        address, name, ends = arguments
        found = [each.split("=") for each in ends.split(",")]
        return cls(Own(address, name=name, ends={SourcePartition(TOPIC, int(n)): int(end) for n, end in found}))

    @override
    def ports(self) -> NatsPorts:
        return self.own.ports()

    @override
    def batch(self, partition: SourcePartition, offsets: range) -> RowBatch:
        values: list[bytes | None] = [
            b"%d:%d" % (partition.partition, each) + b" x" * (_LARGE // 2 if each in self.bad else 0)
            for each in offsets
        ]
        return batch(offsets, values)

    @override
    def delivered(self) -> Counter[tuple[int, int]]:
        return self.own.delivered()

    @override
    def letters(self) -> list[int]:
        assert isinstance(self.own, LetteredNats)
        return [each.record.offset for each in self.own.letters()]

    @override
    def delete(self) -> None:
        self.own.delete()

    @override
    def recreate(self) -> None:
        self.delete()
        self.own.create()

    @override
    def empty(self) -> None:
        """What is below the subject of rows; all of the stream is what somebody does who wants to begin anew."""
        self.own.purge(filter=self.own.subject)

    @contextmanager
    def full(self) -> Iterator[None]:
        there = self.own.info()["state"]["bytes"]
        self.own.update(max_bytes=there + 1)
        yield
        self.own.update(max_bytes=-1)

    @override
    def limit(self) -> None:
        self.own.update(max_msg_size=_SMALL)

    @override
    def driver(self, step: int = STEP, remembered: Remembered | None = None) -> Driver:
        found = super().driver(step, remembered)
        self.own.workers.append(found.worker)
        return found

    @override
    def close(self) -> None:
        self.own.close()


@dataclass(frozen=True)
class NatsWorld:
    """`kafka` has the dead letters; its proxy is before the server."""

    server: LocalNats
    proxy: SqlProxy
    kafka: Callable[[], LocalKafka]
    stack: ExitStack

    def sink(self, ends: dict[int, int] | None = None, *, lettered: bool = False) -> NatsSink:
        own: Own
        if lettered:
            own = LetteredNats(
                self.proxy.address,
                direct=self.server.address,
                servers=self.kafka().bootstrap_servers,
                stem=topics.unique("nats"),
            )
            own.produce()
        else:
            found = ENDS if ends is None else ends
            own = Own(
                self.proxy.address,
                direct=self.server.address,
                ends={SourcePartition(TOPIC, each): end for each, end in found.items()},
            )
        self.stack.callback(own.close)
        return NatsSink(own)

    def lose_commit(self, *, answer: bool) -> Losing:
        self.proxy.lose(b"Sinkpipeline-Offset", Loss.ANSWER if answer else Loss.REQUEST)
        return self.proxy

    @contextmanager
    def full(self, sink: Sink) -> Iterator[None]:
        """A limit of the stream's own; a disk that is full is so for all other tests too."""
        assert isinstance(sink, NatsSink)
        with sink.full():
            yield

    def restart(self) -> None:
        self.server.kill()
        self.server.start()
