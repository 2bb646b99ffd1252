from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.earlier_status import write_over
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.held_back import HeldBack, OpenTransaction
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.status import (
    Phase,
    SinkReport,
    SinkState,
    condition_of,
    instant,
    phase,
    render,
    timestamp,
)
from sinkpipeline.core.tally import checked
from sinkpipeline.core.topics import Memory
from sinkpipeline.core.work import Executors

NOW = 1_700_000_000_999
THEN = "2023-11-14T22:13:20Z"

A0, A1, B0 = SourcePartition("a", 0), SourcePartition("a", 1), SourcePartition("b", 0)
STATES = {
    A0: PartitionProgress(
        epoch=2,
        next=120,
        rows=100,
        dead=2,
        dropped=1,
        lost=3,
        at=NOW - 5000,
        by_class=checked({"RecordTooLarge": 1, "WrongType": 1}, {"RecordTooLarge": 1}),
    ),
    A1: PartitionProgress(epoch=2, next=118, rows=10, dead=2, lost=1, at=NOW, by_class=checked({"WrongType": 2})),
    B0: PartitionProgress(epoch=2, next=7),
}
PROGRESS = Progress(
    meta=Meta(
        epoch=2,
        run="r",
        owner=Owner(cluster="c", name="n"),
        partitions={"a": 2, "b": 1},
        source={"a": "id-a", "b": "id-b"},
        data="id-d",
        progress="id-p",
    ),
    partitions=STATES,
)
ERROR = SinkPipelineError(Reason.BROKER_UNREACHABLE, "no answer", "look")


IDENTITY = "shop.orders"


def restored(rows: int) -> Progress:
    assert PROGRESS.meta is not None
    return replace(PROGRESS, meta=replace(PROGRESS.meta, restored=rows))


def rolled_back(rows: int, progress: Progress = PROGRESS) -> Progress:
    assert progress.meta is not None
    return replace(progress, meta=replace(progress.meta, rolled_back=rows), counted=90)


def sink(name: str = "one", state: SinkState = SinkState.RUNNING, **facts: Any) -> SinkReport:
    return SinkReport(**{"name": name, "state": state, "exactly_once": True, "progress": PROGRESS, **facts})


def rendered(
    *sinks: SinkReport, generation: int | None = None, previous: dict[str, Any] | None = None, now_ms: int = NOW
) -> dict[str, Any]:
    document = render(sinks, identity=IDENTITY, generation=generation, previous=previous, now_ms=now_ms)
    assert json.loads(json.dumps(document)) == document
    return document


def condition(document: dict[str, Any], kind: str) -> dict[str, Any]:
    [found] = [each for each in document["conditions"] if each["type"] == kind]
    return found


def test_shape_is_that_of_the_design() -> None:
    document = rendered(sink(lag=5), generation=3)
    assert list(document) == ["observedGeneration", "identity", "phase", "conditions", "totals", "sinks"]
    assert document["totals"] == {
        "sinksReady": "1/1",
        "lag": 5,
        "rowsDelivered": 110,
        "deadLettered": 4,
        "dropped": 1,
        "lost": 4,
    }
    assert document["sinks"] == [
        {
            "name": "one",
            "state": "Running",
            "guarantee": "ExactlyOnce",
            "rowsDelivered": 110,
            "deadLettered": 4,
            "dropped": 1,
            "lost": 4,
            "deadLetters": [
                {"class": "RecordTooLarge", "stage": "write", "count": 1, "dropped": 1},
                {"class": "WrongType", "stage": "decode", "count": 3, "dropped": 0},
            ],
            "frontier": [
                {"topic": "a", "topicId": "id-a", "next": [120, 118]},
                {"topic": "b", "topicId": "id-b", "next": [7]},
            ],
            "lastProgressTime": THEN,
            "epoch": 2,
            "dataTopicId": "id-d",
            "progressTopicId": "id-p",
            "lag": 5,
        }
    ]
    assert document["conditions"] == [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": THEN,
            "observedGeneration": 3,
        }
        for kind, reason, message in [
            ("Ready", "Running", ""),
            ("TopicsReady", "TopicsAsRequested", ""),
            ("SinksHealthy", "RecordsDropped", "records dropped, as onFailure says: one: 1"),
            ("ExactlyOnce", "Transactional", ""),
        ]
    ]


