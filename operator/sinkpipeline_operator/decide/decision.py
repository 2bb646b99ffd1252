"""What to do about one pipeline's driver, as one pure function of what was observed.

Level-triggered: the same observation gives the same decision, however often it is asked for and whatever happened
before. A decision is one step; the next reconciliation sees what it led to. In this order, the first that applies:

0. while an object that isn't ours has the child's name, nothing is done;
1. a death that is not noted yet is noted, before anything else is done about it;
2. a resource that goes, is paused, is suspended or is being reset has no driver (a paused one keeps what it has);
3. an invalid resource keeps the driver of its last valid configuration;
4. a driver of another configuration than the wanted one goes, once it is its turn;
5. a driver that ended goes, and one whose child somebody has edited;
6. while an old pod may still write, nothing is started;
7. the wanted configuration is started when its time has come.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from sinkpipeline.core.errors import ExitCode, Reason
from sinkpipeline.core.failure import FailurePolicy
from sinkpipeline_operator.child.driverpod import Child, ChildState, Death, DriverPod, death_of
from sinkpipeline_operator.decide.restarts import SUPERSEDED_AGAIN_S, Restarts

NAME_TAKEN = "NameTaken"
ACTION_RUNNING = "ActionRunning"
RESTART_WAITS = "RestartWaits"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What is so, as of one moment."""

    now_ms: int
    deleting: bool = False
    paused: bool = False
    """By the annotation `sinkpipeline.io/pause-reconciliation`."""
    suspended: bool = False
    held: str = ""
    """Why there must be no driver for now: what a person has asked for once is under way; empty where there may."""
    wanted: str | None = None
    """The hash of the wanted configuration; None where the resource is invalid or a Secret is missing."""
    its_turn: bool = True
    """False while a restart for which nobody has changed the manifest waits for those of other pipelines."""
    why_not_wanted: Reason | None = None
    nonce: int | None = None
    fallback: str | None = None
    """The hash of the last configuration whose driver was seen running, if it is still there to be run."""
    rejected: frozenset[str] = frozenset()
    """Hashes that a driver has refused (exit code 2)."""
    child: Child | None = None
    pods: tuple[DriverPod, ...] = ()
    """All driver pods of the pipeline that are there."""
    other_owner: bool = False
    """Whether Kafka says that the progress belongs to another pipeline now."""
    restarts: Restarts = field(default_factory=Restarts)
    healthy_s: float = 0.0
    """For how long the driver has been healthy."""
    policy: FailurePolicy = field(default_factory=FailurePolicy)


class Step(enum.Enum):
    NOTHING = "nothing"
    NOTE = "note a death"
    DELETE = "delete the child"
    WAIT = "wait"
    START = "start"
    SET_NONCE = "remember the nonce"


class Standing(enum.Enum):
    """Where the driver stands, for the condition SparkApplicationReady."""

    RUNNING = "Running"
    STARTING = "Starting"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    BACKING_OFF = "BackingOff"
    GIVEN_UP = "GivenUp"
    """A person is needed."""
    NOT_CONFIGURED = "NotConfigured"


@dataclass(frozen=True, kw_only=True)
class Decision:
    step: Step
    standing: Standing
    why: str
    """CamelCase."""
    run: str | None = None
    """The hash to start."""
    death: Death | None = None
    restarts: Restarts
    """As they are from now on."""
    look_again_ms: int | None = None
    """When something will have to be done, though nothing changes until then."""
    anew: bool = False
    """How earlier drivers ended says nothing about the next one: circuits close, sinks start."""


def decide(seen: Observation) -> Decision:
    """The next step."""
    child = seen.child
    if child is not None and child.foreign:
        return Decision(step=Step.WAIT, standing=Standing.STOPPED, why=NAME_TAKEN, restarts=seen.restarts)
    death = None if child is None else death_of(child, _pod_of(seen, child))
    if child is not None and death is not None and not seen.restarts.noted(death):
        noted = seen.restarts.after(
            death,
            child,
            healthy_s=seen.healthy_s,
            policy=seen.policy,
            now_ms=seen.now_ms,
        )
        return Decision(step=Step.NOTE, standing=Standing.STOPPING, why=death.reason, death=death, restarts=noted)
    if seen.paused and not seen.deleting:
        return _stay(seen, "ReconciliationPaused")
    if seen.deleting or seen.suspended or seen.held:
        return _stop(seen, "Deleting" if seen.deleting else "Suspended" if seen.suspended else ACTION_RUNNING)
    wanted = _target(seen)
    if wanted is None:
        return _unconfigured(seen, death)
    return _start(seen, wanted) if child is None else _with_child(seen, child, death, wanted)


def _pod_of(seen: Observation, child: Child) -> DriverPod | None:
    return next((pod for pod in seen.pods if pod.owned_by == child.uid), None)


def _target(seen: Observation) -> str | None:
    """What should run: the wanted configuration, or the last that ran where a driver has refused the wanted one."""
    if seen.wanted is not None and seen.wanted not in seen.rejected:
        return seen.wanted
    return seen.fallback


