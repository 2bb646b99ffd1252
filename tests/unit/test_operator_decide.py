"""What the operator does about a driver: each row one observation and the step that it leads to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.failure import FailurePolicy
from sinkpipeline.core.manifest import Problem
from sinkpipeline_operator.child.driverpod import Child, ChildState, Death, DriverPod, LastWords, death_of
from sinkpipeline_operator.child.waits import of_start
from sinkpipeline_operator.decide.decision import Decision, Observation, Standing, Step, decide
from sinkpipeline_operator.decide.restarts import SUPERSEDED_AGAIN_S, Restarts
from sinkpipeline_operator.report.known import Known
from sinkpipeline_operator.report.status import report

NOW = 1_750_000_000_000
POLICY = FailurePolicy(max_consecutive_failures=3, initial_backoff_s=5, max_backoff_s=300, reset_after_s=600)


def child(state: ChildState = ChildState.RUNNING, **changes: Any) -> Child:
    fields = {"uid": "c1", "shown_state": state.name, "config_hash": "new", "nonce": None, "pod_name": "p-driver"}
    return Child(state=state, **{**fields, **changes})


def pod(phase: str = "Running", **changes: Any) -> DriverPod:
    return DriverPod(**{"uid": "p1", "name": "p-driver", "owned_by": "c1", "phase": phase, **changes})


def ended(exit_code: int, reason: str | None = None) -> DriverPod:
    words = None if reason is None else LastWords(reason=reason, message="m", remedy="r")
    return pod("Succeeded" if exit_code == 0 else "Failed", exit_code=exit_code, last_words=words)


def after(exit_code: int, reason: str = "DriverDied", *, times: int = 1, config_hash: str = "new") -> Restarts:
    """The note of some deaths, one after the other."""
    restarts = Restarts()
    for number in range(times):
        of = child(ChildState.ENDED, uid=f"c{number - times}", config_hash=config_hash)
        death = Death(child=of.uid, exit_code=exit_code, reason=reason, message="m")
        restarts = restarts.after(death, of, healthy_s=0, policy=POLICY, now_ms=NOW)
    return restarts


def seen(**fields: Any) -> Observation:
    return Observation(**{"now_ms": NOW, "wanted": "new", "policy": POLICY, **fields})


ENDED = child(ChildState.ENDED)
ROWS: dict[str, tuple[Observation, Step, Standing, str]] = {
    "nothing is there": (seen(), Step.START, Standing.STARTING, "Starting"),
    "it runs": (seen(child=child(), pods=(pod(),)), Step.NOTHING, Standing.RUNNING, "RUNNING"),
    "it starts": (seen(child=child(ChildState.SUBMITTING)), Step.NOTHING, Standing.STARTING, "SUBMITTING"),
    # Configurations
    "another configuration": (
        seen(child=child(config_hash="old"), pods=(pod(),)),
        *(Step.DELETE, Standing.STOPPING, "SpecChanged"),
    ),
    "another configuration, and it is not its turn": (
        seen(child=child(config_hash="old"), pods=(pod(),), its_turn=False),
        *(Step.NOTHING, Standing.RUNNING, "RestartWaits"),
    ),
    "not its turn, and a person asks for a restart": (
        seen(nonce=2, child=child(config_hash="old", nonce=1), pods=(pod(),), its_turn=False),
        *(Step.DELETE, Standing.STOPPING, "SpecChanged"),
    ),
    "not its turn, and it died": (
        seen(child=replace(ENDED, config_hash="old"), pods=(ended(1),), its_turn=False),
        *(Step.NOTE, Standing.STOPPING, "DriverDied"),
    ),
    "its child is going": (seen(child=child(deleting=True)), Step.WAIT, Standing.STOPPING, "DriverStopping"),
    "its child is gone, its pod is not": (
        seen(pods=(pod(deleting=True),)),
        Step.WAIT,
        Standing.STOPPING,
        "DriverStopping",
    ),
    "its pod has ended and is still there": (seen(pods=(ended(0),)), Step.WAIT, Standing.STOPPING, "DriverStopping"),
    "its death is noted, its child is gone, and its pod is still there": (
        seen(pods=(pod("Running", exit_code=137),), restarts=replace(after(1), child="c1")),
        *(Step.WAIT, Standing.STOPPING, "DriverDied"),
    ),
    "the death of another is noted, and a pod is still there": (
        seen(pods=(ended(0),), restarts=replace(after(1), child="c0")),
        *(Step.WAIT, Standing.STOPPING, "DriverStopping"),
    ),
    "an invalid resource keeps its driver": (
        seen(wanted=None, fallback="old", child=child(config_hash="old")),
        *(Step.NOTHING, Standing.RUNNING, "RUNNING"),
    ),
    "an invalid resource, and its driver died": (
        seen(wanted=None, fallback="old", restarts=replace(after(1, config_hash="old"), next_ms=NOW)),
        *(Step.START, Standing.STARTING, "Starting"),
    ),
    "an invalid resource that never ran": (seen(wanted=None), Step.NOTHING, Standing.NOT_CONFIGURED, "ManifestInvalid"),
    "a Secret is missing": (
        seen(wanted=None, why_not_wanted=Reason.SECRET_NOT_FOUND),
        *(Step.NOTHING, Standing.NOT_CONFIGURED, "SecretNotFound"),
    ),
    "the driver refused the new one": (
        seen(rejected=frozenset({"new"}), fallback="old", restarts=after(2, "ExpressionInvalid")),
        *(Step.START, Standing.STARTING, "Starting"),
    ),
    "the driver refused the only one": (
        seen(rejected=frozenset({"new"}), restarts=after(2, "ExpressionInvalid")),
        *(Step.NOTHING, Standing.NOT_CONFIGURED, "ExpressionInvalid"),
    ),
    # Nonces
    "a nonce changes": (seen(nonce=2, child=child(nonce=1)), Step.DELETE, Standing.STOPPING, "RestartRequested"),
    "a nonce is set": (seen(nonce=1, child=child()), Step.SET_NONCE, Standing.RUNNING, "NonceSet"),
    "a nonce is set while the child is submitted": (
        seen(nonce=1, child=child(state=ChildState.SUBMITTING)),
        Step.NOTHING,
        Standing.STARTING,
        "SUBMITTING",
    ),
    "a nonce is removed": (seen(child=child(nonce=1)), Step.NOTHING, Standing.RUNNING, "RUNNING"),
    "a nonce changes after it was given up": (
        seen(nonce=2, restarts=replace(after(1, times=3), nonce=1)),
        *(Step.START, Standing.STARTING, "Starting"),
    ),
    # Deaths
    "it died": (seen(child=ENDED, pods=(ended(1),)), Step.NOTE, Standing.STOPPING, "DriverDied"),
    "its death is noted": (
        seen(child=ENDED, pods=(ended(1),), restarts=replace(after(1), child="c1")),
        *(Step.DELETE, Standing.STOPPING, "DriverDied"),
    ),
    "its operator gave it up, and it may still write": (
        seen(child=ENDED, pods=(pod("Running"),)),
        *(Step.NOTHING, Standing.STARTING, "ENDED"),
    ),
    "its pod was lost": (seen(child=ENDED), Step.NOTE, Standing.STOPPING, "DriverPodLost"),
    "it could not be submitted": (
        seen(child=child(ChildState.SUBMISSION_FAILED)),
        *(Step.NOTE, Standing.STOPPING, "SubmissionFailed"),
    ),
    "its pod has ended, and its operator doesn't know yet": (
        seen(child=child(), pods=(ended(137),)),
        *(Step.NOTE, Standing.STOPPING, "DriverDied"),
    ),
    "its driver has ended, and its pod's phase doesn't know yet": (
        seen(child=child(), pods=(pod("Running", exit_code=137),)),
        *(Step.NOTE, Standing.STOPPING, "DriverDied"),
    ),
    # Waiting
    "backing off": (seen(restarts=after(1)), Step.WAIT, Standing.BACKING_OFF, "DriverDied"),
    "backing off by a clock that was a day ahead": (
        seen(restarts=replace(after(1), next_ms=NOW + 86_400_000)),
        *(Step.START, Standing.STARTING, "Starting"),
    ),
    "backed off": (seen(now_ms=NOW + 5_000, restarts=after(1)), Step.START, Standing.STARTING, "Starting"),
    "its tries are used up": (seen(restarts=after(1, times=3)), Step.NOTHING, Standing.GIVEN_UP, "DriverDied"),
    "another configuration has all its tries": (
        seen(wanted="newer", restarts=after(1, times=3)),
        *(Step.START, Standing.STARTING, "Starting"),
    ),
    "done, while it should run": (seen(restarts=after(0, "Done")), Step.START, Standing.STARTING, "Starting"),
    "refused": (seen(restarts=after(3, "DataTopicLost")), Step.WAIT, Standing.BACKING_OFF, "DataTopicLost"),
    "Kafka could not be reached, however often": (
        seen(restarts=after(1, "BrokerUnreachable", times=9)),
        *(Step.WAIT, Standing.BACKING_OFF, "BrokerUnreachable"),
    ),
    "every circuit is open": (seen(restarts=after(3, "CircuitOpen")), Step.NOTHING, Standing.GIVEN_UP, "CircuitOpen"),
    "superseded": (seen(restarts=after(4, "Superseded")), Step.WAIT, Standing.BACKING_OFF, "Superseded"),
    "superseded again": (seen(restarts=after(4, "Superseded", times=2)), Step.NOTHING, Standing.GIVEN_UP, "Superseded"),
    # Suspended, paused, going
    "suspended": (seen(suspended=True, child=child()), Step.DELETE, Standing.STOPPING, "Suspended"),
    "suspended, its pod ends": (seen(suspended=True, pods=(pod(),)), Step.WAIT, Standing.STOPPING, "Suspended"),
    "suspended and gone": (seen(suspended=True), Step.NOTHING, Standing.STOPPED, "Suspended"),
    "paused": (
        seen(paused=True, child=child(config_hash="old")),
        Step.NOTHING,
        Standing.RUNNING,
        "ReconciliationPaused",
    ),
    "paused without a driver": (seen(paused=True), Step.NOTHING, Standing.STOPPED, "ReconciliationPaused"),
    "deleted": (seen(deleting=True, child=child()), Step.DELETE, Standing.STOPPING, "Deleting"),
    "deleted though paused": (
        seen(deleting=True, paused=True, child=child()),
        Step.DELETE,
        Standing.STOPPING,
        "Deleting",
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_next_step(row: str) -> None:
    observation, *expected = ROWS[row]
    decision = decide(observation)
    assert [decision.step, decision.standing, decision.why] == expected


def test_a_refused_configuration_falls_back_to_the_one_that_ran() -> None:
    assert decide(seen(rejected=frozenset({"new"}), fallback="old")).run == "old"
    assert decide(seen(fallback="old")).run == "new"


def test_backoff_grows_to_its_maximum_and_health_refills_the_budget() -> None:
    policy = replace(POLICY, max_consecutive_failures=100)
    restarts, waits = Restarts(), []
    for number in range(9):
        of = child(ChildState.ENDED, uid=f"c{number}")
        death = Death(child=of.uid, exit_code=137, reason="DriverDied", message="m")
        restarts = restarts.after(death, of, healthy_s=0, policy=policy, now_ms=NOW)
        waits.append(((restarts.next_ms or 0) - NOW) / 1000)
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    healthy = decide(seen(child=child(), restarts=restarts, healthy_s=600))
    assert (healthy.restarts.consecutive, healthy.restarts.total) == (0, 9)


def test_an_outage_uses_up_no_tries_and_delays_the_next() -> None:
    restarts = after(1, "BrokerUnreachable", times=4)
    assert (restarts.consecutive, restarts.outages, restarts.total) == (0, 4, 4)
    assert restarts.next_ms == NOW + 40_000
    assert Restarts.parse({"restarts": restarts.to_dict()}) == restarts
    of = child(ChildState.ENDED, uid="another")
    died = restarts.after(
        Death(child=of.uid, exit_code=137, reason="DriverDied", message="m"), of, healthy_s=0, policy=POLICY, now_ms=NOW
    )
    assert (died.consecutive, died.outages) == (1, 0)
    healthy = decide(seen(child=child(), restarts=restarts, healthy_s=600))
    assert healthy.restarts.outages == 0


def test_what_is_waited_for_is_told() -> None:
    assert decide(seen(restarts=after(4, "Superseded"))).look_again_ms == NOW + int(SUPERSEDED_AGAIN_S * 1000)


def test_a_suspension_gives_all_tries_back() -> None:
    resting = decide(seen(suspended=True, restarts=after(1, times=3)))
    assert decide(seen(restarts=resting.restarts)).step is Step.START


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        (pod("Failed", exit_code=137, termination_reason="OOMKilled"), "DriverOutOfMemory"),
        (ended(3, "DataTopicLost"), "DataTopicLost"),
        (ended(139), "DriverDied"),
        (ended(0), "Done"),
    ],
)
def test_what_a_death_is_called(pods: DriverPod, reason: str) -> None:
    death = death_of(ENDED, pods)
    assert death is not None
    assert (death.reason, death.exit_code) == (reason, pods.exit_code)


@pytest.mark.parametrize(
    ("code", "word", "reason"),
    [
        (0, "", "Done"),
        (137, "OOMKilled", "DriverOutOfMemory"),
        (3, "Error", "DriverDied"),
        (None, "", "DriverPodLost"),
    ],
)
def test_what_a_death_is_called_whose_pod_is_gone(code: int | None, word: str, reason: str) -> None:
    death = death_of(replace(ENDED, exit_code=code, exit_reason=word), None)
    assert death is not None
    assert (death.reason, death.exit_code) == (reason, code)
    noted = Restarts().after(death, ENDED, healthy_s=0, policy=POLICY, now_ms=NOW)
    assert noted.consecutive == (0 if code in (0, 3) else 1)


def test_a_driver_that_was_given_up_and_still_runs_is_not_dead() -> None:
    assert death_of(replace(ENDED, exit_code=0), pod("Running")) is None


@pytest.mark.parametrize("text", ["", "java.lang.OutOfMemoryError", "{}", '{"reason": 1}', "[]", "null"])
def test_what_is_no_last_word_is_none(text: str) -> None:
    assert LastWords.parse(text) is None


pods_ = st.builds(
    pod,
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    owned_by=st.sampled_from(["c1", "c0", None]),
    exit_code=st.sampled_from([None, 0, 1, 2, 3, 4, 137]),
)
children = st.none() | st.builds(
    child,
    st.sampled_from(ChildState),
    config_hash=st.sampled_from(["new", "old"]),
    nonce=st.sampled_from([None, 1, 2]),
    deleting=st.booleans(),
)
observations = st.builds(
    seen,
    deleting=st.booleans(),
    paused=st.booleans(),
    suspended=st.booleans(),
    wanted=st.sampled_from([None, "new"]),
    nonce=st.sampled_from([None, 1, 2]),
    fallback=st.sampled_from([None, "old"]),
    rejected=st.sampled_from([frozenset(), frozenset({"new"})]),
    child=children,
    pods=st.lists(pods_, max_size=2).map(tuple),
    restarts=st.builds(
        after,
        st.sampled_from([0, 1, 2, 3, 4]),
        st.sampled_from(["DriverDied", "Superseded", "CircuitOpen", "BrokerUnreachable"]),
        times=st.integers(0, 4),
        config_hash=st.sampled_from(["new", "old"]),
    ),
    healthy_s=st.sampled_from([0, 1000]),
)


@given(observations)
def test_nothing_is_started_beside_what_may_still_write(observation: Observation) -> None:
    decision = decide(observation)
    if decision.step is Step.START:
        assert observation.child is None
        assert all(each.is_gone for each in observation.pods)
        assert not any((observation.deleting, observation.suspended, observation.paused))
        assert decision.run not in observation.rejected


@given(observations)
def test_a_death_is_counted_once(observation: Observation) -> None:
    """Whatever happens to the operator between its note and what follows."""
    first = decide(observation)
    again = decide(replace(observation, restarts=_as_written(first)))
    assert again.step is not Step.NOTE
    assert again.restarts.total == first.restarts.total


def _as_written(decision: Decision) -> Restarts:
    return Restarts.parse({"restarts": decision.restarts.to_dict()})


@given(observations, st.sampled_from(["Running", "Failed"]), st.integers(0, 400))
def test_whatever_is_decided_its_status_says_one_thing_and_why(observation: Observation, sink: str, age_s: int) -> None:
    """Who waits for a person waits for nothing else, and nothing is wrong without a word."""
    decision, child = decide(observation), observation.child
    error = {"error": {"reason": "DataTopicLost", "message": "m", "remedy": "r"}} if sink == "Failed" else {}
    starting = child is not None and child.state is ChildState.SUBMITTING
    facts = Known(
        generation=1,
        previous={"sinks": [{"name": "a", "state": sink, **error}]},
        now_ms=NOW,
        identity="shop.orders",
        sinks={"a": "ExactlyOnce"},
        problems=() if observation.wanted else (Problem(path="spec", wrong="is wrong", right="mend it"),),
        rejected=("ExpressionInvalid", "m") if observation.wanted in observation.rejected else None,
        decision=decision,
        child={} if child is None else {"name": "p", "state": child.shown_state, "configHash": child.config_hash},
        wait=of_start(replace(child, created_ms=NOW - age_s * 1000), None, "shop", NOW, 300)
        if child and starting
        else None,
        deleting=observation.deleting,
        suspended=observation.suspended,
        paused=observation.paused,
    )
    conditions = {each["type"]: each for each in report(facts)["conditions"]}
    assert {conditions["Stalled"]["status"], conditions["Reconciling"]["status"]} != {"True"}
    for kind, good in (("Reconciling", "False"), ("SparkApplicationReady", "True"), ("Stalled", "False")):
        assert conditions[kind]["status"] == good or conditions[kind]["message"], (decision, conditions[kind])
