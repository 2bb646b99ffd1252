"""Texts that must fit."""

from __future__ import annotations


def shortened(text: str, most: int) -> str:
    """At most so many characters of it; one that is cut ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
