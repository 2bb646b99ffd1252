"""What a kind of sink gives a task: the right to write one source partition, and what it writes with.

Claim     a source partition, to be taken ──► Session: it is taken
Sender    rows that count as soon as they are acknowledged
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sinkpipeline.core.deadletter import SourceRecord, Verdict
from sinkpipeline.core.ports import NoDeadLetter
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.records import Row


class Session(Protocol):
    """The right to write one source partition: rows, and its progress with them.

    Raises (all methods):
        Fenced: somebody else has it, or it was taken from us for being slow.
        InDoubt: anything else that went wrong; what is open may count or not.
        RecordRefused: a retry would be refused again.
        SinkPipelineError: AuthorizationFailed and the like.
    """

    @property
    def key(self) -> str:
        """By which a worker keeps it."""

    @property
    def progress(self) -> PartitionProgress | None:
        """As it was read when the session was taken; None: nothing newer than what the plan says."""

    @property
    def verified(self) -> int | None:
        """What the ledger wants to be told with the next claim, as it has seen all before."""

    @property
    def is_open(self) -> bool:
        """Whether something was begun and not ended."""

    @property
    def in_doubt(self) -> bool:
        """Whether a commit was asked for of which nothing is known."""

    def begin(self) -> None: ...

    def send(self, rows: Iterable[Row]) -> None: ...

    def send_dead(self, rows: Iterable[Row]) -> None: ...

    def commit(self, new: PartitionProgress) -> None:
        """What was sent counts, with this progress: returns only if it does."""

    def would_refuse(self, timestamp: int) -> Verdict | None:
        """What the target says of a record with this timestamp, of which nothing stays; it is used up by that."""

    def abort(self) -> bool:
        """What was sent doesn't count; whether it can be used again."""

    def close(self) -> None: ...


class Claim(Protocol):
    """A source partition of a batch, which a task is about to take."""

    @property
    def key(self) -> str: ...

    def check(self) -> None:
        """Before anybody is fenced in return: a newer driver goes first. `take` checks it again for certain.

        Raises:
            SinkPipelineError: Superseded, TopicsChanged.
        """

    def take(self) -> Session:
        """Whoever had the partition has it no more; and the progress is read after that.

        Raises:
            SinkPipelineError: Superseded, TopicsChanged, ProgressCorrupt.
        """


class Sender(Protocol):
    """Sends rows that count as soon as they are acknowledged.

    Raises (all methods):
        InDoubt: some may be acknowledged, and some not.
        RecordRefused: a retry would be refused again.
        SinkPipelineError: AuthorizationFailed and the like.
    """

    def send(self, rows: Iterable[Row]) -> None: ...

    def send_dead(self, rows: Iterable[Row]) -> None: ...

    def flush(self) -> None:
        """Returns only if every row was acknowledged."""

    def keep(self) -> None:
        """For the next batch."""

    def close(self) -> None: ...


class Outbox(Protocol):
    """Sends dead letters that count as soon as they are acknowledged, whatever becomes of what they belong to.

    Raises (all methods):
        InDoubt: some may be acknowledged, and some not; of the sink nothing was begun.
        RecordRefused: a retry would be refused again.
        SinkPipelineError: AuthorizationFailed and the like.
    """

    def send(self, rows: Iterable[Row]) -> None: ...

    def flush(self) -> None:
        """Returns only if every letter was acknowledged."""

    def keep(self) -> None:
        """For who sends the next ones."""

    def close(self) -> None: ...


class LetterBox(Protocol):
    """What takes the dead letters of a task."""

    @property
    def name(self) -> str: ...

    def failure(self) -> NoDeadLetter | None:
        """Why it takes none, now; None where it does.

        Raises:
            SinkPipelineError: TopicsChanged, BrokerUnreachable, ...
        """


class RecordReader(Protocol):
    """One source partition, read again by position; cheapest in ascending order."""

    def read(self, offset: int) -> SourceRecord | None:
        """The record at a position; None where the source doesn't have it any more.

        Raises:
            HeadersUnreadable: it is there, and holds all but its headers.
            SinkPipelineError: BrokerUnreachable, AuthorizationFailed, ...
        """

    def close(self) -> None:
        """Gives up the connection, until it is asked again."""
