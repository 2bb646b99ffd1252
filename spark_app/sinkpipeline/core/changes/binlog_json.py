"""JSON as MySQL stores and logs it, in bytes of its own: to the text that the server prints.

    value        a byte of its type, and what follows for that
    object       count, size, a place and a length of each key, a type and a place of each value, keys, values
    array        the same without keys

Places count from the object's or the array's own beginning. In large ones numbers have four bytes instead of two.

Source: the comment in MySQL's `sql-common/json_binary.h`, and what a server of version 8.4 has sent.
"""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal
from typing import Final

from sinkpipeline.core.changes.binlog_decimal import Read, decimal_reader
from sinkpipeline.core.changes.pgoutput import NotUnderstood

_LITERALS: Final = ("null", "true", "false")
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _TEXT = range(5, 13)
_OPAQUE: Final = 15
_WHOLE: Final = {_INT16: (2, True), _UINT16: (2, False), _INT32: (4, True), _UINT32: (4, False), _INT64: (8, True)} | {
    _UINT64: (8, False)
}
_MOST_DEEP: Final = 100
"""What the server allows."""
_DECIMAL, _TIMESTAMP, _DATE, _TIME, _DATETIME = 246, 7, 10, 11, 12
_REAL = struct.Struct("<d")
_LINE: Final = 76
"""Characters of base64 that the server writes before it begins a new line."""
_NEW_LINE: Final = "\\n"
"""As JSON spells it."""
_PLAIN: Final = 15
"""Before zeros up to so many digits the server writes no exponent."""


def json_reader(width: int) -> Read:
    """How a column of JSON is read, whose length stands before it in so many bytes."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        begin = at + width
        end = begin + int.from_bytes(data[at:begin], "little")
        return json_text(data[begin:end]), end

    return read


def json_text(data: bytes) -> str:
    """What the server prints for it.

    Raises:
        NotUnderstood, IndexError, struct.error, ValueError
    """
    # What INSERT IGNORE has made of nothing.
    # A part of a view is none of its bytes again: a document may have a million of parts.
    return _value(data[0], memoryview(data), 1, 0) if data else "null"


def _value(kind: int, data: memoryview, at: int, depth: int) -> str:
    if kind in _WHOLE:
        size, is_signed = _WHOLE[kind]
        return str(int.from_bytes(_exactly(data, at, size), "little", signed=is_signed))
    match kind:
        case 0 | 1 | 2 | 3:
            return _members(kind, data[at:], depth + 1)
        case 4:
            return _LITERALS[data[at]]
        case 11:
            return _number(_REAL.unpack_from(data, at)[0])
        case 12:
            size, at = _length(data, at)
            return _quoted(_exactly(data, at, size))
        case 15:
            size, begin = _length(data, at + 1)
            return _opaque(data[at], _exactly(data, begin, size))
        case _:
            raise NotUnderstood(f"a value of JSON of type {kind}")


def _members(kind: int, data: memoryview, depth: int) -> str:
    if depth > _MOST_DEEP:
        raise NotUnderstood("a value of JSON that is too deep")
    width = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
    count = int.from_bytes(_exactly(data, 0, width), "little")
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    at = 2 * width
    keys = []
    if is_object:
        for _ in range(count):
            begin = int.from_bytes(_exactly(data, at, width), "little")
            keys.append(_quoted(_exactly(data, begin, int.from_bytes(_exactly(data, at + width, 2), "little"))))
            at += width + 2
    values = []
    for _ in range(count):
        what = data[at]
        # Small values stand where the place of others does.
        is_here = what in (_LITERAL, _INT16, _UINT16) or (width == 4 and what in (_INT32, _UINT32))  # noqa: PLR2004
        place = at + 1 if is_here else int.from_bytes(_exactly(data, at + 1, width), "little")
        values.append(_value(what, data, place, depth))
        at += 1 + width
    if not is_object:
        return f"[{', '.join(values)}]"
    return f"{{{', '.join(f'{key}: {value}' for key, value in zip(keys, values, strict=True))}}}"


def _exactly(data: memoryview | bytes, at: int, size: int) -> bytes:
    found = bytes(data[at : at + size])
    if len(found) != size:
        raise NotUnderstood("a value of JSON that is cut off")
    return found


def _length(data: memoryview, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first."""
    found = 0
    for number in range(5):
        byte = data[at + number]
        found |= (byte & 0x7F) << (7 * number)
        if not byte & 0x80:
            return found, at + number + 1
    raise NotUnderstood("a length in a value of JSON that does not end")


def _quoted(data: bytes) -> str:
    return json.dumps(data.decode(), ensure_ascii=False)


def _number(value: float) -> str:
    """The fewest digits that mean it, as the server spells them."""
    sign, figures, exponent = Decimal(repr(value)).as_tuple()
    digits = "".join(map(str, figures)).rstrip("0") or "0"
    point = len(figures) + int(exponent)
    minus = "-" if sign else ""
    if digits == "0":
        return f"{minus}0.0"
    if -_PLAIN < point <= max(_PLAIN, len(digits) - 1):
        whole, behind = digits[: max(0, point)].ljust(point, "0") or "0", digits[max(0, point) :]
        return f"{minus}{whole}.{'0' * -point}{behind or 0}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{minus}{digits[0]}{fraction}e{point - 1}"


def _opaque(kind: int, data: bytes) -> str:
    """What JSON itself does not have."""
    match kind:
        case 246:
            return decimal_reader(data[0], data[1])(data[2:], 0)[0]
        case 7 | 10 | 11 | 12:
            return f'"{_moment(kind, int.from_bytes(_exactly(data, 0, 8), "little", signed=True))}"'
        case _:
            text = base64.b64encode(data).decode()
            lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
            return f'"base64:type{kind}:{_NEW_LINE.join(lines)}"'


def _moment(kind: int, packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    part, clock = packed & 0xFFFFFF, packed >> 24
    if kind == _TIME:
        return f"{sign}{clock >> 12 & 1023:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{part:06d}"
    day, clock = clock >> 17, clock & 0x1FFFF
    months = day >> 5
    text = f"{months // 13:04d}-{months % 13:02d}-{day & 31:02d}"
    if kind == _DATE:
        return text
    return f"{text} {clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{part:06d}"
