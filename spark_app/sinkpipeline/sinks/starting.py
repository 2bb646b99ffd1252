"""Starting a sink: the order in which a driver fences, reads, and announces itself.

    0 refuse what needs no fence, by a decide read; create the progress topic
    1 init the control id                          (fences another driver's writes of meta)
    2 resume read; refuse again; create the data topic, and the dead-letter topic
    3 commit meta with our run, and with the data topic if we created it
                                                   (who comes later sees it; who was before learns it when fenced)
    4 init every partition id                      (fences late tasks, and aborts what they left open)
    5 resume read of what was written since 2
    6 commit the frontier of every partition with meta, as one transaction: a first start, a seed, or a snapshot

A crash between any two steps leaves something from which the next start begins at 0. A reset (`sinks/reset.py`) shares
steps 0 to 5.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from typing_extensions import override

from sinkpipeline.core import starting
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Hold
from sinkpipeline.core.limits import UNKNOWN, TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import between
from sinkpipeline.core.positions import describe as describe_positions
from sinkpipeline.core.progress import Meta, PartitionProgress, Progress, check, is_behind
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.rolled_back import RolledBack, difference
from sinkpipeline.core.starting import SourceView
from sinkpipeline.core.topic_ids import ids_of, merged
from sinkpipeline.core.topics import Beginning, Memory, Topic, TopicDecision, check_data_topic, decide
from sinkpipeline.sinks import failpoints
from sinkpipeline.sinks.looks import VERDICTS, agreed
from sinkpipeline.sinks.takeover import SinkTakeover

_LOG = logging.getLogger("sinkpipeline.start")


@dataclass(frozen=True, kw_only=True)
class StartedSink:
    """A sink whose fences are held. `hold` belongs to whoever has this, and is closed by them."""

    run: str
    hold: Hold
    progress: Progress
    """Of every source partition; its meta carries our run."""
    source: Mapping[str, str]
    """The topics that the source has now, with their ids."""
    data_topic: Topic
    progress_topic: Topic
    data_limits: TopicLimits
    recreated_progress_topic: bool
    drift: tuple[str, ...]
    letter_limits: TopicLimits = UNKNOWN
    """Of the dead-letter topic; the brokers' defaults where that is missing."""
    rolled_back: RolledBack | None = None
    """What this start found to be lost of rows and progress together."""

    @property
    def may_duplicate(self) -> int | None:
        """The rows of at most so many records may be duplicated, as progress was once restored; None: of none."""
        return None if self.progress.meta is None else self.progress.meta.restored

    def warn(self, sink: str, log: logging.Logger) -> None:
        """Tells what a person should know of this start."""
        if self.recreated_progress_topic:
            log.warning(
                "%s: ProgressTopicRecreated: the progress topic was missing and has been created and written again",
                sink,
                extra={"reason": "ProgressTopicRecreated"},
            )
        if self.rolled_back is not None:
            log.warning(
                "%s: SinkRolledBack: %s has lost its newest entries, and their progress with them: %s. They are "
                "delivered again, and whoever has read them reads them twice",
                sink,
                self.data_topic.name,
                self.rolled_back,
                extra={"reason": Reason.SINK_ROLLED_BACK.value},
            )
        if self.may_duplicate is not None:
            log.warning(
                "%s: ProgressRestored: the progress was restored from an earlier status; the rows of at most %d "
                "records may be duplicated since",
                sink,
                self.may_duplicate,
                extra={"reason": "ProgressRestored"},
            )


