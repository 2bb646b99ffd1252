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
        """The name by which a worker keeps the session."""

    @property
    def progress(self) -> PartitionProgress | None:
        """The progress that was read when the session was taken; None if it has nothing newer than the plan."""

    @property
    def verified(self) -> int | None:
        """What the ledger wants to be given with the next claim: it has seen everything before this."""

    @property
    def is_open(self) -> bool:
        """Whether a transaction was begun and has not ended."""

    @property
    def in_doubt(self) -> bool:
        """Whether a commit was asked for, and it is not known whether it counts."""

    def begin(self) -> None: ...

    def send(self, rows: Iterable[Row]) -> None: ...

    def send_dead(self, rows: Iterable[Row]) -> None: ...

    def commit(self, new: PartitionProgress) -> None:
        """Commits what was sent, with this progress. Returns only if the commit counts."""

    def would_refuse(self, timestamp: int) -> Verdict | None:
        """Asks whether the target takes a record with this timestamp. Nothing stays there; the session is used up."""

    def abort(self) -> bool:
        """Aborts: what was sent does not count. Returns whether the session can be used again."""

    def close(self) -> None: ...


class Claim(Protocol):
    """A source partition of a batch, which a task is about to take."""

    @property
    def key(self) -> str: ...

    def check(self) -> None:
        """Checks, before this task fences anybody, that no newer driver has the sink. `take` checks it for certain.

        Raises:
            SinkPipelineError: Superseded, TopicsChanged.
        """

    def take(self) -> Session:
        """Takes the partition: from then on, whoever had it can't write. Then reads the progress.

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
        """Waits, and returns only if every row was acknowledged."""

    def keep(self) -> None:
        """Keeps the sender for the next batch."""

    def close(self) -> None: ...


class Outbox(Protocol):
    """Sends dead letters that count as soon as they are acknowledged, whatever becomes of what they belong to.

    Raises (all methods):
        InDoubt: some may be acknowledged, and some not; nothing was begun in the sink.
        RecordRefused: a retry would be refused again.
        SinkPipelineError: AuthorizationFailed and the like.
    """

    def send(self, rows: Iterable[Row]) -> None: ...

    def flush(self) -> None:
        """Waits, and returns only if every letter was acknowledged."""

    def keep(self) -> None:
        """Keeps the outbox for whoever sends the next letters."""

    def close(self) -> None: ...


class LetterBox(Protocol):
    """What takes the dead letters of a task."""

    @property
    def name(self) -> str: ...

    def failure(self) -> NoDeadLetter | None:
        """Why it can't take letters now; None if it can.

        Raises:
            SinkPipelineError: TopicsChanged, BrokerUnreachable, ...
        """


class RecordReader(Protocol):
    """One source partition, read again by position; cheapest in ascending order."""

    def read(self, offset: int) -> SourceRecord | None:
        """The record at a position; None if the source no longer has it.

        Raises:
            HeadersUnreadable: it is there, and holds all but its headers.
            SinkPipelineError: BrokerUnreachable, AuthorizationFailed, ...
        """

    def close(self) -> None:
        """Gives up the connection, until it is asked again."""
