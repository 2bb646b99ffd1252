"""What the kinds whose progress stands in cells have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sinkpipeline.cells.ledger import CellLedger
from sinkpipeline.cells.store import Cells
from sinkpipeline.core.ledger_ports import Ids
from sinkpipeline.core.limits import UNKNOWN, TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Letters, LetterTarget, Source, Target
from sinkpipeline.core.redrive import MOST_LETTERS
from sinkpipeline.core.task_ports import Sender
from sinkpipeline.sinks.contract import BatchPlan, SinkKind
from sinkpipeline.sinks.letters import LettersElsewhere
from sinkpipeline.sinks.worker import Worker


class Closing(Protocol):
    def close(self) -> None:
        """What is asked next is asked on another connection."""


S = TypeVar("S")
C = TypeVar("C", bound=Closing)


class KindOfCells(LettersElsewhere):
    """Most of a `SinkKind`."""

    def sender(self, plan: BatchPlan, partition: SourcePartition, worker: Worker) -> Sender:
        raise NotImplementedError("AtLeastOnce is not served for this kind")

    def fits_at_once(self, plan: BatchPlan) -> bool:  # noqa: ARG002 - a driver delivers nothing itself
        return False


@dataclass
class CellPorts(ABC, Generic[S, C]):
    """One sink; of one thread at a time."""

    settings: S
    source: Source
    source_ids: Callable[[Collection[str]], Mapping[str, str | None]]
    """Of topics of the source, as they are now."""
    client: C
    letters: LetterTarget | None = None
    """Where dead letters go."""
    looks: bool = False
    """Whether nothing may be left behind."""

    @property
    @abstractmethod
    def kind(self) -> SinkKind: ...

    @property
    @abstractmethod
    def target(self) -> Target: ...

    @property
    @abstractmethod
    def ledger(self) -> CellLedger: ...

    @abstractmethod
    def row_cells(self, target: str) -> Cells:
        """Those of the ledger, which commit rows too, into the target with this id.

        Raises:
            SinkPipelineError: TopicsChanged, SinkUnreachable, ...
        """

    @abstractmethod
    def ids(self, topics: Collection[str]) -> Ids:
        """As of `Ports`."""

    @property
    def most_letters(self) -> int:
        """How many letters one commit of a redrive settles at most: a row and a cell of each, and a cell of its own."""
        return MOST_LETTERS

    def check_redrive(self) -> None:
        """That a redrive may do what a run does not, which is nothing unless a kind says so.

        Raises:
            SinkPipelineError: SinkRefused, SinkUnreachable.
        """

    def renew_clients(self) -> None:
        self.client.close()


class LetteredTarget:
    """The part of a `Target` that is about dead letters, which go elsewhere."""

    letters: LetterTarget | None

    def prepare_letters(self, source: Mapping[str, str]) -> Letters:
        if self.letters is None:
            return Letters(topic=None, limits=UNKNOWN, drift=())
        return self.letters.prepare(source)

    def duplicate_window_ms(self) -> int | None:
        return None

    def counted(self) -> int | None:
        return None

    def letter_limits(self) -> TopicLimits | None:
        return None if self.letters is None else self.letters.limits()


class Look(Protocol):
    """The module of a kind that says what can be seen of a sink before it starts. It leaves nothing behind.

    Raises (all functions):
        SinkPipelineError: SinkUnreachable, AuthenticationFailed, SinkRefused, ...
    """

    def check_reached(self, sink: Any) -> None:
        """Connects, within seconds."""

    def check_names(self, ports: Any) -> None:
        """What is wrong whatever is there, and that what is there can be seen."""

    def look(self, ports: Any) -> Any:
        """The target, the place of the progress, and what is in it."""

    def check_rights(self, ports: Any, data: Any, place: Any) -> None:
        """That a start and its commits may do all that they do."""

    def fears(self, ports: Any) -> tuple[str, ...]:
        """What is to be feared for rows that a server has acknowledged."""
