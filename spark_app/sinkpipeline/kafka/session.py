"""How a task writes to Kafka: under a partition's transactional id, or acknowledged row by row.

A claim is: init of the id (which fences), sentinel, read, and the question whether the run is still ours.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from sinkpipeline.core.deadletter import Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import InDoubt, NoDeadLetter, ProgressRefused, RecordRefused
from sinkpipeline.core.progress import Meta, PartitionProgress, check_not_removed
from sinkpipeline.core.progress_records import encode_partition
from sinkpipeline.core.records import Row
from sinkpipeline.core.starting import check_run
from sinkpipeline.core.topic_ids import ids_of
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.deliveries import Unacknowledged
from sinkpipeline.kafka.producers import CLIENT_BATCH_BYTES, PlainProducer, TransactionalProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.settings import settings_of
from sinkpipeline.sinks.worker import Worker


def letters_of(settings: SinkSettings) -> DeadLetterSettings:
    if settings.dead_letter is None:
        raise ValueError("only a sink with dead letters sends some")
    return settings.dead_letter


def producer_properties(plan: BatchPlan) -> dict[str, str]:
    """Of the producer of rows; with dead letters it takes what either topic takes.

    Then no batch of several records may be larger than what the other topic takes.
    """
    settings, data = settings_of(plan, SinkSettings), plan.data_limits
    properties = dict(settings.properties)
    if settings.dead_letter is None and not data.parts:
        return {**properties, "message.max.bytes": str(data.message_bytes)}
    letters = () if settings.dead_letter is None else (plan.letter_limits.message_bytes,)
    takes = (data.message_bytes, data.most_bytes, *letters)
    smaller, larger = min(takes), max(takes)
    batch = min(smaller, int(properties.get("batch.size", CLIENT_BATCH_BYTES)))
    return {**properties, "message.max.bytes": str(larger), "batch.size": str(batch)}


def shared_admin(worker: Worker, connection: Connection) -> Admin:
    return worker.shared(("admin", connection), lambda: Admin(connection))


class KafkaSession:
    """A producer that holds a transactional id, and where its rows go."""

    def __init__(self, settings: SinkSettings, producer: TransactionalProducer, record_key: str) -> None:
        self._settings = settings
        self._record_key = record_key
        self.producer = producer
        self.progress: PartitionProgress | None = None
        self.verified: int | None = None
        self.in_doubt = False

    @property
    def key(self) -> str:
        return self.producer.transactional_id

    @property
    def is_open(self) -> bool:
        return self.producer.in_transaction

    def begin(self) -> None:
        self.producer.begin()

    def send(self, rows: Iterable[Row]) -> None:
        self.producer.produce_rows(self._settings.data.name, rows)

    def send_dead(self, rows: Iterable[Row]) -> None:
        self.producer.produce_rows(letters_of(self._settings).topic.name, rows)

    def commit(self, new: PartitionProgress) -> None:
        topic = self._settings.progress.name
        try:
            self.producer.produce_record(topic, self._record_key, encode_partition(new))
            failpoint("after-progress-before-commit")
            self.in_doubt = True
            self.producer.commit()
        except RecordRefused as refusal:
            self.in_doubt = False
            if refusal.topic == topic:
                raise ProgressRefused(refusal.verdict, topic, refusal.index) from refusal
            raise
        except InDoubt as trouble:
            self.in_doubt = self.in_doubt and not trouble.aborted
            raise
        self.in_doubt = False

    def would_refuse(self, timestamp: int) -> Verdict | None:
        return self.producer.would_refuse(self._settings.data.name, timestamp)

    def abort(self) -> bool:
        return self.producer.abort()

    def close(self) -> None:
        self.producer.close()


class KafkaClaim:
    """Takes a source partition by its transactional id."""

    def __init__(
        self, plan: BatchPlan, partition: SourcePartition, worker: Worker, properties: Mapping[str, str]
    ) -> None:
        self._plan = plan
        self._settings = settings_of(plan, SinkSettings)
        self._partition = partition
        self._worker = worker
        self._properties = properties

    @property
    def key(self) -> str:
        return self._settings.id.partition_id(self._partition)

    def check(self) -> None:
        self._check_topics()
        with self._log() as log:
            self._check_run(log.observe(self._settings.id).meta)

    def take(self) -> KafkaSession:
        settings = self._settings
        producer = TransactionalProducer(settings.connection, self.key, self._properties)
        try:
            session = KafkaSession(settings, producer, settings.id.partition_key(self._partition))
            with self._log() as log:
                tail = log.resume_since(settings.id, producer, self._plan.verified, self._check_run)
            self._check_topics()
            self._check_run(tail.meta)
            check_not_removed(tail, [self._partition])
        except BaseException:
            producer.close()
            raise
        session.progress = tail.partitions.get(self._partition)
        session.verified = tail.end
        return session

    def _check_run(self, meta: Meta | None) -> None:
        check_run(self._settings.id, meta, self._plan.run)

    def _check_topics(self) -> None:
        """Leaves it to the driver to decide about topics that are not the ones of the start any more."""
        settings, plan = self._settings, self._plan
        data = ids_of(plan.data_topic_id) or {settings.data.name: plan.data_topic_id}
        ids = {**data, settings.progress.name: plan.progress_topic_id}
        for name, topic in shared_admin(self._worker, settings.connection).topics(ids).items():
            if topic is None or topic.id != ids[name]:
                raise SinkPipelineError(
                    Reason.TOPICS_CHANGED, f"topic {name} was deleted or re-created", "the sink starts again"
                )

    def _log(self) -> ProgressLog:
        return ProgressLog(self._settings.connection, self._settings.progress.name, self._settings.group_id)


class KafkaSender:
    """An idempotent producer, and where its rows go."""

    def __init__(self, plan: BatchPlan, worker: Worker) -> None:
        self._settings = settings_of(plan, SinkSettings)
        self._worker = worker
        connection, properties = self._settings.connection, producer_properties(plan)
        self._key: Hashable = ("rows", connection, tuple(sorted(properties.items())))
        self.producer = worker.spare(self._key, lambda: PlainProducer(connection, properties))

    def send(self, rows: Iterable[Row]) -> None:
        self._send(self._settings.data.name, rows)

    def send_dead(self, rows: Iterable[Row]) -> None:
        self._send(letters_of(self._settings).topic.name, rows)

    def _send(self, topic: str, rows: Iterable[Row]) -> None:
        try:
            self.producer.produce_rows(topic, rows)
        except Unacknowledged as trouble:
            raise _in_doubt(trouble) from trouble

    def flush(self) -> None:
        try:
            self.producer.flush()
        except Unacknowledged as trouble:
            raise _in_doubt(trouble) from trouble

    def keep(self) -> None:
        self._worker.keep_spare(self._key, self.producer)

    def close(self) -> None:
        self.producer.close()


def _in_doubt(trouble: Unacknowledged) -> InDoubt:
    return InDoubt(trouble.message, told=trouble, share=trouble.share)


class KafkaLetterBox:
    """A dead-letter topic."""

    def __init__(self, connection: Connection, settings: DeadLetterSettings, worker: Worker) -> None:
        self._connection = connection
        self._settings = settings
        self._worker = worker

    @property
    def name(self) -> str:
        return self._settings.topic.name

    def failure(self) -> NoDeadLetter | None:
        admin = shared_admin(self._worker, self._connection)
        try:
            topic = admin.topics([self.name])[self.name]
            denied = topic is not None and admin.denied(self.name, ("WRITE",))
        except SinkPipelineError as error:
            if error.reason is not Reason.AUTHORIZATION_FAILED:
                raise
            return NoDeadLetter(error.message, error.remedy)
        if topic is None and self._settings.auto_create:
            raise SinkPipelineError(
                Reason.TOPICS_CHANGED,
                f"the dead-letter topic {self.name} was deleted",
                "the sink starts again, and creates it",
            )
        if topic is None:
            return NoDeadLetter(f"topic {self.name} does not exist, and autoCreate is false", "create it")
        if denied:
            return NoDeadLetter(
                f"Write on topic {self.name} is not granted", "grant it; docs/rights.md lists all that is needed"
            )
        return None
