"""Rows as COPY ... TO STDOUT tells them, in its text format: the same texts of values as the replication stream has.

Source: PostgreSQL's documentation, COPY, "Text Format".
"""

from __future__ import annotations

import re
from typing import Final

from sinkpipeline.core.changes.pgoutput import NotUnderstood, Values

_NULL: Final = "\\N"
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MEANS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse_row(line: bytes) -> Values:
    """The text of each column; None for a null.

    Raises:
        NotUnderstood
    """
    if line[-1:] != b"\n":
        raise NotUnderstood("a row of a COPY without its end")
    text = line[:-1].decode()
    if "\\" not in text:
        return list(text.split("\t"))
    # A tab within a value is escaped, so each one that is left is between two.
    return [None if each == _NULL else _plain(each) for each in text.split("\t")]


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: _MEANS.get(found[1], found[1]), text) if "\\" in text else text
