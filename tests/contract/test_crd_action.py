"""The CustomResourceDefinition of SinkPipelineAction and its types say the same; its status is what is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import crd
from sinkpipeline.core.asked import Preview
from sinkpipeline.core.manifest import ManifestError
from sinkpipeline.core.manifest.action import ActionSpec, parse_action
from sinkpipeline_operator.decide.asked import Around, Asked, Phase, Task
from sinkpipeline_operator.decide.asked_steps import decide, task_of
from support.resource.custom_resource import admit

COMMITTED = yaml.safe_load(crd.ACTION_PATH.read_text())
[VERSION] = COMMITTED["spec"]["versions"]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
RESET = {"pipeline": "orders", "sink": "copy", "action": "Reset", "to": "earliest"}
REDRIVE = {"pipeline": "orders", "sink": "copy", "action": "Redrive"}
PURGE = {"pipeline": "orders", "sink": "copy", "action": "Purge"}

RIGHT: dict[str, dict[str, Any]] = {
    "a reset": RESET,
    "a reset to offsets": {**RESET, "to": "orders:0=120,orders:1=latest,refunds=earliest"},
    "a reset to times": {**RESET, "to": "2026-01-01T00:00:00Z,refunds=2026-01-01T00:00:00.000+01:00"},
    "a redrive of all": REDRIVE,
    "a redrive of some": {
        **REDRIVE,
        "to": "Source",
        "letters": {"ids": ["0:120"], "classes": ["WrongType"], "stages": ["decode"], "since": "24h"},
        "rate": 5,
    },
    "a purge of what was redriven": {**PURGE, "upTo": {"redriven": True}},
    "a purge by time": {**PURGE, "upTo": {"until": "2026-11-22T08:00:00Z"}},
    "a purge by offset": {**PURGE, "upTo": {"beforeOffsets": ["0:120"]}},
    "confirmed": {**RESET, "confirm": "0123456789abcdef", "ttlSecondsAfterFinished": 0},
}
WRONG: dict[str, dict[str, Any]] = {
    "a reset to nowhere": {key: value for key, value in RESET.items() if key != "to"},
    "a reset to data": {**RESET, "to": "Data"},
    "a reset to nonsense": {**RESET, "to": "yesterday"},
    "a reset to a time without a zone": {**RESET, "to": "2026-01-01T00:00:00"},
    "a reset with letters": {**RESET, "letters": {}},
    "a redrive to an offset": {**REDRIVE, "to": "orders:0=5"},
    "a redrive with a bound": {**REDRIVE, "upTo": {"redriven": True}},
    "a redrive of nonsense": {**REDRIVE, "letters": {"ids": ["5"]}},
    "a purge without a bound": PURGE,
    "a purge with two": {**PURGE, "upTo": {"redriven": True, "until": "24h"}},
    "a purge with none": {**PURGE, "upTo": {}},
    "a purge that says no": {**PURGE, "upTo": {"redriven": False}},
    "a purge with a rate": {**PURGE, "upTo": {"redriven": True}, "rate": 5},
    "another action": {**RESET, "action": "Delete"},
    "a digest that is none": {**RESET, "confirm": "yes"},
}


def document(spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    meta = {"name": "act", "namespace": "shop"}
    kind = {"apiVersion": "sinkpipeline.io/v1alpha1", "kind": "SinkPipelineAction"}
    return {**kind, "metadata": meta, "spec": spec, **more}


def nodes(schema: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield place, schema
    for name, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{place}.{name}".removeprefix("."))
    if "items" in schema:
        yield from nodes(schema["items"], f"{place}[]")


NODES = dict(nodes(SCHEMA))


def test_the_file_is_what_the_generator_makes() -> None:
    assert crd.ACTION_PATH.read_text() == crd.text(crd.action_definition(), crd.committed_revision(crd.ACTION_PATH)), (
        "run: PYTHONPATH=dev python -m crd"
    )


def test_everything_is_bounded_and_documented() -> None:
    bounds = {"string": {"maxLength", "enum", "format"}, "array": {"maxItems"}}
    ours = {place: node for place, node in NODES.items() if place.startswith(("spec", "status"))}
    assert [at for at, node in ours.items() if node["type"] in bounds and not bounds[node["type"]] & node.keys()] == []
    fields = {place: node for place, node in ours.items() if not place.endswith("[]")}
    assert [place for place, node in fields.items() if not node.get("description", "").endswith(".")] == []


def test_every_field_is_of_the_types() -> None:
    assert {*NODES["spec"]["properties"]} == {field.alias for field in ActionSpec.model_fields.values()}


def test_columns_read_what_is_there() -> None:
    paths = [column["jsonPath"].removeprefix(".") for column in VERSION["additionalPrinterColumns"]]
    assert [path for path in paths if path not in NODES and path != "metadata.creationTimestamp"] == []


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_taken(name: str) -> None:
    assert admit(SCHEMA, document(RIGHT[name]))[1] == []
    assert parse_action(document(RIGHT[name])).spec


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name: str) -> None:
    assert admit(SCHEMA, document(WRONG[name]))[1] != []
    with pytest.raises(ManifestError):
        parse_action(document(WRONG[name]))


def test_nothing_but_the_confirmation_changes() -> None:
    complete = {**RIGHT["a redrive of some"], "ttlSecondsAfterFinished": 5}
    changes: dict[str, Any] = {
        "pipeline": "other",
        "sink": "other",
        "action": "Purge",
        "to": "Data",
        "letters": {},
        "rate": 6,
        "upTo": {"redriven": True},
        "ttlSecondsAfterFinished": 6,
        "confirm": "0123456789abcdef",
    }
    assert changes.keys() == NODES["spec"]["properties"].keys()
    for name, value in changes.items():
        errors = admit(SCHEMA, document({**complete, name: value}), document(complete))[1]
        assert any("never changes" in each for each in errors) == (name != "confirm"), name


def test_every_status_is_one_of_the_schema() -> None:
    around = Around(now_ms=1_750_000_000_000, uid="p", sinks={"copy": True}, new_id="01234567", driver_is_gone=True)
    resource = document({**RESET, "ttlSecondsAfterFinished": 5})
    resource["metadata"] |= {"uid": "u", "generation": 1, "creationTimestamp": "2026-11-22T08:00:00Z"}
    preview = Preview(text="x" * 2048, resolved={"to": "orders:0=1", "before": "b", "after": "a"})
    phases = set()
    for gone in (False, True):
        status: dict[str, Any] = {}
        for _ in range(6):
            spec = {**resource["spec"], **({"confirm": status["digest"]} if "digest" in status else {})}
            asked = Asked.read({**resource, "spec": spec, "status": status})
            what = Around(**{**vars(around), "uid": None}) if gone and asked.phase is Phase.RUNNING else around
            outcome = {Task.PREVIEW: preview, Task.CHECK: preview, Task.CARRY_OUT: "done"}.get(task_of(asked, what))
            status = dict(decide(asked, what, task_of(asked, what), outcome).status)
            assert admit(SCHEMA, {**resource, "status": status})[1] == []
            phases.add(status["phase"])
    assert phases == {phase.value for phase in Phase}
