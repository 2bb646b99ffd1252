"""Values in a binary log of MariaDB or MySQL: bytes to the text of a value, as the server would print it, in UTC.

What JSON has exactly, such as a whole number, is spelled so by `values.py`; bytes are base64, bits are their digits, a
timestamp has its offset. A zero date is the text 0000-00-00, and no null.

Source: MariaDB's documentation, "Rows Event", and what servers of MariaDB 10.11 and MySQL 8.4 have sent.
"""

from __future__ import annotations

import base64
import ipaddress
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sinkpipeline.core.changes.binlog_compressed import uncompressed
from sinkpipeline.core.changes.binlog_decimal import Read, decimal_reader
from sinkpipeline.core.changes.binlog_json import json_reader
from sinkpipeline.core.changes.pgoutput import NotUnderstood
from sinkpipeline.core.changes.spelling import Spelling

BINARY: Final = 63
"""The collation of bytes."""
_BYTE: Final = 0xFF
_TWO: Final = tuple(f"{each:02d}" for each in range(128))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")

Decode = Callable[[bytes], str]
"""The text of bytes; ValueError where they are none."""


class NotServed(Exception):
    """A table whose rows can't be read by us as they are logged."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(fact)
        self.fact = fact
        self.remedy = remedy


@dataclass(frozen=True, kw_only=True)
class LoggedColumn:
    """Of a table, as the log tells it."""

    name: str
    type: int
    meta: int
    unsigned: bool = False
    collation: int = BINARY
    members: tuple[bytes, ...] = ()
    """Of an enum or a set, in the column's character set."""


def reader(column: LoggedColumn, decode: Callable[[int], Decode | None], special: str = "") -> tuple[Read, int]:
    """How a column is read, and how JSON has it.

    Args:
        column: as the log tells it.
        decode: how texts of a collation are read; None: they are bytes.
        special: what the column is beyond what the log tells: uuid, inet4 or inet6.

    Raises:
        NotServed, NotUnderstood
    """
    try:
        return _reader(column, decode, special)
    except (IndexError, ValueError) as error:
        raise NotUnderstood(f"column {column.name} can't be read: {error}") from error


def _reader(column: LoggedColumn, decode: Callable[[int], Decode | None], special: str) -> tuple[Read, int]:  # noqa: PLR0911, PLR0912, C901 - a type a line
    if special:
        return _special(special), Spelling.TEXT
    match column.type:
        case 1 | 2 | 3 | 9:
            size = {1: 1, 2: 2, 3: 4, 9: 3}[column.type]
            return _whole(size, signed=not column.unsigned), Spelling.NUMBER
        case 8:
            return _whole(8, signed=not column.unsigned), Spelling.LARGE
        case 4:
            return _float, Spelling.NUMBER
        case 5:
            return _double, Spelling.NUMBER
        case 13:
            return _year, Spelling.NUMBER
        case 10 | 14:
            return _date, Spelling.TEXT
        case 17 | 18 | 19:
            of = {17: _timestamp, 18: _datetime, 19: _time}[column.type]
            return of(column.meta), Spelling.TEXT
        case 7 | 11 | 12:
            return {7: _old_timestamp, 11: _old_time, 12: _old_datetime}[column.type], Spelling.TEXT
        case 246:
            return decimal_reader(column.meta >> 8, column.meta & 0xFF), Spelling.TEXT
        case 16:
            return _bit((column.meta >> 8) * 8 + (column.meta & 0xFF)), Spelling.TEXT
        case 247:
            return _enum(_names(column, decode), column.meta & _BYTE), Spelling.TEXT
        case 248:
            if decode(column.collation) is None:
                return _set_of_bytes(column.members, column.meta & _BYTE), Spelling.TEXT
            return _set(_names(column, decode), column.meta & _BYTE), Spelling.TEXT
        case 15 | 253:
            return _string(1 if column.meta <= _BYTE else 2, decode(column.collation)), Spelling.TEXT
        case 254:
            width = 1 if column.meta <= _BYTE else 2
            pad = column.meta if column.collation == BINARY else 0
            return _string(width, decode(column.collation), pad), Spelling.TEXT
        case 252:
            return _string(column.meta, decode(column.collation)), Spelling.TEXT
        case 140:
            return _compressed(column.meta, decode(column.collation)), Spelling.TEXT
        case 141:
            return _compressed(1 if column.meta <= _BYTE else 2, decode(column.collation)), Spelling.TEXT
        case 255 | 242:
            return _string(column.meta, None), Spelling.TEXT
        case 245:
            return json_reader(column.meta), Spelling.TEXT
        case _:
            fact = f"column {column.name} is of a type that is logged as number {column.type}, and can't be read"
            raise NotServed(fact, "leave out its table")


