"""Which events are posted, and that a repetition is counted and not added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from sinkpipeline.core.changes.dropping import Kept
from sinkpipeline.sinks.removal import KeptTopic
from sinkpipeline_operator.child.driverpod import Death
from sinkpipeline_operator.child.waits import Wait
from sinkpipeline_operator.decide.decision import Decision, Standing, Step
from sinkpipeline_operator.decide.restarts import Restarts
from sinkpipeline_operator.kube.client import ApiFailed, ApiRefused, ApiUnavailable, Conflict, Kind, Ref
from sinkpipeline_operator.report.events import (
    MAX_MESSAGE,
    Event,
    Recorder,
    events_of,
    events_of_deletion,
    events_of_removal,
)

NOW = 1_750_000_000_000
ORDERS = Ref("shop", "orders")
PIPELINE = {
    "apiVersion": "sinkpipeline.io/v1alpha1",
    "kind": "SinkPipeline",
    "metadata": {"name": "orders", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
}


def condition(kind: str, status: str, reason: str = "Why") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": "the fact"}


def status(*conditions: Mapping[str, str], **sink: Any) -> dict[str, Any]:
    return {"conditions": list(conditions), "sinks": [{"name": "out", "state": "Running", **sink}]}


def nothing(step: Step = Step.NOTHING, death: Death | None = None) -> Decision:
    return Decision(step=step, standing=Standing.RUNNING, why="Why", run="abc", death=death, restarts=Restarts())


ERROR = {"reason": "BrokerUnreachable", "message": "no answer", "remedy": "look"}
ROWS = {
    "ready": (status(condition("Ready", "False")), status(condition("Ready", "True")), ["Normal Ready"]),
    "not ready any more": (
        *(status(condition("Ready", "True")), status(condition("Ready", "False")), ["Warning NotReady"]),
    ),
    "still not ready": (status(condition("Ready", "False")), status(condition("Ready", "False")), []),
    "a sink's error": (status(), status(error=ERROR), ["Warning BrokerUnreachable"]),
    "the same error": (status(error=ERROR), status(error=ERROR), []),
    "the circuit opens": (*(status(error=ERROR), status(state="Failed", error=ERROR), ["Warning BrokerUnreachable"]),),
    "stalled": (
        *(status(condition("Stalled", "False")), status(condition("Stalled", "True", "DataTopicLost"))),
        ["Warning DataTopicLost"],
    ),
    "restored": (
        *(status(condition("ExactlyOnce", "True")), status(condition("ExactlyOnce", "Unknown", "ProgressRestored"))),
        ["Warning ProgressRestored"],
    ),
    "rolled back": (
        *(status(condition("ExactlyOnce", "True")), status(condition("ExactlyOnce", "Unknown", "SinkRolledBack"))),
        [],
    ),
    "rolled back, of a sink": (status(), status(rolledBack=7), ["Warning SinkRolledBack"]),
    "rolled back once more": (status(rolledBack=7), status(rolledBack=9), ["Warning SinkRolledBack"]),
    "rolled back before": (status(rolledBack=7), status(rolledBack=7), []),
    "not known yet": ({}, status(condition("ExactlyOnce", "Unknown", "NotYetKnown")), []),
    "the progress topic is another one": (
        *(status(progressTopicId="a"), status(progressTopicId="b")),
        ["Warning ProgressTopicRecreated"],
    ),
    "the progress topic is known for the first time": (status(), status(progressTopicId="b"), []),
}


@pytest.mark.parametrize(("before", "after", "told"), ROWS.values(), ids=ROWS.keys())
def test_what_changed_is_told(before: dict[str, Any], after: dict[str, Any], told: list[str]) -> None:
    assert [f"{each.kind} {each.reason}" for each in events_of(before, after, nothing(), {}, pipeline=ORDERS)] == told


def letters(**classes: tuple[int, int]) -> dict[str, Any]:
    """A status whose one sink has dead letters and dropped records."""
    entries = [
        {"class": word, "stage": "decode", "count": count, "dropped": dropped}
        for word, (count, dropped) in classes.items()
    ]
    return status(epoch=1, deadLetters=entries)


ONE, DROPPED = "Warning DeadLettered", "Warning RecordsDropped"
FIRSTS = {
    "the first": (letters(), letters(WrongType=(3, 0)), [ONE]),
    "more of it": (letters(WrongType=(3, 0)), letters(WrongType=(4, 0)), []),
    "another class": (letters(WrongType=(3, 0)), letters(WrongType=(3, 0), NullValue=(1, 0)), [ONE]),
    "two at once": (letters(), letters(WrongType=(1, 0), NullValue=(1, 0)), [ONE, ONE]),
    "one that is dropped": (letters(WrongType=(3, 0)), letters(WrongType=(3, 1)), [DROPPED]),
    "both": (letters(), letters(WrongType=(3, 1)), [ONE, DROPPED]),
    "dropped first": (letters(WrongType=(0, 1)), letters(WrongType=(1, 1)), [ONE]),
    "adopted": ({}, letters(WrongType=(3, 1)), [ONE, DROPPED]),
    "of a sink that was not told of": (status(epoch=1), letters(WrongType=(3, 0)), [ONE]),
    "a reset": (letters(WrongType=(3, 0)), letters(), []),
    "after a reset that nobody saw": (
        {**letters(), "sinks": [{**letters(WrongType=(3, 0))["sinks"][0], "epoch": 0}]},
        *(letters(WrongType=(1, 0)), [ONE]),
    ),
    "after a release that counted no classes": (*(status(epoch=1, deadLettered=3), letters(WrongType=(3, 0)), []),),
    "a driver that knows no classes": (letters(WrongType=(3, 0)), status(epoch=1), []),
}


@pytest.mark.parametrize(("before", "after", "told"), FIRSTS.values(), ids=FIRSTS.keys())
def test_the_first_of_a_class_is_told(before: dict[str, Any], after: dict[str, Any], told: list[str]) -> None:
    assert [f"{each.kind} {each.reason}" for each in events_of(before, after, nothing(), {}, pipeline=ORDERS)] == told


def test_dead_letters_are_told_with_all_that_a_person_needs() -> None:
    first, second = events_of({}, letters(WrongType=(1, 20)), nothing(), {"out": "orders-dlq"}, pipeline=ORDERS)
    assert first.message.startswith(
        "out: 1 record could not be delivered and went to orders-dlq: WrongType (stage decode)"
    )
    assert '"action":"Redrive"}}\' | kubectl -n shop create -f -`' in first.message
    assert second.message.startswith(
        "out: dropped 20 records that could be neither delivered nor written to orders-dlq"
    )


def test_a_removal_tells_which_topics_stay() -> None:
    assert [each.message.split()[3] for each in events_of_removal(["b", "a", "b"])] == ["a", "b"]


def test_a_deletion_tells_which_data_topics_go() -> None:
    told = [(each.reason, each.message.split()[3]) for each in events_of_deletion(["b", "a", "b"])]
    assert told == [("DataTopicDeleted", "a"), ("DataTopicDeleted", "b")]


def test_a_removal_tells_of_a_data_topic_that_stays_and_why() -> None:
    [event] = events_of_removal([], [KeptTopic("orders", "somebody has created it again since")])
    assert event.reason == "DataTopicKept"
    assert event.message.startswith("the data topic orders stays: somebody has created it again since")


def test_what_goes_of_a_database_and_what_stays_there_is_told() -> None:
    told = [(each.reason, each.message) for each in events_of_deletion(["slot s", "publication a b", "orders"])]
    assert [reason for reason, _ in told] == ["DataTopicDeleted", "PublicationDropped", "SlotDropped"]
    assert told[1][1].startswith("publication a b is dropped now")
    kept = [Kept("slot", "s", "it was there before"), Kept("publication", "p", "it was there before")]
    slot, publication = events_of_removal([], in_database=kept)
    assert (slot.reason, publication.reason) == ("SlotKept", "PublicationKept")
    assert "the database keeps its log for it: it was there before" in slot.message
    assert "run SELECT pg_drop_replication_slot('s')" in slot.message


@pytest.mark.parametrize(("code", "kind"), [(0, "Normal"), (1, "Warning"), (None, "Warning")])
def test_the_end_of_a_driver_is_told(code: int | None, kind: str) -> None:
    death = Death(child="c", exit_code=code, reason="Done", message="m")
    [event] = events_of({}, {}, nothing(Step.NOTE, death), {}, pipeline=ORDERS)
    assert (event.kind, event.reason) == (kind, "DriverEnded")


def test_a_submission_that_failed_is_no_end_of_a_driver() -> None:
    death = Death(child="c", exit_code=None, reason="QuotaExceeded", message="m", remedy="r", is_of_submission=True)
    [event] = events_of({}, {}, nothing(Step.NOTE, death), {}, pipeline=ORDERS)
    assert (event.kind, event.reason) == ("Warning", "QuotaExceeded")
    assert event.message == "the driver could not be submitted: m (r)"


def test_what_a_start_waits_for_is_told_once_and_under_one_name() -> None:
    wait = Wait(reason="Unschedulable", message="0/1 nodes", alarm=True, needs_person=True)
    before = status(condition("SparkApplicationReady", "False", "SUBMITTED"))
    after = status(condition("SparkApplicationReady", "False", "Unschedulable"))
    stalled = {**condition("Stalled", "True", "Unschedulable"), "message": "0/1 nodes"}
    [event] = events_of(
        before, {**after, "conditions": [*after["conditions"], stalled]}, nothing(), {}, wait, pipeline=PIPELINE
    )
    assert (event.kind, event.reason, event.message) == ("Warning", "Unschedulable", "0/1 nodes")
    assert not [*events_of(after, after, nothing(), {}, wait, pipeline=ORDERS)]
    assert not [*events_of(before, after, nothing(), {}, replace(wait, alarm=False), pipeline=ORDERS)]


class _Events:
    """The API server, as far as events go."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}

    def create(self, _: Kind, document: Mapping[str, Any]) -> dict[str, Any]:
        name = document["metadata"]["name"]
        if name in self.there:
            raise Conflict(name)
        self.there[name] = dict(document)
        return self.there[name]

    def patch(self, _: Kind, ref: Ref, patch: Mapping[str, Any]) -> dict[str, Any]:
        if ref.name not in self.there:
            raise ApiRefused(404, "NotFound")
        self.there[ref.name] |= patch
        return self.there[ref.name]


