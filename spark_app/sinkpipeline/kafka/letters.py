"""A dead-letter topic on the source's cluster, for sinks of other kinds: acknowledged, and counted by the sink."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from sinkpipeline.core.crossing import Place, Role, Use, check_source
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import InDoubt, Letters
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.records import Row
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import ONE, Claims, places_of
from sinkpipeline.kafka.deliveries import Unacknowledged
from sinkpipeline.kafka.producers import PlainProducer
from sinkpipeline.kafka.session import KafkaLetterBox, shared_admin
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings, SourceSettings
from sinkpipeline.kafka.source.reader import SourceReader
from sinkpipeline.kafka.target import prepared_letters
from sinkpipeline.kafka.views import read_limits
from sinkpipeline.sinks.worker import Worker


@dataclass(frozen=True, kw_only=True)
class KafkaLetters:
    """A `LetterService`."""

    sink: SinkId
    source: SourceSettings
    group_id: str
    """As which the source is read."""
    wanted: DeadLetterSettings

    @property
    def drop(self) -> bool:
        return self.wanted.drop

    def target(self, admin: Admin | None = None, claims: Claims | None = None) -> KafkaLetterTarget:
        """`admin` and `claims`: those of the driver, where it has some."""
        return KafkaLetterTarget(self, admin or Admin(self.source.connection), claims or Claims())

    def as_kafka(self, owner: Owner) -> SinkSettings:
        """The sink as `dlq list | show | purge` look at it, which ask for nothing but its letters."""
        nothing = TopicRequest(name="")
        return SinkSettings(
            id=self.sink,
            owner=owner,
            source=self.source,
            connection=self.source.connection,
            data=nothing,
            progress=nothing,
            dead_letter=self.wanted,
        )

    def box(self, worker: Worker) -> KafkaLetterBox:
        return KafkaLetterBox(self.source.connection, self.wanted, worker)

    def outbox(self, worker: Worker, limits: TopicLimits) -> KafkaOutbox:
        return KafkaOutbox(self, worker, limits)

    def reader(self, partition: SourcePartition) -> SourceReader:
        return SourceReader(self.source.connection, self.group_id, partition)

    def limits(self, worker: Worker) -> TopicLimits | None:
        return read_limits(shared_admin(worker, self.source.connection), self.wanted.topic.name)


class KafkaOutbox:
    """An `Outbox`: an idempotent producer."""

    def __init__(self, letters: KafkaLetters, worker: Worker, limits: TopicLimits) -> None:
        connection = letters.source.connection
        properties = {"message.max.bytes": str(limits.message_bytes)}
        self._topic = letters.wanted.topic.name
        self._worker = worker
        self._key: Hashable = ("letters", connection, limits.message_bytes)
        self._producer = worker.spare(self._key, lambda: PlainProducer(connection, properties))

    def send(self, rows: Iterable[Row]) -> None:
        try:
            self._producer.produce_rows(self._topic, rows)
        except Unacknowledged as trouble:
            raise _not_sent(trouble) from trouble

    def flush(self) -> None:
        try:
            self._producer.flush()
        except Unacknowledged as trouble:
            raise _not_sent(trouble) from trouble

    def keep(self) -> None:
        self._worker.keep_spare(self._key, self._producer)

    def close(self) -> None:
        self._producer.close()


def _not_sent(trouble: Unacknowledged) -> InDoubt:
    """Of the sink, nothing was begun."""
    return InDoubt(trouble.message, aborted=True, told=trouble, share=trouble.share)


@dataclass(frozen=True)
class KafkaLetterTarget:
    """A `LetterTarget`."""

    letters: KafkaLetters
    admin: Admin
    claims: Claims = field(default_factory=Claims)

    def check_names(self) -> None:
        check_source(places_of(self.letters.source, ONE), [self._use(cluster=ONE)])

    def prepare(self, source: Mapping[str, str]) -> Letters:
        def check(topic: str | None) -> None:
            check_source(places_of(self.letters.source, None, source), [self._use(topic)])

        return prepared_letters(self.admin, self.letters.wanted, check)

    def take(self, found: Letters) -> None:
        if found.topic is not None:
            self.claims.take_uses(self.letters.sink.sink, (self._use(found.topic.id),))

    def limits(self) -> TopicLimits | None:
        return read_limits(self.admin, self.letters.wanted.topic.name)

    def _use(self, topic: str | None = None, *, cluster: str | None = None) -> Use:
        servers = self.letters.source.connection.bootstrap_servers
        place = Place(name=self.letters.wanted.topic.name, cluster=cluster, id=topic, servers=servers)
        return Use(sink=self.letters.sink.sink, role=Role.DEAD, place=place)
