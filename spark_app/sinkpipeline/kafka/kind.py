"""Kafka as a kind of sink: all of its ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.ledger_ports import Ids
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import Claims
from sinkpipeline.kafka.data_topics import gathered, read_data_limits
from sinkpipeline.kafka.ledger import KafkaLedger
from sinkpipeline.kafka.producers import CLIENT_BATCH_BYTES
from sinkpipeline.kafka.session import (
    KafkaClaim,
    KafkaLetterBox,
    KafkaSender,
    letters_of,
    producer_properties,
    shared_admin,
)
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.source.reader import SourceReader
from sinkpipeline.kafka.source.source import KafkaSource
from sinkpipeline.kafka.target import KafkaTarget
from sinkpipeline.kafka.views import read_limits
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.settings import settings_of
from sinkpipeline.sinks.worker import Worker


class KafkaKind:
    """A `SinkKind`."""

    def claim(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, rows: bool = True) -> KafkaClaim:
        return KafkaClaim(plan, partition, worker, producer_properties(plan) if rows else {})

    def sender(self, plan: BatchPlan, partition: SourcePartition, worker: Worker) -> KafkaSender:  # noqa: ARG002
        return KafkaSender(plan, worker)

    def letter_box(self, plan: BatchPlan, worker: Worker) -> KafkaLetterBox:
        settings = settings_of(plan, SinkSettings)
        return KafkaLetterBox(settings.connection, letters_of(settings), worker)

    def reader(self, plan: BatchPlan, partition: SourcePartition) -> SourceReader:
        settings = settings_of(plan, SinkSettings)
        return SourceReader(settings.source.connection, settings.group_id, partition)

    def read_limits(self, plan: BatchPlan, worker: Worker) -> tuple[TopicLimits | None, TopicLimits | None]:
        settings = settings_of(plan, SinkSettings)
        admin = shared_admin(worker, settings.connection)
        data = read_data_limits(admin, settings.data)
        return data, None if settings.dead_letter is None else read_limits(admin, letters_of(settings).topic.name)

    def fits_at_once(self, plan: BatchPlan) -> bool:
        """Whether no topic takes less at once than what the client sends at once."""
        settings = settings_of(plan, SinkSettings)
        at_once = int(settings.properties.get("batch.size", CLIENT_BATCH_BYTES))
        limits = [plan.data_limits] if settings.dead_letter is None else [plan.data_limits, plan.letter_limits]
        return all(at_once <= each.message_bytes for each in limits)

    def cuts(self) -> CutPolicy:
        return CutPolicy()

    def cure(self, why: str) -> str:
        if "timestamp" in why.lower():
            return (
                "correct transform.select.timestamp, or widen message.timestamp.{before,after}.max.ms of the data topic"
            )
        return "if it is too large, raise max.message.bytes of the data topic"


KAFKA = KafkaKind()


@dataclass
class KafkaPorts:
    """One Kafka sink; of one thread at a time."""

    settings: SinkSettings
    source_admin: Admin
    admin: Admin
    claims: Claims = field(default_factory=Claims)
    """Of all sinks of this driver."""

    @property
    def kind(self) -> KafkaKind:
        return KAFKA

    @property
    def source(self) -> KafkaSource:
        return KafkaSource(self.settings.source, self.settings.group_id, self.source_admin)

    @property
    def target(self) -> KafkaTarget:
        return KafkaTarget(self.settings, self.source_admin, self.admin, self.claims)

    @property
    def ledger(self) -> KafkaLedger:
        return KafkaLedger(self.settings, self.admin)

    def ids(self, topics: Collection[str]) -> Ids:
        """By one question where both are of one cluster."""
        names, progress = self.settings.data_names, self.settings.progress.name
        if self.source_admin is self.admin:
            found = self.admin.topics((*topics, *names, progress))
            source = sink = topic_ids(found)
        else:
            source = topic_ids(self.source_admin.topics(tuple(topics)))
            found = self.admin.topics((*names, progress))
            sink = topic_ids(found)
        data = gathered(self.settings.data, found)
        return Ids({name: source[name] for name in topics}, None if data is None else data.id, sink[progress])

    def renew_clients(self) -> None:
        is_one = self.admin is self.source_admin
        self.admin = Admin(self.settings.connection)
        self.source_admin = self.admin if is_one else Admin(self.settings.source.connection)


def topic_ids(topics: Mapping[str, Topic | None]) -> dict[str, str | None]:
    """None of those that are missing."""
    return {name: None if topic is None else topic.id for name, topic in topics.items()}
