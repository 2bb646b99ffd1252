"""Starting a sink: the order in which a driver fences, reads, and announces itself.

    0 refuse what needs no fence, by a decide read; create the progress topic
    1 init the control id                          (fences another driver's writes of meta)
    2 resume read; refuse again; create the data topic
    3 commit meta with our run                     (who comes later sees it; who was before learns it when fenced)
    4 init every partition id                      (fences late tasks, and aborts what they left open)
    5 resume read of what was written since 2
    6 commit the frontier of every partition with meta, as one transaction: a first start, a seed, or a snapshot

A crash between any two steps leaves something from which the next start begins at 0.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sinkpipeline.core import starting
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, PartitionProgress, Progress, check, encode
from sinkpipeline.core.starting import SourceView
from sinkpipeline.core.topics import Beginning, Memory, Topic, TopicDecision, check_progress_topic, decide, remember
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.failpoints import failpoint
from sinkpipeline.kafka.producers import Fenced, InDoubt, TransactionalProducer
from sinkpipeline.kafka.progress_log import OpenTransaction, ProgressLog
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.views import describe, holds_data, view_source

_LOG = logging.getLogger("sinkpipeline.start")

_ATTEMPTS = 5
_MAX_DELAY_S = 2.0
_FENCING_THREADS = 8
_PATIENCE_S = 2.0
"""For a read that could be blocked by what only the fences after it would end."""


@dataclass(frozen=True, kw_only=True)
class StartedSink:
    """A sink whose fences are held. `control` belongs to whoever has this, and is closed by them."""

    run: str
    control: TransactionalProducer
    progress: Progress
    """Of every source partition; its meta carries our run."""
    source: Mapping[str, str]
    """The topics that the source has now, with their ids."""
    data_topic: Topic
    progress_topic: Topic
    max_message_bytes: int
    """The data topic's limit of one record batch."""
    recreated_progress_topic: bool
    may_duplicate: int | None
    """Of a seeded start: at most so many rows may be duplicated. None where the progress is certain."""
    drift: tuple[str, ...]


