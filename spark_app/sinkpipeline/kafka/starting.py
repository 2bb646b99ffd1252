"""Starting a sink: the order in which a driver fences, reads, and announces itself.

    0 refuse what needs no fence, by a decide read; create the progress topic
    1 init the control id                          (fences another driver's writes of meta)
    2 resume read; refuse again; create the data topic
    3 commit meta with our run                     (who comes later sees it; who was before learns it when fenced)
    4 init every partition id                      (fences late tasks, and aborts what they left open)
    5 resume read of what was written since 2
    6 commit the frontier of every partition with meta, as one transaction: a first start, a seed, or a snapshot

A crash between any two steps leaves something from which the next start begins at 0. A reset (`kafka/reset.py`) shares
steps 0 to 5.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from typing_extensions import override

from sinkpipeline.core import starting
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, PartitionProgress, Progress, check, encode
from sinkpipeline.core.starting import SourceView
from sinkpipeline.core.topics import (
    Beginning,
    Memory,
    Topic,
    TopicDecision,
    check_data_topic,
    check_progress_topic,
    decide,
    remember,
)
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.failpoints import failpoint
from sinkpipeline.kafka.producers import Fenced, InDoubt, TransactionalProducer
from sinkpipeline.kafka.progress_log import OpenTransaction, ProgressLog
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.views import check_visible, describe, holds_data, view_source

_LOG = logging.getLogger("sinkpipeline.start")
T = TypeVar("T")

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
class SinkTakeover:
    """Takes a sink over: steps 0 to 5, of which a start and a reset are made. For one thread at a time.

    Every attempt has a run of its own: a task that outlived an earlier one of this driver finds another run in `meta`,
    and stops without writing.
    """

    settings: SinkSettings
    source_admin: Admin
    admin: Admin
    new_run: Callable[[], str] = lambda: str(uuid.uuid4())
    _runs: set[str] = field(default_factory=set, init=False)
    """The runs of this driver, which are no newer driver's."""
    _seen: str | None = field(default=None, init=False)
    """The run that the newest attempt found, in step 2 if it came so far."""
    _interrupted: bool = field(default=False, init=False)
    """Whether an attempt may have been fenced: then whoever has announced itself since is newer than we are."""

    def _repeat(self, attempt: Callable[[], T]) -> T:
        """Attempts until one comes through.

        Raises:
            SinkPipelineError: Superseded, FencedRepeatedly, and what an attempt raises.
        """
        self._interrupted = False
        for _ in range(_ATTEMPTS):
            try:
                return attempt()
            except (Fenced, InDoubt) as trouble:
                # Not every fence is told as one: after the first refused record the client only says that it failed.
                _LOG.info("%s: %s: %s; starting again", self.settings.id, type(trouble).__name__, trouble)
                self._interrupted = True
                self._still_ours()
            except _TopicChanged as error:
                _LOG.info("%s: %s, starting again", self.settings.id, error)
            # Two drivers that start at once would otherwise fence each other in step.
            time.sleep(random.uniform(0.1, _MAX_DELAY_S))  # noqa: S311 - no secret
        raise SinkPipelineError(
            Reason.FENCED_REPEATEDLY,
            f"starting {self.settings.id} was interrupted {_ATTEMPTS} times",
            "look for another driver of this pipeline, or for brokers that restart",
        )

    def _still_ours(self) -> None:
        """Reads meta after a fence, before anything is fenced in return: a newer driver goes first.

        What this read may miss, the next attempt finds.
        """
        if self._describe_progress_topic() is None:
            return
        with self._log() as log:
            self._refuse_newer(log.observe(self.settings.id).meta)

    def _refuse_newer(self, meta: Meta | None) -> None:
        if meta is not None and meta.run != self._seen and meta.run not in self._runs:
            raise starting.superseded(self.settings.id, meta.run)

    def _meet(self, meta: Meta | None) -> None:
        """Takes down whose the sink is, and refuses what is somebody else's."""
        if self._interrupted:
            self._refuse_newer(meta)
        self._seen = None if meta is None else meta.run
        starting.check_owner(self.settings.id, meta, self.settings.owner)

    def _look(self, topic: Topic) -> Progress | None:
        """Step 0's read: a start that would be refused anyway must not disturb a driver that runs.

        None where an open transaction holds the read back, perhaps of this very sink's dead tasks, which only a fence
        ends. What can be seen must do here; step 2 reads for certain.
        """
        check_progress_topic(topic)
        with self._log() as log:
            try:
                progress = log.decide(self.settings.id, _PATIENCE_S, lambda found: self._believe(found, topic))
            except OpenTransaction:
                self._meet(log.observe(self.settings.id).meta)
                return None
        self._meet(progress.meta)
        return self._believe(progress, topic)

    def _believe(self, progress: Progress, topic: Topic) -> Progress:  # noqa: ARG002 - a start's depends on it
        """What counts of the progress that was found in a topic."""
        return progress

    @contextmanager
    def _hold(self, topic: Topic) -> Iterator[_Hold]:
        """Step 1. `control` is left to the caller if all goes well."""
        control = TransactionalProducer(self.settings.connection, self.settings.id.control_id)
        try:
            failpoint("starting-after-control-init")
            with self._log() as log:
                yield _Hold(control, log, topic)
        except BaseException:
            control.close()
            raise

    def _read(self, hold: _Hold) -> Progress:
        """Step 2's read."""
        progress = hold.log.resume(self.settings.id, hold.control)
        self._check_same(hold.topic)
        self._meet(progress.meta)
        return self._believe(progress, hold.topic)

    def _announce(self, previous: Meta | None, *, epoch: int, source: Mapping[str, str]) -> Meta:
        """The meta of step 3, with a run that nobody had."""
        run = self.new_run()
        self._runs.add(run)
        return starting.take_over(previous, run=run, owner=self.settings.owner, epoch=epoch, source=source)

    def _take_over(self, hold: _Hold, known: Progress, meta: Meta, partitions: Iterable[SourcePartition]) -> Progress:
        """Steps 3 to 5: the progress, now that nobody else can write it."""
        settings = self.settings
        # 3.
        hold.control.write(settings.progress.name, encode(settings.id, Progress(meta=meta)))
        failpoint("starting-after-meta")
        # 4.
        self._fence({*known.partitions, *meta.source_partitions(), *partitions})
        # 5.
        tail = hold.log.resume_since(settings.id, hold.control, known.end)
        self._check_same(hold.topic)
        progress = starting.overlay(known, tail)
        starting.check_run(settings.id, progress.meta, meta.run)
        return progress

    def _fence(self, partitions: Iterable[SourcePartition]) -> None:
        def fence(partition: SourcePartition) -> None:
            TransactionalProducer(self.settings.connection, self.settings.id.partition_id(partition)).close()

        with ThreadPoolExecutor(_FENCING_THREADS, thread_name_prefix="fence") as pool:
            list(pool.map(fence, sorted(set(partitions))))

    def _check_same(self, progress_topic: Topic) -> None:
        """What was read is this sink's progress only if the topic is still the one that was described before."""
        topic = self.admin.topics([progress_topic.name])[progress_topic.name]
        if topic is None or topic.id != progress_topic.id:
            raise _TopicChanged(progress_topic.name)

    def _log(self) -> ProgressLog:
        return ProgressLog(self.settings.connection, self.settings.progress.name, self.settings.group_id)

    def _describe_progress_topic(self) -> Topic | None:
        return describe(self.admin, self.settings.progress.name)

    def _create_progress_topic(self) -> Topic:
        self.admin.create_topic(self.settings.progress)
        topic = self._describe_progress_topic()
        if topic is None:
            raise _TopicChanged(self.settings.progress.name)
        return topic


