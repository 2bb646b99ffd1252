"""The ports of a sink, made when something is first asked of them: what is in their way is told of that sink alone."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

from sinkpipeline.core.ledger_ports import Ids, Ledger, Ports
from sinkpipeline.core.ports import Settings, Source, Target


class LaterPorts:
    """Of one sink, and of one thread at a time.

    Raises (all but `settings`):
        SinkPipelineError: SecretNotFound and the like, each time until they could be made.
    """

    def __init__(self, settings: Settings, make: Callable[[], Ports]) -> None:
        self.settings = settings
        self._make = make

    @cached_property
    def _made(self) -> Ports:
        return self._make()

    @property
    def kind(self) -> Any:
        return self._made.kind

    @property
    def source(self) -> Source:
        return self._made.source

    @property
    def target(self) -> Target:
        return self._made.target

    @property
    def ledger(self) -> Ledger:
        return self._made.ledger

    def ids(self, topics: Collection[str]) -> Ids:
        return self._made.ids(topics)

    def renew_clients(self) -> None:
        self._made.renew_clients()