def test_what_is_not_known_is_left_out() -> None:
    document = rendered(sink(progress=None, state=SinkState.STARTING))
    assert document["sinks"] == [{"name": "one", "state": "Starting", "guarantee": "ExactlyOnce"}]
    assert "lag" not in document["totals"], "unknown is not caught up"
    assert document["totals"]["rowsDelivered"] == 0
    assert "observedGeneration" not in document
    assert "observedGeneration" not in condition(document, "Ready")
    assert condition(document, "TopicsReady")["status"] == "Unknown"


def test_an_error_and_an_open_circuit_are_shown() -> None:
    document = rendered(sink(state=SinkState.FAILED, error=ERROR, circuit_opened_at=NOW))
    assert document["sinks"][0]["error"] == {"reason": "BrokerUnreachable", "message": "no answer", "remedy": "look"}
    assert document["sinks"][0]["circuit"] == {"openedAt": THEN}
    assert condition(document, "SinksHealthy")["status"] == "False"
    assert condition(document, "SinksHealthy")["reason"] == "BrokerUnreachable"
    assert condition(document, "Ready")["message"] == f"one: {ERROR}"


def test_sinks_of_which_nothing_was_dropped_have_no_errors() -> None:
    document = rendered(sink(progress=Progress(meta=PROGRESS.meta, partitions={B0: STATES[B0]})))
    assert document["sinks"][0]["deadLetters"] == [], "known to be none, and not unknown"
    assert (condition(document, "SinksHealthy")["reason"], condition(document, "SinksHealthy")["message"]) == (
        *("NoErrors", ""),
    )


def test_totals_are_those_of_all_sinks() -> None:
    document = rendered(sink("one", lag=5), sink("two", SinkState.RETRYING, lag=7, error=ERROR), sink("three", lag=0))
    assert document["totals"]["sinksReady"] == "2/3"
    assert document["totals"]["lag"] == 12
    assert document["totals"]["rowsDelivered"] == 330


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("Running Running", Phase.RUNNING),
        ("Running Starting", Phase.STARTING),
        ("Starting", Phase.STARTING),
        ("Running Retrying", Phase.DEGRADED),
        ("Running Failed", Phase.DEGRADED),
        ("Starting Failed", Phase.DEGRADED),
        ("Retrying", Phase.DEGRADED),
        ("Failed Failed", Phase.FAILED),
        ("Suspended Suspended", Phase.SUSPENDED),
        # Its source decides: `core.changes.told`.
        ("", Phase.RUNNING),
    ],
)
def test_phase_is_computed_from_the_sinks(states: str, expected: Phase) -> None:
    reports = [sink(str(number), SinkState(state)) for number, state in enumerate(states.split())]
    assert phase(reports) is expected
    assert condition(rendered(*reports), "Ready")["status"] == ("True" if expected is Phase.RUNNING else "False")


@pytest.mark.parametrize(
    ("sinks", "executors", "expected"),
    [
        ([sink(proved=True), sink("two", proved=True)], Executors(registered=1), "Running True Running"),
        ([sink(proved=True), sink("two", proved=False)], Executors(registered=1), "Starting False FirstBatchPending"),
        ([sink(proved=False)], None, "Starting False FirstBatchPending"),
        ([sink(proved=True)], Executors(registered=0, none_since=NOW - 29_000), "Running True Running"),
        ([sink(proved=True)], Executors(registered=0, none_since=NOW - 30_000), "Degraded False NoExecutors"),
        ([sink(proved=False)], Executors(registered=0, none_since=NOW - 30_000), "Degraded False NoExecutors"),
        (
            [sink(state=SinkState.RETRYING, error=ERROR, proved=False)],
            Executors(registered=0, none_since=NOW - 30_000),
            "Degraded False Degraded",
        ),
    ],
)
def test_ready_is_who_has_shown_that_it_delivers_and_has_somebody_who_would(
    sinks: Sequence[SinkReport], executors: Executors | None, expected: str
) -> None:
    document = render(sinks, identity=IDENTITY, generation=None, previous=None, now_ms=NOW, executors=executors)
    ready = condition(document, "Ready")
    assert f"{document['phase']} {ready['status']} {ready['reason']}" == expected
    assert bool(ready["message"]) is (ready["status"] != "True")
    assert document["totals"]["sinksReady"].startswith(str(sum(bool(each.ready) for each in sinks)))


