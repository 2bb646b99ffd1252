"""The messages of PostgreSQL's plugin pgoutput, protocol version 1: bytes of a server to what they say.

Source: PostgreSQL's documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

EPOCH_MS: Final = 946_684_800_000
"""2000-01-01, from which the server counts microseconds."""


class NotUnderstood(Exception):
    """A message that is none of this protocol."""


class Unchanged(enum.Enum):
    """A large value of a row that an update has not touched: the server does not send it."""

    UNCHANGED = enum.auto()


UNCHANGED: Final = Unchanged.UNCHANGED
Values = list[str | Unchanged | None]
"""A row: the text of each column."""


class Begin(NamedTuple):
    lsn: int
    """Of the transaction's commit record."""
    committed_at: int
    """Unix milliseconds, by the server's clock."""
    xid: int


class Commit(NamedTuple):
    lsn: int
    end: int
    """Of the commit record."""


class Column(NamedTuple):
    name: str
    is_key: bool
    """Whether it is of the replica identity; of a table whose identity is full each column is."""
    type: int
    """Its oid."""


class Relation(NamedTuple):
    """A table, as it is for the changes that follow."""

    oid: int
    schema: str
    name: str
    identity: str
    """d(efault), n(othing), f(ull), i(ndex)."""
    columns: tuple[Column, ...]


class Insert(NamedTuple):
    relation: int
    new: Values


class Update(NamedTuple):
    relation: int
    old: Values | None
    is_whole: bool
    """Whether `old` has all columns; else those of the replica identity only. It is there where these have changed."""
    new: Values


class Delete(NamedTuple):
    relation: int
    old: Values
    is_whole: bool


class Truncate(NamedTuple):
    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_OID = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_COLUMN = struct.Struct(">Ii")
_TRUNCATE = struct.Struct(">IB")

_TEXT, _NULL, _TOAST = ord("t"), ord("n"), ord("u")
_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")


def parse(message: bytes) -> Message | None:
    """What a message says; None where that concerns nobody (an origin, a type's name).

    Raises:
        NotUnderstood
    """
    try:
        return _KINDS[message[:1]](message)
    except KeyError:
        raise NotUnderstood(f"a message of kind {message[:1]!r}") from None
    except (IndexError, struct.error, ValueError) as error:
        raise NotUnderstood(f"a message of kind {message[:1]!r} can't be read: {error}") from error


def _begin(message: bytes) -> Begin:
    lsn, micros, xid = _BEGIN.unpack_from(message, 1)
    return Begin(lsn, micros // 1000 + EPOCH_MS, xid)


def _commit(message: bytes) -> Commit:
    _, lsn, end, _ = _COMMIT.unpack_from(message, 1)
    return Commit(lsn, end)


def _insert(message: bytes) -> Insert:
    [relation] = _OID.unpack_from(message, 1)
    _expect(message, 5, _NEW)
    return Insert(relation, _row(message, 6)[0])


def _update(message: bytes) -> Update:
    [relation] = _OID.unpack_from(message, 1)
    old, at = None, 5
    kind = message[at]
    if kind in (_KEY, _OLD):
        old, at = _row(message, at + 1)
    _expect(message, at, _NEW)
    return Update(relation, old, kind == _OLD, _row(message, at + 1)[0])


def _delete(message: bytes) -> Delete:
    [relation] = _OID.unpack_from(message, 1)
    kind = message[5]
    if kind not in (_KEY, _OLD):
        raise NotUnderstood(f"a delete with a row of kind {kind}")
    return Delete(relation, _row(message, 6)[0], kind == _OLD)


def _truncate(message: bytes) -> Truncate:
    count, _ = _TRUNCATE.unpack_from(message, 1)
    at = 1 + _TRUNCATE.size
    return Truncate(tuple(_OID.unpack_from(message, at + each * _OID.size)[0] for each in range(count)))


def _expect(message: bytes, at: int, kind: int) -> None:
    if message[at] != kind:
        raise NotUnderstood(f"a row of kind {message[at]} where one of kind {kind} belongs")


def _row(message: bytes, at: int) -> tuple[Values, int]:
    """The row that begins there, and the place behind it."""
    count = (message[at] << 8) | message[at + 1]
    at += 2
    values: Values = []
    add = values.append
    for _ in range(count):
        kind = message[at]
        at += 1
        if kind == _TEXT:
            end = at + 4 + int.from_bytes(message[at : at + 4], "big")
            if end > len(message):
                raise NotUnderstood("a value that is longer than its message")
            add(message[at + 4 : end].decode())
            at = end
        elif kind == _NULL:
            add(None)
        elif kind == _TOAST:
            add(UNCHANGED)
        else:
            raise NotUnderstood(f"a value of kind {kind}")
    return values, at


def _relation(message: bytes) -> Relation:
    [oid] = _OID.unpack_from(message, 1)
    schema, at = _string(message, 5)
    name, at = _string(message, at)
    identity = chr(message[at])
    [count] = _COUNT.unpack_from(message, at + 1)
    at += 1 + _COUNT.size
    columns = []
    for _ in range(count):
        flags = message[at]
        column, at = _string(message, at + 1)
        [kind, _] = _COLUMN.unpack_from(message, at)
        at += _COLUMN.size
        columns.append(Column(column, bool(flags & 1), kind))
    # Of what is in pg_catalog the server sends no schema.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _string(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1


def _of_nobody(_: bytes) -> None:
    return None


_KINDS: Final[Mapping[bytes, Callable[[bytes], Message | None]]] = MappingProxyType(
    {
        b"I": _insert,
        b"U": _update,
        b"D": _delete,
        b"B": _begin,
        b"C": _commit,
        b"R": _relation,
        b"T": _truncate,
        b"O": _of_nobody,
        b"Y": _of_nobody,
    }
)
