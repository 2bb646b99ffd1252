"""What there is to report of a pipeline: observed, decided, told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.manifest import Problem
from sinkpipeline.core.status import Condition, executors_of
from sinkpipeline.core.texts import shortened
from sinkpipeline.core.work import Executors
from sinkpipeline_operator.child.waits import Shortage, Wait
from sinkpipeline_operator.decide.decision import Decision, Standing

MAX_MESSAGE = 1024
"""Characters of a condition's message."""

UNTOLD = "LastWordsRefused"
"""The reason of a death whose own words the API server does not take."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What there is to report."""

    generation: int
    previous: Mapping[str, Any]
    now_ms: int
    identity: str | None
    sinks: Mapping[str, str]
    """The guarantee of each sink that the resource has, by name, in its order."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Likewise, its kind."""
    optional: frozenset[str] = frozenset()
    """The sinks on which Ready does not depend."""
    problems: tuple[Problem, ...] = ()
    rejected: tuple[str, str] | None = None
    """Reason and message of the driver's refusal of the current configuration."""
    trouble: SinkPipelineError | None = None
    """Why a valid manifest can't be run."""
    decision: Decision
    child: Mapping[str, Any] = field(default_factory=dict)
    """`status.sparkApplication`."""
    told: Mapping[str, Any] | None = None
    """The driver's own document; None while it doesn't answer."""
    unresponsive: str = ""
    """Why a driver that runs counts as unresponsive; empty where it doesn't."""
    pod_going: tuple[str, str] | None = None
    """Reason and message, where the pod of a driver that should run is on its way out; its end is not known yet."""
    wait: Wait | None = None
    """What a start waits for, or a removal, or why a driver can't be stopped, or does not end."""
    shortage: Shortage | None = None
    """Executors that can't start, beside a driver that runs."""
    last_words: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sink, what the driver that died said of it."""
    observed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sink, what Kafka says of it while no driver tells."""
    topics: Condition | None = None
    """What the operator itself found of the topics; None leaves it to the driver, or to the earlier status."""
    has_stage: bool = False
    """Whether a stage reads a database; else records come from Kafka."""
    slot: str | None = None
    """The replication slot by which it does, where the database has such a thing."""
    source_words: Mapping[str, Any] = field(default_factory=dict)
    """What the driver that died said of its stage."""
    source_observed: Mapping[str, Any] = field(default_factory=dict)
    """What Kafka says of the stage while no driver tells."""
    deleting: bool = False
    doomed: tuple[str, ...] = ()
    """Data topics that are deleted with the resource."""
    suspended: bool = False
    held: str = ""
    """Why there must be no driver for now: an action that runs; empty where there may."""
    paused: bool = False

    @property
    def reader_schema(self) -> Mapping[str, Any] | None:
        """Which schema has the columns, as the driver says."""
        return None if self.told is None else self.told.get("readerSchema")

    @property
    def lookups(self) -> Sequence[Mapping[str, Any]]:
        """Which tables records are looked up in, likewise."""
        return () if self.told is None else self.told.get("lookups") or ()

    @property
    def executors(self) -> Executors | None:
        """What the driver says of its executors."""
        return None if self.told is None else executors_of(self.told)

    @property
    def waits_for(self) -> Wait | None:
        """What a start on its way waits for, or an executor beside a driver that runs, or the resource's removal."""
        match self.decision.standing:
            case Standing.STARTING | Standing.STOPPING:
                return self.wait
            case Standing.RUNNING if self.pod_going is not None:
                return self.wait
            case Standing.RUNNING if self.shortage is not None:
                return self.shortage.wait
            case Standing.STOPPED if self.deleting:
                return self.wait
            case _:
                return None


def without_words(known: Known, why: str) -> Known:
    """The same, as far as it can be told without anything that a driver has said, or Kafka.

    Args:
        known: what there is to report.
        why: it can't be told.
    """
    decision = known.decision
    if decision.death is not None:
        restarts = replace(decision.restarts, last_reason=UNTOLD, last_message=cut(why))
        decision = replace(decision, restarts=restarts)
    return replace(
        known,
        decision=decision,
        rejected=None if known.rejected is None else (UNTOLD, why),
        told=None,
        unresponsive=why,
        shortage=None,
        last_words={},
        observed={},
        topics=None,
        source_words={},
        source_observed={},
    )


def cut(text: str) -> str:
    return shortened(text, MAX_MESSAGE)