def test_a_run_from_a_file_remembers_of_a_run_only_its_progress() -> None:
    told = rendered(sink(proved=True, still_since=NOW))
    next_run = rendered(SinkReport(name="one", exactly_once=True, proved=False))
    merged = write_over(told, next_run, own=True)
    assert merged is not None
    assert merged["sinks"][0]["proved"] is False
    assert "stillSince" not in merged["sinks"][0]


@pytest.mark.parametrize("told", [None, 7, "soon", THEN[:-1], "2023-13-14T22:13:20Z"])
def test_what_is_no_time_is_none(told: object) -> None:
    assert instant(told) is None
    assert instant(THEN) == NOW // 1000 * 1000


@pytest.mark.parametrize(
    ("reports", "status", "reason", "fact"),
    [
        ([sink()], "True", "Transactional", ""),
        ([sink(), sink("weak", exactly_once=False)], "False", "AtLeastOnceRequested", "AtLeastOnce for weak"),
        ([sink(progress=restored(7))], "Unknown", "ProgressRestored", "one: the rows of at most 7 records"),
        ([sink(progress=restored(0))], "Unknown", "ProgressRestored", "one: the rows of at most 0 records"),
        ([sink(progress=rolled_back(7))], "Unknown", "SinkRolledBack", "one: 7 rows were lost by the sink"),
        ([sink(progress=rolled_back(0))], "Unknown", "SinkRolledBack", "one: 0 rows"),
        ([sink(progress=rolled_back(7, restored(2)))], "Unknown", "ProgressRestored", "duplicated; one: 7 rows"),
        ([sink(exactly_once=False, progress=rolled_back(7))], "False", "AtLeastOnceRequested", "AtLeastOnce for one"),
        ([sink(exactly_once=False, progress=restored(7))], "False", "AtLeastOnceRequested", "AtLeastOnce for one"),
    ],
)
def test_exactly_once_condition(reports: Sequence[SinkReport], status: str, reason: str, fact: str) -> None:
    found = condition(rendered(*reports), "ExactlyOnce")
    assert (found["status"], found["reason"]) == (status, reason)
    assert fact in found["message"]


def test_what_a_sink_has_lost_and_what_its_store_counts_are_remembered() -> None:
    document = rendered(sink(progress=rolled_back(7)))
    assert (document["sinks"][0]["rolledBack"], document["sinks"][0]["counted"]) == (7, 90)
    memory = memory_of(document, IDENTITY, "one")
    assert memory is not None
    assert (memory.rolled_back, memory.counted) == (7, 90)
    assert "rolledBack" not in rendered(sink())["sinks"][0]


def test_drift_is_told_and_topics_stay_ready() -> None:
    found = condition(rendered(sink(drift=("a differs", "b differs"))), "TopicsReady")
    assert (found["status"], found["reason"], found["message"]) == ("True", "Drifted", "a differs; b differs")


def test_a_condition_keeps_its_transition_time_while_its_status_stays() -> None:
    first = rendered(sink(state=SinkState.STARTING))
    second = rendered(sink(state=SinkState.RETRYING, error=ERROR), previous=first, now_ms=NOW + 60_000)
    third = rendered(sink(), previous=second, now_ms=NOW + 120_000)
    times = {
        kind: [condition(document, kind)["lastTransitionTime"] for document in (first, second, third)]
        for kind in ("Ready", "SinksHealthy", "ExactlyOnce")
    }
    minute, two = "2023-11-14T22:14:20Z", "2023-11-14T22:15:20Z"
    assert times == {
        "Ready": [THEN, THEN, two],
        "SinksHealthy": [THEN, minute, two],
        "ExactlyOnce": [THEN, THEN, THEN],
    }
    assert condition(second, "Ready")["reason"] == "Degraded"


def test_a_previous_document_without_conditions_is_no_obstacle() -> None:
    assert condition(rendered(sink(), previous={}), "Ready")["lastTransitionTime"] == THEN


