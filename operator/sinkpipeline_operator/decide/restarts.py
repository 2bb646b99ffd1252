"""When a driver that ended is started again.

A death is noted in the status before anything is done about it, with the uid of the child that it was of: an operator
that is killed in between finds its own note, and counts no death twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sinkpipeline.core.errors import ExitCode, Reason
from sinkpipeline.core.failure import FailurePolicy, Failures, Health
from sinkpipeline.core.status import timestamp
from sinkpipeline_operator.child.driverpod import Child, Death
from sinkpipeline_operator.kube.times import milliseconds

SUPERSEDED_AGAIN_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """`status.restarts`."""

    consecutive: int = 0
    """Deaths that count, since the driver was last healthy for `failurePolicy.resetAfter`."""
    outages: int = 0
    """Deaths in a row of a driver that could not reach Kafka: they delay, and are never too many."""
    total: int = 0
    last_ms: int | None = None
    next_ms: int | None = None
    """Before it nothing is started; None where nothing has to be waited for."""
    last_exit_code: int | None = None
    last_reason: str | None = None
    last_message: str | None = None
    child: str | None = None
    """Whose death was counted last."""
    config_hash: str | None = None
    """What that child ran; None once its deaths are forgotten."""
    nonce: int | None = None
    """The `restartNonce` of that child."""

    @classmethod
    def parse(cls, status: Mapping[str, Any]) -> Restarts:
        found = status.get("restarts") or {}
        return cls(
            consecutive=found.get("consecutive", 0),
            outages=found.get("outages", 0),
            total=found.get("total", 0),
            last_ms=milliseconds(found.get("lastTime")),
            next_ms=milliseconds(found.get("nextTime")),
            last_exit_code=found.get("lastExitCode"),
            last_reason=found.get("lastReason"),
            last_message=found.get("lastMessage"),
            child=found.get("lastUid"),
            config_hash=found.get("lastConfigHash"),
            nonce=found.get("lastNonce"),
        )

    def to_dict(self) -> dict[str, Any]:
        document = {
            "consecutive": self.consecutive,
            "outages": self.outages or None,
            "total": self.total,
            "lastTime": None if self.last_ms is None else timestamp(self.last_ms),
            "nextTime": None if self.next_ms is None else timestamp(self.next_ms),
            "lastExitCode": self.last_exit_code,
            "lastReason": self.last_reason,
            "lastMessage": self.last_message,
            "lastUid": self.child,
            "lastConfigHash": self.config_hash,
            "lastNonce": self.nonce,
        }
        return {name: value for name, value in document.items() if value is not None}

    def noted(self, death: Death) -> bool:
        return self.child == death.child

    def after(self, death: Death, child: Child, *, healthy_s: float, policy: FailurePolicy, now_ms: int) -> Restarts:
        """The note of a death.

        Args:
            death: how the driver ended.
            child: whose driver it was.
            healthy_s: for how long it had been healthy before.
            policy: the pipeline's, which holds for the driver's own deaths too.
            now_ms: Unix milliseconds.
        """
        counted = self if self.config_hash == child.config_hash else Restarts(total=self.total)
        failures = Failures(consecutive=counted.consecutive)
        wait_s: float | None = None
        match death.meaning:
            case ExitCode.DONE:
                wait_s = 0.0
            case ExitCode.FAILED:
                failures = replace(failures, outages=counted.outages).after_failure(
                    policy, Health.of(healthy_s), counted=_counts(death.reason)
                )
                wait_s = failures.backoff_s(policy)
            case ExitCode.SUPERSEDED:
                # Once more: whoever took over may have been a leftover of this very pipeline.
                again = counted.last_exit_code != ExitCode.SUPERSEDED or healthy_s >= policy.reset_after_s
                wait_s = SUPERSEDED_AGAIN_S if again else None
            case ExitCode.REFUSED:
                # The world may have changed by the next look; a circuit waits for another configuration.
                wait_s = None if death.reason == Reason.CIRCUIT_OPEN.value else policy.max_backoff_s
            case ExitCode.MANIFEST:
                wait_s = None
        return Restarts(
            consecutive=failures.consecutive,
            outages=failures.outages,
            total=self.total + 1,
            last_ms=now_ms,
            next_ms=None if wait_s is None else _not_before(now_ms, wait_s),
            last_exit_code=death.exit_code,
            last_reason=death.reason,
            last_message=f"{death.message} ({death.remedy})" if death.remedy else death.message,
            child=child.uid,
            config_hash=child.config_hash,
            nonce=child.nonce,
        )

    def forgotten(self) -> Restarts:
        """After another configuration, a `restartNonce`, a suspension or enough health: all tries are there again."""
        return replace(self, consecutive=0, outages=0, next_ms=None, config_hash=None)

    def given_up(self, policy: FailurePolicy) -> bool:
        """Whether what was run was tried often enough, or what it ended with waits for a person."""
        if self.config_hash is None:
            return False
        # Only what is not to be tried again has no time for it.
        return self.next_ms is None or self.consecutive >= policy.max_consecutive_failures


def _counts(reason: str | None) -> bool:
    """Whether a death with that last word counts; one without, or with a word of another release, does."""
    return reason not in _OUTAGES


_OUTAGES = frozenset(reason.value for reason in Reason if not reason.counted)


def _not_before(now_ms: int, wait_s: float) -> int:
    """A status holds whole seconds: rounded up, so that no wait becomes a shorter one."""
    return now_ms if wait_s == 0 else -(-(now_ms + int(wait_s * 1000)) // 1000) * 1000