@dataclass(kw_only=True)
class SinkStarter:
    """Starts one sink, as often as its driver asks.

    Every attempt has a run of its own: a task that outlived an earlier one of this driver finds another run in `meta`,
    and stops without writing.
    """

    settings: SinkSettings
    source_admin: Admin
    admin: Admin
    new_run: Callable[[], str] = lambda: str(uuid.uuid4())
    started_before: bool = field(default=False, init=False)
    _runs: set[str] = field(default_factory=set, init=False)
    """The runs of this driver, which are no newer driver's."""
    _found: Memory | None = field(default=None, init=False)
    """What an attempt has read: should the progress topic vanish before the next one, somebody does remember."""

    def start(self, memory: Memory | None, *, memory_is_exact: bool = False) -> StartedSink:
        """Steps 0 to 6.

        Args:
            memory: what is remembered of the sink, for the case that its progress is gone.
            memory_is_exact: it is this driver's own frontier, and no outcome is in doubt.

        Raises:
            SinkPipelineError: every refusal of the protocol and of the topic policy.
        """
        for _ in range(_ATTEMPTS):
            seen = _Seen()
            try:
                started = self._attempt(memory if memory_is_exact else self._found or memory, memory_is_exact, seen)
            except Fenced:
                self._still_ours(seen)
                _LOG.info("%s: fenced while starting, starting again", self.settings.id)
            except (InDoubt, _TopicChanged) as error:
                _LOG.info("%s: %s, starting again", self.settings.id, error)
            else:
                self.started_before = True
                return started
            # Two drivers that start at once would otherwise fence each other in step.
            time.sleep(random.uniform(0.1, _MAX_DELAY_S))  # noqa: S311 - no secret
        raise SinkPipelineError(
            Reason.FENCED_REPEATEDLY,
            f"starting {self.settings.id} was interrupted {_ATTEMPTS} times",
            "look for another driver of this pipeline, or for brokers that restart",
        )

    def _still_ours(self, seen: _Seen) -> None:
        """Reads meta after a fence, before anything is fenced in return: a newer driver goes first.

        What this read may miss, step 2 of the next attempt finds.
        """
        with self._log() as log:
            meta = log.observe(self.settings.id).meta
        if meta is not None and meta.run != seen.run and meta.run not in self._runs:
            raise starting.superseded(self.settings.id, meta.run)

    def _attempt(self, memory: Memory | None, memory_is_exact: bool, seen: _Seen) -> StartedSink:  # noqa: FBT001
        settings = self.settings
        view = view_source(settings.source, self.source_admin)
        # 0.
        progress_topic = self._describe_progress_topic()
        recreated = False
        if progress_topic is None:
            decision, _ = self._decide(Progress(), None, view, memory)
            recreated = decision.beginning is Beginning.SEED
            self.admin.create_topic(settings.progress)
            progress_topic = self._describe_progress_topic()
            if progress_topic is None:
                raise _TopicChanged(settings.progress.name)
        else:
            self._refuse_without_fencing(progress_topic, view, memory, seen)
        # 1.
        control = TransactionalProducer(settings.connection, settings.id.control_id)
        try:
            failpoint("starting-after-control-init")
            return self._fenced(control, progress_topic, view, memory, memory_is_exact, seen, recreated)
        except BaseException:
            control.close()
            raise

    def _refuse_without_fencing(
        self, progress_topic: Topic, view: SourceView, memory: Memory | None, seen: _Seen
    ) -> None:
        """A start that would be refused anyway must not disturb a driver that runs."""
        check_progress_topic(progress_topic)
        with self._log() as log:
            try:
                progress = log.decide(self.settings.id, _PATIENCE_S)
            except OpenTransaction:
                # Perhaps of this very sink's dead tasks, which only a fence ends. What can be seen must do here; step 2
                # reads for certain.
                meta = log.observe(self.settings.id).meta
                seen.run = None if meta is None else meta.run
                starting.check_owner(self.settings.id, meta, self.settings.owner)
                self._check_driver(meta)
                return
        seen.run = None if progress.meta is None else progress.meta.run
        self._decide(progress, progress_topic, view, memory)

    def _fenced(
        self,
        control: TransactionalProducer,
        progress_topic: Topic,
        view: SourceView,
        memory: Memory | None,
        memory_is_exact: bool,  # noqa: FBT001
        seen: _Seen,
        recreated: bool,  # noqa: FBT001
    ) -> StartedSink:
        settings = self.settings
        with self._log() as log:
            # 2.
            progress = log.resume(settings.id, control)
            self._check_same(progress_topic)
            check(progress)
            seen.run = None if progress.meta is None else progress.meta.run
            decision, data_topic = self._decide(progress, progress_topic, view, memory)
            if decision.beginning is Beginning.SEED and self.started_before and not memory_is_exact:
                raise SinkPipelineError(
                    Reason.PROGRESS_LOST,
                    f"the progress of {settings.id} was deleted while the outcome of a transaction was in doubt",
                    "nobody knows how far the sink got; start anew under another identity",
                )
            if data_topic is None:
                data_topic = self.admin.create_topic(settings.data)
            data_config = self.admin.topic_config(data_topic.name)
            # 3.
            seeding = memory if decision.beginning is Beginning.SEED else None
            remembered_source = {} if seeding is None else seeding.source
            # An announcement without partitions says nothing about the epoch; what is seeded does.
            previous = None if seeding is not None else progress.meta
            epoch = seeding.epoch if seeding is not None else (0 if previous is None else previous.epoch)
            run = self.new_run()
            self._runs.add(run)
            meta = starting.take_over(
                previous, run=run, owner=settings.owner, epoch=epoch, source={**remembered_source, **view.topics}
            )
            control.write(settings.progress.name, encode(settings.id, Progress(meta=meta)))
            failpoint("starting-after-meta")
            # 4.
            remembered = memory.partitions if memory is not None else {}
            self._fence({*progress.partitions, *remembered, *view.beginnings})
            # 5.
            tail = log.resume_since(settings.id, control, progress.end)
        self._check_same(progress_topic)
        progress = starting.overlay(progress, tail)
        starting.check_run(settings.id, progress.meta, run)
        check(progress)
        # 6.
        known = seeding.partitions if seeding is not None else progress.partitions
        partitions = starting.plan_partitions(
            known,
            view,
            epoch=epoch,
            starting_offsets=settings.source.starting_offsets,
            discovered=settings.source.pattern is not None and bool(known),
            skip_lost=settings.source.skip_lost,
            at=now_ms(),
        )
        meta = replace(
            meta,
            partitions=MappingProxyType(starting.partition_counts(partitions)),
            source=MappingProxyType({**meta.source, **view.topics}),
            data=data_topic.id,
            progress=progress_topic.id,
        )
        progress = Progress(meta=meta, partitions=MappingProxyType(partitions), end=progress.end)
        failpoint("starting-before-first-start")
        control.write(settings.progress.name, encode(settings.id, progress))
        return StartedSink(
            run=run,
            control=control,
            progress=progress,
            source=view.topics,
            data_topic=data_topic,
            progress_topic=progress_topic,
            max_message_bytes=_client_limit(int(data_config.get("max.message.bytes", "1048588"))),
            recreated_progress_topic=recreated,
            may_duplicate=_may_duplicate(known, view) if seeding is not None and not memory_is_exact else None,
            drift=decision.drift,
        )

    def _decide(
        self, progress: Progress, progress_topic: Topic | None, view: SourceView, memory: Memory | None
    ) -> tuple[TopicDecision, Topic | None]:
        settings = self.settings
        starting.check_owner(settings.id, progress.meta, settings.owner)
        self._check_driver(progress.meta)
        self._found = remember(progress) or self._found
        starting.check_source(progress.meta, view.topics)
        data_topic = self._describe_data_topic()
        decision = decide(
            progress=progress,
            progress_topic=progress_topic,
            data_topic=data_topic,
            data_request=settings.data,
            memory=memory,
            source=view.topics,
            refuse_existing_data=settings.refuse_existing_data,
        )
        return decision, data_topic

    def _check_driver(self, meta: Meta | None) -> None:
        """A driver that has been superseded doesn't come back."""
        if self.started_before and meta is not None and meta.run not in self._runs:
            raise starting.superseded(self.settings.id, meta.run)

    def _check_same(self, progress_topic: Topic) -> None:
        """What was read is this sink's progress only if the topic is still the one that was described before."""
        topic = self.admin.topics([progress_topic.name])[progress_topic.name]
        if topic is None or topic.id != progress_topic.id:
            raise _TopicChanged(progress_topic.name)

    def _fence(self, partitions: Iterable[SourcePartition]) -> None:
        def fence(partition: SourcePartition) -> None:
            TransactionalProducer(self.settings.connection, self.settings.id.partition_id(partition)).close()

        with ThreadPoolExecutor(_FENCING_THREADS, thread_name_prefix="fence") as pool:
            list(pool.map(fence, sorted(set(partitions))))

    def _log(self) -> ProgressLog:
        return ProgressLog(self.settings.connection, self.settings.progress.name, self.settings.group_id)

    def _describe_progress_topic(self) -> Topic | None:
        return describe(self.admin, self.settings.progress.name)

    def _describe_data_topic(self) -> Topic | None:
        topic = describe(self.admin, self.settings.data.name)
        return None if topic is None else replace(topic, holds_data=holds_data(self.admin, topic))


class _TopicChanged(Exception):
    """The progress topic was deleted or re-created during the attempt."""

    def __init__(self, name: str) -> None:
        super().__init__(f"progress topic {name} was deleted or re-created")


@dataclass
class _Seen:
    """The run that an attempt found, in step 2 if it came so far."""

    run: str | None = None


def _client_limit(topic_limit: int) -> int:
    """The topic's limit within what the client takes as its own; the broker has the last word on either side."""
    return min(max(topic_limit, 1_000), 1_000_000_000)


def now_ms() -> int:
    return int(time.time() * 1000)


def _may_duplicate(seed: Mapping[SourcePartition, PartitionProgress], view: SourceView) -> int:
    return sum(max(0, end - seed[partition].next) for partition, end in view.ends.items() if partition in seed)
