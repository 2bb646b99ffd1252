"""The data topic of a sink, and the topic of its dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sinkpipeline.core.crossing import Role
from sinkpipeline.core.durability import Durability, of_topics
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.letter_topics import decide_dead_letters
from sinkpipeline.core.limits import UNKNOWN, TopicLimits
from sinkpipeline.core.lost_topics import data_topic_lost
from sinkpipeline.core.ports import Creation, InDoubt, Letters
from sinkpipeline.core.topic_ids import ids_of, joined
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import Claims, check_ids_apart, check_names_apart
from sinkpipeline.kafka.data_topics import data_limits_of, describe_data, gathered, read_data_limits, target_id
from sinkpipeline.kafka.errors import asked_once
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.kafka.views import describe, limits_of, read_limits
from sinkpipeline.sinks import failpoints


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
        found = describe_data(self.admin, self.settings.data)
        check_ids_apart(self.settings, source, {Role.DATA: None if found is None else found.id})
        return found

    def id(self) -> str | None:
        return target_id(self.admin, self.settings.data)

    def create(self, there: Topic | None = None) -> Creation:
        data = self.settings.data
        if not data.parts:
            return self.admin.create_topic_once(data)
        known = {each.name: each for each in (() if there is None else there.parts)}
        # What was found and is missing by now has perhaps been lost with rows in it, which the next start decides.
        missing = [each for each in data.parts if each.name not in known]
        if len(missing) > 1:
            # One that is refused leaves no others behind.
            with asked_once():
                for each in missing:
                    self.admin.check_creation(each)
        made, failed = self._made(missing)
        ours = joined({each.topic.name: each.topic.id for each in made if each.is_ours})
        if failed is not None:
            topic = gathered(data, {**known, **{each.topic.name: each.topic for each in made}})
        else:
            topic = describe_data(self.admin, data)
        if topic is None or (failed is None and len(topic.parts) < len(data.parts)):
            failed = SinkPipelineError(
                Reason.TOPICS_CHANGED, f"one of {data.name} was deleted", "nothing; the sink starts again"
            )
        return Creation(topic=topic or made[-1].topic, is_ours=False, ours=ours, failed=failed)

    def _made(self, missing: Iterable[TopicRequest]) -> tuple[list[Creation], SinkPipelineError | InDoubt | None]:
        """What was created, and why not all of it was.

        Raises:
            SinkPipelineError, InDoubt: why nothing was.
        """
        made: list[Creation] = []
        for each in missing:
            try:
                made.append(self.admin.create_topic_once(each))
            except (SinkPipelineError, InDoubt) as error:
                if not made:
                    raise
                return made, error
            failpoints.failpoint("starting-after-a-data-topic")
        return made, None

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
        described = [replace(each, config=self.admin.topic_config(each.name)) for each in target.parts or (target,)]
        return data_limits_of(replace(target, parts=tuple(described)) if target.parts else described[0])

    def limits(self) -> TopicLimits | None:
        return read_data_limits(self.admin, self.settings.data)

    def letter_limits(self) -> TopicLimits | None:
        letters = self.settings.dead_letter
        return None if letters is None else read_limits(self.admin, letters.topic.name)

    def duplicate_window_ms(self) -> None:
        """A producer that is made again is another one to the brokers."""

    def counted(self) -> None:
        """A topic that was cut short is no sink that went back: progress is in another one."""

    def durability(self) -> Durability | None:
        if not self.settings.exactly_once:
            return None
        found = [describe(self.admin, name) for name in (*self.settings.data_names, self.settings.progress.name)]
        topics = [topic for topic in found if topic is not None]
        return of_topics(topics) if len(topics) == len(found) else None

    def lost(self, what: str) -> SinkPipelineError:
        return data_topic_lost(self.settings.data.name, what)

    def delete(self, target: str) -> None:
        for name, topic_id in (ids_of(target) or {self.settings.data.name: target}).items():
            self.admin.delete_topic(name, topic_id)