class _Away(_Events):
    """A webhook that has to be asked does not answer, or there are too many events."""

    error: Exception

    @override
    def create(self, _: Kind, document: Mapping[str, Any]) -> dict[str, Any]:
        raise self.error

    @override
    def patch(self, _: Kind, ref: Ref, patch: Mapping[str, Any]) -> dict[str, Any]:
        raise self.error


@pytest.mark.parametrize("error", [ApiFailed(500, "no webhook"), ApiUnavailable("no answer"), ApiRefused(403, "no")])
def test_nothing_waits_for_an_event_that_cannot_be_written(error: Exception) -> None:
    api = _Away()
    api.error = error
    recorder = Recorder(api)  # type: ignore[arg-type]
    for second in range(2):
        recorder.post(PIPELINE, Event("Warning", "BrokerUnreachable", "no answer"), NOW + second)


def test_a_repetition_is_counted_also_by_the_next_operator() -> None:
    api = _Events()
    event = Event("Warning", "BrokerUnreachable", "no answer")
    first = Recorder(api)  # type: ignore[arg-type]
    for second in range(3):
        first.post(PIPELINE, event, NOW + second * 1000)
    [found] = api.there.values()
    assert (found["count"], found["firstTimestamp"], found["lastTimestamp"]) == (
        *(3, "2025-06-15T15:06:40Z", "2025-06-15T15:06:42Z"),
    )
    Recorder(api).post(PIPELINE, event, NOW + 9000)  # type: ignore[arg-type]
    assert len(api.there) == 1
    assert found["lastTimestamp"] == "2025-06-15T15:06:49Z"


