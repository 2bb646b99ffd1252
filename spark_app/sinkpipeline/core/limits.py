"""What a topic takes, as its configuration says, and how far our clock may be believed about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

DEFAULT_BYTES = 1_048_588
"""Kafka's max.message.bytes where nobody has set another."""
_LEAST_BYTES, _MOST_BYTES = 1_000, 1_000_000_000
"""What the client takes as its own limit; the broker has the last word on either side."""
_FOR_EVER_MS = 2**62
_SLACK_MS = 60_000
"""A timestamp that is always the same comes nearer to the limit as time goes by, and is asked about once in so long."""


@dataclass(frozen=True, kw_only=True)
class TopicLimits:
    """Of one topic, at the moment when they were read."""

    partitions: int
    message_bytes: int = DEFAULT_BYTES
    """Of one record batch."""
    max_age_ms: int | None = None
    """How far back a record's timestamp may be; None for any."""
    max_ahead_ms: int | None = None
    needs_key: bool = False
    """Whether a record without a key is refused, as by a compacted topic."""
    parts: Mapping[str, TopicLimits] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """By name, those of each topic, where a sink has several; the others are the strictest of them then."""

    @property
    def most_bytes(self) -> int:
        """Of one record batch, for the topic that takes most."""
        return max((each.message_bytes for each in self.parts.values()), default=self.message_bytes)

    @classmethod
    def of_several(cls, parts: Mapping[str, TopicLimits]) -> TopicLimits:
        """What keeps to these keeps to those of each. Timestamps are left to the brokers, who say for which topic."""
        found = parts.values()
        return cls(
            partitions=min(each.partitions for each in found),
            message_bytes=min(each.message_bytes for each in found),
            needs_key=any(each.needs_key for each in found),
            parts=MappingProxyType(dict(parts)),
        )

    @classmethod
    def of(cls, partitions: int, config: Mapping[str, str]) -> TopicLimits:
        size = int(config.get("max.message.bytes", DEFAULT_BYTES))
        return cls(
            partitions=partitions,
            message_bytes=min(max(size, _LEAST_BYTES), _MOST_BYTES),
            max_age_ms=_timestamp_limit(config, "before"),
            max_ahead_ms=_timestamp_limit(config, "after"),
            needs_key=is_compacted(config),
        )


UNKNOWN = TopicLimits(partitions=1)
"""Of a topic that isn't there."""


def is_compacted(config: Mapping[str, str]) -> bool:
    return "compact" in config.get("cleanup.policy", "")


def _timestamp_limit(config: Mapping[str, str], side: str) -> int | None:
    limit = config.get(f"message.timestamp.{side}.max.ms")
    by_broker = config.get("message.timestamp.type") == "LogAppendTime"
    return None if limit is None or by_broker or int(limit) >= _FOR_EVER_MS else int(limit)


@dataclass(frozen=True)
class Clock:
    """What brokers have shown about our clock, by which we find timestamps beyond a limit.

    A timestamp is beyond by so many milliseconds: positive where it is too late, negative where it is too early.
    """

    is_wrong: bool = False
    """A broker took what was too late or too early for us: from then on only they judge."""
    late_ms: int | None = None
    """A broker refused what was this much too late for us, and so refuses all that is later."""
    early_ms: int | None = None

    def is_proved(self, beyond_ms: int) -> bool:
        """Whether a broker would refuse it too: none has our clock wrong by just so much."""
        known = self.late_ms if beyond_ms > 0 else self.early_ms
        return known is not None and abs(beyond_ms) >= known - _SLACK_MS

    def refused(self, beyond_ms: int) -> Clock:
        if beyond_ms > 0:
            return replace(self, late_ms=_least(self.late_ms, beyond_ms))
        return replace(self, early_ms=_least(self.early_ms, -beyond_ms))

    def taken(self) -> Clock:
        return replace(self, is_wrong=True)


def _least(known: int | None, found: int) -> int:
    return found if known is None else min(known, found)