@dataclass(kw_only=True)
class SinkStarter(SinkTakeover):
    """Starts one sink, as often as its driver asks."""

    started_before: bool = field(default=False, init=False)
    _found: Memory | None = field(default=None, init=False)
    """What an attempt has read: should the progress topic vanish before the next one, somebody does remember."""
    _exact: Memory | None = field(default=None, init=False)

    def start(self, memory: Memory | None, *, memory_is_exact: bool = False) -> StartedSink:
        """Steps 0 to 6.

        Args:
            memory: what is remembered of the sink, for the case that its progress is gone.
            memory_is_exact: it is this driver's own frontier, and no outcome is in doubt.

        Raises:
            SinkPipelineError: every refusal of the protocol and of the topic policy.
        """
        self._exact = memory if memory_is_exact else None
        if memory_is_exact:
            started = self._repeat(lambda: self._attempt(memory, exact=True))
        else:
            started = self._repeat(lambda: self._attempt(self._found or memory, exact=False))
        self.started_before = True
        return started

    def _attempt(self, memory: Memory | None, *, exact: bool) -> StartedSink:
        settings = self.settings
        view = view_source(settings.source, self.source_admin)
        # 0.
        progress_topic = self._describe_progress_topic()
        recreated = False
        if progress_topic is None:
            decision, _ = self._decide(Progress(), None, view, memory)
            recreated = decision.beginning is Beginning.SEED
            progress_topic = self._create_progress_topic()
        elif (seen := self._look(progress_topic)) is not None:
            self._decide(seen, progress_topic, view, memory)
        # 1.
        with self._hold(progress_topic) as hold:
            # 2.
            progress = self._read(hold)
            check(progress)
            decision, data_topic = self._decide(progress, progress_topic, view, memory)
            seeding = memory if decision.beginning is Beginning.SEED else None
            if seeding is not None and self.started_before and not exact:
                raise SinkPipelineError(
                    Reason.PROGRESS_LOST,
                    f"the progress of {settings.id} was deleted while the outcome of a transaction was in doubt",
                    "nobody knows how far the sink got; say where to go on with `sinkpipeline reset --status-file`",
                )
            if data_topic is None:
                data_topic = self.admin.create_topic(settings.data)
            data_config = self.admin.topic_config(data_topic.name)
            # An announcement without partitions says nothing about the epoch; what is seeded does.
            previous = None if seeding is not None else progress.meta
            epoch = seeding.epoch if seeding is not None else (0 if previous is None else previous.epoch)
            remembered_source = {} if seeding is None else seeding.source
            meta = self._announce(previous, epoch=epoch, source={**remembered_source, **view.topics})
            # 3. to 5.
            remembered = memory.partitions if memory is not None else {}
            progress = self._take_over(hold, progress, meta, {*remembered, *view.beginnings})
            check(progress)
            # A late task may have delivered the first rows since step 2, into the topic that was there before.
            check_data_topic(progress, data_topic, settings.data)
            # 6.
            # The source went on meanwhile, and the last driver's tasks with it until they were fenced.
            ends = self.source_admin.end_offsets(view.beginnings, read_committed=False)
            view = replace(view, high_watermarks=MappingProxyType(ends))
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
            lost = sum(state.lost for state in partitions.values()) - sum(state.lost for state in known.values())
            if lost:
                _LOG.warning("%s: SourceDataLost: skipped %d offsets that the source no longer has", settings.id, lost)
            meta = replace(
                meta,
                partitions=MappingProxyType(starting.partition_counts(partitions)),
                source=MappingProxyType({**meta.source, **view.topics}),
                data=data_topic.id,
                progress=progress_topic.id,
            )
            progress = Progress(meta=meta, partitions=MappingProxyType(partitions), end=progress.end)
            failpoint("starting-before-first-start")
            hold.control.write(settings.progress.name, encode(settings.id, progress))
        return StartedSink(
            run=meta.run,
            control=hold.control,
            progress=progress,
            source=view.topics,
            data_topic=data_topic,
            progress_topic=progress_topic,
            max_message_bytes=_client_limit(int(data_config.get("max.message.bytes", "1048588"))),
            recreated_progress_topic=recreated,
            may_duplicate=_may_duplicate(partitions, view) if seeding is not None and not exact else None,
            drift=decision.drift,
        )

    def _decide(
        self, progress: Progress, progress_topic: Topic | None, view: SourceView, memory: Memory | None
    ) -> tuple[TopicDecision, Topic | None]:
        settings = self.settings
        self._found = remember(progress) or self._found
        # Without a frontier, offsets mean nothing yet.
        starting.check_source(progress.meta if progress.exists else None, view.topics)
        check_visible(settings.source, self.source_admin, progress.meta, view.topics)
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

    @override
    def _meet(self, meta: Meta | None) -> None:
        super()._meet(meta)
        # A driver that has been superseded doesn't come back.
        if self.started_before and meta is not None and meta.run not in self._runs:
            raise starting.superseded(self.settings.id, meta.run)

    @override
    def _believe(self, progress: Progress, topic: Topic) -> Progress:
        return progress if self._exact is None else starting.without_leftovers(progress, self._exact, topic.id)

    def _describe_data_topic(self) -> Topic | None:
        topic = describe(self.admin, self.settings.data.name)
        return None if topic is None else replace(topic, holds_data=holds_data(self.admin, topic))


@dataclass(frozen=True)
class _Hold:
    """A sink whose control id is held."""

    control: TransactionalProducer
    log: ProgressLog
    topic: Topic


class _TopicChanged(Exception):
    """The progress topic was deleted or re-created during the attempt."""

    def __init__(self, name: str) -> None:
        super().__init__(f"progress topic {name} was deleted or re-created")


def _client_limit(topic_limit: int) -> int:
    """The topic's limit within what the client takes as its own; the broker has the last word on either side."""
    return min(max(topic_limit, 1_000), 1_000_000_000)


def now_ms() -> int:
    return int(time.time() * 1000)


def _may_duplicate(begin: Mapping[SourcePartition, PartitionProgress], view: SourceView) -> int:
    """Also what a partition holds that the memory doesn't know: it may be of an earlier day than the partition."""
    return sum(max(0, end - begin[partition].next) for partition, end in view.ends.items())
