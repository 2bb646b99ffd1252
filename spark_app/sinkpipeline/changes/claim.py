"""A stage takes its source in Kafka: it fences who had it, reads the progress for certain, and announces itself.

    0 look who has it; create the progress topic
    1 init the stage's transactional id             (whoever had it can't write any more)
    2 sentinel, read the progress up to it, refuse
    3 the change topic: there, the same, or created
    4 `announce`: meta with our run                  (who was before us learns by it that it is superseded)

The slot is taken only behind all of this: a reader that was frozen, and wakes up, has then lost the right to write, and
its connection with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sinkpipeline.changes.settings import StageSettings, sink_settings
from sinkpipeline.core import starting
from sinkpipeline.core.changes.incremental import Listed
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import DEFAULT_BYTES, UNKNOWN, TopicLimits
from sinkpipeline.core.ports import PlaceChanged
from sinkpipeline.core.progress import Meta, PartitionProgress, Progress, check, check_not_removed
from sinkpipeline.core.progress_records import encode_meta, encode_partition, writer_header
from sinkpipeline.core.records import Row
from sinkpipeline.core.topics import Topic, check_progress_topic, decide
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.data_topics import describe_data
from sinkpipeline.kafka.ledger import KafkaLedger
from sinkpipeline.kafka.producers import CLIENT_BATCH_BYTES, TransactionalProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.session import KafkaSession
from sinkpipeline.kafka.target import prepared_letters
from sinkpipeline.kafka.views import describe, limits_of
from sinkpipeline.sinks.failpoints import failpoint

_LOG = logging.getLogger("sinkpipeline.changes")

_PROPERTIES: Mapping[str, str] = MappingProxyType({"compression.type": "lz4", "linger.ms": "5"})
"""Where the manifest says nothing else: JSON of one table is alike."""
_LARGEST = "100000000"
"""What a topic doesn't take becomes a dead letter; the client has no say in it."""


@dataclass
class Claimed:
    """A stage whose transactional id is held; its session is closed by whoever has this."""

    session: KafkaSession
    progress: Progress
    topic: Topic
    progress_topic: Topic
    limits: TopicLimits
    letter_limits: TopicLimits
    created: str | None
    """The id of the change topic, where a start of this stage has created it."""

    def close(self) -> None:
        self.session.close()


