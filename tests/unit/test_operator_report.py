"""What the status says, for each way a pipeline can stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lupa
import pytest

from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.held_back import HeldBack, OpenTransaction
from sinkpipeline.core.lookups import TableInfo
from sinkpipeline.core.manifest import Problem
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.schemas import ReaderInfo
from sinkpipeline.core.status import SinkReport, SinkState, condition_of, render
from sinkpipeline.core.work import Executors
from sinkpipeline_operator.child.waits import Shortage, Wait
from sinkpipeline_operator.decide.decision import Decision, Standing, Step
from sinkpipeline_operator.decide.restarts import Restarts
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.report.events import events_of
from sinkpipeline_operator.report.known import MAX_MESSAGE, Known
from sinkpipeline_operator.report.status import report
from support.resource.gitops import kstatus

NOW = 1_750_000_000_000
JOINED = Executors(registered=1, wanted=2)


def told(*reports: SinkReport, executors: Executors | None = None, **more: Any) -> dict[str, Any]:
    """What a driver says; of an older release where it says nothing of executors, nor of sinks that are proved."""
    return render(reports, identity="shop.orders", generation=1, previous=None, now_ms=NOW, executors=executors, **more)


def sink(
    name: str, state: SinkState = SinkState.RUNNING, reason: Reason | None = None, *, proved: bool | None = None
) -> SinkReport:
    error = None if reason is None else SinkPipelineError(reason, "the fact", "the remedy")
    return SinkReport(name=name, exactly_once=True, state=state, lag=3, error=error, progress=Progress(), proved=proved)


def decision(standing: Standing, why: str = "RUNNING", **restarts: Any) -> Decision:
    return Decision(step=Step.NOTHING, standing=standing, why=why, restarts=Restarts(**restarts))


def known(standing: Standing, why: str = "RUNNING", **changes: Any) -> Known:
    fields = {
        "generation": 7,
        "previous": {},
        "now_ms": NOW,
        "identity": "shop.orders",
        "sinks": {"a": "ExactlyOnce", "b": "ExactlyOnce"},
        "decision": decision(standing, why),
        "child": {"name": "orders", "state": "RUNNING", "configHash": "new"},
    }
    return Known(**{**fields, **changes})


def summary(status: dict[str, Any]) -> dict[str, str]:
    found = {each["type"]: f"{each['status']} {each['reason']}" for each in status["conditions"]}
    return {"phase": status["phase"], **{kind: found.get(kind, "") for kind in ("Ready", "Reconciling", "Stalled")}}


def error(reason: str) -> dict[str, str]:
    return {"reason": reason, "message": "the fact", "remedy": "the remedy"}


NEEDED = Wait(reason="Unschedulable", message="0/1 nodes", alarm=True, needs_person=True)
RUNNING = known(Standing.RUNNING, told=told(sink("a"), sink("b")))
OPTIONAL = replace(RUNNING, optional=frozenset({"b"}))
ROWS = {
    "all is well": (RUNNING, "Running", "True Running", "False Settled", "False NobodyNeeded"),
    "nothing yet": (
        known(Standing.STARTING, "Starting", child={}),
        *("Pending", "False Starting", "True Starting", "False NobodyNeeded"),
    ),
    "starting": (
        known(Standing.STARTING, "SUBMITTED"),
        *("Starting", "False SUBMITTED", "True SUBMITTED", "False NobodyNeeded"),
    ),
    "starting, and no node takes it": (
        known(Standing.STARTING, "SUBMITTED", wait=Wait(reason="Unschedulable", message="0/1 nodes", alarm=True)),
        *("Starting", "False Unschedulable", "True Unschedulable", "False NobodyNeeded"),
    ),
    "starting, and no node takes it for long": (
        known(Standing.STARTING, "SUBMITTED", wait=NEEDED),
        *("Starting", "False Unschedulable", "False Stalled", "True Unschedulable"),
    ),
    "what a start waited for is over": (
        replace(RUNNING, wait=NEEDED),
        *("Running", "True Running", "False Settled", "False NobodyNeeded"),
    ),
    "no executor runs": (
        replace(RUNNING, shortage=Shortage(wait=NEEDED, none_runs=True)),
        *("Degraded", "False Unschedulable", "False Settled", "True Unschedulable"),
    ),
    "no executor runs, and so nothing moves": (
        replace(RUNNING, shortage=Shortage(wait=NEEDED, none_runs=True), unresponsive="no progress"),
        *("Degraded", "False Unschedulable", "False Settled", "True Unschedulable"),
    ),
    "no executor runs, and its driver doesn't answer": (
        replace(RUNNING, told=None, shortage=Shortage(wait=NEEDED, none_runs=True), unresponsive="silent"),
        *("Starting", "False DriverUnresponsive", "False Settled", "True Unschedulable"),
    ),
    "some executors run": (
        replace(RUNNING, shortage=Shortage(wait=replace(NEEDED, needs_person=False), none_runs=False)),
        *("Running", "True Running", "False Settled", "False NobodyNeeded"),
    ),
    "a sink has not shown yet that it delivers": (
        replace(RUNNING, told=told(sink("a", proved=True), sink("b", proved=False), executors=JOINED)),
        *("Starting", "False FirstBatchPending", "False Settled", "False NobodyNeeded"),
    ),
    "all sinks have": (
        replace(RUNNING, told=told(sink("a", proved=True), sink("b", proved=True), executors=JOINED)),
        *("Running", "True Running", "False Settled", "False NobodyNeeded"),
    ),
    "it had not, and doesn't answer any more": (
        replace(RUNNING, told=None, unresponsive="silent", previous=told(sink("a", proved=False), sink("b"))),
        *("Degraded", "False DriverUnresponsive", "False Settled", "False NobodyNeeded"),
    ),
    "a refusal by the world, before its next try": (
        known(
            Standing.BACKING_OFF,
            decision=decision(Standing.BACKING_OFF, "DataTopicLost", next_ms=NOW + 60_000),
            last_words={"a": {"name": "a", "state": "Failed", "error": error("DataTopicLost")}},
        ),
        *("Degraded", "False DataTopicLost", "False Stalled", "True DataTopicLost"),
    ),
    "one sink tries again": (
        replace(RUNNING, told=told(sink("a"), sink("b", SinkState.RETRYING, Reason.BROKER_UNREACHABLE))),
        *("Degraded", "False BrokerUnreachable", "False Settled", "False NobodyNeeded"),
    ),
    "one sink has failed": (
        replace(RUNNING, told=told(sink("a"), sink("b", SinkState.FAILED, Reason.DATA_TOPIC_LOST))),
        *("Degraded", "False DataTopicLost", "False Settled", "True DataTopicLost"),
    ),
    "one that is not required has failed": (
        replace(OPTIONAL, told=told(sink("a"), sink("b", SinkState.FAILED, Reason.DATA_TOPIC_LOST))),
        *("Degraded", "True Running", "False Settled", "False NobodyNeeded"),
    ),
    "one that is not required tries again, and the other has not shown yet that it delivers": (
        replace(OPTIONAL, told=told(sink("a", proved=False), sink("b", SinkState.RETRYING, Reason.SINK_UNREACHABLE))),
        *("Degraded", "False FirstBatchPending", "False Settled", "False NobodyNeeded"),
    ),
    "one that is not required starts": (
        replace(OPTIONAL, told=told(sink("a"), sink("b", SinkState.STARTING))),
        *("Running", "True Running", "False Settled", "False NobodyNeeded"),
    ),
    "both have failed": (
        replace(
            OPTIONAL,
            told=told(
                sink("a", SinkState.FAILED, Reason.CIRCUIT_OPEN), sink("b", SinkState.FAILED, Reason.DATA_TOPIC_LOST)
            ),
        ),
        *("Failed", "False CircuitOpen", "False Settled", "True CircuitOpen"),
    ),
    "the driver doesn't answer": (
        known(Standing.RUNNING, unresponsive="it does not answer"),
        *("Starting", "False DriverUnresponsive", "False Settled", "False NobodyNeeded"),
    ),
    "it answers, and gets nothing done": (
        replace(RUNNING, unresponsive="no progress"),
        *("Degraded", "False DriverUnresponsive", "False Settled", "False NobodyNeeded"),
    ),
    "its driver ended badly, and is cleared away": (
        known(
            Standing.STOPPING,
            decision=decision(Standing.STOPPING, "DriverDied", consecutive=1),
            previous=told(sink("a"), sink("b")),
        ),
        *("Degraded", "False DriverDied", "True DriverDied", "False NobodyNeeded"),
    ),
    "its name is taken": (
        known(Standing.STOPPED, "NameTaken", child={}),
        *("Pending", "False NameTaken", "False Settled", "True NameTaken"),
    ),
    "being suspended, while its driver finishes a batch": (
        known(Standing.STOPPING, "Suspended", suspended=True, previous=told(sink("a"), sink("b"))),
        *("Running", "False Suspended", "True Suspended", "False NobodyNeeded"),
    ),
    "backing off": (
        known(Standing.BACKING_OFF, "DriverDied", decision=decision(Standing.BACKING_OFF, "DriverDied")),
        *("Degraded", "False DriverDied", "True DriverDied", "False NobodyNeeded"),
    ),
    "given up": (
        known(Standing.GIVEN_UP, "DriverDied"),
        *("Failed", "False DriverDied", "False Settled", "True DriverDied"),
    ),
    "suspended": (
        known(Standing.STOPPED, "Suspended", suspended=True, child={}),
        *("Suspended", "", "False Settled", "False NobodyNeeded"),
    ),
    "going": (
        known(Standing.STOPPING, "Deleting", deleting=True),
        *("Deleting", "False Deleting", "True Deleting", "False NobodyNeeded"),
    ),
    "gone but for its topics": (
        known(Standing.STOPPED, "Deleting", deleting=True, child={}, wait=Wait(reason="RemovingTopics", message="m")),
        *("Deleting", "False Deleting", "True RemovingTopics", "False NobodyNeeded"),
    ),
    "gone but for topics that it may not delete": (
        known(
            *(Standing.STOPPED, "Deleting"),
            deleting=True,
            child={},
            wait=Wait(reason="AuthorizationFailed", message="m", alarm=True, needs_person=True),
        ),
        *("Deleting", "False Deleting", "False Stalled", "True AuthorizationFailed"),
    ),
    "invalid, and the last valid one runs": (
        replace(RUNNING, problems=(Problem(path="spec.sinks", wrong="is empty", right="give one"),)),
        *("Degraded", "False ManifestInvalid", "False Settled", "True ManifestInvalid"),
    ),
    "refused by the driver, and the last good one runs": (
        replace(RUNNING, rejected=("ExpressionInvalid", "no column amont")),
        *("Degraded", "False ExpressionInvalid", "False Settled", "True ExpressionInvalid"),
    ),
    "paused": (
        replace(RUNNING, paused=True),
        *("Running", "True Running", "False ReconciliationPaused", "False NobodyNeeded"),
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_summary(row: str) -> None:
    facts, phase, ready, reconciling, stalled = ROWS[row]
    found = summary(report(facts))
    assert found == {"phase": phase, "Ready": ready, "Reconciling": reconciling, "Stalled": stalled}


def test_who_waits_for_a_person_waits_for_nothing_else() -> None:
    for name, (facts, *_) in ROWS.items():
        kinds = {each["type"]: each["status"] for each in report(facts)["conditions"]}
        assert (kinds["Stalled"], kinds["Reconciling"]) != ("True", "True"), name


def test_a_pod_that_goes_is_why_nobody_tells_of_the_sinks() -> None:
    going = ("DriverPodTerminating", "the driver's pod orders-driver is being deleted or evicted")
    status = report(known(Standing.RUNNING, pod_going=going))
    assert summary(status)["Ready"] == "False DriverPodTerminating"
    # Once its end is known, that is the reason.
    status = report(known(Standing.BACKING_OFF, "DriverDied", pod_going=going))
    assert summary(status)["Ready"] == "False DriverDied"


def test_a_death_is_told_while_it_is_the_reason_and_no_longer() -> None:
    died = {"last_reason": "DriverDied", "last_message": "it ended with 137", "consecutive": 1}
    for standing, why, is_told in (
        (Standing.BACKING_OFF, "DriverDied", True),
        (Standing.GIVEN_UP, "DriverDied", True),
        (Standing.STOPPING, "DriverDied", True),
        (Standing.STARTING, "Starting", False),
        (Standing.STARTING, "SUBMITTED", False),
        (Standing.STOPPING, "SpecChanged", False),
        (Standing.STOPPED, "Suspended", False),
    ):
        status = report(known(standing, decision=decision(standing, why, **died)))
        told = [each["message"] for each in status["conditions"] if "137" in each["message"]]
        assert bool(told) is is_told, (standing, why)


def test_ready_is_never_true_while_anything_is_not() -> None:
    for facts, *_ in ROWS.values():
        status = report(facts)
        kinds = {each["type"]: each["status"] for each in status["conditions"]}
        if kinds.get("Ready") == "True" and not facts.optional:
            assert {kinds[kind] for kind in ("SpecValid", "TopicsReady", "SparkApplicationReady", "SinksHealthy")} == {
                "True"
            }
            assert status["totals"]["sinksReady"] == "2/2"


def test_what_becomes_of_a_sink_that_is_not_required_is_told_beside() -> None:
    lost = replace(OPTIONAL, told=told(sink("a"), sink("b", SinkState.FAILED, Reason.DATA_TOPIC_LOST)))
    status = report(lost)
    assert condition_of(status, "Ready")["message"] == "not delivering, and not required: b (DataTopicLost)"
    assert [condition_of(status, kind)["reason"] for kind in ("SinksHealthy", "TopicsReady")] == ["DataTopicLost"] * 2
    assert status["totals"]["sinksReady"] == "1/2"
    assert [each.get("required") for each in status["sinks"]] == [None, False]
    of_events = events_of(report(OPTIONAL), status, lost.decision, {}, pipeline=Ref("shop", "orders"))
    assert [event.reason for event in of_events] == ["DataTopicLost", "DataTopicLost"]
    unknown = report(replace(lost, told=None, unresponsive="silent", previous=status))
    assert condition_of(unknown, "Ready")["status"] == "False", "of a driver that is silent nobody knows"
    required = report(replace(lost, optional=frozenset()))
    assert "required" not in required["sinks"][1]


def test_a_transition_has_its_time_and_nothing_else_moves_it() -> None:
    first = report(RUNNING)
    later = report(replace(RUNNING, previous=first, now_ms=NOW + 60_000))
    assert later["conditions"] == first["conditions"]
    stopped = report(replace(RUNNING, previous=first, now_ms=NOW + 60_000, suspended=True, told=None))
    moved = {each["type"] for each in stopped["conditions"] if each not in first["conditions"]}
    assert "Ready" in moved
    assert "SpecValid" not in moved


def test_what_was_known_of_a_sink_survives_its_driver() -> None:
    """The frontier is what a lost progress topic would be restored from."""
    before = report(RUNNING)
    before["sinks"][0] |= {"rowsDelivered": 5, "frontier": [{"topic": "raw", "topicId": "t", "next": [5]}]}
    after = report(known(Standing.BACKING_OFF, "DriverDied", previous=before))
    assert after["sinks"][0] == {**before["sinks"][0], "state": "Retrying"}
    assert after["totals"]["rowsDelivered"] == 5


def test_durability_stays_until_a_driver_has_looked_again() -> None:
    before = report(RUNNING)
    before["sinks"][0]["durability"] = "Committed"
    for later in (replace(RUNNING, previous=before), known(Standing.STARTING, previous=before)):
        assert report(later)["sinks"][0]["durability"] == "Committed"
    found = replace(sink("a"), durability=Durability.AT_RISK)
    assert report(replace(RUNNING, previous=before, told=told(found, sink("b"))))["sinks"][0]["durability"] == "AtRisk"
    other = replace(RUNNING, previous=before, told=told(sink("a"), sink("b")), kinds={**RUNNING.kinds, "a": "another"})
    assert "durability" not in report(other)["sinks"][0], "another kind has one of its own"
    weaker = replace(sink("a"), exactly_once=False)
    assert "durability" not in report(replace(RUNNING, previous=before, told=told(weaker, sink("b"))))["sinks"][0]


def test_a_frontier_of_before_a_reset_is_none_of_the_epoch_after_it() -> None:
    """A lost progress topic would be restored from it, and what the reset asks for be left out."""
    before = report(RUNNING)
    frontier = [{"topic": "raw", "topicId": "t", "next": [5]}]
    before["sinks"][0] |= {"epoch": 3, "rowsDelivered": 9, "frontier": frontier}
    for epoch, kept in ((3, frontier), (4, None)):
        words = {"a": {"name": "a", "state": "Failed", "epoch": epoch}}
        after = report(known(Standing.BACKING_OFF, "DriverDied", previous=before, last_words=words))
        assert after["sinks"][0].get("frontier") == kept
        assert after["sinks"][0]["epoch"] == epoch


def test_counts_by_class_stay_with_the_frontier_that_they_belong_to() -> None:
    letters = [{"class": "WrongType", "stage": "decode", "count": 2, "dropped": 0}]
    before = report(RUNNING)
    before["sinks"][0] |= {"deadLetters": letters, "frontier": [{"topic": "raw", "topicId": "t", "next": [5]}]}
    starts = SinkReport(name="a", exactly_once=True, state=SinkState.STARTING)
    after = report(replace(RUNNING, previous=before, told=told(starts, sink("b"))))
    assert after["sinks"][0]["deadLetters"] == letters, "a driver that has no frontier yet tells of no classes either"
    without = {"b": {"name": "b", "state": "Failed", "deadLettered": 3}}
    ended = report(known(Standing.BACKING_OFF, "DriverDied", previous=before, last_words=without))
    assert ended["sinks"][0]["deadLetters"] == letters


def test_the_reader_s_schema_is_told_while_a_driver_tells_it() -> None:
    reader = ReaderInfo(subject="orders-value", version=3, id=7, fingerprint="0f").to_dict()
    assert report(replace(RUNNING, told=told(sink("a", proved=True), reader=reader)))["readerSchema"] == reader
    assert "readerSchema" not in report(replace(RUNNING, told=told(sink("a", proved=True))))


def test_the_tables_of_lookups_are_told_while_a_driver_tells_them() -> None:
    tables = [TableInfo("rate", "key r of ConfigMap c", 2, "0f")] * 2
    told_now = report(replace(RUNNING, told=told(sink("a", proved=True), tables=tables)))
    assert told_now["lookups"] == [{"name": "rate", "table": "key r of ConfigMap c", "rows": 2, "fingerprint": "0f"}], (
        "each once"
    )
    assert "lookups" not in report(replace(RUNNING, told=told(sink("a", proved=True))))


def test_what_a_driver_says_of_its_run_is_of_that_run_alone() -> None:
    still = replace(sink("a", proved=True), still_since=NOW - 60_000)
    status = report(replace(RUNNING, told=told(still, sink("b", proved=False), executors=JOINED)))
    assert status["executors"] == {"registered": 1, "wanted": 2}
    assert (status["sinks"][0]["proved"], status["sinks"][0]["stillSince"]) == (True, "2025-06-15T15:05:40Z")
    assert status["totals"]["sinksReady"] == "1/2"
    message = condition_of(status, "Ready")["message"]
    assert message == "no batch has come through yet: b (1 of 2 executors registered)"
    for standing in (Standing.BACKING_OFF, Standing.STARTING, Standing.RUNNING):
        later = report(known(standing, previous=status))
        assert not {"proved", "stillSince"} & (later["sinks"][0].keys() | later["sinks"][1].keys()), standing
        assert "executors" not in later


def test_records_that_were_dropped_are_told_and_no_alarm() -> None:
    partitions = {SourcePartition("raw", 0): PartitionProgress(epoch=0, next=9, dropped=4)}
    drops = replace(sink("a"), progress=Progress(partitions=partitions))
    status = report(replace(RUNNING, told=told(drops, sink("b"))))
    healthy = condition_of(status, "SinksHealthy")
    assert (healthy["status"], healthy["reason"]) == ("True", "RecordsDropped")
    assert healthy["message"].endswith("a: 4")
    assert summary(status)["Ready"] == "True Running"


def test_last_words_of_a_sink_are_newer_than_the_status() -> None:
    error = {"reason": "DataTopicLost", "message": "m", "remedy": "r"}
    words = {"b": {"name": "b", "state": "Failed", "error": error}}
    status = report(known(Standing.GIVEN_UP, "DataTopicLost", last_words=words))
    assert (status["sinks"][1]["state"], status["sinks"][1]["error"]) == ("Failed", error)


def test_messages_are_bounded() -> None:
    problems = tuple(Problem(path=f"spec.{number}", wrong="is wrong", right="mend it") for number in range(200))
    status = report(replace(RUNNING, problems=problems))
    assert max(len(each["message"]) for each in status["conditions"]) == MAX_MESSAGE


def test_the_generation_is_observed_however_the_pipeline_stands() -> None:
    for facts, *_ in ROWS.values():
        status = report(facts)
        assert status["observedGeneration"] == 7
        assert {each["observedGeneration"] for each in status["conditions"]} == {7}


def test_data_topics_are_named_before_they_are_deleted() -> None:
    removing = Wait(reason="RemovingTopics", message="removing the data topics")
    going = known(Standing.STOPPED, "Deleting", deleting=True, doomed=("orders", "orders-2"), wait=removing)
    ready = condition_of(report(going), "Ready")
    assert (ready["reason"], "data topics: orders, orders-2" in ready["message"]) == ("Deleting", True)
    trouble = Wait(reason="BrokerUnreachable", message="BrokerUnreachable: no answer", alarm=True)
    ready = condition_of(report(replace(going, wait=trouble)), "Ready")
    assert ready["message"] == trouble.message


def test_nothing_is_wrong_without_a_word() -> None:
    good = {"Reconciling": "False", "SparkApplicationReady": "True", "Stalled": "False"}
    for name, (facts, *_) in ROWS.items():
        conditions = {each["type"]: each for each in report(facts)["conditions"]}
        # A row has no message of a death, which a resource always has.
        silent = [kind for kind in good if conditions[kind]["status"] != good[kind] and not conditions[kind]["message"]]
        assert not silent, (name, silent)


# What Flux and Argo CD make of it

HEALTH = (Path(__file__).parents[2] / "deploy/argocd/health.lua").read_text()
DONE = {"True Running": ("Current", "Healthy"), "": ("Current", "Suspended")}


def health(resource: dict[str, Any]) -> str:
    """What Argo CD gets from the script, which it runs with the resource as `obj`."""
    lua = lupa.LuaRuntime()
    run = lua.eval(f"function(obj) {HEALTH} end")
    found = run(lua.table_from(resource, recursive=True))
    assert found.message
    return str(found.status)


@pytest.mark.parametrize("row", ROWS)
def test_who_waits_for_it_waits_for_what_comes(row: str) -> None:
    facts, _, ready, reconciling, stalled = ROWS[row]
    status = report(facts)
    resource: dict[str, Any] = {"metadata": {"generation": status["observedGeneration"]}, "status": status}
    expected = DONE.get(ready, ("InProgress", "Progressing"))
    if stalled.startswith("True"):
        expected = ("Failed", "Degraded")
    elif reconciling.startswith("True"):
        expected = ("InProgress", "Progressing")
    assert (kstatus(resource), health(resource)) == expected


def test_before_the_operator_has_looked_nothing_is_done() -> None:
    fresh = {"metadata": {"generation": 1}, "status": {"observedGeneration": -1}}
    assert (kstatus(fresh), health(fresh)) == ("InProgress", "Progressing")
    facts = ROWS["all is well"][0]
    changed = {"metadata": {"generation": facts.generation + 1}, "status": report(facts)}
    assert (kstatus(changed), health(changed)) == ("InProgress", "Progressing")
    going = {"metadata": {"generation": 1, "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert kstatus(going) == "Terminating"


def test_an_open_transaction_of_the_source_is_told_while_a_driver_tells_it() -> None:
    hanging = HeldBack(7, OpenTransaction("m" * 40_000, "end it"))
    status = report(replace(RUNNING, told=told(replace(sink("a"), held_back=hanging), sink("b"))))
    assert condition_of(status, "SinksHealthy")["reason"] == "SourceTransactionOpen"
    assert condition_of(status, "Ready")["status"] == "True"
    assert status["sinks"][0]["heldBack"] == 7
    assert len(status["sinks"][0]["openTransaction"]["message"]) < 40_000
    for later in (
        replace(RUNNING, previous=status, told=None),
        replace(RUNNING, previous=status, told=told(sink("a"))),
    ):
        assert not {"heldBack", "openTransaction"} & report(later)["sinks"][0].keys(), "nobody looks, or it has ended"
