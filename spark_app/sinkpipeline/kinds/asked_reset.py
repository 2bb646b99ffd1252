"""A reset that a `SinkPipelineAction` asks for: shown, and carried out as it was shown, however often it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
        with self._reset() as reset:
            return self._shown(reset.plan(parse_targets([to])))

    def preview_again(self, resolved: Mapping[str, Any]) -> Preview:
        """Likewise, of what was shown before: the same preview, where nothing has moved.

        Raises:
            SinkPipelineError: FrontierMoved, where it can't be done any more.
        """
        with self._reset() as reset:
            return self._shown(self._plan(reset, resolved))

    def carry_out(self, resolved: Mapping[str, Any]) -> str:
        """What was done, for a person; an earlier call that nobody has an answer of counts.

        Raises:
            SinkPipelineError: FrontierMoved where the sink is not where it was when this was shown.
        """
        with self._reset() as reset:
            return self._carried_out(reset, resolved)

    def _carried_out(self, reset: SinkReset, resolved: Mapping[str, Any]) -> str:
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

    @contextmanager
    def _reset(self) -> Iterator[SinkReset]:
        preflight([self.settings])
        with Clients() as clients:
            yield SinkReset(ports=clients.ports(self.settings), memory=self.memory)

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
        data, exactly_once = self.settings.data, self.settings.exactly_once
        return asked.preview_of_reset(plan, data=data.name, called=data.called, exactly_once=exactly_once)

    def _done(self, what: str) -> str:
        return f"sink {self.settings.id.sink} {what}; its next driver goes on from there"
