"""Tables and rows in a binary log: which columns a table has, and the values of each row.

Source: MariaDB's documentation, "Rows Event" and "Table_map event", and what a server of version 10.11 has sent.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from sinkpipeline.core.changes.binlog_decimal import Read
from sinkpipeline.core.changes.binlog_events import Rows, length
from sinkpipeline.core.changes.binlog_values import BINARY, LoggedColumn, NotServed
from sinkpipeline.core.changes.pgoutput import UNCHANGED, NotUnderstood, Unchanged, Values

_ENUM, _SET, _STRING = 247, 248, 254
_NUMERIC: Final = frozenset({1, 2, 3, 4, 5, 8, 9, 13, 246})
_META: Final = {
    4: 1,
    5: 1,
    242: 1,
    245: 1,
    252: 1,
    255: 1,
    17: 1,
    18: 1,
    19: 1,
    15: 2,
    16: 2,
    246: 2,
    247: 2,
    248: 2,
    253: 2,
    254: 2,
    # With COMPRESSED: blobs, and strings.
    140: 1,
    141: 2,
}
"""Bytes that a table map has of a column, by its type."""


@dataclass(frozen=True, kw_only=True)
class LoggedTable:
    """A table, as it is for the rows that follow."""

    schema: str
    name: str
    columns: tuple[LoggedColumn, ...]
    key: tuple[int, ...]
    """Where the columns of its primary key are among its columns."""


def name_of(body: bytes) -> tuple[str, str]:
    """The database and the table of a `TableMap`, where nothing else of it is needed."""
    schema, at = _text(body, 0)
    name, _ = _text(body, at)
    return schema, name


def parse_table(body: bytes, characters: Collection[int]) -> LoggedTable:
    """All that a `TableMap` says.

    Args:
        body: of it.
        characters: the types whose columns have a character set for the server.

    Raises:
        NotServed: the server logs no names of columns.
        NotUnderstood
    """
    try:
        return _table(body, characters)
    except (IndexError, struct.error, ValueError) as error:
        raise NotUnderstood(f"a table map can't be read: {error}") from error


def _text(body: bytes, at: int) -> tuple[str, int]:
    """A name with its length before it and a zero behind it."""
    end = at + 1 + body[at]
    return body[at + 1 : end].decode(), end + 1


def _table(body: bytes, with_characters: Collection[int]) -> LoggedTable:
    schema, at = _text(body, 0)
    name, at = _text(body, at)
    count, at = length(body, at)
    types = list(body[at : at + count])
    at += count
    size, at = length(body, at)
    metas = _metas(types, body[at : at + size])
    at += size + (count + 7) // 8
    more = dict(_optional(body, at))
    if 4 not in more:  # noqa: PLR2004 - of the names
        raise NotServed(
            f"the changes of table {schema}.{name} are logged without the names of its columns",
            "run SET GLOBAL binlog_row_metadata = 'FULL', and write it into the server's configuration; what was "
            "logged before can't be read",
        )
    for number, (kind, meta) in enumerate(zip(types, metas, strict=True)):
        # Enums and sets are logged as strings, and so are strings that are longer than 255 bytes.
        if kind == _STRING:
            types[number], metas[number] = _real(meta)
    names = [each.decode() for each in _strings(more[4])]
    unsigned = _bits(more.get(1, b""), [at for at, kind in enumerate(types) if kind in _NUMERIC])
    characters = [at for at, kind in enumerate(types) if kind in with_characters]
    listed = [at for at, kind in enumerate(types) if kind in (_ENUM, _SET)]
    collations = _collations(more.get(2), more.get(3), characters) | _collations(more.get(10), more.get(11), listed)
    members = _members(more, types)
    columns = tuple(
        LoggedColumn(
            name=names[number],
            type=kind,
            meta=metas[number],
            unsigned=number in unsigned,
            collation=collations.get(number, BINARY),
            members=members.get(number, ()),
        )
        for number, kind in enumerate(types)
    )
    return LoggedTable(schema=schema, name=name, columns=columns, key=_key(more))


def _metas(types: Sequence[int], data: bytes) -> list[int]:
    found, at = [], 0
    for kind in types:
        width = _META.get(kind, 0)
        # The two bytes of a string, and of a decimal, stand by themselves.
        order: Literal["big", "little"] = "big" if kind in (246, 247, 248, 254) else "little"
        found.append(int.from_bytes(data[at : at + width], order))
        at += width
    if at != len(data):
        raise NotUnderstood(f"a table of column types {list(types)} with {len(data)} bytes about them")
    return found


def _real(meta: int) -> tuple[int, int]:
    kind, size = meta >> 8, meta & 0xFF
    if kind & 0x30 != 0x30:  # noqa: PLR2004 - two bits of the length, upside down
        return kind | 0x30, size | ((kind & 0x30) ^ 0x30) << 4
    return kind, size


def _optional(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(body):
        kind = body[at]
        size, at = length(body, at + 1)
        yield kind, body[at : at + size]
        at += size


def _strings(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = length(data, at)
        yield data[at : at + size]
        at += size


def _bits(data: bytes, places: Sequence[int]) -> set[int]:
    return {place for number, place in enumerate(places) if data[number // 8] & (0x80 >> number % 8)} if data else set()


def _numbers(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = length(data, at)
        found.append(number)
    return found


def _collations(default: bytes | None, each: bytes | None, places: Sequence[int]) -> dict[int, int]:
    if each is not None:
        return dict(zip(places, _numbers(each), strict=True))
    if default is None:
        return {}
    first, *others = _numbers(default)
    found = dict.fromkeys(places, first)
    for number, collation in zip(others[::2], others[1::2], strict=True):
        found[places[number]] = collation
    return found


def _members(more: Mapping[int, bytes], types: Sequence[int]) -> dict[int, tuple[bytes, ...]]:
    """By column."""
    found: dict[int, tuple[bytes, ...]] = {}
    for kind, field in ((_SET, 5), (_ENUM, 6)):
        data, at = more.get(field, b""), 0
        for place in (each for each, one in enumerate(types) if one == kind):
            count, at = length(data, at)
            names = []
            for _ in range(count):
                size, at = length(data, at)
                names.append(data[at : at + size])
                at += size
            found[place] = tuple(names)
    return found


def _key(more: Mapping[int, bytes]) -> tuple[int, ...]:
    if 8 in more:  # noqa: PLR2004 - as the protocol numbers it
        return tuple(_numbers(more[8]))
    # Of whose columns only a beginning counts: pairs of a column and a length.
    return tuple(_numbers(more.get(9, b""))[::2])


def rows(event: Rows, readers: Sequence[Read]) -> Iterator[tuple[Values, Values | None]]:
    """Each row as it is, or was; and of an update as it is behind it.

    A value that the row does not have is UNCHANGED.

    Raises:
        NotUnderstood
    """
    if event.width != len(readers):
        raise NotUnderstood(f"rows of {event.width} columns, and the table has {len(readers)}")
    data, at, end = event.data, 0, len(event.data)
    first = _present(event.present, readers)
    second = _present(event.present_after, readers) if event.op == "u" else None
    try:
        while at < end:
            row, at = _row(data, at, first)
            after = None
            if second is not None:
                after, at = _row(data, at, second)
            yield row, after
    except (IndexError, struct.error, ValueError, OverflowError) as error:
        raise NotUnderstood(f"a row can't be read: {error}") from error
    if at != end:
        raise NotUnderstood("a row that is longer than its event")


def _present(bitmap: bytes, readers: Sequence[Read]) -> list[Read | None]:
    return [each if bitmap[at >> 3] & (1 << (at & 7)) else None for at, each in enumerate(readers)]


def _row(data: bytes, at: int, readers: Sequence[Read | None]) -> tuple[Values, int]:
    count = len(readers) - readers.count(None)
    size = (count + 7) >> 3
    nulls = int.from_bytes(data[at : at + size], "little")
    at += size
    values: list[str | Unchanged | None] = []
    add = values.append
    if not nulls and count == len(readers):
        # Most rows are like this, and a row costs more than all that is around it.
        for whole in cast("Sequence[Read]", readers):
            text, at = whole(data, at)
            add(text)
        return values, at
    bit = 1
    for read in readers:
        if read is None:
            add(UNCHANGED)
            continue
        if nulls & bit:
            add(None)
        else:
            text, at = read(data, at)
            add(text)
        bit <<= 1
    return values, at
