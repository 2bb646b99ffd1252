"""Kubernetes' timestamps."""

from __future__ import annotations

from datetime import datetime


def milliseconds(text: str | None) -> int | None:
    """Unix milliseconds of an RFC 3339 timestamp; None where there is none."""
    return None if text is None else int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