@dataclass(kw_only=True)
class SinkStarter(SinkTakeover):
    """Starts one sink, as often as its driver asks."""

    remembered: Remembered = field(default_factory=Remembered)
    """For the case that the progress is gone."""
    _met: str | None = field(default=None, init=False)
    """The id of the progress topic that was found or made last."""
    _vanished: bool = field(default=False, init=False)
    """Whether a progress topic that was met on the way of this start is gone: another driver may have delivered."""
    _place_made: str | None = field(default=None, init=False)
    """The id of the place for progress that this driver has created last, for certain."""
    _created: str | None = field(default=None, init=False)
    """The id of the data topic that this driver has created last, for certain."""

    _told: tuple[str, ...] = field(default=(), init=False)
    """What was told of the positions at which a first start begins."""

    def start(self) -> StartedSink:
        """Steps 0 to 6.

        Raises:
            SinkPipelineError: every refusal of the protocol and of the topic policy.
        """
        is_new = self.remembered.memory is None
        started = agreed(
            lambda: self._repeat(self._attempt),
            self.ports.renew_clients,
            # Of a sink that nobody remembers, a missing source topic is a name that is wrong.
            VERDICTS - {Reason.SOURCE_TOPIC_MISSING} if is_new else VERDICTS,
        )
        self.remembered.started(started.progress)
        self._vanished = False
        return started

    def durability(self) -> Durability | None:
        """What becomes of what the sink acknowledges. It is told and decides nothing: who can't look goes on."""
        try:
            return self.target.durability()
        except SinkPipelineError as error:
            _LOG.debug("%s: durability is unknown: %s", self.settings.id, error)
            return None

    def duplicate_window_ms(self) -> int | None:
        """Likewise, for how long the target knows a row that is sent again."""
        try:
            return self.target.duplicate_window_ms()
        except SinkPipelineError as error:
            _LOG.debug("%s: the window for duplicates is unknown: %s", self.settings.id, error)
            return None

    def _attempt(self) -> StartedSink:
        settings = self.settings
        memory = self.remembered.memory
        view = self.source.view()
        # 0.
        self.target.check_names()
        progress_topic, recreated, exact = self._prepare(view, memory)
        # 1.
        with self._hold(source_topics=len(view.topics)) as hold:
            # 2.
            progress = self._read(hold, progress_topic)
            check(progress)
            decision, data_topic = self._decide(progress, progress_topic, view, memory)
            self.remembered.taken_again(hold)
            imported = self._imported(decision, view)
            seeding = memory if decision.beginning is Beginning.SEED else None
            if seeding is not None and self.remembered.is_ours and not exact:
                raise SinkPipelineError(
                    Reason.PROGRESS_LOST,
                    f"the progress of {settings.id} was deleted, and this driver is not certain how far the sink got: "
                    "the outcome of a transaction was in doubt, or another driver had taken the sink over",
                    "say where to go on with `sinkpipeline reset --status-file`",
                )
            letters = self.target.prepare_letters(view.topics)
            if data_topic is None or decision.create_data:
                self._check_not_overtaken(hold, progress_topic)
                data_topic = self._create_data_topic(data_topic)
            elif data_topic.id == self._place_made:
                # The progress is kept in the target.
                self._created = data_topic.id
            self.target.take(data_topic, progress_topic, letters)
            data_limits = self.target.limits_of(data_topic)
            # An announcement without partitions says nothing about the epoch; what is seeded does.
            previous = None if seeding is not None else progress.meta
            epoch = seeding.epoch if seeding is not None else (0 if previous is None else previous.epoch)
            remembered_source = {} if seeding is None else seeding.source
            marks = {} if memory is None else memory.marks_in(epoch)
            meta = self._announce(previous, epoch=epoch, source={**remembered_source, **view.topics}, marks=marks)
            # With the announcement: should this attempt be killed, the next one finds the topic there.
            several = ids_of(data_topic.id)
            meta = replace(meta, created=merged(_created(progress, seeding), self._created, several))
            # 3. to 5.
            remembered = memory.partitions if memory is not None else {}
            progress = self._take_over(hold, progress_topic, progress, meta, {*remembered, *view.beginnings})
            check(progress)
            # A late task may have delivered the first rows since step 2, into the topic that was there before.
            check_data_topic(progress, data_topic, settings.data)
            # 6.
            # The source went on meanwhile, and the last driver's tasks with it until they were fenced.
            ends = self.source.ends(view.beginnings, readable=False)
            view = replace(view, high_watermarks=MappingProxyType(dict(ends)))
            known = seeding.partitions if seeding is not None else progress.partitions
            partitions = self.source.planned(known, view, epoch=epoch, imported=imported)
            # A driver that has seen the source lose its end starts again, and must not forget by what it saw that.
            marks = self.source.marks(meta.marks, partitions, view.beginnings, ends)
            lost = sum(state.lost for state in partitions.values()) - sum(state.lost for state in known.values())
            if lost:
                _LOG.warning(
                    "%s: SourceDataLost: skipped %d offsets that the source no longer has",
                    settings.id,
                    lost,
                    extra={"reason": Reason.SOURCE_DATA_LOST.value},
                )
            back, told = _rolled_back(decision, progress, memory)
            meta = replace(
                meta,
                partitions=MappingProxyType(starting.partition_counts(partitions)),
                source=MappingProxyType({**meta.source, **view.topics}),
                data=data_topic.id,
                progress=progress_topic.id,
                marks=MappingProxyType(marks),
                rolled_back=told,
            )
            if seeding is not None:
                again = None if exact else _may_duplicate(partitions, view)
                meta = replace(meta, restored=_sum(seeding.restored, again))
            progress = Progress(
                meta=meta, partitions=MappingProxyType(partitions), end=progress.end, counted=data_topic.counted
            )
            failpoints.failpoint("starting-before-first-start")
            hold.write(progress)
        return StartedSink(
            run=meta.run,
            hold=hold,
            progress=progress,
            source=view.topics,
            data_topic=data_topic,
            progress_topic=progress_topic,
            data_limits=data_limits,
            letter_limits=letters.limits,
            recreated_progress_topic=recreated,
            drift=(*decision.drift, *letters.drift),
            rolled_back=back,
        )

    def _check_not_overtaken(self, hold: Hold, progress_topic: Topic) -> None:
        """Since the read, which the topic of the dead letters may have made long.

        A newer driver may have delivered into the data topic, and it may have been lost: ours would take its place.
        Raises Fenced.
        """
        self._read(hold, progress_topic)

    def _create_data_topic(self, there: Topic | None) -> Topic:
        creation = self.target.create(there)
        if creation.ours is not None:
            self._created = merged(self._created, creation.ours, ids_of(creation.topic.id))
        elif creation.is_ours:
            self._created = creation.topic.id
        failpoints.failpoint("starting-after-data-topic")
        if creation.failed is not None:
            raise creation.failed
        return creation.topic

    def _prepare(self, view: SourceView, memory: Memory | None) -> tuple[Topic, bool, bool]:
        """Step 0: the progress topic, whether it is there again, and whether what is remembered was proved."""
        progress_topic = self._ledger.place()
        recreated = needs_proof = False
        if progress_topic is None:
            decision, _ = self._decide(Progress(), None, view, memory)
            # What would be refused later creates nothing.
            self._imported(decision, view)
            recreated = needs_proof = decision.beginning is Beginning.SEED
            creation = self._ledger.create()
            progress_topic = creation.topic
            self._place_made = creation.topic.id if creation.is_ours else None
            self._compare_met(progress_topic)
        else:
            self._compare_met(progress_topic)
            # Before the look, which writes into it.
            self._ledger.check_apart(progress_topic, view.topics)
            seen = self._look(progress_topic)
            needs_proof = True
            if seen is not None:
                decision, _ = self._decide(seen, progress_topic, view, memory)
                needs_proof = decision.beginning is Beginning.SEED
        return progress_topic, recreated, needs_proof and self.remembered.is_proved()

    def _compare_met(self, progress_topic: Topic) -> None:
        """By the ids: an answer that a topic is missing may be an old one."""
        self._vanished |= self._met not in (None, progress_topic.id)
        self._met = progress_topic.id

    def _decide(
        self, progress: Progress, progress_topic: Topic | None, view: SourceView, memory: Memory | None
    ) -> tuple[TopicDecision, Topic | None]:
        settings = self.settings
        self.remembered.read(progress)
        # Without a frontier, offsets mean nothing yet.
        starting.check_source(progress.meta if progress.exists else None, view.topics)
        self.source.check_visible(progress.meta, view.topics)
        data_topic = self.target.describe(view.topics)
        if data_topic is not None:
            self.remembered.read(replace(progress, counted=data_topic.counted))
        decision = decide(
            progress=progress,
            progress_topic=progress_topic,
            data_topic=data_topic,
            data_request=settings.data,
            memory=memory,
            source=view.topics,
            refuse_existing_data=settings.refuse_existing_data,
        )
        if self._vanished:
            starting.check_vanished(settings.id, decision, data_topic)
        return decision, data_topic

    def _imported(self, decision: TopicDecision, view: SourceView) -> Mapping[SourcePartition, int]:
        """Where a first start begins, as somebody else has committed it; nothing, where the manifest doesn't say so.

        Read by each attempt anew: nothing was delivered yet, and only the newest positions are true. Each is told.
        """
        if not self.source.tells_positions or decision.beginning is not Beginning.FIRST_START:
            return {}
        found = self.source.positions(view)
        told = tuple(describe_positions(found))
        if told != self._told:
            for line in told:
                _LOG.warning("%s: %s", self.settings.id, line)
            self._told = told
        return found.next

    @override
    def _meet(self, meta: Meta | None) -> None:
        super()._meet(meta)
        # A driver that has been superseded doesn't come back.
        is_ours = self.remembered.is_ours and not self._went_back
        if is_ours and meta is not None and meta.run not in self._runs:
            raise starting.superseded(self.settings.id, meta.run)

    @override
    def _is_behind(self, progress: Progress) -> bool:
        memory = self.remembered.memory
        if memory is None or not self.remembered.is_ours:
            return False
        return any(is_behind(state, memory.partitions.get(each)) for each, state in progress.partitions.items())

    @override
    def _believe(self, progress: Progress, topic: Topic) -> Progress:
        return self.remembered.believed(progress, topic.id)

    @override
    def _give_up(self, hold: Hold) -> None:
        if not self.remembered.keeps(hold):
            super()._give_up(hold)