def _with_child(seen: Observation, child: Child, death: Death | None, wanted: str) -> Decision:
    if child.deleting:
        return Decision(step=Step.WAIT, standing=Standing.STOPPING, why="DriverStopping", restarts=seen.restarts)
    if (seen.its_turn and child.config_hash != wanted) or _differ(seen.nonce, child.nonce):
        why = "SpecChanged" if child.config_hash != wanted else "RestartRequested"
        return Decision(
            step=Step.DELETE, standing=Standing.STOPPING, why=why, restarts=seen.restarts.forgotten(), anew=True
        )
    if death is not None:
        return Decision(step=Step.DELETE, standing=Standing.STOPPING, why=death.reason, restarts=seen.restarts)
    if child.edited:
        return Decision(step=Step.DELETE, standing=Standing.STOPPING, why="ChildEdited", restarts=seen.restarts)
    # Not before its driver runs: a write to a child that is being submitted makes Kubeflow's operator submit it twice.
    if seen.nonce != child.nonce and seen.nonce is not None and child.state is ChildState.RUNNING:
        return Decision(step=Step.SET_NONCE, standing=_standing_of(child), why="NonceSet", restarts=seen.restarts)
    return _stay(seen, child.shown_state if seen.its_turn else RESTART_WAITS)


def _stay(seen: Observation, why: str) -> Decision:
    standing = Standing.STOPPED if seen.child is None else _standing_of(seen.child)
    restarts = seen.restarts
    if (restarts.consecutive or restarts.outages) and seen.healthy_s >= seen.policy.reset_after_s:
        restarts = restarts.forgotten()
    return Decision(step=Step.NOTHING, standing=standing, why=why, restarts=restarts)


def _standing_of(child: Child) -> Standing:
    return Standing.RUNNING if child.state is ChildState.RUNNING else Standing.STARTING


def _stop(seen: Observation, why: str) -> Decision:
    if seen.child is not None and not seen.child.deleting:
        return Decision(step=Step.DELETE, standing=Standing.STOPPING, why=why, restarts=seen.restarts)
    if seen.child is not None or any(not pod.is_gone for pod in seen.pods):
        return Decision(step=Step.WAIT, standing=Standing.STOPPING, why=why, restarts=seen.restarts)
    return Decision(step=Step.NOTHING, standing=Standing.STOPPED, why=why, restarts=seen.restarts.forgotten())


def _unconfigured(seen: Observation, death: Death | None) -> Decision:
    """Nothing that could be started: the resource is invalid, and nothing valid has run before."""
    why = "ManifestInvalid" if seen.why_not_wanted is None else seen.why_not_wanted.value
    if seen.wanted in seen.rejected:
        why = seen.restarts.last_reason or why
    if seen.child is not None and death is not None and not seen.child.deleting:
        return Decision(step=Step.DELETE, standing=Standing.NOT_CONFIGURED, why=why, restarts=seen.restarts)
    if seen.child is not None and death is None:
        # Of a configuration that nobody can start again: it goes on for as long as it can.
        return _stay(seen, seen.child.shown_state)
    return Decision(step=Step.NOTHING, standing=Standing.NOT_CONFIGURED, why=why, restarts=seen.restarts)


def _start(seen: Observation, wanted: str) -> Decision:
    restarts = seen.restarts
    if seen.pods:
        # Also one that has ended: the next one would have its name. Of one whose death is noted that stays the reason.
        noted = all(pod.has_ended and pod.owned_by == restarts.child for pod in seen.pods)
        why = (restarts.last_reason if noted else None) or "DriverStopping"
        return Decision(step=Step.WAIT, standing=Standing.STOPPING, why=why, restarts=restarts)
    if restarts.nonce is None and seen.nonce is not None:
        # Set for the first time while nothing runs that could carry it.
        restarts = replace(restarts, nonce=seen.nonce)
    anew = restarts.config_hash != wanted or _differ(seen.nonce, restarts.nonce)
    if anew:
        restarts = restarts.forgotten()
    why = restarts.last_reason or "Starting"
    if restarts.last_exit_code == ExitCode.SUPERSEDED and seen.other_owner and not anew:
        # It would only be refused: a person has to say whose the progress is.
        restarts = replace(restarts, next_ms=None)
    if restarts.given_up(seen.policy):
        return Decision(step=Step.NOTHING, standing=Standing.GIVEN_UP, why=why, restarts=restarts)
    # What is further away than any backoff is of a clock that was wrong.
    longest_ms = int(1000 * (max(seen.policy.max_backoff_s, SUPERSEDED_AGAIN_S) + 1))
    if restarts.next_ms is not None and seen.now_ms < restarts.next_ms <= seen.now_ms + longest_ms:
        return Decision(
            step=Step.WAIT, standing=Standing.BACKING_OFF, why=why, restarts=restarts, look_again_ms=restarts.next_ms
        )
    return Decision(
        step=Step.START, standing=Standing.STARTING, why="Starting", run=wanted, restarts=restarts, anew=anew
    )


def _differ(one: int | None, other: int | None) -> bool:
    """A nonce that changes from one number to another restarts; setting or removing it does not."""
    return one is not None and other is not None and one != other
