"""A PostgreSQL sink with dead letters on a real broker, where its source is too: what stands in both, counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from typing_extensions import override

from sinkpipeline.core.deadletter import DeadLetter, parse
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.letters import KafkaLetters
from sinkpipeline.kafka.settings import DeadLetterSettings, SourceSettings
from sinkpipeline.postgresql.client import Client
from sinkpipeline.postgresql.kind import PostgresqlPorts
from sinkpipeline.postgresql.settings import SinkSettings
from sinkpipeline.sinks.contract import RowBatch
from support.cells import MemorySource
from support.kafka import topics
from support.sink.cell_driver import Driver
from support.sink.dead_letters import records
from support.sink.sql_sink import SqlSink, batch

COUNT = 12


@dataclass
class LetteredSql(SqlSink):
    """Its source topic holds `COUNT` records; the rows of `bad` are refused by the server."""

    servers: str = ""
    stem: str = ""
    bad: dict[int, str | None] = field(default_factory=dict)
    auto_create: bool = True
    values_of: Callable[[Sequence[int]], list[tuple[str | None, ...]]] | None = None
    """The columns of source offsets, where these are others."""

    def __post_init__(self) -> None:
        self.ends = {self.at: COUNT}

    def produce(self) -> None:
        topics.create_topic(self.servers, self.at.topic, config={"retention.ms": "-1"})
        topics.produce_whole(self.servers, self.at.topic, records(COUNT))

    @property
    def at(self) -> SourcePartition:
        return SourcePartition(f"{self.stem}-source", 0)

    @property
    def dead(self) -> str:
        return f"{self.stem}-dead"

    @property
    @override
    def settings(self) -> SinkSettings:
        letters = self.letter_service
        return replace(super().settings, source=letters.source, dead_letter=letters)

    @property
    def letter_service(self) -> KafkaLetters:
        found = super().settings
        source = SourceSettings(connection=Connection(bootstrap_servers=self.servers), topics=(self.at.topic,))
        topic = TopicRequest(name=self.dead, partitions=1, replication_factor=1)
        wanted = DeadLetterSettings(topic=topic, auto_create=self.auto_create)
        return KafkaLetters(sink=found.id, source=source, group_id=found.group_id, wanted=wanted)

    @override
    def ports(self) -> PostgresqlPorts:
        client = Client(self.settings.connection)
        self.clients.append(client)
        source = MemorySource(self.ends)
        ids, letters = (lambda asked: {each: f"{each}-id" for each in asked}), self.letter_service.target()
        return PostgresqlPorts(self.settings, source, ids, client, letters)

    def lettered(self, step: int = COUNT) -> Driver:
        return self.driver(step, self.rows)

    def rows(self, _partition: SourcePartition, offsets: range) -> RowBatch:
        values = [("0", str(each), "row") for each in offsets] if self.values_of is None else self.values_of(offsets)
        return batch(
            offsets, [(at, self.bad.get(n, off), *rest) for n, (at, off, *rest) in zip(offsets, values, strict=True)]
        )

    # What stands there

    def rows_there(self) -> list[int]:
        return [offset for (offset,) in self.sql(f"SELECT off FROM {self.table} ORDER BY off")]

    def letters(self) -> list[DeadLetter]:
        if topics.topic_id(self.servers, self.dead) is None:
            return []
        found = topics.read_uncommitted(self.servers, self.dead)
        return [parse(each.value, each.key, [*each.headers]) for each in found]

    def counted(self) -> dict[str, int]:
        """By the cell."""
        key = self.settings.id.partition_key(self.at)
        [(value,)] = self.sql(f"SELECT value::text FROM {self.progress} WHERE key = '{key}'")
        cell = json.loads(value)
        return {name: cell.get(name, 0) for name in ("next", "rows", "dead")}
