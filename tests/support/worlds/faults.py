"""A broker behind a proxy, and a sink that reaches it that way while the test looks at it directly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.tcp_proxy import TcpProxy
from sinkpipeline.core.batch import OffsetRange, Receipt
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.progress_records import encode
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.sink_writer import SinkWriter
from sinkpipeline.sinks.starting import StartedSink
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.kafka.streams import Verdict, judge
from support.sink.one_sink import OneSink, plan_of, rows

SOURCE_RECORDS = 2_000


@dataclass(frozen=True)
class FaultyKafka:
    """One broker, whose clients come through a proxy."""

    kafka: LocalKafka
    proxy: TcpProxy

    @property
    def servers(self) -> str:
        """For the product: through the proxy, for all its connections."""
        return self.kafka.bootstrap_servers

    @property
    def direct(self) -> str:
        """For the test itself."""
        return self.kafka.direct_servers

    def heal(self) -> None:
        """The proxy forwards everything, and the broker runs."""
        self.proxy.heal()
        if not self.kafka.pids:
            self.kafka.start_broker(1)
        self.kafka.resume_broker(1)


@contextmanager
def faulty_kafka(properties: Mapping[str, str] | None = None) -> Iterator[FaultyKafka]:
    kafka = LocalKafka(properties=properties)
    with TcpProxy(kafka.client_ports[1]) as proxy:
        kafka.advertise({1: proxy.port})
        with kafka:
            yield FaultyKafka(kafka, proxy)
            # Before the broker: no client comes any more that could not be served.
            proxy.close()


@dataclass(frozen=True)
class FaultySink(OneSink):
    """A sink that reaches its broker through the proxy."""

    proxied: str = field(kw_only=True)

    @property
    @override
    def connection(self) -> Connection:
        return Connection(bootstrap_servers=self.proxied)


class Deliveries:
    """A sink and its batches one after another, as a driver orders them; rows are `<partition>:<offset>`."""

    def __init__(self, faulty: FaultyKafka, *, partitions: int = 1, **settings: Any) -> None:
        self.sink = FaultySink(faulty.direct, partitions, proxied=faulty.servers)
        self._settings = settings
        for partition in range(partitions):
            topics.produce_numbers(faulty.direct, self.sink.source, SOURCE_RECORDS, partition=partition)
        self._runs = 0
        self.started: StartedSink
        self.frontier: dict[SourcePartition, PartitionProgress]
        self.start()

    def start(self) -> None:
        """A first start, or a later one: as after any failure, the truth is read and gone on from."""
        self._runs += 1
        self.started = self.sink.start(f"run-{self._runs}", **self._settings)
        self.frontier = dict(self.started.progress.partitions)

    def plan(self, count: int = 4, *, partition: int = 0, **changes: Any) -> BatchPlan:
        """The next rows of one partition."""
        at = self.sink.at(partition)
        begin = self.frontier[at].next
        found = {"frontier": self.frontier, "ranges": {at: OffsetRange(begin, begin + count)}, **changes}
        settings = self.sink.settings(**self._settings)
        return plan_of(self.sink, self.started, begin + count, partition=partition, settings=settings, **found)

    def take(self, receipt: Receipt) -> None:
        """Believes a receipt, as the driver does."""
        if receipt.partition is None or receipt.progress is None:
            raise ValueError("a writer knows its partition and its progress")
        self.frontier[receipt.partition] = receipt.progress
        settings = self.sink.settings(**self._settings)
        if not settings.exactly_once:
            progress = Progress(partitions={receipt.partition: receipt.progress})
            with closing(TransactionalProducer(settings.connection, settings.id.control_id)) as control:
                control.write(settings.progress.name, encode(settings.id, progress))

    def deliver(self, count: int = 4, *, partition: int = 0, worker: Worker | None = None) -> Receipt:
        """One batch, all of it."""
        receipt = write(self.plan(count, partition=partition), self.sink.at(partition), worker)
        self.take(receipt)
        return receipt

    def verdict(self) -> Verdict:
        """What an independent consumer finds, against the frontier in the progress topic."""
        expected = {f"{at}:{offset}" for at, end in self.sink.frontier().items() for offset in range(end)}
        return judge(topics.read_committed(self.sink.servers, self.sink.data), expected)


def batch_of(plan: BatchPlan, partition: SourcePartition) -> RowBatch:
    """All rows of a plan."""
    offsets = plan.ranges[partition]
    return rows_of(partition, range(offsets.start, offsets.end))


def rows_of(partition: SourcePartition, offsets: range, **columns: Any) -> RowBatch:
    values: list[bytes | None] = [f"{partition.partition}:{offset}".encode() for offset in offsets]
    return rows(offsets, **{"values": values, "keys": values, **columns})


def writer_of(
    plan: BatchPlan, partition: SourcePartition, worker: Worker | None = None, *, retried: bool = False
) -> SinkWriter:
    if plan.settings.exactly_once:
        return ExactlyOnceWriter(plan, partition, worker or Worker(), retried=retried)
    return AtLeastOnceWriter(plan, partition, worker or Worker())


def write(plan: BatchPlan, partition: SourcePartition, worker: Worker | None = None) -> Receipt:
    writer = writer_of(plan, partition, worker)
    writer.write(batch_of(plan, partition))
    writer.finish()
    return writer.receipt()
