"""A reset that a `SinkPipelineAction` asks for: shown, and carried out as it was shown, however often it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core import asked
from sinkpipeline.core.asked import Preview
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.reset import ResetPlan
from sinkpipeline.core.targets import Targets, parse_targets
from sinkpipeline.core.topics import Memory
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.looking import preflight
from sinkpipeline.kinds.resolve import SinkSettings
from sinkpipeline.sinks.reset import SinkReset


@dataclass(frozen=True, kw_only=True)
class AskedReset:
    """Of one sink, whose owner is in its settings.

    Raises (all methods):
        SinkPipelineError: as `SinkReset`.
    """

    settings: SinkSettings
    memory: Memory | None = None

    def preview(self, to: str) -> Preview:
        """Fences nobody, and changes nothing."""
        return self._shown(self._reset().plan(parse_targets([to])))

    def preview_again(self, resolved: Mapping[str, Any]) -> Preview:
        """Likewise, of what was shown before: the same preview, where nothing has moved.

        Raises:
            SinkPipelineError: FrontierMoved, where it can't be done any more.
        """
        return self._shown(self._plan(self._reset(), resolved))

    def carry_out(self, resolved: Mapping[str, Any]) -> str:
        """What was done, for a person; an earlier call that nobody has an answer of counts.

        Raises:
            SinkPipelineError: FrontierMoved where the sink is not where it was when this was shown.
        """
        reset = self._reset()
        reset.end_open_transactions()
        if reset.has_landed(resolved):
            return self._done("was reset already, by an earlier attempt")
        plan = self._plan(reset, resolved)
        if not asked.is_as_shown(plan, resolved):
            raise asked.moved(self.settings.id, "its frontier, its epoch or its source is another one")
        try:
            reset.carry_out(plan)
        except SinkPipelineError as error:
            if error.reason is not Reason.FRONTIER_MOVED:
                raise
            raise asked.moved(self.settings.id, error.message) from error
        return self._done(f"was reset and is in epoch {plan.epoch}")

    def _reset(self) -> SinkReset:
        settings = self.settings
        preflight([settings])
        return SinkReset(ports=Clients().ports(settings), memory=self.memory)

    def _plan(self, reset: SinkReset, resolved: Mapping[str, Any]) -> ResetPlan:
        text = str(resolved["to"])
        targets = parse_targets([text]) if text else Targets()
        try:
            return reset.plan(targets)
        except SinkPipelineError as error:
            # An offset that was shown is there no more, or a partition can't stay where it was.
            if error.reason is not Reason.USAGE_INVALID:
                raise
            raise asked.moved(self.settings.id, error.message) from error

    def _shown(self, plan: ResetPlan) -> Preview:
        return asked.preview_of_reset(plan, data=self.settings.data.name, exactly_once=self.settings.exactly_once)

    def _done(self, what: str) -> str:
        return f"sink {self.settings.id.sink} {what}; its next driver goes on from there"
