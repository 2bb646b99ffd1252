"""What a kind of sink gives the suite in `tests/conformance`: one adapter, which names what is the kind's own.

The scenarios know ports and positions. How a sink of the kind is made, how its target is deleted, emptied, filled and
broken, and how its rows are counted by somebody who is not the product, they ask the adapter.
"""

from __future__ import annotations

import abc
from collections import Counter
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.ledger_ports import Ports
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Settings
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.removal import KeptTopic, SinkRemoval
from sinkpipeline.sinks.reset import SinkReset
from support.sink.cell_driver import Driver

STEP = 4
PROTOCOL_POINTS = (
    *("starting-after-control-init", "starting-after-data-topic", "starting-after-meta", "starting-before-first-start"),
    *("after-init", "after-rows-before-progress", "after-progress-before-commit", "after-commit", "after-batch"),
)
"""Where a driver and its tasks can be killed, whatever the kind."""
_TAKEOVER_POINTS = ("starting-after-control-init", "starting-after-meta")
RESET_POINTS = (*_TAKEOVER_POINTS, "reset-before-transaction", "reset-after-commit")
REMOVAL_POINTS = (*_TAKEOVER_POINTS, "removal-before-tombstones")
"""Likewise of who resets or removes a sink, which begins as a start does."""


IN_A_SESSION = frozenset({"after-init", "after-rows-before-progress", "after-progress-before-commit", "after-commit"})
"""Points to which `AtLeastOnce` does not come where a batch is one cut."""


class Sink(abc.ABC):
    """One sink of a kind, with a source of its own."""

    points: ClassVar[tuple[str, ...]] = ()
    """Where it can be killed beside `PROTOCOL_POINTS`."""
    never_at: ClassVar[frozenset[str]] = frozenset()
    """Of those the ones to which it never comes."""
    reset_points: ClassVar[tuple[str, ...]] = ()
    """Where a reset of it can be killed beside `RESET_POINTS`, before it counts."""
    removal_points: ClassVar[tuple[str, ...]] = ()
    """Where a removal of it can be killed beside `REMOVAL_POINTS`."""
    without_partitions: ClassVar[Reason | None] = None
    """Why it does not start where its source has none; None where it waits for the first one."""

    bad: frozenset[int] = frozenset()
    """The offsets whose rows the target is to refuse."""
    ends: dict[SourcePartition, int]
    """How many records each partition of the source has."""

    @property
    @abc.abstractmethod
    def settings(self) -> Settings: ...

    @property
    @abc.abstractmethod
    def arguments(self) -> list[str]:
        """By which a process makes this very sink again: `again` of its class."""

    @classmethod
    @abc.abstractmethod
    def again(cls, *arguments: str) -> Sink: ...

    @abc.abstractmethod
    def ports(self) -> Ports:
        """With clients of their own."""

    @abc.abstractmethod
    def batch(self, partition: SourcePartition, offsets: range) -> RowBatch:
        """A row for each offset."""

    # Seen by somebody who is not the product

    @abc.abstractmethod
    def delivered(self) -> Counter[tuple[int, int]]:
        """How often the row of each partition and offset is in the target."""

    @abc.abstractmethod
    def letters(self) -> list[int]:
        """The source offsets of the dead letters, in the order of their topic."""

    # What happens to it

    @abc.abstractmethod
    def delete(self) -> None: ...

    @abc.abstractmethod
    def recreate(self) -> None:
        """Deletes the target, and makes one like it."""

    @abc.abstractmethod
    def empty(self) -> None:
        """All rows that are there go; the target stays."""

    @abc.abstractmethod
    def limit(self) -> None:
        """From now on the server refuses the rows of `bad`; nobody told the driver."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends its clients."""

    # The same for every kind

    def driver(self, step: int = STEP, remembered: Remembered | None = None) -> Driver:
        """Started."""
        return Driver(self.ports(), self.ends, step, self.batch, remembered)

    def reset(self) -> None:
        """Its partitions go back: 0 to the offset 1, and 1 to its beginning."""
        resetting = SinkReset(ports=self.ports())
        [topic] = {each.topic for each in self.ends}
        resetting.carry_out(resetting.plan(parse_targets([f"{topic}:0=1,{topic}:1=earliest"])))

    def remove(self) -> KeptTopic | None:
        """For good, with its target."""
        return SinkRemoval(ports=self.ports()).carry_out()

    @property
    def once(self) -> Counter[tuple[int, int]]:
        return Counter((each.partition, offset) for each, end in self.ends.items() for offset in range(end))


class Losing(Protocol):
    """Loses something once."""

    @property
    def caught(self) -> int:
        """How often it did."""


class World(Protocol):
    """A server of the kind."""

    def sink(self, ends: dict[int, int] | None = None, *, lettered: bool = False) -> Sink:
        """`ends`: of each source partition, how many records it has; `lettered`: it has dead letters."""

    def lose_commit(self, *, answer: bool) -> Losing:
        """The next request to commit rows is lost, or its answer, with the connection."""

    def full(self, sink: Sink) -> AbstractContextManager[None]:
        """While it lasts, the target takes no row for what it holds already, and not for what the row is."""

    def restart(self) -> None:
        """SIGKILL, and up again with all that it has acknowledged."""


ENDS = {0: 12, 1: 5}
