r"""A row of this kind: a line of COPY's text format, without its end, in the value of a `Row`.

    columns ... \t t or f: whether it is a deletion \t what orders it \t {2,3}: columns that stay as they are

The last three where an `Upsert` has them; columns are counted from 1 on.

So any type travels as PostgreSQL's own input reads it, and a commit is made without looking at a single value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sinkpipeline.core.records import Row

NULL = b"\\N"
_NEEDS = ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r"))


def line(values: Sequence[str | bytes | None]) -> bytes:
    """The line of one row."""
    return b"\t".join(map(_field, values))


def row(values: Sequence[str | bytes | None]) -> Row:
    return line(values), None, -1, 0, None


def _field(value: str | bytes | None) -> bytes:
    if value is None:
        return NULL
    field = value.encode() if isinstance(value, str) else value
    for raw, escaped in _NEEDS:
        field = field.replace(raw, escaped)
    return field


def text(rows: Iterable[Row], *, numbered: bool) -> bytes:
    """All lines; `numbered`: behind the place of each, from 0 on."""
    lines = (value or b"" for value, *_ in rows)
    if numbered:
        lines = (b"%d\t%b" % each for each in enumerate(lines))
    return b"".join(b"%b\n" % each for each in lines)


_IS = {b"\\": b"\\", b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def values(line: bytes) -> list[str | None]:
    """What a line holds, as `line` was given it."""
    return [None if field == NULL else _raw(field).decode(errors="replace") for field in line.split(b"\t")]


def _raw(field: bytes) -> bytes:
    return re.sub(rb"\\(.)", lambda found: _IS.get(found[1], found[1]), field, flags=re.DOTALL)