def _whole(size: int, *, signed: bool) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + size
        return str(int.from_bytes(data[at:end], "little", signed=signed)), end

    return read


def shortest(value: float) -> str:
    """Of a number of 32 bits: the fewest digits that mean it."""
    for digits in range(6, 9):
        text = f"{value:.{digits}g}"
        if _FLOAT.unpack(_FLOAT.pack(float(text)))[0] == value:
            return repr(float(text))
    return repr(float(f"{value:.9g}"))


def _float(data: bytes, at: int) -> tuple[str, int]:
    return shortest(_FLOAT.unpack_from(data, at)[0]), at + 4


def _double(data: bytes, at: int) -> tuple[str, int]:
    return repr(_DOUBLE.unpack_from(data, at)[0]), at + 8


def _year(data: bytes, at: int) -> tuple[str, int]:
    return str(1900 + data[at] if data[at] else 0), at + 1


def _date(data: bytes, at: int) -> tuple[str, int]:
    value = int.from_bytes(data[at : at + 3], "little")
    return f"{value >> 9:04d}-{value >> 5 & 15:02d}-{value & 31:02d}", at + 3


def _fraction(data: bytes, at: int, size: int, digits: int) -> str:
    if not digits:
        return ""
    # Two digits a byte, as a number of that many.
    return f".{str(int.from_bytes(data[at : at + size], 'big')).zfill(2 * size)}"[: digits + 1]


def _timestamp(digits: int) -> Read:
    size = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        return _moment(seconds, _fraction(data, at + 4, size, digits)), at + 4 + size

    return read


def _moment(seconds: int, fraction: str = "") -> str:
    if not seconds and not fraction.strip(".0"):
        return f"0000-00-00 00:00:00{fraction}"
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}{fraction}+00"


@lru_cache(maxsize=4096)
def _day(days: int) -> str:
    """Of months times 32 and a day; a table's rows are of few days."""
    months = days >> 5
    return f"{months // 13:04d}-{months % 13:02d}-{days & 31:02d}"


def _datetime(digits: int) -> Read:
    size = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        value = int.from_bytes(data[at : at + 5], "big") - (1 << 39)
        clock = value & 0x1FFFF
        text = f"{_day(value >> 17)} {_TWO[clock >> 12]}:{_TWO[clock >> 6 & 63]}:{_TWO[clock & 63]}"
        return text + _fraction(data, at + 5, size, digits), at + 5 + size

    return read


def _time(digits: int) -> Read:
    size = (digits + 1) // 2
    width = 3 + size

    def read(data: bytes, at: int) -> tuple[str, int]:
        # All of it is one number with an offset, so that bytes compare as times do.
        value = int.from_bytes(data[at : at + width], "big") - (1 << (8 * width - 1))
        sign, value = ("-", -value) if value < 0 else ("", value)
        clock, part = value >> (8 * size), value & ((1 << 8 * size) - 1)
        text = f"{sign}{clock >> 12 & 1023:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}"
        return text + (f".{part:0{2 * size}d}"[: digits + 1] if digits else ""), at + width

    return read


def _old_timestamp(data: bytes, at: int) -> tuple[str, int]:
    return _moment(int.from_bytes(data[at : at + 4], "little")), at + 4


def _old_time(data: bytes, at: int) -> tuple[str, int]:
    value = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, value = ("-", -value) if value < 0 else ("", value)
    return f"{sign}{value // 10_000:02d}:{value // 100 % 100:02d}:{value % 100:02d}", at + 3


def _old_datetime(data: bytes, at: int) -> tuple[str, int]:
    text = f"{int.from_bytes(data[at : at + 8], 'little'):014d}"
    return f"{text[:-10]}-{text[-10:-8]}-{text[-8:-6]} {text[-6:-4]}:{text[-4:-2]}:{text[-2:]}", at + 8


def _bit(count: int) -> Read:
    size = (count + 7) // 8

    def read(data: bytes, at: int) -> tuple[str, int]:
        return f"{int.from_bytes(data[at : at + size], 'big'):0{count}b}", at + size

    return read


