"""Events of MariaDB's binary log: bytes of a server to what they say.

Source: MariaDB's documentation, "Replication Protocol", and what servers of versions 10.11 and 11.8 have sent. What a
row is made of is in `binlog_rows.py`.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from sinkpipeline.core.changes.pgoutput import NotUnderstood

HEADER: Final = 19
BEGIN: Final = 4
"""Where the first event of a file is."""
_ARTIFICIAL: Final = 0x20
_CRC: Final = 4
_CRC32: Final = 1
_COMPRESSED: Final = 0x80
_STANDALONE: Final = 1
_PREPARED_XA: Final = 64

_HEAD = struct.Struct("<IBIIIH")
_GTID = struct.Struct("<QIB")
_QUERY = struct.Struct("<IIBHH")
_PLACE = struct.Struct("<Q")

_COMMENT = re.compile(r"\A(?:\s+|/\*(?!M?!).*?\*/|--[ \t].*?(?:\n|\Z)|#.*?(?:\n|\Z))*", re.DOTALL)
_NAME = r"(`(?:[^`]|``)+`|[\w$\x80-\U0010ffff]+)"
_TRUNCATE = re.compile(
    rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}\s*(?:\.\s*{_NAME})?\s*(?:WAIT\s+\d+|NOWAIT)?\s*;?\s*\Z", re.IGNORECASE
)
_CASCADE = re.compile(r"\bON\s+(?:DELETE|UPDATE)\s+(?:CASCADE|SET\s+NULL|SET\s+DEFAULT)\b", re.IGNORECASE)
_ROWS_AS_TEXT = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH)\b", re.IGNORECASE)


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
    def start(self) -> int:
        """Where the event is in the file."""
        return self.end - self.size


class Format(NamedTuple):
    """How the events of a file are written, at its beginning."""

    has_checksums: bool
    born: int
    """When the file was begun, in Unix seconds."""


class Rotate(NamedTuple):
    """The log goes on elsewhere."""

    file: str
    offset: int


class Heartbeat(NamedTuple):
    """Everything up to here was sent."""

    file: str


class Gtid(NamedTuple):
    """A transaction begins, or a statement that is one by itself."""

    gtid: str
    is_alone: bool
    """Whether it is one event, which has no end."""
    is_prepared: bool
    """Whether it is the first half of an XA transaction: nobody knows yet whether it will be committed."""


class Query(NamedTuple):
    """A statement, as text."""

    database: str
    text: str

    @property
    def statement(self) -> str:
        """Without what comes before it."""
        found = _COMMENT.match(self.text)
        return self.text[0 if found is None else found.end() :]


class Xid(NamedTuple):
    """A transaction was committed."""


class Prepared(NamedTuple):
    """The first half of an XA transaction ends."""


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


class Incident(NamedTuple):
    """The server has changed rows, and could not log that."""


class Ignored(NamedTuple):
    """What says nothing of any table."""


Event = Format | Rotate | Heartbeat | Gtid | Query | Xid | Prepared | TableMap | Rows | Incident | Ignored

IGNORED: Final = Ignored()


def head(event: bytes) -> Head:
    """What an event begins with.

    Raises:
        NotUnderstood
    """
    try:
        timestamp, kind, server, size, end, flags = _HEAD.unpack_from(event)
    except struct.error as error:
        raise NotUnderstood(f"an event of {len(event)} bytes") from error
    return Head(timestamp, kind, server, size, end, flags)


def parse(event: bytes, head_: Head, *, has_checksums: bool) -> Event:
    """What an event says.

    Args:
        event: all of it.
        head_: of it.
        has_checksums: as the `Format` of its file says.

    Raises:
        NotUnderstood
    """
    try:
        found = _KINDS[head_.kind]
    except KeyError:
        raise NotUnderstood(f"an event of kind {head_.kind}") from None
    # The format says by itself whether it has one.
    if has_checksums and found is not _format:
        end = len(event) - _CRC
        if zlib.crc32(memoryview(event)[:end]) != int.from_bytes(event[end:], "little"):
            raise NotUnderstood(f"an event of kind {head_.kind} whose checksum is wrong")
        event = event[:end]
    try:
        return found(event, head_)
    except (IndexError, struct.error, ValueError, zlib.error) as error:
        raise NotUnderstood(f"an event of kind {head_.kind} can't be read: {error}") from error


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


def emptied(query: Query) -> tuple[str, str] | None:
    """The database and the table that a statement empties; None where it is another one."""
    found = _TRUNCATE.match(query.statement)
    if found is None:
        return None
    first, second = (None if each is None else _plain(each) for each in found.groups())
    return (query.database, str(first)) if second is None else (str(first), second)


def changes_rows(query: Query) -> bool:
    """Whether it is a statement that changes rows, which the log then has not."""
    return _ROWS_AS_TEXT.match(query.statement) is not None


def cascade(text: str) -> str | None:
    """What a foreign key in a CREATE TABLE or ALTER TABLE does to rows by itself, if it does something."""
    found = _CASCADE.search(text)
    return None if found is None else " ".join(found[0].upper().split())


def ends(query: Query) -> str | None:
    """Whether it ends a transaction: COMMIT or ROLLBACK; or SAVEPOINT where a part of one is taken back."""
    words = query.statement.rstrip("; \t\n").upper().split()
    match words:
        case ["COMMIT", *_]:
            return "COMMIT"
        case ["ROLLBACK", "TO", *_] | ["ROLLBACK", "WORK", "TO", *_]:
            return "SAVEPOINT"
        case ["ROLLBACK", *_]:
            return "ROLLBACK"
        case _:
            return None


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _format(event: bytes, head_: Head) -> Format:
    # Behind the lengths of the headers of all kinds: how checksums are made, and one.
    return Format(event[-_CRC - 1] == _CRC32, head_.timestamp)


def _rotate(event: bytes, _: Head) -> Rotate:
    [offset] = _PLACE.unpack_from(event, HEADER)
    return Rotate(event[HEADER + 8 :].decode(), offset)


def _heartbeat(event: bytes, _: Head) -> Heartbeat:
    return Heartbeat(event[HEADER:].decode())


def _gtid(event: bytes, head_: Head) -> Gtid:
    sequence, domain, flags = _GTID.unpack_from(event, HEADER)
    return Gtid(f"{domain}-{head_.server}-{sequence}", bool(flags & _STANDALONE), bool(flags & _PREPARED_XA))


def _query(event: bytes, _: Head) -> Query:
    fields = _QUERY.unpack_from(event, HEADER)
    size, at = fields[2], HEADER + _QUERY.size + fields[4]
    # A statement may have been in any character set: what is looked for in it is of ASCII.
    return Query(event[at : at + size].decode(errors="replace"), event[at + size + 1 :].decode(errors="replace"))


def _query_compressed(event: bytes, head_: Head) -> Query:
    fields = _QUERY.unpack_from(event, HEADER)
    at = HEADER + _QUERY.size + fields[4] + fields[2] + 1
    return _query(event[:at] + _plain_of(event[at:]), head_)


def _xid(_event: bytes, _: Head) -> Xid:
    return Xid()


def _prepared(_event: bytes, _: Head) -> Prepared:
    return Prepared()


def _table_map(event: bytes, _: Head) -> TableMap:
    return TableMap(int.from_bytes(event[HEADER : HEADER + 6], "little"), event[HEADER + 8 :])


def _rows(op: str, *, version: int = 1, compressed: bool = False) -> Callable[[bytes, Head], Rows]:
    def parsed(event: bytes, _: Head) -> Rows:
        number = int.from_bytes(event[HEADER : HEADER + 6], "little")
        at = HEADER + 8
        if version > 1:
            at += int.from_bytes(event[at : at + 2], "little")
        width, at = length(event, at)
        size = (width + 7) // 8
        present = event[at : at + size]
        at += size
        after = present
        if op == "u":
            after = event[at : at + size]
            at += size
        data = event[at:]
        return Rows(number, op, width, present, after, _plain_of(data) if compressed else data)

    return parsed


def _plain_of(data: bytes) -> bytes:
    """What a server has compressed: a head, of how long it is, and zlib's bytes."""
    first = data[0]
    if not first & _COMPRESSED or first & 0x70:
        raise NotUnderstood(f"bytes that are compressed in a way that is not known: {first}")
    size = first & 0x07
    plain = zlib.decompress(data[1 + size :])
    if len(plain) != int.from_bytes(data[1 : 1 + size], "big"):
        raise NotUnderstood("bytes that are longer or shorter than their head says")
    return plain


def _incident(_event: bytes, _: Head) -> Incident:
    return Incident()


def _ignored(_event: bytes, _: Head) -> Ignored:
    return IGNORED


_KINDS: Final[Mapping[int, Callable[[bytes, Head], Event]]] = MappingProxyType(
    {
        2: _query,
        4: _rotate,
        15: _format,
        16: _xid,
        19: _table_map,
        23: _rows("c"),
        24: _rows("u"),
        25: _rows("d"),
        26: _incident,
        27: _heartbeat,
        30: _rows("c", version=2),
        31: _rows("u", version=2),
        32: _rows("d", version=2),
        38: _prepared,
        162: _gtid,
        165: _query_compressed,
        166: _rows("c", compressed=True),
        167: _rows("u", compressed=True),
        168: _rows("d", compressed=True),
        169: _rows("c", version=2, compressed=True),
        170: _rows("u", version=2, compressed=True),
        171: _rows("d", version=2, compressed=True),
        # Stop, variables of a statement that follows, and what is of replicas alone.
        **dict.fromkeys((3, 5, 13, 14, 29, 160, 161, 163, 164), _ignored),
    }
)
"""Kinds that are not here are not passed over: one of them could be rows."""
