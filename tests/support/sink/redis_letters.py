"""A Redis sink with dead letters on a real broker, where its source is too."""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import override

from sinkpipeline.core.deadletter import DeadLetter, parse
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.letters import KafkaLetters
from sinkpipeline.kafka.settings import DeadLetterSettings, SourceSettings
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.kind import RedisPorts
from sinkpipeline.redis_streams.settings import SinkSettings
from support.cells import MemorySource
from support.kafka import topics
from support.sink.dead_letters import records
from support.sink.redis_sink import RedisSink

COUNT = 12


@dataclass
class LetteredRedis(RedisSink):
    """Its source topic holds `COUNT` records."""

    servers: str = ""
    stem: str = ""

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
        wanted = DeadLetterSettings(topic=TopicRequest(name=self.dead, partitions=1, replication_factor=1))
        return KafkaLetters(sink=found.id, source=source, group_id=found.group_id, wanted=wanted)

    @override
    def ports(self) -> RedisPorts:
        client = Client(self.settings.connection)
        self.clients.append(client)
        source = MemorySource(self.ends)
        ids, letters = (lambda asked: {each: f"{each}-id" for each in asked}), self.letter_service.target()
        return RedisPorts(self.settings, source, ids, client, letters)

    def letters(self) -> list[DeadLetter]:
        if topics.topic_id(self.servers, self.dead) is None:
            return []
        found = topics.read_uncommitted(self.servers, self.dead)
        return [parse(each.value, each.key, [*each.headers]) for each in found]
