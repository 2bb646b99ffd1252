"""Text of others on a person's terminal: it shows what it is, and does nothing. Pure.

Whoever may write a record, an event, a status or a line of a log could otherwise colour, overwrite or hide what the
terminal shows beside it.
"""

from __future__ import annotations

import unicodedata

_KEPT = frozenset("\n\t")
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = 0xFFFF


def printable(text: str) -> str:
    """Characters that steer a terminal or hide text are written as escapes, of the form that JSON has too."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def one_line(text: str) -> str:
    """For the cell of a table: a second line in it could pass for a row."""
    return " ".join(text.split("\n"))


def _escaped(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _HARMFUL:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= _SHORT else f"\\U{code:08x}"