def _names(column: LoggedColumn, decode: Callable[[int], Decode | None]) -> tuple[str, ...]:
    text = decode(column.collation) or encoded
    return tuple(text(each) for each in column.members)


def _enum(members: Sequence[str], size: int) -> Read:
    # What is none of its members is stored as the empty text, with the number 0.
    names = ("", *members)

    def read(data: bytes, at: int) -> tuple[str, int]:
        return names[int.from_bytes(data[at : at + size], "little")], at + size

    return read


def _set(names: Sequence[str], size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        value = int.from_bytes(data[at : at + size], "little")
        return ",".join(name for bit, name in enumerate(names) if value >> bit & 1), at + size

    return read


def _set_of_bytes(members: Sequence[bytes], size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        value = int.from_bytes(data[at : at + size], "little")
        return encoded(b",".join(each for bit, each in enumerate(members) if value >> bit & 1)), at + size

    return read


def _string(width: int, decode: Decode | None, pad: int = 0) -> Read:
    """`pad`: bytes are followed by zeros up to this length, which are not logged."""

    def read_bytes(data: bytes, at: int) -> tuple[str, int]:
        begin = at + width
        end = begin + int.from_bytes(data[at:begin], "little")
        return encoded(data[begin:end].ljust(pad, b"\0")), end

    if decode is None:
        return read_bytes

    def read_text(data: bytes, at: int) -> tuple[str, int]:
        begin = at + width
        end = begin + int.from_bytes(data[at:begin], "little")
        return decode(data[begin:end]), end

    return read_text


def _compressed(width: int, decode: Decode | None) -> Read:
    """MariaDB's COMPRESSED."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        begin = at + width
        end = begin + int.from_bytes(data[at:begin], "little")
        found = data[begin:end]
        # Short ones are as they are, behind a zero.
        plain = uncompressed(found) if found[:1] > b"\0" else found[1:]
        return encoded(plain) if decode is None else decode(plain), end

    return read


def encoded(data: bytes) -> str:
    """As JSON has bytes."""
    return base64.b64encode(data).decode()


def decoder(codec: str) -> Decode:
    """By Python's name of a character set."""
    if codec.startswith(("utf-16", "utf-32")):
        # A server stores half a surrogate, too, which is no character; MariaDB also in UTF-8.
        return lambda data: data.decode(codec, "replace")
    return _western if codec == "cp1252" else lambda data: data.decode(codec, "replace")


def _western(data: bytes) -> str:
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        # Of the bytes that Windows leaves out, the server has those of ISO 8859-1.
        return "".join(bytes([each]).decode("cp1252" if each not in _LEFT_OUT else "latin1") for each in data)


_LEFT_OUT: Final = frozenset({0x81, 0x8D, 0x8F, 0x90, 0x9D})


def _special(special: str) -> Read:
    size, text = SPECIAL[special]

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 1 + data[at]
        return text(data[at + 1 : end].ljust(size, b"\0")), end

    return read


def _inet(data: bytes) -> str:
    found = ipaddress.ip_address(data)
    if not isinstance(found, ipaddress.IPv6Address):
        return str(found)
    # The server writes the last four bytes so where all before them are zero, or the mark of an IPv4 address.
    head, last = data[:12], ipaddress.IPv4Address(data[12:])
    if head == _MAPPED:
        return f"::ffff:{last}"
    return f"::{last}" if head == bytes(12) and any(data[12:14]) else str(found)


_MAPPED: Final = bytes(10) + b"\xff\xff"


def _uuid(data: bytes) -> str:
    # Those of versions 1 to 5 are stored with the part last that changes first. So the version, which is not 0, stands
    # in byte 8, and the variant in byte 6. As versions from 8 on look there like a variant, both are asked.
    if data[6] & 0x80 and 0 < data[8] <= 0x80:  # noqa: PLR2004 - as the server asks
        data = data[12:16] + data[10:12] + data[8:10] + data[6:8] + data[:6]
    return str(uuid.UUID(bytes=data))


SPECIAL: Final[Mapping[str, tuple[int, Callable[[bytes], str]]]] = MappingProxyType(
    {"inet4": (4, _inet), "inet6": (16, _inet), "uuid": (16, _uuid)}
)
"""Types that are logged as if they were bytes: how many these are, and their text."""
