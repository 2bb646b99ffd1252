"""What the events of a binary log say, of MariaDB or MySQL. `binlog.py` makes them of bytes."""

from __future__ import annotations

from typing import Final, NamedTuple

from sinkpipeline.core.changes.pgoutput import NotUnderstood

HEADER: Final = 19
ANONYMOUS: Final = "ANONYMOUS"
"""As MySQL has it for a GTID where it gives none."""
_OF_SESSION: Final = 0x04
_ARTIFICIAL: Final = 0x20
_IGNORABLE: Final = 0x80


class Head(NamedTuple):
    """What each event begins with."""

    timestamp: int
    """Unix seconds, by the server's clock."""
    kind: int
    server: int
    size: int
    """Of the event in the log, in bytes."""
    end: int
    """Where the next event begins in the file, by its last 32 bits. 0: it does not say. From 11.4 on, events within a
    transaction do not, unless binlog_legacy_event_pos is set."""
    flags: int

    @property
    def is_in_log(self) -> bool:
        """False of what the server tells beside its log."""
        return not self.flags & _ARTIFICIAL

    @property
    def is_of_session(self) -> bool:
        """Whether it means something in its session alone."""
        return bool(self.flags & _OF_SESSION)

    @property
    def is_ignorable(self) -> bool:
        """Whether its server says that who does not know an event of this kind lacks nothing."""
        return bool(self.flags & _IGNORABLE)

    @property
    def start(self) -> int:
        """Where the event is in the file."""
        return self.end - self.size


class Format(NamedTuple):
    """How the events of a file are written, at its beginning."""

    has_checksums: bool
    born: int
    """When the file was begun, in Unix seconds."""
    is_start: bool = False
    """Whether it is the first one since the server has started: no session of before is there any more."""


class Rotate(NamedTuple):
    """The log goes on elsewhere."""

    file: str
    offset: int


class Heartbeat(NamedTuple):
    """Everything up to here was sent."""

    file: str


class Gtid(NamedTuple):
    """A transaction begins, or a statement that is one by itself."""

    gtid: str | None
    """None: the server gives none."""
    is_alone: bool | None
    """Whether it is one event, which has no end. None: the statement that follows says it."""
    is_prepared: bool
    """Whether it is the first half of an XA transaction: nobody knows yet whether it will be committed."""
    committed_us: int | None = None
    """When it was committed, in Unix microseconds; None: the head's second is all that is known."""

    def mark(self, start: int) -> str:
        """What tells it from every other one at the same place: text without an @. `start`: where it is in its file."""
        if self.committed_us is None:
            return self.gtid or ""
        return f"{self.gtid or ANONYMOUS} {self.committed_us} {start}"


class Query(NamedTuple):
    """A statement, as text."""

    database: str
    text: str
    is_of_session: bool = False
    """Whether what it means may depend on its session, as where a table is temporary."""
    session: int = 0
    """The number of its session; a server that starts begins anew with these."""
    data: bytes = b""
    """The text as it was sent."""
    collation: int | None = None
    """The number of one of the character set in which it was sent; None: nobody said it."""


class Xid(NamedTuple):
    """A transaction was committed."""


class Prepared(NamedTuple):
    """The first half of an XA transaction ends."""

    is_committed: bool
    """Whether that is all of it: it is committed, in one phase."""


class TableMap(NamedTuple):
    """What the table of the rows that follow is like; `body` is for `binlog_rows.parse_table`."""

    number: int
    body: bytes


class Rows(NamedTuple):
    """Rows of one table."""

    number: int
    """As the `TableMap` has it."""
    op: str
    """c(reated), u(pdated), d(eleted)."""
    width: int
    """How many columns the table has."""
    present: bytes
    """A bit for each column: whether rows have it. Of an update: rows as they were."""
    present_after: bytes
    """Of an update: rows as they are."""
    data: bytes


class Payload(NamedTuple):
    """A transaction whose events are compressed, all together."""

    data: bytes
    is_compressed: bool
    """By zstd."""


class Partial(NamedTuple):
    """Rows that have only what has changed in a value of JSON."""

    number: int
    """As the `TableMap` has it."""


class Incident(NamedTuple):
    """The server has changed rows, and could not log that."""


class Ignored(NamedTuple):
    """What says nothing of any table."""


Event = (
    Format
    | Rotate
    | Heartbeat
    | Gtid
    | Query
    | Xid
    | Prepared
    | TableMap
    | Rows
    | Payload
    | Partial
    | Incident
    | Ignored
)

IGNORED: Final = Ignored()


def length(data: bytes, at: int) -> tuple[int, int]:
    """A number as the protocol packs it, and the place behind it.

    Raises:
        NotUnderstood, IndexError
    """
    first = data[at]
    if first < 0xFB:  # noqa: PLR2004 - as the protocol has it
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
    if size is None:
        raise NotUnderstood(f"a length that begins with {first}")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size
