"""What a statement in a binary log is told with: variables of its session, before its text.

Each is a code and a value whose length the code tells; who meets one that it does not know can't read on.

Source: MySQL's documentation, "Query_event", MariaDB's, "QUERY_EVENT", and what servers of 8.0, 8.4, 10.11 and 11.8
have sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_CHARSET: Final = 4
_INVOKER: Final = 11
_DATABASES: Final = 12
_TOO_MANY: Final = 254
_COUNTED: Final = frozenset({5, 6})
"""A byte that says how long the text is, and the text."""
_SIZES: Final[Mapping[int, int]] = MappingProxyType(
    {0: 4, 1: 8, 3: 4, _CHARSET: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8}
)


def collation_of(data: bytes) -> int | None:
    """The number of a collation of the character set in which the statement is; None: they do not say it.

    Raises:
        IndexError: they end too early.
    """
    at = 0
    while at < len(data):
        code, at = data[at], at + 1
        if code == _CHARSET:
            return int.from_bytes(data[at : at + 2], "little")
        if code in _SIZES:
            at += _SIZES[code]
        elif code in _COUNTED:
            at += 1 + data[at]
        elif code == 2:  # noqa: PLR2004 - a text, and a zero behind it
            at += 2 + data[at]
        elif code == _INVOKER:
            at += 1 + data[at]
            at += 1 + data[at]
        elif code == _DATABASES:
            count, at = data[at], at + 1
            for _ in range(0 if count == _TOO_MANY else count):
                at = data.index(0, at) + 1
        else:
            break
    return None
