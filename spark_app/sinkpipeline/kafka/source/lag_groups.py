"""The frontier as committed offsets of consumer groups, for tools that show the lag of groups.

For those tools only: nobody reads them here, no group is joined, and nothing depends on whether they could be written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.log_lines import log_fields
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Settings
from sinkpipeline.kafka.source.groups import Groups

_LOG = logging.getLogger("sinkpipeline.groups")

EVERY_S = 5.0
_AGAIN_S = 3600.0
"""Brokers forget the offsets of a group to which nobody commits (offsets.retention.minutes, a week)."""

Frontier = Mapping[SourcePartition, int]


@dataclass
class _Written:
    frontier: Frontier
    at: float


class LagGroups:
    """Of all sinks of a driver; a sink's group is the one that it reads the source as. For one thread at a time."""

    def __init__(self, sinks: Iterable[Settings], clock: Callable[[], float] = time.monotonic) -> None:
        self._groups = {sink.id.sink: sink.group_id for sink in sinks if sink.source.commit_group_offsets}
        self._connections = {sink.id.sink: sink.source.connection for sink in sinks}
        self._clock = clock
        self._client: Groups | None = None
        self._written: dict[str, _Written] = {}
        self._warned: dict[str, str] = {}

    @property
    def wanted(self) -> bool:
        """Whether any sink has such a group."""
        return bool(self._groups)

    def write(self, frontiers: Mapping[str, Frontier]) -> None:
        """Commits what has moved, by sink. A refusal is a warning, told once."""
        for sink, frontier in frontiers.items():
            if frontier and sink in self._groups and self._is_due(sink, frontier):
                try:
                    self._commit(sink, frontier)
                except SinkPipelineError as error:
                    self._warn(sink, error)
                else:
                    self._written[sink] = _Written(dict(frontier), self._clock())
                    self._warned.pop(sink, None)

    def _is_due(self, sink: str, frontier: Frontier) -> bool:
        before = self._written.get(sink)
        return before is None or before.frontier != frontier or self._clock() - before.at >= _AGAIN_S

    def _commit(self, sink: str, frontier: Frontier) -> None:
        if self._client is None:
            self._client = Groups(self._connections[sink])
        self._client.commit(self._groups[sink], frontier)

    def _warn(self, sink: str, error: SinkPipelineError) -> None:
        if self._warned.get(sink) != error.reason.value:
            self._warned[sink] = error.reason.value
            with log_fields(sink=sink):
                _LOG.warning("%s: the offsets of group %s can't be committed: %s", sink, self._groups[sink], error)