def test_timestamps_are_as_kubernetes_writes_them() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00Z"
    assert timestamp(NOW) == THEN


@pytest.mark.parametrize(
    ("unix_ms", "expected"),
    [
        (-1, "1969-12-31T23:59:59Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00Z"),
        (-(2**63), "0001-01-01T00:00:00Z"),
        (2**63 - 1, "9999-12-31T23:59:59Z"),
    ],
)
def test_a_timestamp_of_a_record_may_be_any_number(unix_ms: int, expected: str) -> None:
    assert timestamp(unix_ms) == expected


def test_memory_is_read_back() -> None:
    assert memory_of(rendered(sink("other"), sink("one")), IDENTITY, "one") == Memory(
        epoch=2,
        partitions={
            A0: PartitionProgress(
                epoch=2,
                next=120,
                rows=110,
                dead=4,
                dropped=1,
                lost=4,
                by_class=checked({"RecordTooLarge": 1, "WrongType": 3}, {"RecordTooLarge": 1}),
            ),
            A1: PartitionProgress(epoch=2, next=118),
            B0: PartitionProgress(epoch=2, next=7),
        },
        source={"a": "id-a", "b": "id-b"},
        data="id-d",
        progress="id-p",
        rows=110,
    )


def test_an_older_document_remembers_no_classes() -> None:
    document = rendered(sink())
    del document["sinks"][0]["deadLetters"]
    memory = memory_of(document, IDENTITY, "one")
    assert memory is not None
    state = memory.partitions[A0]
    assert (state.dead, state.by_class) == (4, ())


counts = st.integers(0, 2**53)
topic_sizes = st.dictionaries(st.text("ab.-_", min_size=1, max_size=3), st.integers(1, 12), min_size=1, max_size=3)


@given(topic_sizes, st.data())
def test_a_memory_has_the_frontier_the_ids_and_the_sums(sizes: dict[str, int], data: st.DataObject) -> None:
    partitions = {
        SourcePartition(topic, number): PartitionProgress(
            epoch=1, next=data.draw(counts), rows=data.draw(counts), dead=data.draw(counts), lost=data.draw(counts)
        )
        for topic, size in sizes.items()
        for number in range(size)
    }
    ids = data.draw(st.none() | st.just("id"))
    meta = Meta(
        epoch=1,
        run="r",
        owner=Owner(cluster="c", name="n"),
        partitions=sizes,
        source={topic: f"id-{topic}" for topic in sizes},
        data=ids,
        progress=ids,
    )
    memory = memory_of(rendered(sink(progress=Progress(meta=meta, partitions=partitions))), IDENTITY, "one")
    assert memory is not None
    assert {each: state.next for each, state in memory.partitions.items()} == {
        each: state.next for each, state in partitions.items()
    }
    for name in ("rows", "dead", "dropped", "lost"):
        assert sum(getattr(state, name) for state in memory.partitions.values()) == sum(
            getattr(state, name) for state in partitions.values()
        )
    assert (memory.epoch, memory.source, memory.data, memory.progress) == (1, meta.source, ids, ids)
    assert memory.rows == sum(state.rows for state in partitions.values())


@pytest.mark.parametrize(
    "document",
    [
        {"identity": "shop.orders", "sinks": []},
        rendered(sink("other")),
        rendered(sink(progress=None)),
        rendered(sink(progress=Progress(meta=PROGRESS.meta))),
    ],
    ids=["no sinks", "another sink", "progress unknown", "no frontier"],
)
def test_nothing_is_remembered(document: object) -> None:
    assert memory_of(document, IDENTITY, "one") is None


