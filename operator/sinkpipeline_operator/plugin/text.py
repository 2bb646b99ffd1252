"""Words of one style: ages, numbers and columns as kubectl has them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sinkpipeline.core.printable import one_line
from sinkpipeline_operator.kube.times import milliseconds

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_TWICE = 2
"""Up to so many of a unit it is told in the next smaller one."""
_FURTHER = 4


def age(since: str | None, now_ms: int) -> str:
    """How long ago a timestamp was: `90s`, `12m`, `3h`; `?` where there is none."""
    then = milliseconds(since)
    if then is None:
        return "?"
    seconds = max(0, (now_ms - then) // 1000)
    unit, size = next((each for each in _UNITS if seconds >= _TWICE * each[1]), _UNITS[-1])
    return f"{seconds // size}{unit}"


def number(value: object) -> str:
    """With its thousands apart; `?` where it is not known."""
    return f"{value:,}" if isinstance(value, int) else "?"


def columns(rows: Iterable[Sequence[str]], right: Iterable[int] = (), gap: int = 2) -> list[str]:
    """Rows as lines, each column as wide as it must be; `right`: which of them are numbers."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numbers = frozenset(right)
    return [
        (" " * gap)
        .join(
            cell.rjust(width) if index in numbers else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        .rstrip()
        for row in cells
    ]


def indented(lines: Iterable[str], by: int = 2) -> list[str]:
    """Of a text of several lines the others are further in: none of them passes for a line of the page."""
    return [f"{' ' * by}{line}".replace("\n", f"\n{' ' * (by + _FURTHER)}") if line else "" for line in lines]
