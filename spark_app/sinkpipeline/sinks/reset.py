"""Resetting a sink: a person says where it goes on.

A reset begins like a start (steps 0 to 5, `sinks/takeover.py`). Then one control transaction writes a new epoch, with
every partition at its new offset, counts of zero, and no data topic. So a running driver ends, its late tasks can't
write, and a crash at any point leaves either the old frontier or the new one. The reset is carried out only if the sink
still is where the preview showed it. It repairs what a start refuses: a lost data topic, a re-created source, progress
that is lost or not believed. It deletes nothing from the data topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import override

from sinkpipeline.core import asked
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Ledger
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.positions import Positions, describe, within
from sinkpipeline.core.progress import Meta, Progress
from sinkpipeline.core.reset import (
    ResetPlan,
    check_unmoved,
    find_doubt,
    is_done,
    plan_reset,
    reset_progress,
)
from sinkpipeline.core.starting import check_owner, superseded
from sinkpipeline.core.targets import Targets
from sinkpipeline.core.topics import Memory, Topic, recall
from sinkpipeline.sinks import failpoints
from sinkpipeline.sinks.starting import now_ms
from sinkpipeline.sinks.takeover import SinkTakeover


@dataclass(kw_only=True)
class SinkReset(SinkTakeover):
    """Resets one sink: `plan` to show what would be done, and `carry_out` to do exactly that."""

    memory: Memory | None = None
    """What an earlier status remembers, for a sink whose progress is gone."""
    _met: set[str] = field(default_factory=set, init=False)
    """The runs that were there before ours: any other is a newer driver's."""

    def plan(self, targets: Targets, positions: Positions | None = None) -> ResetPlan:
        """Reads without fencing, and changes nothing; `positions` are for partitions that no target names.

        Raises:
            SinkPipelineError: NothingToReset, UsageInvalid, PositionsRefused, IdentityInUse, and as the reads of the
                progress topic.
        """
        topic = self._ledger.place()
        progress = Progress() if topic is None else self._ledger.decide(topic)
        check_owner(self.settings.id, progress.meta, self.settings.owner)
        found, doubt = self._known(progress, topic)
        view = self.source.view()
        self.source.check_visible(found.meta, view.topics)
        known_topics = {partition.topic for partition in found.partitions}
        lines: tuple[str, ...] = ()
        if positions is not None:
            positions = within(positions, view)
            targets, lines = replace(targets, imported=positions.next), tuple(describe(positions))
        if moments := targets.moments(view):
            targets = targets.resolved(self.source.positions_at(moments, view.ends))

        def begin_new(partition: SourcePartition) -> int:
            return self.source.begin_new(partition, known_topics, view)

        shown = plan_reset(
            self.settings.id,
            found,
            view,
            targets,
            doubt=doubt,
            remembered_epoch=self._remembered_epoch,
            begin_new=begin_new,
        )
        return replace(shown, told=lines)

    def end_open_transactions(self) -> None:
        """Ends what an attempt before this one, or a task that was killed, has left open: it would hold up every read.

        Fences the sink, if it does that: only for who is about to reset it.

        Raises:
            SinkPipelineError: IdentityInUse, before anybody is fenced, and as `carry_out`.
        """

        def attempt() -> None:
            topic = self._ledger.place()
            if topic is None or self._look(topic) is not None:
                return
            with self._hold() as hold:
                self._read(hold, topic)
            hold.close()

        self._repeat(attempt)

    def has_landed(self, resolved: Mapping[str, Any]) -> bool:
        """Whether the sink is exactly where a reset that was shown was to bring it. Fences nobody."""
        topic = self._ledger.place()
        if topic is None:
            return False
        return asked.has_landed(self.settings.id, self._ledger.decide(topic), resolved)

    def carry_out(self, plan: ResetPlan) -> None:
        """Does what the plan says.

        Raises:
            SinkPipelineError: FrontierMoved, Superseded, and as `plan`.
        """
        try:
            self._repeat(lambda: self._attempt(plan))
        except SinkPipelineError as error:
            if error.reason is not Reason.SUPERSEDED:
                raise
            remedy = "look whether it was reset before (`sinkpipeline progress`); to reset it again, stop that driver"
            raise SinkPipelineError(Reason.SUPERSEDED, error.message, remedy) from error

    def _attempt(self, plan: ResetPlan) -> None:
        view = self.source.view()
        # 0.
        topic = self._ledger.place()
        if topic is None:
            self._known(Progress(), topic)
            topic = self._ledger.create().topic
        else:
            self._look(topic)
        # 1.
        with self._hold(source_topics=len(view.topics)) as hold:
            # 2.
            progress = self._read(hold, topic)
            known, _ = self._known(progress, topic)
            previous = progress.meta if progress.exists else None
            epoch = self._remembered_epoch if known.meta is None else known.meta.epoch
            meta = self._announce(previous, epoch=epoch, source=view.topics)
            # 3. to 5.
            remembered = self.memory.partitions if self.memory is not None else {}
            progress = self._take_over(hold, topic, progress, meta, {*remembered, *view.beginnings})
            found, doubt = self._known(progress, topic)
            if not is_done(plan, found):
                # The source went on until its tasks were fenced, and the frontier with it.
                view = self.source.view()
                check_unmoved(plan, found, view, doubt=doubt, remembered_epoch=self._remembered_epoch)
                failpoints.failpoint("reset-before-transaction")
                hold.replace(progress, reset_progress(plan, meta, topic.id, now_ms()))
                failpoints.failpoint("reset-after-commit")
        hold.close()

    @property
    def _remembered_epoch(self) -> int:
        return 0 if self.memory is None else self.memory.epoch

    def _known(self, progress: Progress, topic: Topic | None) -> tuple[Progress, SinkPipelineError | None]:
        """What is to be reset, and why that is not believed.

        Raises:
            SinkPipelineError: NothingToReset; ProgressCorrupt where not even a reset may replace it.
        """
        found = progress
        is_empty = not (progress.exists or progress.partitions or progress.faults)
        if not progress.exists and self.memory is not None:
            recalled = recall(self.memory, self.settings.owner)
            if is_empty:
                return recalled, None
            # Tasks wrote it before anybody noticed that the progress topic was re-created.
            found = replace(progress, meta=recalled.meta)
        if is_empty or topic is None:
            raise SinkPipelineError(
                Reason.NOTHING_TO_RESET,
                f"{self.settings.id} has no progress in {self._ledger.name}",
                "a run starts it for the first time; if it has delivered before, give its last --status-file",
            )
        return found, find_doubt(self.settings.id, progress, topic, self.memory)

    @override
    def _meet(self, meta: Meta | None) -> None:
        super()._meet(meta)
        if meta is None:
            return
        if not self._runs:
            self._met.add(meta.run)
        elif meta.run not in self._runs | self._met:
            # Perhaps it goes on from what an attempt in doubt has written.
            raise superseded(self.settings.id, meta.run)

    @override
    @property
    def _ledger(self) -> Ledger:
        return self.ports.ledger.with_faults()
