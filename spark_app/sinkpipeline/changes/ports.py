"""What a stage needs of a kind of database. Each kind is one folder, whose `kind.py` has what `Kind` names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from typing_extensions import Self

from sinkpipeline.changes.cancellation import Cancellation
from sinkpipeline.changes.settings import AnyDatabase, StageSettings
from sinkpipeline.core.changes.lag import End
from sinkpipeline.core.changes.pgoutput import Relation, Values
from sinkpipeline.core.changes.positions import Position
from sinkpipeline.core.changes.values import Change, Writer
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.progress import PartitionProgress, corrupt

if TYPE_CHECKING:
    # The operator drops what a stage has created, and has nothing of what runs one.
    from sinkpipeline.changes.claim import Claim, Claimed
    from sinkpipeline.changes.receipts import Receipts


@dataclass(frozen=True)
class Begun:
    """A transaction of the database begins."""

    note: str = ""
    """What progress notes of it."""
    before: int | None = 0
    """How many of its changes are in the topic; None: some, and it is not known how many."""


@dataclass(frozen=True)
class Ended:
    """It ends."""

    end: int
    """Where, in the order of commits."""


@dataclass(frozen=True)
class Heard:
    """A sign of the server: everything that commits before `commit` was handed out."""

    commit: int
    note: str | None = None
    """What progress notes of that place; None: what it has noted."""


@dataclass(frozen=True)
class Altered:
    """A table may be another one from here on: by another key, by other rows, or under another name."""

    table: str


@dataclass(frozen=True)
class Read:
    """Rows of a table that is read beside the stream."""

    changes: list[Change]
    is_last: bool = False
    """Whether all rows of the table are in the topic with them."""


Event = list[Change] | Begun | Ended | Heard | Altered | Read | None
"""None: nothing has come for a moment."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """A server, while it is read."""

    end: End
    told: Mapping[str, Any] | None
    """What a receipt of the state has of it; None where somebody else's server answers."""
    state: Any = None
    """What the kind judges by whether it can go on."""


class Reader(Protocol):
    """A database: looked at, held, read in order, and told how far that counts. Of one thread.

    Raises (all methods):
        SinkPipelineError: SourceUnreachable, and what the kind names.
    """

    where: str
    """Names the database, for people."""
    skipped: int
    """Changes that were read again, and are in the topic."""
    heard: int
    """The newest place in the order of commits that the server has told."""

    def close(self) -> None: ...

    def hold(self) -> None:
        """Takes the source: whoever else reads for this stage is ended. The Kafka id must be taken before."""

    def read(self, start: Position, wait_s: float) -> Iterator[Event]:
        """What comes, for ever; changes before `start` are passed over, and counted."""

    def confirm(self, upto: int) -> None:
        """Tells the server that nothing before `upto` is needed again. The progress that says so counts already."""

    def look(self, place: Position) -> Look:
        """How the server stands, also while it is read; `place`: of the progress."""

    def placed(self, snapshot: TableSnapshot) -> Position:
        """Where a snapshot beside it stands in what it reads.

        Raises:
            SinkPipelineError: SourceUnreachable, where another server has made it.
        """


class Copied(Protocol):
    """The tables as they were at one moment. Gone with the life of a stage."""

    start: Position
    """Where the stream begins behind them."""

    def close(self) -> None: ...

    def open(self) -> None:
        """The rows can be read from here on."""

    @property
    def names(self) -> Sequence[str]:
        """Of the tables, as changes have them."""

    @property
    def estimate(self) -> int:
        """How many rows they may have."""

    def read(self, table: int, at: Position, wait_s: float) -> Iterator[list[Change] | None]:
        """The rows of a table, by its place in `names`, the first one at `at`; None where nothing comes just now."""

    def judge(self, look: Look) -> None:
        """Raises SinkPipelineError where the stream can't begin behind them any more."""


