"""The CustomResourceDefinition and the manifest's types say the same, both ways; its status is what is rendered."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import crd
from crd import reference
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.held_back import HeldBack, OpenTransaction
from sinkpipeline.core.lookups import TableInfo
from sinkpipeline.core.manifest import ManifestError, SinkPipeline, Spec, parse_manifest
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.status import Phase, SinkReport, SinkState, render
from sinkpipeline.core.tally import checked
from support.resource.custom_resource import admit
from support.resource.gitops import three_way
from support.resource.manifests import (
    ALLOWED,
    KAFKA,
    MODEL_ONLY,
    MORE_WRONG,
    PATTERNS,
    REMOVE,
    SINK,
    TRANSITIONS,
    UNSERVED,
    WRONG,
    Steps,
    as_sent,
    changed,
    complete,
    places_of,
    sink,
    smallest,
)

ROOT = Path(__file__).parents[2]
COMMITTED = yaml.safe_load(crd.PATH.read_text())
[VERSION] = COMMITTED["spec"]["versions"]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
OPEN = "x-kubernetes-preserve-unknown-fields"


def nodes(schema: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield place, schema
    for name, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{place}.{name}".removeprefix("."))
    if "items" in schema:
        yield from nodes(schema["items"], f"{place}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{place}{{}}")


NODES = dict(nodes(SCHEMA))


# --- the file ---


def test_the_file_is_what_the_generator_makes() -> None:
    assert crd.PATH.read_text() == crd.text(crd.custom_resource_definition(), crd.committed_revision()), (
        "run: PYTHONPATH=dev python -m crd"
    )


def test_the_reference_is_what_the_generator_makes() -> None:
    assert reference.REFERENCE.read_text() == reference.text(), "run: PYTHONPATH=dev python -m crd"


def test_nothing_in_a_list_has_a_default() -> None:
    """An applied list replaces the stored one: with a default in it, each `kubectl apply` would change it and back."""
    below = {place: node for place, node in NODES.items() if place.startswith("spec.sinks[]")}
    assert [place for place, node in below.items() if "default" in node] == []
    assert below["spec.sinks[].onExistingData"]["description"].endswith(" Default: Append.")


def test_what_has_changed_has_the_next_revision() -> None:
    """By which an operator knows that the one in its cluster is older."""
    committed, definition = crd.PATH.read_text(), crd.custom_resource_definition()
    assert crd.renewed(committed, definition) == committed
    changed = crd.renewed(committed.replace("Where records come from", "Whence"), definition)
    assert crd.revision_of(changed) == crd.committed_revision() + 1
    without = "".join(line for line in committed.splitlines(keepends=True) if "revision:" not in line)
    assert crd.revision_of(without) == 0
    assert crd.revision_of(crd.renewed(without, definition)) == 1


def test_the_file_can_be_applied_on_the_client_side() -> None:
    # `kubectl apply` keeps the whole object as JSON in an annotation; all annotations together have 256 KiB.
    assert len(json.dumps(COMMITTED)) < 256 * 1024


def test_every_field_is_documented() -> None:
    # The API server describes `metadata` itself.
    ours = {place: node for place, node in NODES.items() if place != "metadata"}
    fields = {place: node for place, node in ours.items() if not place.endswith(("[]", "{}"))}
    assert [place for place, node in fields.items() if not node.get("description", "").rstrip().endswith(".")] == []
    assert [place for place, node in fields.items() if "`" in node["description"]] == []
    objects = {place: node for place, node in ours.items() if node["type"] == "object"}
    assert [place for place, node in objects.items() if not node.get("description")] == []


def test_the_schema_is_structural() -> None:
    for place, node in NODES.items():
        assert node["type"] in {"object", "array", "string", "integer", "boolean"}, place
        assert not {"$ref", "anyOf", "oneOf", "allOf", "not", "title"} & node.keys(), place
        assert not ("properties" in node and "additionalProperties" in node), place
        if node["type"] == "array":
            assert "items" in node, place
    assert [place for place, node in NODES.items() if node.get(OPEN)] == ["spec.spark.template"]


def test_everything_is_bounded() -> None:
    bounds = {"string": {"maxLength", "enum", "format"}, "array": {"maxItems"}}
    unbounded = [
        place
        for place, node in NODES.items()
        if place.startswith(("spec", "status")) and node["type"] in bounds and not bounds[node["type"]] & node.keys()
    ]
    unbounded += [
        place for place, node in NODES.items() if "additionalProperties" in node and "maxProperties" not in node
    ]
    assert unbounded == []


def test_names_are_those_of_the_design() -> None:
    names = COMMITTED["spec"]["names"]
    assert (names["plural"], names["shortNames"], names["categories"]) == (
        "sinkpipelines",
        ["skp", "sinkpipe"],
        ["streaming"],
    )
    columns = [(column["name"].upper(), column.get("priority", 0)) for column in VERSION["additionalPrinterColumns"]]
    assert [name for name, priority in columns if priority == 0] == ["READY", "PHASE", "SINKS", "LAG", "DLQ", "AGE"]
    assert [name for name, priority in columns if priority == 1] == [
        *("DELIVERED", "DROPPED", "RESTARTS", "SPARK", "REASON", "MESSAGE")
    ]


def test_columns_read_scalars() -> None:
    for column in VERSION["additionalPrinterColumns"]:
        path = re.sub(r'\[\?\(@\.type=="Ready"\)\]', "[]", column["jsonPath"]).removeprefix(".")
        if path != "metadata.creationTimestamp":
            assert NODES[path]["type"] == column["type"], column


def test_messages_are_one_line_and_places_exist() -> None:
    for place, node in NODES.items():
        for rule in node.get("x-kubernetes-validations", []):
            assert "\n" not in rule["message"] + rule["rule"], place
            assert len(rule["message"]) <= 2048, place
            if "fieldPath" in rule:
                assert f"{place}{rule['fieldPath']}" in NODES, place


# --- the fields, both ways ---


def fields_of(model: type[BaseModel], place: str) -> Iterator[str]:
    for field in model.model_fields.values():
        name = f"{place}.{field.alias}"
        yield name
        for inner, is_list in models_in(field.annotation):
            yield from fields_of(inner, f"{name}[]" if is_list else name)


def models_in(annotation: Any) -> Iterator[tuple[type[BaseModel], bool]]:
    parts = get_args(annotation)
    if not parts and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, False
    for part in parts:
        for model, in_list in models_in(part):
            yield model, in_list or annotation.__class__.__name__ == "GenericAlias"


def test_every_field_of_the_types_is_in_the_schema_and_the_other_way_round() -> None:
    of_types = set(fields_of(Spec, "spec"))
    of_schema = {place for place in NODES if place.startswith("spec.") and not place.endswith(("[]", "{}"))}
    assert "spec.sinks[].kafka.topic.name" in of_types
    assert of_types == of_schema


# --- manifests ---


def errors_of(document: Any, old: Any = None) -> list[str]:
    return admit(SCHEMA, document, old)[1]


EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
RIGHT = [
    smallest(),
    complete(),
    *(changed(smallest(), change) for change in ALLOWED),
    *(yaml.safe_load(example.read_text()) for example in EXAMPLES),
]


@pytest.mark.parametrize("document", RIGHT)
def test_what_the_types_take_the_schema_takes(document: dict[str, Any]) -> None:
    stored, errors = admit(SCHEMA, document)
    assert errors == []
    assert parse_manifest(stored) == parse_manifest(document), "the schema's defaults are the types' own"


@pytest.mark.parametrize("document", RIGHT)
def test_what_is_applied_again_changes_nothing(document: dict[str, Any]) -> None:
    """By Argo CD's three-way diff, which is that of Helm and of `kubectl apply` on the client's side."""
    stored, _ = admit(SCHEMA, document)
    assert three_way(document, document, stored)["spec"] == stored["spec"]
    # Applied first where a definition before this one had defaults in lists: once more, and then never again.
    older = copy.deepcopy(stored)
    for each in older["spec"]["sinks"]:
        each.setdefault("deliveryGuarantee", "ExactlyOnce")
        each.get("kafka", {}).setdefault("progressTopic", {"name": "_sinkpipeline-progress"})
    settled, errors = admit(SCHEMA, three_way(document, document, older), older)
    assert (settled, errors) == (stored, [])


def test_the_defaults_of_the_schema_are_stored() -> None:
    stored, _ = admit(SCHEMA, smallest())
    spec = stored["spec"]
    assert spec["decode"] == {"format": "raw"}, "what a tombstone is follows from the format that is set later"
    assert spec["failurePolicy"] == {
        "maxConsecutiveFailures": 5,
        "backoff": {"initial": "5s", "max": "5m"},
        "resetAfter": "10m",
    }
    assert "progressTopic" not in spec["sinks"][0]["kafka"], "what is in a list stays as it was applied"
    assert "restartNonce" not in spec
    assert "identity" not in spec


def sendable() -> list[tuple[Steps, Any, str]]:
    """What is wrong in WRONG and UNSERVED, as far as a client can send it and the definition is who refuses it."""
    cases = [(steps, value, path) for steps, value, path, _ in WRONG]
    cases += [(steps, value, ".".join(map(str, steps)).replace(".0", "[0]")) for steps, value in UNSERVED]
    return [
        (steps, value, path)
        for steps, value, path in cases
        if as_sent(changed(smallest(), (steps, value)))
        if steps[0] == "spec" or (path == "metadata.name" and isinstance(value, str))
    ]


@pytest.mark.parametrize(("steps", "value", "path"), sendable())
def test_what_the_types_refuse_the_schema_refuses(steps: Steps, value: Any, path: str) -> None:
    document = changed(smallest(), (steps, value))
    with pytest.raises(ManifestError):
        parse_manifest(document)
    errors = errors_of(document)
    if any((steps, value) == known[:2] for known in MODEL_ONLY):
        assert errors == [], "the schema says it now: take it out of MODEL_ONLY"
        return
    assert errors
    # The field itself, or the one that holds it: a rule over a list or a mapping is told there.
    place = re.sub(r"\[\"?[^\]]*\]|\.", " ", path).split()
    assert any(set(re.sub(r"\[\d+\]|[.:']", " ", error).split()) >= set(place[:2]) for error in errors), errors


def test_the_manual_lists_what_only_the_operator_refuses() -> None:
    text = (Path(__file__).parents[2] / "docs" / "manifest.md").read_text()
    section = text.partition("let pass:\n")[2].partition("\nTwo lists of addresses")[0]
    fields = re.findall(r"`([\w.]+)`", section)
    assert fields
    for _, _, path, _ in MODEL_ONLY:
        place = "." + re.sub(r"\[.*?\]", "", path).removeprefix("spec.") + "."
        assert any(f".{field}." in place for field in fields), path


def test_what_is_wrong_in_tables_is_refused_by_both() -> None:
    for change in MORE_WRONG:
        document = changed(smallest(), change)
        assert judged(document)[0] is None, change
        assert errors_of(document), change


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_that_are_none(pattern: str) -> None:
    document = changed(smallest(), ((*KAFKA, "topics"), REMOVE), ((*KAFKA, "topicPattern"), pattern))
    with pytest.raises(ManifestError):
        parse_manifest(document)
    assert any("topicPattern" in error for error in errors_of(document))


def test_a_pattern_that_reads_what_the_pipeline_writes() -> None:
    document = changed(smallest(), ((*KAFKA, "topics"), REMOVE), ((*KAFKA, "topicPattern"), ".*"))
    errors = errors_of(document)
    assert len(errors) == 2
    assert all("topicPattern" in error for error in errors)


anything = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
likely = st.sampled_from(
    ["", "a", "a.b", ".", "..", "1s", "0s", "10m", "1g", "0g", "kafka:9092", "a:1, b:2", "orders", "orders-copy", 0, 1]
)


any_changes = st.lists(
    st.tuples(
        st.sampled_from([place for place in places_of(complete()) if place[0] == "spec"]), st.none() | anything | likely
    ),
    min_size=1,
    max_size=3,
)


def mutated(document: dict[str, Any], changes: list[tuple[Steps, Any]]) -> dict[str, Any]:
    for change in changes:
        # An earlier change may have taken the place away.
        with contextlib.suppress(KeyError, IndexError, TypeError, AttributeError):
            document = changed(document, change)
    return document


ONLY_THE_TYPES = re.compile(r"spec\.spark\.template.*")


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=400)
@given(st.sampled_from([complete(), smallest()]), any_changes)
def test_of_any_manifest_types_and_schema_think_the_same(
    document: dict[str, Any], changes: list[tuple[Steps, Any]]
) -> None:
    document = mutated(document, changes)
    stored, errors = admit(SCHEMA, document)
    pipeline = judged(document)[0]
    if pipeline is not None:
        assert errors == []
        assert judged(stored)[0] == pipeline
    elif not errors:
        # What is stored is what the operator reads: the API server drops nulls.
        assert [place for place in judged(stored)[1] if not ONLY_THE_TYPES.fullmatch(place)] == []


def judged(document: object) -> tuple[SinkPipeline | None, list[str]]:
    """The pipeline, or the places of what is wrong."""
    try:
        return parse_manifest(document), []
    except ManifestError as error:
        return None, [problem.path for problem in error.problems]


def test_every_rule_refuses_something() -> None:
    documents = [changed(smallest(), (steps, value)) for steps, value, _ in sendable()]
    documents += [changed(smallest(), (KAFKA, {"bootstrapServers": "a:1", "topicPattern": each})) for each in PATTERNS]
    documents += [changed(smallest(), change) for change in MORE_WRONG]
    errors = [error for document in documents for error in errors_of(document)]
    errors += [error for old, new, _ in TRANSITIONS for error in errors_of(new, old)]
    messages = {error.partition(": ")[2] for error in errors}
    idle = [
        (place, rule["message"])
        for place, node in NODES.items()
        for rule in node.get("x-kubernetes-validations", [])
        if rule["message"] not in messages
    ]
    assert idle == []


# --- what never changes ---


@pytest.mark.parametrize(("old", "new", "word"), TRANSITIONS)
def test_what_never_changes(old: dict[str, Any], new: dict[str, Any], word: str) -> None:
    assert errors_of(old) == []
    assert errors_of(new) == []
    errors = errors_of(new, old)
    if not word:
        assert errors == []
        return
    [error] = errors
    assert f"{word} never changes" in error


# --- status ---

ERROR = SinkPipelineError(Reason.BROKER_UNREACHABLE, "no answer", "look")
A, B = SourcePartition("a", 0), SourcePartition("b", 0)
PROGRESS = Progress(
    meta=Meta(
        epoch=2,
        run="r",
        owner=Owner(cluster="c", name="n"),
        partitions={"a": 1, "b": 1},
        source={"a": "2cyl3Vq6RAKkYkDe7vEEHA"},  # of b nothing is known: null
        data="2cyl3Vq6RAKkYkDe7vEEHA",
        progress=None,
    ),
    partitions={
        A: PartitionProgress(epoch=2, next=120, rows=100, at=1_700_000_000_999),
        B: PartitionProgress(
            epoch=2,
            next=7,
            by_class=checked({each.value: 2 for each in ErrorClass}, {"FromTheFuture" + 51 * "x": 1}),
        ),
    },
)
RESTORED = replace(PROGRESS, meta=replace(PROGRESS.meta, restored=7))
REPORTS = [
    *(SinkReport(name="one", exactly_once=True, state=state, progress=PROGRESS, lag=3) for state in SinkState),
    SinkReport(name="one", exactly_once=True, held_back=HeldBack(7, OpenTransaction("the fact", "the remedy"))),
    *(SinkReport(name="one", exactly_once=False, state=state, error=ERROR) for state in SinkState),
    SinkReport(name="one", exactly_once=True, state=SinkState.FAILED, error=ERROR, circuit_opened_at=1),
    SinkReport(name="one", exactly_once=True, state=SinkState.RUNNING, progress=RESTORED),
    *(SinkReport(name="one", exactly_once=True, required=False, durability=each) for each in Durability),
    SinkReport(name="one", exactly_once=True, state=SinkState.RUNNING, progress=Progress(), drift=("differs",)),
]


def rendered(*reports: SinkReport, generation: int | None = 3) -> dict[str, Any]:
    tables = [TableInfo("rate", "key rates.csv of ConfigMap rates", 2, "0f" * 32)]
    now_ms = 1_700_000_000_999
    return render(reports, identity="shop.orders", generation=generation, previous=None, now_ms=now_ms, tables=tables)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.state.value)
def test_a_status_that_is_rendered_fits(report: SinkReport) -> None:
    for document in (
        rendered(report),
        rendered(report, generation=None),
        rendered(report, SinkReport(name="two", exactly_once=True)),
    ):
        stored, errors = admit(SCHEMA, {**smallest(), "status": document})
        assert errors == []
        assert stored["status"] == document, "nothing is pruned and nothing added"


def test_every_reason_fits() -> None:
    for reason in Reason:
        report = SinkReport(name="one", exactly_once=True, error=SinkPipelineError(reason, "m", "r"))
        assert errors_of({**smallest(), "status": rendered(report)}) == []


def test_every_phase_and_state_is_in_the_schema() -> None:
    assert set(NODES["status.phase"]["enum"]) >= {each.value for each in Phase}
    assert NODES["status.sinks[].state"]["enum"] == [each.value for each in SinkState]


@pytest.mark.parametrize(
    ("steps", "value"),
    [
        (("phase",), "Rnning"),
        (("conditions", 0, "status"), "true"),
        (("conditions", 0, "reason"), ""),
        (("conditions", 0, "reason"), "not camel case"),
        (("conditions", 0, "lastTransitionTime"), REMOVE),
        (("totals", "lag"), -1),
        (("totals", "unknown"), 1),
        (("sinks", 0, "frontier", 0, "next", 0), "120"),
        (("sinks", 0, "state"), "Dead"),
        (("sinks", 0, "deadLetters", 0, "count"), -1),
        (("sinks", 0, "deadLetters", 0, "dropped"), REMOVE),
        (("sinks", 0, "deadLetters", 0, "class"), "two words"),
        (("sinks", 0, "deadLetters", 0, "class"), "InvalidUtf8"),
        (("sinks", 1), {"name": "one", "state": "Running", "guarantee": "ExactlyOnce"}),
    ],
)
def test_a_status_that_is_not_one_is_refused(steps: Steps, value: Any) -> None:
    status = changed(rendered(REPORTS[0]), (steps, value))
    assert errors_of({**smallest(), "status": status})


# --- the stand-in for the API server ---


def test_a_rule_that_is_missing_is_noticed() -> None:
    schema = copy.deepcopy(SCHEMA)
    document = changed(smallest(), (SINK, sink("copy", "orders")))
    assert admit(schema, document)[1]
    del schema["properties"]["spec"]["x-kubernetes-validations"]
    assert admit(schema, document)[1] == []
