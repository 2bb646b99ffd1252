"""How JSON has the text of a column: as a number, where that is exactly the same, and as a text otherwise."""

from __future__ import annotations

import base64
import enum
import math
from collections.abc import Callable
from json.encoder import encode_basestring

from sinkpipeline.core.changes.pgoutput import NotUnderstood

_EXACT_DIGITS = 15
_MOST_EXACT = 2**53
_TEXT = encode_basestring


class Spelling(enum.IntEnum):
    """Types of columns that are none of PostgreSQL's, by how JSON has their texts; beside those, which are oids."""

    NUMBER = -1
    LARGE = -2
    """A whole number that may be beyond 2^53."""
    TEXT = -3


def _boolean(text: str) -> str:
    return "true" if text == "t" else "false"


def _float(text: str) -> str:
    return text if math.isfinite(float(text)) else _TEXT(text)


def _bytes(text: str) -> str:
    if not text.startswith("\\x"):
        raise NotUnderstood("a bytea that is not in hexadecimal digits")
    return f'"{base64.b64encode(bytes.fromhex(text[2:])).decode()}"'


def _large(text: str) -> str:
    return text if len(text) <= _EXACT_DIGITS or abs(int(text)) <= _MOST_EXACT else f'"{text}"'


def _number(text: str) -> str:
    return text


def spelling(kind: int, *, large_as_text: bool) -> Callable[[str], str]:
    """How a value of a type is written: as a text, where JSON has nothing that is exactly the same."""
    match kind:
        case 21 | 23 | 26 | Spelling.NUMBER:
            return _number
        case 20 | Spelling.LARGE:
            return _large if large_as_text else _number
        case 16:
            return _boolean
        case 700 | 701:
            return _float
        case 17:
            return _bytes
        case _:
            return _TEXT