def test_an_event_whose_words_change_is_one_where_it_has_a_key() -> None:
    api = _Events()
    recorder = Recorder(api)  # type: ignore[arg-type]
    for second, words in enumerate(("at 10:00:00", "at 10:00:05")):
        recorder.post(PIPELINE, Event("Warning", "QuotaExceeded", words, key="submission"), NOW + second * 1000)
    [found] = api.there.values()
    assert (found["count"], found["message"]) == (2, "at 10:00:05")


def test_an_event_that_has_expired_is_posted_anew() -> None:
    api = _Events()
    recorder, event = Recorder(api), Event("Warning", "BrokerUnreachable", "no answer")  # type: ignore[arg-type]
    for _ in range(2):
        recorder.post(PIPELINE, event, NOW)
    api.there.clear()
    for second in (1, 2):
        recorder.post(PIPELINE, event, NOW + second * 1000)
    [found] = api.there.values()
    assert (found["count"], found["firstTimestamp"]) == (2, "2025-06-15T15:06:41Z")


def test_other_words_are_another_event_and_long_ones_are_cut() -> None:
    api = _Events()
    recorder = Recorder(api)  # type: ignore[arg-type]
    for text in ("a", "b", "x" * 5000):
        recorder.post(PIPELINE, Event("Normal", "Ready", text), NOW)
    assert len(api.there) == 3
    assert max(len(each["message"]) for each in api.there.values()) == MAX_MESSAGE
