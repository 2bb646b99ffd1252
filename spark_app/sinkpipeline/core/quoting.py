"""Names as Spark's SQL and DDL have them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
