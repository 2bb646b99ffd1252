"""NATS in the suite of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from typing_extensions import override

from servers.sql_proxy import Loss
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks.contract import RowBatch
from support.cells import TOPIC
from support.conformance.kind import IN_A_SESSION, Losing, Sink
from support.conformance.of_cells import WEAK, CellSink, CellWorld, of_topic
from support.kafka import topics
from support.sink.nats_sink import LetteredNats, batch
from support.sink.nats_sink import NatsSink as Own

_SMALL, _LARGE = 2_000, 3_000
"""Bytes."""


class NatsSink(CellSink):
    own: Own
    changes: ClassVar[Mapping[str, Any]] = {}
    points: ClassVar[tuple[str, ...]] = ("nats-before-batch",)
    never_at = frozenset({"starting-after-data-topic"})
    """The stream is there with the place of the progress."""

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
        ends_of = {SourcePartition(TOPIC, int(n)): int(end) for n, end in found}
        return cls(Own(address, name=name, ends=ends_of, changes=cls.changes))

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


class WeakNatsSink(NatsSink):
    """Of `AtLeastOnce`. What is sent again comes within the server's window, so the stream has it once."""

    points: ClassVar[tuple[str, ...]] = ("rows-acknowledged",)
    never_at = NatsSink.never_at | IN_A_SESSION
    changes = WEAK


class NatsWorld(CellWorld):
    makes: type[NatsSink] = NatsSink
    a_row = b"Sinkpipeline-Offset"
    """What stands in a request that has rows."""

    def sink(self, ends: dict[int, int] | None = None, *, lettered: bool = False) -> NatsSink:
        own: Own
        if lettered:
            servers, stem = self.kafka().bootstrap_servers, topics.unique("nats")
            own = LetteredNats(self.proxy.address, direct=self.server.address, servers=servers, stem=stem)
        else:
            own = Own(self.proxy.address, of_topic(ends), direct=self.server.address)
        own.changes = self.makes.changes
        return self.makes(self.kept(own))

    def lose_commit(self, *, answer: bool) -> Losing:
        self.proxy.lose(self.a_row, Loss.ANSWER if answer else Loss.REQUEST)
        return self.proxy

    @contextmanager
    def full(self, sink: Sink) -> Iterator[None]:
        """A limit of the stream's own; a disk that is full is so for all other tests too."""
        assert isinstance(sink, NatsSink)
        with sink.full():
            yield


class WeakNatsWorld(NatsWorld):
    makes = WeakNatsSink
    a_row = b"Nats-Msg-Id"