def _created(progress: Progress, seeding: Memory | None) -> str | None:
    """The id of the data topic that an earlier start of this sink created; also one that was killed on its way."""
    announced = None if progress.meta is None else progress.meta.created
    return announced if seeding is None else seeding.created or announced


def _rolled_back(
    decision: TopicDecision, progress: Progress, memory: Memory | None
) -> tuple[RolledBack | None, int | None]:
    """What is delivered again, and how many rows that are in all since the last reset.

    `progress`: as the fences have left it. What was read before may have been told by a server that was deposed.
    """
    told = None if progress.meta is None else progress.meta.rolled_back
    if decision.beginning is Beginning.SEED and memory is not None:
        told = memory.rolled_back
    back = None
    if decision.rolled_back is not None and memory is not None:
        back = difference(progress.partitions, memory.partitions)
    if back is None or memory is None:
        return None, told
    # An attempt, or a driver, that has written it and was killed has told the same before.
    return back, max(told or 0, (memory.rolled_back or 0) + back.rows)


def now_ms() -> int:
    return int(time.time() * 1000)


def _sum(earlier: int | None, now: int | None) -> int | None:
    return earlier if now is None else now + (earlier or 0)


def _may_duplicate(begin: Mapping[SourcePartition, PartitionProgress], view: SourceView) -> int:
    """Also what a partition holds that the memory doesn't know: it may be of an earlier day than the partition."""
    return sum(between(begin[partition].next, end) for partition, end in view.ends.items())
