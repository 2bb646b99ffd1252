"""The progress of a sink in a compacted topic: read for certain behind a sentinel, written under a control id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sinkpipeline.core.crossing import Role
from sinkpipeline.core.ledger_ports import NOTHING_KNOWN, Believe, CheckMeta, Into
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Creation, PlaceChanged
from sinkpipeline.core.progress import Meta, PartitionProgress, Progress
from sinkpipeline.core.progress_records import encode
from sinkpipeline.core.records import Row
from sinkpipeline.core.reset import encode_reset
from sinkpipeline.core.topics import Topic, check_progress_topic
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import check_ids_apart
from sinkpipeline.kafka.control import ControlProducer
from sinkpipeline.kafka.follower import ProgressFollower
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.progress_log import OpenTransaction, ProgressLog
from sinkpipeline.kafka.session import letters_of
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.views import describe
from sinkpipeline.sinks import failpoints

_FENCING_THREADS = 8
_PATIENCE_S = 2.0
"""For a read that could be blocked by what only the fences after it would end."""


class KafkaHold:
    """The control id of a sink, held."""

    def __init__(self, settings: SinkSettings, log: ProgressLog, control: ControlProducer) -> None:
        self._settings = settings
        self._log = log
        self.control = control

    @property
    def delivers(self) -> bool:
        return self.control.writes_like_tasks

    takes_what_it_writes = False

    def read(self, believe: Believe, check_meta: CheckMeta) -> Progress:
        return self._log.resume(self._settings.id, self.control, believe, check_meta)

    def read_since(self, end: int, check_meta: CheckMeta) -> Progress:
        return self._log.resume_since(self._settings.id, self.control, end, check_meta)

    def metas(self) -> Mapping[str, Meta | None]:
        return self._log.metas(self._settings.id, self.control)

    def read_no_more(self) -> None:
        self._log.close()

    def fence(self, partitions: Iterable[SourcePartition]) -> None:
        def fence(partition: SourcePartition) -> None:
            TransactionalProducer(self._settings.connection, self._settings.id.partition_id(partition)).close()

        with ThreadPoolExecutor(_FENCING_THREADS, thread_name_prefix="fence") as pool:
            list(pool.map(fence, sorted(set(partitions))))

    def write(
        self,
        progress: Progress,
        known: Mapping[SourcePartition, PartitionProgress] = NOTHING_KNOWN,  # noqa: ARG002 - a log does not go back
    ) -> None:
        self.control.write(self._settings.progress.name, encode(self._settings.id, progress))

    def replace(self, found: Progress, new: Progress) -> None:
        self.control.begin()
        for key, value in encode_reset(self._settings.id, found, new):
            self.control.produce_record(self._settings.progress.name, key, value)
        failpoints.failpoint("reset-before-commit")
        self.control.commit()

    def remove(self, found: Progress) -> None:
        sink = self._settings.id
        keys = {sink.partition_key(each) for each in found.partitions} | {*found.faults, sink.meta_key}
        self.control.write(self._settings.progress.name, [(key, None) for key in sorted(keys)])

    def deliver(
        self, rows: Iterable[tuple[Into, Iterable[Row]]], progress: Mapping[SourcePartition, PartitionProgress]
    ) -> None:
        records = encode(self._settings.id, Progress(partitions=progress))
        topics = [(self._topic(into), each) for into, each in rows]
        self.control.deliver(topics, self._settings.progress.name, records)

    def _topic(self, into: Into) -> str:
        return self._settings.data.name if into is Into.TARGET else letters_of(self._settings).topic.name

    def still_holds(self) -> bool:
        return self.control.still_holds(self._settings.progress.name)

    def close(self) -> None:
        self.control.close()


@dataclass(frozen=True)
class KafkaLedger:
    """The progress topic of one sink."""

    settings: SinkSettings
    admin: Admin
    tells_faults: bool = False

    @property
    def name(self) -> str:
        return self.settings.progress.name

    def place(self) -> Topic | None:
        return describe(self.admin, self.name)

    def create(self) -> Creation:
        creation = self.admin.create_topic(self.settings.progress)
        topic = self.place()
        if topic is None:
            raise self._changed()
        return Creation(topic=topic, is_ours=creation.is_ours)

    def check_apart(self, place: Topic, source: Mapping[str, str]) -> None:
        check_ids_apart(self.settings, source, {Role.PROGRESS: place.id})

    def check_same(self, place: Topic) -> None:
        topic = self.admin.topics([place.name])[place.name]
        if topic is None or topic.id != place.id:
            raise self._changed()

    def _changed(self) -> PlaceChanged:
        return PlaceChanged(f"progress topic {self.name} was deleted or re-created")

    def observe(self) -> Progress:
        with self._log() as log:
            return log.observe(self.settings.id)

    def decide(self, place: Topic) -> Progress:
        check_progress_topic(place)
        with self._log() as log:
            return log.decide(self.settings.id)

    def look(self, place: Topic, believe: Believe) -> tuple[Progress, bool]:
        check_progress_topic(place)
        with self._log() as log:
            try:
                return log.decide(self.settings.id, _PATIENCE_S, believe), True
            except OpenTransaction:
                return log.observe(self.settings.id), False

    def metas(self) -> Mapping[str, Meta | None]:
        with self._log() as log:
            return log.metas(self.settings.id)

    def hold(self, *, source_topics: int) -> KafkaHold:
        settings = self.settings
        control = ControlProducer(
            settings.connection, settings.id.control_id, settings.properties, source_topics=source_topics
        )
        try:
            return KafkaHold(settings, self._log(), control)
        except BaseException:
            control.close()
            raise

    def follow(self, end: int) -> ProgressFollower:
        settings = self.settings
        return ProgressFollower(settings.connection, self.name, settings.group_id, settings.id, end)

    def with_faults(self) -> KafkaLedger:
        return KafkaLedger(self.settings, self.admin, tells_faults=True)

    def _log(self) -> ProgressLog:
        settings = self.settings
        return ProgressLog(settings.connection, self.name, settings.group_id, with_faults=self.tells_faults)