class Claim:
    """One attempt to take a stage.

    Raises (all methods):
        Fenced: somebody else has taken it since.
        InDoubt: anything else that went wrong in a transaction.
        SinkPipelineError: Superseded, IdentityInUse, and what reads of the progress and the topic policy raise.
    """

    def __init__(self, settings: StageSettings) -> None:
        self._settings = settings
        self._sink = sink_settings(settings)
        self._admin = Admin(settings.kafka)
        self._ledger = KafkaLedger(self._sink, self._admin)
        self._partition = settings.database.partition
        self._is_announced = False

    def take(self) -> Claimed:
        """Steps 0 to 3."""
        try:
            return self._taken()
        except PlaceChanged as changed:
            raise SinkPipelineError(Reason.TOPICS_CHANGED, str(changed), "nothing; the stage starts again") from changed

    def _taken(self) -> Claimed:
        sink = self._sink
        place = self._ledger.place() or self._ledger.create().topic
        check_progress_topic(place)
        self.check_ours()
        producer = TransactionalProducer(
            sink.connection, sink.id.partition_id(self._partition), self._producer_properties()
        )
        try:
            with ProgressLog(sink.connection, sink.progress.name, sink.group_id) as log:
                progress = log.resume(sink.id, producer, check_meta=self._check_meta)
            self._ledger.check_same(place)
            self._check_meta(progress.meta)
            check(progress)
            check_not_removed(progress, [self._partition])
            return self._with_topics(producer, progress, place)
        except BaseException:
            producer.close()
            raise

    def check_ours(self) -> None:
        """That no newer driver has the stage, as far as can be seen: before it is disturbed, and after a fence."""
        self._check_meta(self._ledger.observe().meta)

    def check_topics(self, claimed: Claimed) -> None:
        """That what is written goes where it went: a topic that was re-created takes it as if nothing had happened."""
        ids = {topic.name: topic.id for topic in (claimed.topic, claimed.progress_topic)}
        for name, topic in self._admin.topics(ids).items():
            if topic is None or topic.id != ids[name]:
                raise SinkPipelineError(
                    Reason.TOPICS_CHANGED, f"topic {name} was deleted or re-created", "nothing; the stage starts again"
                )

    def announce(
        self,
        claimed: Claimed,
        source: Mapping[str, str],
        first: PartitionProgress | None = None,
        tables: Mapping[str, Listed] | None = None,
    ) -> None:
        """Step 4. Says whose the stage is from here on, and what its positions are about.

        Args:
            claimed: what was taken.
            source: the identity of the database.
            first: the progress with which it begins, where it has none, or with which a snapshot begins anew, or with
                which tables are to be read: both are written in one step.
            tables: which ones are read from here on, as `Meta.tables`; None: the same as before.
        """
        known = claimed.progress
        before = known.meta or Meta(
            epoch=0, run="", owner=self._settings.owner, partitions=None, created=claimed.created
        )
        # An announcement without partitions says that nothing was read yet.
        partitions = {self._partition.topic: 1} if known.exists or first is not None else None
        meta = replace(
            before,
            epoch=before.epoch if first is None else first.epoch,
            run=self._settings.run,
            owner=self._settings.owner,
            partitions=None if partitions is None else MappingProxyType(partitions),
            source=MappingProxyType(dict(source)),
            data=claimed.topic.id,
            progress=claimed.progress_topic.id,
            created=claimed.created or before.created,
            tables=before.tables if tables is None else MappingProxyType(dict(sorted(tables.items()))),
        )
        if meta == known.meta and first is None:
            self._is_announced = True
            return
        producer = claimed.session.producer
        ours = writer_header(producer.transactional_id)
        records: list[Row] = [(encode_meta(meta), self._sink.id.meta_key.encode(), 0, 0, ours)]
        states = dict(known.partitions)
        if first is not None:
            key = self._sink.id.partition_key(self._partition)
            records.append((encode_partition(first), key.encode(), 0, 0, None))
            states[self._partition] = first
        producer.begin()
        producer.produce_rows(self._sink.progress.name, records)
        producer.commit()
        self._is_announced = True
        claimed.progress = replace(known, meta=meta, partitions=MappingProxyType(states))

    def _check_meta(self, meta: Meta | None) -> None:
        settings = self._settings
        if meta is None or meta.owner != settings.adopt:
            starting.check_owner(settings.id, meta, settings.owner)
        if self._is_announced or not settings.takes_over:
            starting.check_run(settings.id, meta, settings.run)

    def _with_topics(self, producer: TransactionalProducer, progress: Progress, place: Topic) -> Claimed:
        sink = self._sink
        topic = describe_data(self._admin, sink.data)
        decision = decide(
            progress=progress,
            progress_topic=place,
            data_topic=topic,
            data_request=sink.data,
            memory=None,
            source={},
            refuse_existing_data=sink.refuse_existing_data,
        )
        for line in decision.drift:
            _LOG.warning("%s: %s", sink.id, line)
        created = None if progress.meta is None else progress.meta.created
        if topic is None:
            creation = self._admin.create_topic_once(sink.data)
            created = creation.topic.id if creation.is_ours else created
            topic = describe_data(self._admin, sink.data)
        if topic is None:
            raise SinkPipelineError(
                Reason.TOPICS_CHANGED, f"topic {sink.data.name} was deleted", "nothing; the stage starts again"
            )
        letters = None if sink.dead_letter is None else prepared_letters(self._admin, sink.dead_letter, lambda _: None)
        session = KafkaSession(sink, producer, sink.id.partition_key(self._partition))
        session.progress = progress.partitions.get(self._partition)
        failpoint("stage-after-claim")
        return Claimed(
            session=session,
            progress=progress,
            topic=topic,
            progress_topic=place,
            limits=limits_of(topic),
            letter_limits=UNKNOWN if letters is None else letters.limits,
            created=created,
        )

    def _producer_properties(self) -> dict[str, str]:
        """No batch is larger than what each of the topics takes."""
        found = {**_PROPERTIES, **self._settings.properties}
        takes = [self._takes(self._sink.data.name, self._sink.data.config)]
        if self._sink.dead_letter is not None:
            letters = self._sink.dead_letter.topic
            takes.append(self._takes(letters.name, letters.config))
        at_once = min(CLIENT_BATCH_BYTES, int(found.get("batch.size", CLIENT_BATCH_BYTES)), *takes)
        return {**found, "message.max.bytes": _LARGEST, "batch.size": str(at_once)}

    def _takes(self, name: str, asked: Mapping[str, str]) -> int:
        topic = describe(self._admin, name)
        if topic is not None:
            return limits_of(topic).message_bytes
        return int(asked.get("max.message.bytes", DEFAULT_BYTES))
