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
    outages: int = 0
    """How often it was tried in vain since the cluster went away; that delays, and opens no circuit."""

    def after_failure(self, policy: FailurePolicy, healthy_s: float, *, counted: bool = True) -> Failures:
        """The failures with one more.

        Args:
            policy: the pipeline's.
            healthy_s: for how long the sink had worked before it failed; the time of trying again is none of it.
            counted: false for an outage of the cluster.
        """
        before = 0 if healthy_s >= policy.reset_after_s else self.consecutive
        if counted:
            return Failures(consecutive=before + 1)
        return Failures(consecutive=before, outages=1 if healthy_s > 0 else self.outages + 1)

    def backoff_s(self, policy: FailurePolicy) -> float:
        """How long to wait before the next try."""
        return policy.backoff_s(max(1, self.outages or self.consecutive))

    def circuit_is_open(self, policy: FailurePolicy) -> bool:
        return self.consecutive >= policy.max_consecutive_failures
