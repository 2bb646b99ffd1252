"""Rows for people: columns where they fit, and blocks on a terminal that is too narrow for them."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence

from rich.cells import cell_len

from sinkpipeline.core.printable import one_line

_GAP = 2


def terminal_width() -> int | None:
    """Of standard output; None where that is no terminal, and a table may be as wide as it needs to be."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = (), heads: int, width: int | None
) -> str:
    """Rows under the names of their columns, without an end of line.

    Args:
        names: of the columns, as programs have them; people read them in capitals.
        rows: the cells.
        right: the columns with numbers.
        heads: how many columns, the first ones, say what a row is about: in a block they are its first line.
        width: of the terminal; None where it doesn't matter.
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    lines = [[name.upper() for name in names], *rows]
    widths = [max(cell_len(line[index]) for line in lines) for index in range(len(names))]
    if width is not None and sum(widths) + _GAP * (len(names) - 1) > width:
        return "\n".join(_block(names, row, heads, width) for row in rows)
    return "\n".join(
        (" " * _GAP)
        .join(_padded(cell, size, right=name in right) for name, cell, size in zip(names, line, widths, strict=True))
        .rstrip()
        for line in lines
    )


def _padded(cell: str, width: int, *, right: bool) -> str:
    rest = " " * (width - cell_len(cell))
    return f"{rest}{cell}" if right else f"{cell}{rest}"


def _block(names: Sequence[str], row: Sequence[str], heads: int, width: int) -> str:
    pairs = [f"{name}\xa0{cell}" for name, cell in zip(names[heads:], row[heads:], strict=True) if cell]
    # What belongs together stays on one line.
    body = textwrap.wrap(
        "  ".join(pairs), width - _GAP, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    head = [" ".join(row[:heads])] if heads else []
    return "\n".join([*head, *(f"{' ' * _GAP}{line}".replace("\xa0", " ") for line in body)])
