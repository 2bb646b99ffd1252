"""What the resource says of records that could not be delivered: status, columns, metrics, and each event once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from support.kube.operator_lab import OperatorLab
from support.kube.scripts import SinkScript

pytestmark = pytest.mark.kube

TOLD = [
    {"class": "MalformedJson", "stage": "decode", "count": 3, "dropped": 0},
    {"class": "RecordTooLarge", "stage": "write", "count": 1, "dropped": 2},
]
FIRST = [
    ("DeadLettered", "MalformedJson", 1),
    ("DeadLettered", "RecordTooLarge", 1),
    ("RecordsDropped", "RecordTooLarge", 1),
]


@pytest.fixture
def lab(new_lab: Callable[..., OperatorLab], name: str) -> OperatorLab:
    """With a pipeline that is Ready, and whose records could all be delivered until now."""
    lab = new_lab()
    lab.start()
    manifest = lab.pipeline(name)
    manifest["spec"]["sinks"][0]["deadLetter"] = {"topic": {"name": "orders-dlq"}, "onFailure": "DropAndContinue"}
    lab.apply(manifest)
    lab.until_ready(name)
    return lab


def fail(lab: OperatorLab, name: str, dead: Mapping[str, int], dropped: Mapping[str, int]) -> None:
    sink = SinkScript(rows=350, next=(120,), dead_by_class=dead, dropped_by_class=dropped)
    lab.driver(name).change(sinks={"copy": sink})


def until_told(lab: OperatorLab, name: str, word: str, count: int) -> None:
    """At once, and not with the next minute's counts."""
    lab.until_status(
        name,
        lambda seen: (word, count) in [(each["class"], each["count"]) for each in seen["sinks"][0]["deadLetters"]],
        f"the status tells {count} {word}",
        deadline_s=20,
    )


def events(lab: OperatorLab, name: str) -> list[tuple[str, str, int]]:
    """Reason, class, and how often it was posted."""
    return sorted(
        (each["reason"], each["message"].partition(" (stage ")[0].split()[-1], each["count"])
        for each in lab.events(name)
        if each["reason"] in ("DeadLettered", "RecordsDropped")
    )


def test_dead_letters_are_told_and_the_first_of_each_class_by_an_event(lab: OperatorLab, name: str) -> None:
    assert (lab.sink(name)["deadLetters"], lab.condition(name, "SinksHealthy")["reason"]) == ([], "NoErrors")
    fail(lab, name, {"MalformedJson": 3, "RecordTooLarge": 1}, {"RecordTooLarge": 2})
    until_told(lab, name, "MalformedJson", 3)
    assert lab.sink(name)["deadLetters"] == TOLD
    totals = lab.status(name)["totals"]
    assert (totals["deadLettered"], totals["dropped"]) == (4, 2)
    healthy, ready = lab.condition(name, "SinksHealthy"), lab.condition(name, "Ready")
    assert (healthy["status"], healthy["reason"], ready["status"]) == ("True", "RecordsDropped", "True")
    assert "copy: 2" in healthy["message"]

    table, wide = lab.table(name), lab.table(name, wide=True)
    assert (table["READY"], table["DLQ"], wide["DROPPED"]) == ("True", "4", "2")
    lab.until(lambda: events(lab, name) == FIRST, "each is told by an event")
    assert "3 records could not be delivered and went to orders-dlq: MalformedJson (stage decode)" in lab.told(name)
    assert f"kubectl -n {lab.namespace} create -f -" in lab.told(name)
    of = f'namespace="{lab.namespace}",pipeline="{name}",sink="copy",stage="write"'
    assert f'sinkpipeline_dead_letters{{class="RecordTooLarge",{of}}} 1.0' in lab.answer("/metrics")[1]
    assert f'sinkpipeline_dropped_records{{class="RecordTooLarge",{of}}} 2.0' in lab.answer("/metrics")[1]

    # More of it is no news, and the next class is.
    fail(lab, name, {"MalformedJson": 9, "NullValue": 1, "RecordTooLarge": 1}, {"RecordTooLarge": 5})
    until_told(lab, name, "NullValue", 1)
    later = sorted([*FIRST, ("DeadLettered", "NullValue", 1)])
    lab.until(lambda: events(lab, name) == later, "the new class is told")

    # Nor is it news to an operator that has just started.
    lab.restart()
    fail(
        lab, name, {"FromTheFuture": 1, "MalformedJson": 10, "NullValue": 2, "RecordTooLarge": 1}, {"RecordTooLarge": 6}
    )
    until_told(lab, name, "FromTheFuture", 1)
    last = sorted([*later, ("DeadLettered", "FromTheFuture", 1)])
    lab.until(lambda: events(lab, name) == last, "the new class is told")
    assert lab.sink(name)["deadLetters"][0] == {
        "class": "FromTheFuture", "stage": "unknown", "count": 1, "dropped": 0,
    }  # fmt: skip

    # The next driver could seed a lost progress topic with them.
    lab.drivers.kill((lab.namespace, name))
    resume = lab.until_started(name, 2).resume
    assert resume is not None
    assert resume["sinks"][0]["deadLetters"] == lab.sink(name)["deadLetters"]
    assert events(lab, name) == last
