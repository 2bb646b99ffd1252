"""Taking a sink over: steps 0 to 5 of a start, which a reset shares. `kafka/starting.py` has their order."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sinkpipeline.core import starting, troubles
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, Progress
from sinkpipeline.core.progress_records import encode
from sinkpipeline.core.topics import Topic, check_progress_topic
from sinkpipeline.kafka import failpoints
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.control import ControlProducer
from sinkpipeline.kafka.producers import Fenced, InDoubt, TransactionalProducer
from sinkpipeline.kafka.progress_log import OpenTransaction, ProgressLog
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.views import describe

_LOG = logging.getLogger("sinkpipeline.start")
T = TypeVar("T")

_ATTEMPTS = 5
_MAX_DELAY_S = 2.0
_FENCING_THREADS = 8
_PATIENCE_S = 2.0
"""For a read that could be blocked by what only the fences after it would end."""


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
    _topics_seen: int = field(default=0, init=False)
    """How many source topics its `meta` lists, those that are gone included."""
    _interrupted: bool = field(default=False, init=False)
    """Whether an attempt may have been fenced: then whoever has announced itself since is newer than we are."""

    def _repeat(self, attempt: Callable[[], T]) -> T:
        """Attempts until one comes through.

        Raises:
            SinkPipelineError: Superseded, FencedRepeatedly (BrokerUnreachable where the cluster is why), and what an
                attempt raises.
        """
        self._interrupted = False
        met, outage = troubles.NONE, None
        for _ in range(_ATTEMPTS):
            try:
                return attempt()
            except (Fenced, InDoubt) as trouble:
                now = time.monotonic()
                met, outage = met.met(now), trouble.outage if isinstance(trouble, InDoubt) else None
                if outage is not None and met.are_enough(now, outage=True):
                    raise outage from trouble
                # Not every fence is told as one: after the first refused record the client only says that it failed.
                _LOG.info("%s: %s: %s; starting again", self.settings.id, type(trouble).__name__, trouble)
                self._interrupted = True
                self._still_ours()
            except TopicChanged as error:
                _LOG.info("%s: %s, starting again", self.settings.id, error)
            # Two drivers that start at once would otherwise fence each other in step.
            time.sleep(random.uniform(0.1, _MAX_DELAY_S))  # noqa: S311 - no secret
        raise outage or SinkPipelineError(
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
        self._topics_seen = 0 if meta is None else len(meta.source)
        if meta is None or meta.owner != self.settings.adopt:
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
    def _hold(self, topic: Topic, *, source_topics: int = 0) -> Iterator[Hold]:
        """Step 1. `control` is left to the caller if all goes well."""
        settings = self.settings
        many = max(source_topics, self._topics_seen)
        control = ControlProducer(settings.connection, settings.id.control_id, settings.properties, source_topics=many)
        try:
            failpoints.failpoint("starting-after-control-init")
            with self._log() as log:
                yield Hold(control, log, topic)
        except BaseException:
            self._give_up(control)
            raise

    def _give_up(self, control: ControlProducer) -> None:
        """An attempt did not come through."""
        control.close()

    def _read(self, hold: Hold) -> Progress:
        """Step 2's read."""
        progress = hold.log.resume(
            self.settings.id, hold.control, lambda found: self._believe(found, hold.topic), self._meet
        )
        self._check_same(hold.topic)
        self._meet(progress.meta)
        return self._believe(progress, hold.topic)

    def _announce(self, previous: Meta | None, *, epoch: int, source: Mapping[str, str]) -> Meta:
        """The meta of step 3, with a run that nobody had."""
        run = self.new_run()
        self._runs.add(run)
        return starting.take_over(previous, run=run, owner=self.settings.owner, epoch=epoch, source=source)

    def _take_over(self, hold: Hold, known: Progress, meta: Meta, partitions: Iterable[SourcePartition]) -> Progress:
        """Steps 3 to 5: the progress, now that nobody else can write it."""
        settings = self.settings
        # 3.
        hold.control.write(settings.progress.name, encode(settings.id, Progress(meta=meta)))
        failpoints.failpoint("starting-after-meta")
        # 4.
        self._fence({*known.partitions, *meta.source_partitions(), *partitions})
        # 5.
        tail = hold.log.resume_since(settings.id, hold.control, known.end, self._meet)
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
            raise TopicChanged(progress_topic.name)

    def _log(self) -> ProgressLog:
        return ProgressLog(self.settings.connection, self.settings.progress.name, self.settings.group_id)

    def renew_clients(self) -> None:
        """Clients that begin anew, with any of the brokers."""
        is_one = self.admin is self.source_admin
        self.admin = Admin(self.settings.connection)
        self.source_admin = self.admin if is_one else Admin(self.settings.source.connection)

    def _describe_progress_topic(self) -> Topic | None:
        return describe(self.admin, self.settings.progress.name)

    def _create_progress_topic(self) -> Topic:
        self.admin.create_topic(self.settings.progress)
        topic = self._describe_progress_topic()
        if topic is None:
            raise TopicChanged(self.settings.progress.name)
        return topic


@dataclass(frozen=True)
class Hold:
    """A sink whose control id is held."""

    control: ControlProducer
    log: ProgressLog
    topic: Topic


class TopicChanged(Exception):
    """The progress topic was deleted or re-created during the attempt."""

    def __init__(self, name: str) -> None:
        super().__init__(f"progress topic {name} was deleted or re-created")
