"""The data topic of a sink, and the topic of its dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sinkpipeline.core.crossing import Role
from sinkpipeline.core.durability import Durability, of_topics
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.limits import UNKNOWN, TopicLimits
from sinkpipeline.core.ports import Creation, Letters
from sinkpipeline.core.topics import Topic, data_topic_lost, decide_dead_letters
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import Claims, check_ids_apart, check_names_apart
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.kafka.views import describe, holds_data, limits_of, read_limits


def prepared_letters(admin: Admin, wanted: DeadLetterSettings, check: Callable[[str | None], None]) -> Letters:
    """`check`: of the id of the one that is there."""
    topic = describe(admin, wanted.topic.name)
    check(None if topic is None else topic.id)
    decision = decide_dead_letters(topic, wanted.topic, auto_create=wanted.auto_create)
    if decision.create:
        admin.create_topic(wanted.topic)
        topic = describe(admin, wanted.topic.name)
    return Letters(topic=topic, limits=UNKNOWN if topic is None else limits_of(topic), drift=decision.drift)


@dataclass(frozen=True)
class KafkaTarget:
    """The topics that one sink writes, but for its progress."""

    settings: SinkSettings
    source_admin: Admin
    admin: Admin
    claims: Claims

    def check_names(self) -> None:
        check_names_apart(self.settings, self.source_admin, self.admin)

    def describe(self, source: Mapping[str, str]) -> Topic | None:
        topic = describe(self.admin, self.settings.data.name)
        found = None if topic is None else replace(topic, holds_data=holds_data(self.admin, topic))
        check_ids_apart(self.settings, source, {Role.DATA: None if found is None else found.id})
        return found

    def id(self) -> str | None:
        name = self.settings.data.name
        topic = self.admin.topics([name])[name]
        return None if topic is None else topic.id

    def create(self) -> Creation:
        return self.admin.create_topic(self.settings.data)

    def prepare_letters(self, source: Mapping[str, str]) -> Letters:
        """The dead-letter topic and what differs from the manifest; one that is missing may never be needed."""
        wanted = self.settings.dead_letter
        if wanted is None:
            return Letters(topic=None, limits=UNKNOWN, drift=())
        return prepared_letters(
            self.admin, wanted, lambda topic: check_ids_apart(self.settings, source, {Role.DEAD: topic})
        )

    def take(self, target: Topic, place: Topic, letters: Letters) -> None:
        dead = None if letters.topic is None else letters.topic.id
        self.claims.take(self.settings, {Role.DATA: target.id, Role.PROGRESS: place.id, Role.DEAD: dead})

    def limits_of(self, target: Topic) -> TopicLimits:
        return TopicLimits.of(target.partitions, self.admin.topic_config(target.name))

    def limits(self) -> TopicLimits | None:
        return read_limits(self.admin, self.settings.data.name)

    def letter_limits(self) -> TopicLimits | None:
        letters = self.settings.dead_letter
        return None if letters is None else read_limits(self.admin, letters.topic.name)

    def durability(self) -> Durability | None:
        if not self.settings.exactly_once:
            return None
        found = [describe(self.admin, name) for name in (self.settings.data.name, self.settings.progress.name)]
        topics = [topic for topic in found if topic is not None]
        return of_topics(topics) if len(topics) == len(found) else None

    def lost(self, what: str) -> SinkPipelineError:
        return data_topic_lost(self.settings.data.name, what)

    def delete(self, target: str) -> None:  # noqa: ARG002 - a broker deletes by name
        self.admin.delete_topic(self.settings.data.name)
