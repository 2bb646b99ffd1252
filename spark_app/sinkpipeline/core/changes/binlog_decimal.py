"""Decimal numbers as a binary log packs them: nine digits in four bytes, so that bytes compare as numbers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Read = Callable[[bytes, int], tuple[str, int]]
"""From a row's bytes, and where a value begins there, to its text, and the place behind it."""

_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of so many decimal digits."""


def decimal_reader(precision: int, scale: int) -> Read:
    """How a number of so many digits is read, of which so many are behind the point."""
    before, behind = precision - scale, scale
    widths = [(before % 9, _DIGITS[before % 9])] if before % 9 else []
    widths += [(9, 4)] * (before // 9)
    point = len(widths)
    widths += [(9, 4)] * (behind // 9)
    widths += [(behind % 9, _DIGITS[behind % 9])] if behind % 9 else []
    size = sum(width for _, width in widths)
    top, every = 1 << (8 * size - 1), (1 << 8 * size) - 1
    behind_it = [8 * sum(width for _, width in widths[number + 1 :]) for number in range(len(widths))]
    fields = [(digits, shift, (1 << 8 * width) - 1) for (digits, width), shift in zip(widths, behind_it, strict=True)]

    def read(data: bytes, at: int) -> tuple[str, int]:
        # The first bit is the sign, upside down; of a negative number all others are, too.
        packed = int.from_bytes(data[at : at + size], "big") ^ top
        is_negative = packed & top
        if is_negative:
            packed ^= every
        parts = []
        for digits, shift, mask in fields:
            parts.append(str(packed >> shift & mask).zfill(digits))
        whole = "".join(parts[:point]).lstrip("0") or "0"
        text = f"{whole}.{''.join(parts[point:])}" if scale else whole
        return f"-{text}" if is_negative else text, at + size

    return read