@pytest.mark.parametrize(
    "document", [None, [], "text", {}, {"sinks": None}, {"sinks": [None]}, {"sinks": [{}]}], ids=repr
)
def test_what_is_no_status_document_is_refused(document: object) -> None:
    assert refusal(document).reason is Reason.STATUS_FILE_INVALID


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": None},
        {"epoch": "two"},
        {"frontier": 1},
        {"frontier": [None]},
        {"frontier": [{"topic": "a"}]},
        {"frontier": [{"next": [1]}]},
        {"frontier": [{"topic": "a", "next": 5}]},
        {"frontier": [{"topic": "a", "next": []}]},
        {"frontier": [{"topic": "a", "next": [None]}]},
        {"frontier": [{"topic": "a", "next": [-1]}]},
        {"frontier": [{"topic": "a", "next": [1.5]}]},
        {"frontier": [{"topic": "a", "next": [float("inf")]}]},
        {"rowsDelivered": None},
        {"rowsDelivered": -1},
        {"dataTopicId": 5},
        {"deadLetters": None},
        {"deadLetters": [None]},
        {"deadLetters": [{"class": "WrongType"}]},
        {"deadLetters": [{"class": "WrongType", "stage": "decode", "count": -1, "dropped": 0}]},
    ],
    ids=repr,
)
def test_a_broken_sink_is_refused(change: dict[str, object]) -> None:
    document = rendered(sink())
    document["sinks"][0] |= change
    assert refusal(document).reason is Reason.STATUS_FILE_INVALID


def test_the_status_of_another_identity_is_refused() -> None:
    assert refusal(rendered(sink()) | {"identity": "shop.others"}).reason is Reason.STATUS_FILE_INVALID


def refusal(document: object) -> SinkPipelineError:
    with pytest.raises(SinkPipelineError) as caught:
        memory_of(document, IDENTITY, "one")
    return caught.value


@pytest.mark.parametrize(
    ("facts", "status", "reason"),
    [
        ({}, "True", "TopicsAsRequested"),
        ({"state": SinkState.STARTING}, "Unknown", "NotYetKnown"),
        ({"state": SinkState.RETRYING, "error": ERROR}, "Unknown", "NotYetKnown"),
        (
            {"state": SinkState.FAILED, "error": SinkPipelineError(Reason.DATA_TOPIC_LOST, "gone", "decide")},
            "False",
            "DataTopicLost",
        ),
    ],
    ids=["running", "remembered only", "unreachable", "lost"],
)
def test_topics_are_ready_only_where_they_were_looked_at(facts: dict[str, Any], status: str, reason: str) -> None:
    found = condition(rendered(sink(**facts)), "TopicsReady")
    assert (found["status"], found["reason"]) == (status, reason)


def test_what_the_source_holds_back_is_told_and_is_no_error_of_a_sink() -> None:
    hanging = HeldBack(7, OpenTransaction("a transaction is open", "end it"))
    document = rendered(sink(held_back=HeldBack(7)), sink("two"))
    assert [each.get("heldBack") for each in document["sinks"]] == [7, None]
    assert all("openTransaction" not in each for each in document["sinks"])
    document = rendered(sink(held_back=hanging), sink("two", held_back=hanging))
    assert document["sinks"][0]["openTransaction"] == {"message": "a transaction is open", "remedy": "end it"}
    healthy = condition_of(document, "SinksHealthy")
    assert (healthy["status"], healthy["reason"]) == ("True", "SourceTransactionOpen")
    # All sinks have one source, and PROGRESS has a record that was dropped.
    assert healthy["message"] == ("a transaction is open (end it); records dropped, as onFailure says: one: 1, two: 1")


@pytest.mark.parametrize(
    ("state", "facts", "told"),
    [
        (SinkState.RUNNING, {}, ""),
        (SinkState.FAILED, {"error": ERROR}, "two (BrokerUnreachable)"),
        (SinkState.RETRYING, {"error": ERROR}, "two (BrokerUnreachable)"),
        (SinkState.STARTING, {}, "two (Starting)"),
        (SinkState.RUNNING, {"proved": False}, "two (Running)"),
    ],
)
def test_ready_depends_on_required_sinks_alone(state: SinkState, facts: dict[str, Any], told: str) -> None:
    for first, ready in (({}, "True"), ({"state": SinkState.RETRYING, "error": ERROR}, "False")):
        document = rendered(sink(**first), sink("two", state, required=False, **facts))
        found = condition(document, "Ready")
        assert found["status"] == ready
        if ready == "True":
            assert found["message"] == (f"not delivering, and not required: {told}" if told else "")
            assert document["phase"] == ("Degraded" if "error" in facts else "Running")
        assert condition(document, "SinksHealthy")["status"] == ("False" if {**first, **facts}.get("error") else "True")
        assert document["sinks"][1]["required"] is False
        assert "required" not in document["sinks"][0]
