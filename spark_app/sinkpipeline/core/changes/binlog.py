"""Events of a binary log, of MariaDB or MySQL: bytes of a server to what they say.

The two number their own events differently, so one table has both. What a row is made of is in `binlog_rows.py`.

Source: MariaDB's documentation, "Replication Protocol", MySQL's, "Binary Log Event", and what servers of MariaDB 10.11
and 11.8 and of MySQL 8.0 and 8.4 have sent.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from sinkpipeline.core.changes.binlog_compressed import uncompressed
from sinkpipeline.core.changes.binlog_events import (
    HEADER,
    IGNORED,
    Event,
    Format,
    Gtid,
    Head,
    Heartbeat,
    Ignored,
    Incident,
    Partial,
    Prepared,
    Query,
    Rotate,
    Rows,
    TableMap,
    Xid,
    length,
)
from sinkpipeline.core.changes.binlog_mysql import payload, tagged_gtid, uuid_gtid
from sinkpipeline.core.changes.binlog_status import collation_of
from sinkpipeline.core.changes.pgoutput import NotUnderstood

BEGIN: Final = 4
"""Where the first event of a file is."""
FORMAT: Final = 15
"""The kind of a file's first event."""
ROTATE: Final = 4
MARIADB_GTID: Final = 162
_CRC: Final = 4
_CRC32: Final = 1
_STANDALONE: Final = 1
_PREPARED_XA: Final = 64

_HEAD = struct.Struct("<IBIIIH")
_GTID = struct.Struct("<QIB")
_QUERY = struct.Struct("<IIBHH")
_OF_LOADED: Final = 13
"""Bytes that a statement has which loads a file: which one, and where its name stands."""
_PLACE = struct.Struct("<Q")
_CREATED: Final = HEADER + 52
"""Of a format: when the server was started, where it is the first one since."""


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
    found = _KINDS.get(head_.kind)
    if found is None:
        if head_.is_ignorable:
            return IGNORED
        raise NotUnderstood(f"an event of kind {head_.kind}")
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


def _format(event: bytes, head_: Head) -> Format:
    # Behind the lengths of the headers of all kinds: how checksums are made, and one.
    return Format(event[-_CRC - 1] == _CRC32, head_.timestamp, any(event[_CREATED : _CREATED + 4]))


def _rotate(event: bytes, _: Head) -> Rotate:
    [offset] = _PLACE.unpack_from(event, HEADER)
    return Rotate(event[HEADER + 8 :].decode(), offset)


def _heartbeat(event: bytes, head_: Head) -> Heartbeat:
    # Beyond 4 GiB MariaDB says no place in the head, and all of its 64 bits before the name.
    return Heartbeat(event[HEADER if head_.end else HEADER + _PLACE.size :].decode())


def _gtid(event: bytes, head_: Head) -> Gtid:
    sequence, domain, flags = _GTID.unpack_from(event, HEADER)
    return Gtid(f"{domain}-{head_.server}-{sequence}", bool(flags & _STANDALONE), bool(flags & _PREPARED_XA))


def _query(event: bytes, head_: Head, more: int = 0) -> Query:
    session, _, size, _, length_ = _QUERY.unpack_from(event, HEADER)
    begin = HEADER + _QUERY.size + more
    at = begin + length_
    database, data = event[at : at + size].decode(errors="replace"), event[at + size + 1 :]
    return Query(database, _text(data), head_.is_of_session, session, data, collation_of(event[begin:at]))


def _text(data: bytes) -> str:
    """Of a statement, which may have been in any character set: what is looked for is of ASCII, but for names."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def _query_loading(event: bytes, head_: Head) -> Query:
    return _query(event, head_, _OF_LOADED)


def _query_compressed(event: bytes, head_: Head) -> Query:
    fields = _QUERY.unpack_from(event, HEADER)
    at = HEADER + _QUERY.size + fields[4] + fields[2] + 1
    return _query(event[:at] + uncompressed(event[at:]), head_)


def _xid(_event: bytes, _: Head) -> Xid:
    return Xid()


def _prepared(event: bytes, _: Head) -> Prepared:
    return Prepared(bool(event[HEADER]))


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
        return Rows(number, op, width, present, after, uncompressed(data) if compressed else data)

    return parsed


def _partial(event: bytes, _: Head) -> Partial:
    return Partial(int.from_bytes(event[HEADER : HEADER + 6], "little"))


def _incident(_event: bytes, _: Head) -> Incident:
    return Incident()


def _ignored(_event: bytes, _: Head) -> Ignored:
    return IGNORED


_KINDS: Final[Mapping[int, Callable[[bytes, Head], Event]]] = MappingProxyType(
    {
        2: _query,
        ROTATE: _rotate,
        FORMAT: _format,
        16: _xid,
        18: _query_loading,
        19: _table_map,
        23: _rows("c"),
        24: _rows("u"),
        25: _rows("d"),
        26: _incident,
        27: _heartbeat,
        30: _rows("c", version=2),
        31: _rows("u", version=2),
        32: _rows("d", version=2),
        33: uuid_gtid,
        34: uuid_gtid,
        38: _prepared,
        39: _partial,
        40: payload,
        42: tagged_gtid,
        MARIADB_GTID: _gtid,
        165: _query_compressed,
        166: _rows("c", compressed=True),
        167: _rows("u", compressed=True),
        168: _rows("d", compressed=True),
        169: _rows("c", version=2, compressed=True),
        170: _rows("u", version=2, compressed=True),
        171: _rows("d", version=2, compressed=True),
        # Stop, variables and a file of a statement that follows, and what is of replicas alone.
        **dict.fromkeys((3, 5, 9, 11, 13, 14, 17, 29, 35, 36, 37, 160, 161, 163, 164), _ignored),
    }
)
"""Kinds that are not here are not passed over: one of them could be rows."""
