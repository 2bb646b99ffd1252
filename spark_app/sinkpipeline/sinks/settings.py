"""The settings that a plan brings to a task, as those of the kind that reads them."""

from __future__ import annotations

from typing import TypeVar

from sinkpipeline.sinks.contract import BatchPlan

S = TypeVar("S")


def settings_of(plan: BatchPlan, kind: type[S]) -> S:
    """A plan of a kind has that kind's settings."""
    if not isinstance(plan.settings, kind):
        raise TypeError(f"settings of another kind: {type(plan.settings).__name__}")
    return plan.settings
