"""What the kinds whose progress stands in cells have in common in the suite of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.sql_proxy import SqlProxy
from sinkpipeline.core.ledger_ports import Ports
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Settings
from sinkpipeline.core.remembered import Remembered
from support.cells import TOPIC
from support.conformance.kind import ENDS, STEP, Sink
from support.sink.cell_driver import Driver
from support.sink.cell_sink import CellSink as Own
from support.sink.cell_sink import WithLetters

WEAK: Mapping[str, Any] = {"exactly_once": False}
"""What differs in the settings of `AtLeastOnce`."""


class CellSink(Sink):
    def __init__(self, own: Any) -> None:
        self.own, self.ends = own, own.ends

    @property
    @override
    def settings(self) -> Settings:
        found: Settings = self.own.settings
        return found

    @property
    @override
    def arguments(self) -> list[str]:
        return [self.own.address, self.own.name]

    @override
    def ports(self) -> Ports:
        found: Ports = self.own.ports()
        return found

    @override
    def letters(self) -> list[int]:
        assert isinstance(self.own, WithLetters)
        return [each.record.offset for each in self.own.letters()]

    @override
    def driver(self, step: int = STEP, remembered: Remembered | None = None) -> Driver:
        found = super().driver(step, remembered)
        self.own.workers.append(found.worker)
        return found

    @override
    def close(self) -> None:
        self.own.close()


class Server(Protocol):
    @property
    def address(self) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


def of_topic(ends: dict[int, int] | None) -> dict[SourcePartition, int]:
    return {SourcePartition(TOPIC, each): end for each, end in (ENDS if ends is None else ends).items()}


@dataclass(frozen=True)
class CellWorld:
    """`kafka` has the dead letters; its proxy is before the server."""

    server: Server
    proxy: SqlProxy
    kafka: Callable[[], LocalKafka]
    stack: ExitStack

    def kept(self, own: Own) -> Own:
        """It is closed in the end, and its source is there."""
        self.stack.callback(own.close)
        if isinstance(own, WithLetters):
            own.produce()
        return own

    def restart(self) -> None:
        self.server.kill()
        self.server.start()