class TableAway(SinkPipelineError):
    """A table that is gone, or can't be read: that is of the table, and not of its server."""

    @classmethod
    def of(cls, error: SinkPipelineError) -> Self:
        """What was found of a table, by who asks about all."""
        return cls(error.reason, error.message, error.remedy)


class AnotherServer(SinkPipelineError):
    """Another server answers than the one that this life has begun with: the next one looks whether it takes over."""


BATCH_ROWS: Final = 500
BATCH_BYTES: Final = 1 << 20
"""A batch is as large as this, or one row: several are there at a time."""


class Batch(NamedTuple):
    """Rows of a table, in the order of its key."""

    rows: list[Values]
    after: tuple[str, ...]
    """The key of the last one, as `IncrementalMark` has it; empty where the table has no key."""


class TableSnapshot(Protocol):
    """One table as it was at one place of the stream. Of one thread, but for `writer`.

    Raises (all methods):
        SinkPipelineError: SourceUnreachable, SourceUnsuitable.
    """

    start: Position
    """Its rows have what commits before this, and nothing that commits later."""
    server: str
    """Who has made it, where that matters."""
    key: str
    """By what they are ordered: columns, their types and their collations, and what tells that it is the same table
    with the same keys."""
    is_settled: bool
    """Whether that was so before everything that the stream has still handed out when the snapshot was asked for, or
    the stream tells where it was not."""
    relation: Relation
    read_at: int
    """Unix milliseconds of the server."""

    def close(self) -> None: ...

    def read(self, after: Sequence[str]) -> Iterator[Batch | None]:
        """The rows behind a key; None where nothing comes just now."""

    def writer(self) -> Writer:
        """What makes changes of its rows."""


class Started(NamedTuple):
    """What a start has found."""

    state: PartitionProgress | None
    """None where a snapshot is to be made for the first time."""
    source: Mapping[str, str]
    """The identity of the source, as `meta` has it."""
    found: Any
    """What the kind needs for a snapshot."""
    timeline: int | None = None

    @property
    def streams(self) -> PartitionProgress | None:
        """Where the stream goes on; None where a snapshot comes before it."""
        return None if self.state is None or self.state.snapshot is not None else self.state


class Parts(NamedTuple):
    """What a life of a stage has, whatever it does."""

    settings: StageSettings
    claim: Claim
    claimed: Claimed
    reader: Any
    """Of its kind."""
    say: Receipts


@dataclass
class Foreseen:
    """What was found of a stage that does not run."""

    told: list[str] = field(default_factory=list)
    """Lines for a person."""
    errors: list[SinkPipelineError] = field(default_factory=list)
    """What a start would be refused for."""


class Kind(Protocol):
    """A kind of database, as `kinds.of` finds it: a module."""

    @property
    def connect(self) -> Callable[[AnyDatabase], Any]:
        """Connects: a `Reader`."""

    @property
    def begin(self) -> Callable[[StageSettings, Claim, Claimed, Any], Started]:
        """What is read, and where to go on; announces this stage."""

    @property
    def check(self) -> Callable[[Any, Started, PartitionProgress], None]:
        """Nobody has moved the source since it was looked at: from here on nobody can."""

    @property
    def copy(self) -> Callable[[Parts, Started], Any]:
        """Makes a snapshot: `Copied`."""

    @property
    def copy_table(self) -> Callable[[AnyDatabase, str, Cancellation], Any]:
        """Makes a snapshot of one table, `schema.table`, beside whoever reads the stream: `TableSnapshot`.

        It waits for transactions that have written, and raises SourceUnreachable where that takes long, or where it is
        cancelled.
        """

    @property
    def foresee(self) -> Callable[[StageSettings], Foreseen]:
        """What a start would find, looked at beforehand."""


def at(state: PartitionProgress) -> Position:
    """Where a stage stands."""
    if state.pos is None:
        raise corrupt("the progress of a stage has no position")
    return state.pos
