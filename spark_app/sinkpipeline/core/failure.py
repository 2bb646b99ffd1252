"""Layer 1 of failures: how often a sink is tried again, and when its circuit opens."""

from __future__ import annotations

from dataclasses import dataclass

from sinkpipeline.core import manifest


@dataclass(frozen=True, kw_only=True)
class FailurePolicy:
    """`spec.failurePolicy`; all durations in seconds."""

    max_consecutive_failures: int = 5
    initial_backoff_s: float = 5.0
    max_backoff_s: float = 300.0
    reset_after_s: float = 600.0

    @classmethod
    def of(cls, spec: manifest.FailurePolicy) -> FailurePolicy:
        return cls(
            max_consecutive_failures=spec.max_consecutive_failures,
            initial_backoff_s=spec.backoff.initial.milliseconds / 1000,
            max_backoff_s=spec.backoff.max.milliseconds / 1000,
            reset_after_s=spec.reset_after.milliseconds / 1000,
        )

    def backoff_s(self, failures: int) -> float:
        """The delay after the n-th consecutive failure: doubled each time, up to the maximum."""
        return min(self.max_backoff_s, self.initial_backoff_s * 2.0 ** min(failures - 1, 60))


FETCH_PATIENCE_S = 10.0
"""So long a batch waits for the source's next records at first: a partition without a leader should not hold cores."""
_MAX_FETCH_PATIENCE_S = 300.0
_MARGIN_S = 5.0


def fetch_patience_s(broker_waits_s: float, before_s: float | None = None) -> float:
    """For how long the next query waits for records: longer than brokers do by order, and twice as long as in vain.

    Args:
        broker_waits_s: `fetch.max.wait.ms` of the source, for which a broker may hold an answer back.
        before_s: for how long the last query waited in vain; None where it didn't.
    """
    least = max(FETCH_PATIENCE_S, broker_waits_s + _MARGIN_S)
    return least if before_s is None else max(least, min(2 * before_s, _MAX_FETCH_PATIENCE_S))


@dataclass(frozen=True)
class Health:
    """For how long a sink has been seen to work since it last started: from the first time it showed to the last.

    The time since the last one is none of it: a batch that fails after an hour of trying has not worked for an hour.
    """

    first: float | None = None
    """Seconds of a monotonic clock."""
    last: float | None = None

    @classmethod
    def of(cls, seconds: float) -> Health:
        """Of something that was seen to work for so long, or not at all."""
        return cls(0.0, seconds) if seconds > 0 else cls()

    def seen_at(self, now: float) -> Health:
        """Once more: a batch was committed, or it was looked at while nothing waited for it."""
        return Health(now if self.first is None else self.first, now)

    @property
    def was_seen(self) -> bool:
        return self.first is not None

    @property
    def seconds(self) -> float:
        return 0.0 if self.first is None or self.last is None else self.last - self.first


@dataclass(frozen=True, kw_only=True)
class Failures:
    """The consecutive failures of one sink. Partial progress does not clear them, only health for `reset_after_s`."""

    consecutive: int = 0
    outages: int = 0
    """How often it was tried in vain since the cluster went away; that delays, and opens no circuit."""

    def after_failure(self, policy: FailurePolicy, health: Health, *, counted: bool = True) -> Failures:
        """The failures with one more.

        Args:
            policy: the pipeline's.
            health: of the start that failed; the time of trying again is none of it.
            counted: false for an outage of the cluster.
        """
        before = 0 if health.seconds >= policy.reset_after_s else self.consecutive
        if counted:
            return Failures(consecutive=before + 1)
        return Failures(consecutive=before, outages=1 if health.was_seen else self.outages + 1)

    def backoff_s(self, policy: FailurePolicy) -> float:
        """How long to wait before the next try."""
        return policy.backoff_s(max(1, self.outages or self.consecutive))

    def circuit_is_open(self, policy: FailurePolicy) -> bool:
        return self.consecutive >= policy.max_consecutive_failures
