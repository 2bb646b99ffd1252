"""What one driver says, or one object that the API server refuses, makes no pipeline uncontrollable, and is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.kube.operator_lab import OperatorLab
from support.kube.policies import policy
from support.kube.scripts import Script, SinkScript

pytestmark = pytest.mark.kube

OPENED_MS = 1_750_000_000_000
NO_LONGER = 20.0
"""Within so many seconds, whatever else is refused."""


def running(lab: OperatorLab, name: str) -> None:
    """With a sink of which everything is remembered, also that its circuit was opened."""
    script = SinkScript(rows=8, next=(8,), epoch=1, circuit_opened_at=OPENED_MS)
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": script}))
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    assert None not in remembered(lab, name)


def remembered(lab: OperatorLab, name: str) -> list[Any]:
    keys = ("frontier", "epoch", "dataTopicId", "progressTopicId", "rowsDelivered", "circuit")
    return [lab.sink(name).get(key) for key in keys]


def suspend(lab: OperatorLab, name: str) -> None:
    lab.patch(name, {"suspend": True})
    lab.until(lambda: lab.child(name) is None, f"{name}: its driver is stopped", NO_LONGER)


@pytest.mark.thorough("waits for each bad answer; tests/unit/test_operator_fuzz has many more of them")
def test_a_driver_whose_answer_is_none_is_told_and_obeys(lab: OperatorLab, name: str) -> None:
    running(lab, name)
    before = remembered(lab, name)
    for place, value in (
        ("state", "Draining"),
        ("frontier", [{"topic": "numbers", "next": [-1]}]),
        ("circuit", {"openedAt": "yesterday"}),
        ("lag", None),
    ):
        lab.driver(name).change(lie=(("sinks", 0, place), value))
        lab.until_status(
            name,
            lambda seen, place=place: f"sinks.0.{place}" in json.dumps(seen["conditions"]),
            f"{place} is told to be wrong",
        )
        told = lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
        assert "is no status document" in told["message"]
        assert remembered(lab, name) == before
    suspend(lab, name)
    lab.until_phase(name, "Suspended")
    assert remembered(lab, name) == before
    assert "InternalError" not in lab.answer("/metrics")[1]


def test_a_status_that_is_refused_is_written_without_the_drivers_words(lab: OperatorLab, name: str) -> None:
    running(lab, name)
    before = remembered(lab, name)
    rule = "!has(object.status) || !object.status.sinks.exists(s, s.rowsDelivered == 4242)"
    with policy(lab, name, "sinkpipelines/status", rule):
        lab.driver(name).change(sinks={"copy": SinkScript(rows=4242, next=(4242,))})
        told = lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
        assert "the API server refuses what the driver says: " in told["message"]
        assert remembered(lab, name) == before
        suspend(lab, name)
        lab.until_phase(name, "Suspended")


def test_where_no_status_is_taken_the_step_waits_and_an_event_says_so(lab: OperatorLab, name: str) -> None:
    running(lab, name)
    with policy(lab, name, "sinkpipelines/status", "false"):
        lab.patch(name, {"suspend": True})
        lab.until(lambda: "AdmissionRefused: the API server refuses: " in lab.told(name), "an event tells it")
        assert lab.child(name) is not None
    lab.until_phase(name, "Suspended")


@pytest.mark.thorough("waits for retries; the others show other refusals")
def test_a_token_that_can_not_be_written_silences_nothing(lab: OperatorLab, name: str) -> None:
    """As in a namespace that goes, which takes no new objects."""
    running(lab, name)
    with policy(lab, f"{name}-driver-token", "secrets", "false"):
        lab.delete("secret", f"{name}-driver-token")
        lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
        lab.until(lambda: "AdmissionRefused: the API server refuses: " in lab.told(name), "an event tells it")
        suspend(lab, name)
        lab.until_phase(name, "Suspended")

        # Without a token nothing starts, and the status says why.
        lab.patch(name, {"suspend": False})
        told = lab.until_condition(name, "Stalled", "True", "AdmissionRefused")
        assert f"{name}-driver-token" in told["message"]
    lab.until_ready(name)


def test_a_driver_that_may_not_be_stopped_is_told(lab: OperatorLab, name: str) -> None:
    running(lab, name)
    with policy(lab, name, "sparkapplications", "false", operations=("DELETE",)):
        lab.patch(name, {"suspend": True})
        lab.until_condition(name, "Stalled", "True", "AdmissionRefused")
        assert lab.condition(name, "SparkApplicationReady")["reason"] == "AdmissionRefused"
        lab.until(lambda: "AdmissionRefused: " in lab.told(name), "an event tells it")
    lab.until_phase(name, "Suspended")


@pytest.mark.thorough("a manifest of a megabyte")
def test_a_manifest_that_no_config_map_holds_is_told_with_a_remedy(lab: OperatorLab, name: str) -> None:
    """The resource itself may be larger than what its driver reads it from."""
    manifest = lab.pipeline(name, sinks=["one", "two", "three"])
    small = json.loads(json.dumps(manifest))
    for sink in manifest["spec"]["sinks"]:
        sink["kafka"]["topic"]["config"] = {f"some.setting.{number}": "x" * 4_000 for number in range(93)}
    assert 1_100_000 < len(json.dumps(manifest)) < 1_200_000
    lab.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
    told = lab.until_condition(name, "Stalled", "True", "ManifestTooLarge")
    assert "may not be more than 1048576 bytes" in told["message"]
    assert "make the manifest smaller" in told["message"]
    lab.until(lambda: "ManifestTooLarge: " in lab.told(name), "an event tells it")
    lab.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(small))
    lab.until_ready(name)
