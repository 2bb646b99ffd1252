"""One sink of one pipeline on a real broker, without Spark: its topics, its settings, and starts of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sinkpipeline.core.batch import OffsetRange, Receipt
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Owner, Progress
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.status import SinkReport, render
from sinkpipeline.core.topics import Memory, TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KAFKA
from sinkpipeline.kafka.settings import SinkSettings, SourceSettings
from sinkpipeline.kinds import ports
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.starting import SinkStarter, StartedSink
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics


@dataclass(frozen=True)
class OneSink:
    """The names of one sink; every instance has its own, and creates its source topic."""

    servers: str
    partitions: int = 1
    name: str = field(default_factory=lambda: topics.unique("sink"))

    def __post_init__(self) -> None:
        topics.create_topic(self.servers, self.source, partitions=self.partitions)

    @property
    def source(self) -> str:
        return f"{self.name}-source"

    @property
    def data(self) -> str:
        return f"{self.name}-data"

    @property
    def progress(self) -> str:
        return f"{self.name}-progress"

    @property
    def dead(self) -> str:
        return f"{self.name}-dead"

    @property
    def connection(self) -> Connection:
        return Connection(bootstrap_servers=self.servers)

    @property
    def id(self) -> SinkId:
        return SinkId(self.name, "out")

    def at(self, partition: int = 0) -> SourcePartition:
        return SourcePartition(self.source, partition)

    def settings(self, *, source: Mapping[str, Any] | None = None, **changes: Any) -> SinkSettings:
        """The sink's settings; `source` and `changes` replace fields of the source's and of the sink's."""
        return replace(
            SinkSettings(
                id=self.id,
                owner=Owner(cluster="file", name=self.name),
                source=replace(
                    SourceSettings(connection=self.connection, topics=(self.source,)),
                    **(source or {}),
                ),
                connection=self.connection,
                data=TopicRequest(name=self.data),
                progress=progress_request(self.progress, None),
            ),
            **changes,
        )

    def starter(self, run: str = "run-1", memory: Memory | None = None, **settings: Any) -> SinkStarter:
        """`memory`: of a status."""
        admin = Admin(self.connection)
        return SinkStarter(
            ports=ports(self.settings(**settings), admin, admin),
            new_run=lambda: run,
            remembered=Remembered(memory),
        )

    def start(self, run: str = "run-1", **settings: Any) -> StartedSink:
        """A first start, or a resume, whose control producer the test gives up at once."""
        started = self.starter(run, **settings).start()
        started.hold.close()
        return started

    def truth(self) -> dict[str, Any]:
        """What the progress topic says of this sink, with keys below its prefix."""
        prefix = self.id.prefix
        found = topics.progress_truth(self.servers, self.progress)
        return {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}

    def frontier(self) -> dict[int, int]:
        """Partition to next offset, as the progress topic says."""
        head = f"p/{self.source}/"
        return {
            int(key.removeprefix(head)): value["next"] for key, value in self.truth().items() if key.startswith(head)
        }

    def delivered(self) -> list[str]:
        """The committed values of the data topic."""
        return topics.texts(topics.read_committed(self.servers, self.data))


def deliver(
    sink: OneSink,
    started: StartedSink,
    offsets: range,
    *,
    partition: int = 0,
    bad: Collection[int] = (),
    **changes: Any,
) -> Receipt:
    """One batch of one source partition, from its frontier to the end of `offsets`, by a worker of its own.

    `changes` replace fields of the plan.
    """
    plan = plan_of(sink, started, offsets.stop, partition=partition, **changes)
    writer = ExactlyOnceWriter(plan, sink.at(partition), Worker())
    writer.write(rows(offsets, bad=bad))
    writer.finish()
    return writer.receipt()


def remembered(started: StartedSink, name: str = "out") -> Memory:
    """What the status of a run would remember of its sink."""
    report = SinkReport(name=name, exactly_once=True, progress=started.progress)
    memory = memory_of(render([report], identity="i", generation=None, previous=None, now_ms=0), "i", name)
    if memory is None:
        raise ValueError("a started sink has a frontier")
    return memory


def plan_of(sink: OneSink, started: StartedSink, end: int, *, partition: int = 0, **changes: Any) -> BatchPlan:
    """The plan of a batch from the frontier of a start to `end`, of one source partition."""
    progress: Progress = started.progress
    if progress.meta is None:
        raise ValueError("a started sink has its meta")
    at = sink.at(partition)
    return replace(
        BatchPlan(
            kind=KAFKA,
            settings=sink.settings(),
            run=progress.meta.run,
            data_limits=started.data_limits,
            letter_limits=started.letter_limits,
            data_topic_id=started.data_topic.id,
            progress_topic_id=started.progress_topic.id,
            verified=progress.end,
            ranges={at: OffsetRange(progress.partitions[at].next, end)},
            frontier=progress.partitions,
            owners={},
        ),
        **changes,
    )


def rows(offsets: range, /, *, bad: Collection[int] = (), **columns: Any) -> RowBatch:
    """A batch whose rows hold their own source offsets as text; `bad` ones could not be decoded.

    `columns` replace columns.
    """
    values: list[bytes | None] = [str(offset).encode() for offset in offsets]
    return replace(
        RowBatch(
            offsets=list(offsets),
            keys=list(values),
            values=values,
            target_partitions=None,
            timestamps=[0] * len(offsets),
            headers=None,
            errors=["MalformedJson: no object" if offset in bad else None for offset in offsets] if bad else None,
            size=2 * sum(len(value or b"") for value in values),
        ),
        **columns,
    )
