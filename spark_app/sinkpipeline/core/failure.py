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


@dataclass(frozen=True, kw_only=True)
class Failures:
    """The consecutive failures of one sink. Partial progress does not clear them, only health for `reset_after_s`."""

    consecutive: int = 0

    def after_failure(self, policy: FailurePolicy, healthy_s: float) -> Failures:
        """`healthy_s`: for how long the sink had worked before it failed; the time of trying again is none of it."""
        return Failures(consecutive=1 if healthy_s >= policy.reset_after_s else self.consecutive + 1)

    def circuit_is_open(self, policy: FailurePolicy) -> bool:
        return self.consecutive >= policy.max_consecutive_failures
