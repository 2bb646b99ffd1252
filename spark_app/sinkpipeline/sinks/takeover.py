"""Taking a sink over: steps 0 to 5 of a start, which a reset shares. `sinks/starting.py` has their order."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from sinkpipeline.core import starting, troubles
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Hold, Ledger, Ports
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Fenced, InDoubt, PlaceChanged, Settings, Source, Target
from sinkpipeline.core.progress import Mark, Meta, Progress
from sinkpipeline.core.source_marks import newest
from sinkpipeline.core.topics import Topic
from sinkpipeline.sinks import failpoints

_LOG = logging.getLogger("sinkpipeline.start")
T = TypeVar("T")

_ATTEMPTS = 5
_MAX_DELAY_S = 2.0


@dataclass(kw_only=True)
class SinkTakeover:
    """Takes a sink over: steps 0 to 5, of which a start and a reset are made. For one thread at a time.

    Every attempt has a run of its own: a task that outlived an earlier one of this driver finds another run in `meta`,
    and stops without writing.
    """

    ports: Ports
    new_run: Callable[[], str] = lambda: str(uuid.uuid4())
    _runs: set[str] = field(default_factory=set, init=False)
    """The runs of this driver, which are no newer driver's."""
    _older: set[str] = field(default_factory=set, init=False)
    """The runs that ours were announced behind: where one of them stands again, the sink went back."""
    _seen: str | None = field(default=None, init=False)
    """The run that the newest attempt found, in step 2 if it came so far."""
    _topics_seen: int = field(default=0, init=False)
    """How many source topics its `meta` lists, those that are gone included."""
    _went_back: bool = field(default=False, init=False)
    """Whether the sink is as it was at an earlier time than this driver knows: then its `meta` is no newer driver's."""
    _interrupted: bool = field(default=False, init=False)
    """Whether an attempt may have been fenced: then whoever has announced itself since is newer than we are."""

    @property
    def settings(self) -> Settings:
        return self.ports.settings

    @property
    def source(self) -> Source:
        return self.ports.source

    @property
    def target(self) -> Target:
        return self.ports.target

    @property
    def _ledger(self) -> Ledger:
        return self.ports.ledger

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
            except PlaceChanged as error:
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
        if self._ledger.place() is not None:
            self._refuse_newer(self._ledger.observe().meta)

    def _refuse_newer(self, meta: Meta | None) -> None:
        if meta is not None and meta.run != self._seen and meta.run not in self._runs:
            raise starting.superseded(self.settings.id, meta.run)

    def is_older(self, meta: Meta | None) -> bool:
        """Whether it is of a run that one of ours was announced behind: it can't have taken the sink from that."""
        return meta is not None and meta.run in self._older

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
        progress, is_exact = self._ledger.look(topic, lambda found: self._believe(found, topic))
        self._went_back = is_exact and (self._is_behind(progress) or self.is_older(progress.meta))
        self._meet(progress.meta)
        return self._believe(progress, topic) if is_exact else None

    def _believe(self, progress: Progress, topic: Topic) -> Progress:  # noqa: ARG002 - a start's depends on it
        """What counts of the progress that was found in a topic."""
        return progress

    def _is_behind(self, progress: Progress) -> bool:  # noqa: ARG002 - only a driver that goes on knows anything
        return False

    @contextmanager
    def _hold(self, *, source_topics: int = 0) -> Iterator[Hold]:
        """Step 1. The sink stays held by the caller if all goes well."""
        hold = self._ledger.hold(source_topics=max(source_topics, self._topics_seen))
        try:
            failpoints.failpoint("starting-after-control-init")
            try:
                yield hold
            finally:
                hold.read_no_more()
        except BaseException:
            self._give_up(hold)
            raise

    def _give_up(self, hold: Hold) -> None:
        """An attempt did not come through."""
        hold.close()

    def _read(self, hold: Hold, topic: Topic) -> Progress:
        """Step 2's read."""
        progress = hold.read(lambda found: self._believe(found, topic), self._meet)
        self._check_same(topic)
        self._meet(progress.meta)
        return self._believe(progress, topic)

    def _announce(
        self,
        previous: Meta | None,
        *,
        epoch: int,
        source: Mapping[str, str],
        marks: Mapping[SourcePartition, Mark] = MappingProxyType({}),
    ) -> Meta:
        """The meta of step 3, with a run that nobody had.

        `marks`: that are remembered. Where a start ends with what they tell, the next process must see it too.
        """
        run = self.new_run()
        self._runs.add(run)
        if previous is not None:
            self._older.add(previous.run)
        meta = starting.take_over(previous, run=run, owner=self.settings.owner, epoch=epoch, source=source)
        return replace(meta, marks=newest(meta.marks, marks))

    def _take_over(
        self, hold: Hold, topic: Topic, known: Progress, meta: Meta, partitions: Iterable[SourcePartition]
    ) -> Progress:
        """Steps 3 to 5: the progress, now that nobody else can write it."""
        # 3.
        hold.write(Progress(meta=meta))
        failpoints.failpoint("starting-after-meta")
        # 4.
        self._fence(hold, {*known.partitions, *meta.source_partitions(), *partitions})
        # 5.
        tail = hold.read_since(known.end, lambda found: starting.check_run(self.settings.id, found, meta.run))
        self._check_same(topic)
        progress = starting.overlay(known, tail)
        starting.check_run(self.settings.id, progress.meta, meta.run)
        return progress

    def _fence(self, hold: Hold, partitions: Iterable[SourcePartition]) -> None:
        hold.fence(partitions)

    def _check_same(self, topic: Topic) -> None:
        """What was read is this sink's progress only if it is still kept where it was before."""
        self._ledger.check_same(topic)
