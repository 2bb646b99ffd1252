"""Events that MySQL's binary log has and MariaDB's has not: GTIDs of its own, and transactions that are compressed.

Source: MySQL's documentation, "Binary Log Event" and "mysql::serialization", and what servers of versions 8.0 and 8.4
have sent.
"""

from __future__ import annotations

import struct
import uuid
from typing import Final

from sinkpipeline.core.changes.binlog_events import HEADER, Gtid, Head, Payload, length
from sinkpipeline.core.changes.pgoutput import NotUnderstood

GTIDS: Final = frozenset({33, 34, 42})
"""The kinds of events by which a transaction begins."""
_ANONYMOUS: Final = 34
_GTID = struct.Struct("<B16sq17s7s")
_NOW_ALONE: Final = (1 << 55) - 1
"""The bit above says that another server has committed it before, and when."""
_END, _SIZE, _HOW, _PLAIN = range(4)
_ZSTD, _NOT_AT_ALL = 0, 255
_UUID, _NUMBER, _TAG, _WHEN = 1, 2, 3, 6
_SIGNED: Final = frozenset({2, 4, 5})
_BYTES: Final = 16


def uuid_gtid(event: bytes, head: Head) -> Gtid:
    """Of a transaction with a GTID, or with none."""
    _, server, number, _, when = _GTID.unpack_from(event, HEADER)
    committed_us = int.from_bytes(when, "little") & _NOW_ALONE
    gtid = None if head.kind == _ANONYMOUS else f"{uuid.UUID(bytes=server)}:{number}"
    return Gtid(gtid, None, False, committed_us)


def tagged_gtid(event: bytes, _head: Head) -> Gtid:
    """Of a transaction whose GTID has a tag. Fields have numbers; the order is that of the numbers."""
    _version, at = _packed(event, HEADER)
    _size, at = _packed(event, at)
    _known, at = _packed(event, at)
    found: dict[int, int | str] = {}
    while _WHEN not in found:
        field, at = _packed(event, at)
        match field:
            case 1:
                server = bytearray()
                for _ in range(_BYTES):
                    value, at = _packed(event, at)
                    server.append(value)
                found[field] = str(uuid.UUID(bytes=bytes(server)))
            case 3:
                size, at = _packed(event, at)
                found[field] = event[at : at + size].decode()
                at += size
            case _:
                value, at = _packed(event, at)
                found[field] = (value >> 1) ^ -(value & 1) if field in _SIGNED else value
    try:
        gtid = f"{found[_UUID]}:{found[_TAG]}:{found[_NUMBER]}"
    except KeyError as error:
        raise NotUnderstood(f"a GTID without its field {error}") from error
    return Gtid(gtid, None, False, int(found[_WHEN]))


def _packed(data: bytes, at: int) -> tuple[int, int]:
    """A number whose first byte says by its lowest bits how many more it has; and the place behind it."""
    more = 0
    while data[at] >> more & 1 and more < 8:  # noqa: PLR2004 - bits of a byte
        more += 1
    size = more + 1
    value = int.from_bytes(data[at : at + size], "little")
    return value >> min(size, 8), at + size


def payload(event: bytes, _: Head) -> Payload:
    """Of a transaction that is compressed: fields with a number and a size each, then the events."""
    at, how, size = HEADER, _NOT_AT_ALL, None
    while True:
        field, at = length(event, at)
        if field == _END:
            break
        width, at = length(event, at)
        value, _end = length(event, at)
        if field == _HOW:
            how = value
        elif field == _SIZE:
            size = value
        at += width
    data = event[at:]
    if how not in (_ZSTD, _NOT_AT_ALL) or size != len(data):
        raise NotUnderstood(f"a transaction of {size} bytes that is compressed in a way that is not known: {how}")
    return Payload(data, how == _ZSTD)
