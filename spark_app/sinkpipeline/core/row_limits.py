"""What rows must keep to, as a batch is judged by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_BOUNDLESS = frozenset({0, -1})
"""The client's now, and what Kafka calls none."""


@dataclass(frozen=True)
class Limits:
    """What rows must keep to."""

    partitions: int
    """Of the data topic."""
    row_bytes: int | None = None
    """How large one row may be; None where the producer refuses it."""
    earliest: int | None = None
    """The bounds of timestamps in milliseconds."""
    latest: int | None = None
    keyed: bool = False
    """Whether each needs a key."""
    topics: Mapping[str, Limits] | None = None
    """Where rows name their topics: of each. The others are the strictest of them then."""

    def beyond_ms(self, timestamp: int) -> int:
        """By how much a timestamp is too late; negative where it is too early, 0 where it is neither."""
        if timestamp in _BOUNDLESS:
            return 0
        if self.earliest is not None and timestamp < self.earliest:
            return timestamp - self.earliest
        return max(0, timestamp - self.latest) if self.latest is not None else 0
