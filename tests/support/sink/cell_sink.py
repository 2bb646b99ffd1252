"""One sink whose progress stands in cells, on a real server, without Spark; and one with dead letters on a broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from typing_extensions import override

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.deadletter import DeadLetter, parse
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import LetterTarget
from sinkpipeline.core.redrive import LetterId, Wanted
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.letters import KafkaLetters
from sinkpipeline.kafka.redrive import Redrive, Summary
from sinkpipeline.kafka.settings import DeadLetterSettings, SourceSettings
from sinkpipeline.kinds import Clients, redrive_of
from sinkpipeline.kinds.resolve import SinkSettings
from sinkpipeline.sinks.delivery import SinkDelivery
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.starting import SinkStarter
from sinkpipeline.sinks.worker import Worker
from support.cells import TOPIC, MemorySource
from support.kafka import topics
from support.sink.cell_driver import Driver, MakeBatch
from support.sink.dead_letters import records

P0, P1 = (SourcePartition(TOPIC, number) for number in range(2))
ENDS = {P0: 12, P1: 5}
COUNT = 12
"""Records of a source with dead letters."""
_numbers = itertools.count()


@dataclass
class CellSink:
    """The names of one sink; every instance has a target of its own. `address` may be a proxy's."""

    address: str
    ends: dict[SourcePartition, int] = field(default_factory=lambda: dict(ENDS))
    name: str = field(default_factory=lambda: f"s{os.getpid()}_{next(_numbers)}")
    changes: Mapping[str, Any] = field(default_factory=dict)
    clients: list[Any] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)

    client_of: ClassVar[Any]
    """The kind's client."""
    ports_of: ClassVar[Any]
    """The kind's ports."""
    make: ClassVar[Any]
    """The rows of a driver that is told no others."""

    def __post_init__(self) -> None: ...

    @property
    def settings(self) -> Any:
        raise NotImplementedError

    @property
    def letter_target(self) -> LetterTarget | None:
        return None

    def ports(self) -> Any:
        client = self.client_of(self.settings.connection)
        self.clients.append(client)
        source = MemorySource(self.ends)
        return self.ports_of(
            self.settings, source, lambda asked: {each: f"{each}-id" for each in asked}, client, self.letter_target
        )

    def driver(self, step: int = 4, make: MakeBatch | None = None, remembered: Remembered | None = None) -> Driver:
        found = Driver(self.ports(), self.ends, step, make or type(self).make, remembered)
        self.workers.append(found.worker)
        return found

    def close(self) -> None:
        """Ends its connections."""
        shared = [each for worker in self.workers for each in worker._shared.values()]
        for client in [*self.clients, *(each for each in shared if isinstance(each, self.client_of))]:
            client.close()


@dataclass
class WithLetters(CellSink):
    """Its source topic is on the broker and holds `count` records. Stands before the kind's own class."""

    servers: str = ""
    stem: str = ""
    auto_create: bool = True
    count: int = COUNT

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.ends = {self.at: self.count}

    def produce(self) -> None:
        topics.create_topic(self.servers, self.at.topic, config={"retention.ms": "-1"})
        topics.produce_whole(self.servers, self.at.topic, records(self.count))

    @property
    def at(self) -> SourcePartition:
        return SourcePartition(f"{self.stem}-source", 0)

    @property
    def dead(self) -> str:
        return f"{self.stem}-dead"

    @property
    @override
    def settings(self) -> Any:
        letters = self.letter_service
        return replace(super().settings, source=letters.source, dead_letter=letters)

    @property
    def letter_service(self) -> KafkaLetters:
        found = super().settings
        source = SourceSettings(connection=Connection(bootstrap_servers=self.servers), topics=(self.at.topic,))
        topic = TopicRequest(name=self.dead, partitions=1, replication_factor=1)
        wanted = DeadLetterSettings(topic=topic, auto_create=self.auto_create)
        return KafkaLetters(sink=found.id, source=source, group_id=found.group_id, wanted=wanted)

    @property
    @override
    def letter_target(self) -> LetterTarget:
        return self.letter_service.target()

    def letters(self) -> list[DeadLetter]:
        if topics.topic_id(self.servers, self.dead) is None:
            return []
        found = topics.read_uncommitted(self.servers, self.dead)
        return [parse(each.value, each.key, [*each.headers]) for each in found]


# By its settings alone, as a command does it


def deliver_rest(settings: SinkSettings, partition: SourcePartition, end: int, make: MakeBatch) -> None:
    """All records of the only partition that were not delivered yet: one start, one batch."""
    worker = Worker()
    with Clients() as clients:
        starter = SinkStarter(ports=clients.ports(settings))
        delivery = SinkDelivery(starter, starter.start(), lambda _progress, _rows: None)
        [begin] = [state.next for state in delivery.frontier.values()]
        plan = delivery.begin({partition: OffsetRange(begin, end)})
        writer = ExactlyOnceWriter(plan, partition, worker)
        writer.write(make(partition, range(begin, end)))
        writer.finish()
        delivery.end(plan, [writer.receipt()])
    for kept in worker._shared.values():
        kept.close()


def redriving(
    settings: SinkSettings, transform: Any, *, rate: float | None = None, ids: tuple[LetterId, ...] = ()
) -> Redrive:
    """Close it."""
    found = redrive_of(settings, Wanted(sinks=frozenset({settings.id}), ids=frozenset(ids)), rate)
    found.transform = transform
    return found


def handled_but_not_noted(driver: Driver) -> None:
    """A batch of `AtLeastOnce` whose driver dies before it writes the progress: rows and letters are there already."""
    for writer, offsets in driver.writers():
        writer.write(driver.make(writer._partition, offsets))
        writer.finish()


def redrive(settings: SinkSettings, transform: Any) -> tuple[list[str], Summary]:
    """What it says before, and what it did."""
    with closing(redriving(settings, transform)) as found:
        survey = found.survey()
        assert survey is not None
        return list(found.forecast(survey)), found.carry_out(survey)
