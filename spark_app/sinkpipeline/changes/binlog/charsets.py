"""Texts of the server's character sets: those that Python reads alike, and all others as the server itself says.

Python has its own idea of many of them: of greek, hebrew and koi8u, of cp932 and euckr, a character here and there is
another one, and bytes that a server stores are none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sinkpipeline.core.changes.binlog_values import Decode, decoder

Ask = Callable[[str, bytes], str]
"""What the server makes of bytes of a character set."""
ALIKE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "utf8mb3": "utf-8",
        "utf8mb4": "utf-8",
        "utf8": "utf-8",
        "latin1": "cp1252",
        "latin2": "iso8859-2",
        "latin5": "iso8859-9",
        "latin7": "iso8859-13",
        "cp850": "cp850",
        "cp852": "cp852",
        "koi8r": "koi8-r",
        "ucs2": "utf-16-be",
        "utf16": "utf-16-be",
        "utf16le": "utf-16-le",
        "utf32": "utf-32-be",
    }
)
"""Python's names: each was compared with servers, character by character."""
_ASCII: Final = [chr(each) for each in range(128)]
_REMEMBERED: Final = 10_000
_SHORT: Final = 256
"""Bytes of a text, at most, that is remembered: long ones seldom come again."""


def decode_of(charset: str, ask: Ask, *, is_single: bool) -> Decode | None:
    """How texts of a character set are read; None where they are bytes.

    Args:
        charset: its name.
        ask: the server.
        is_single: whether each of its characters is one byte.
    """
    if charset == "binary":
        return None
    if charset in ALIKE:
        return decoder(ALIKE[charset])
    if is_single:
        return _by_table(charset, ask)

    remembered = lru_cache(maxsize=_REMEMBERED)(lambda data: ask(charset, data))

    def asked(data: bytes) -> str:
        if data.isascii():
            return data.decode("ascii")
        return remembered(data) if len(data) <= _SHORT else ask(charset, data)

    return asked


def _by_table(charset: str, ask: Ask) -> Decode:
    table: list[str] = []

    def decode(data: bytes) -> str:
        if not table:
            table.extend(ask(charset, bytes(range(256))))
        if data.isascii() and table[:128] == _ASCII:
            return data.decode()
        return "".join([table[each] for each in data])

    return decode
