"""What a driver tells while it waits for a schema registry."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.resume import OpenCircuit, Resume
from sinkpipeline.core.served import Observation
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.spark import driver as module
from sinkpipeline.spark.driver import Driver
from support.resource.manifests import changed, smallest


def test_a_sink_whose_circuit_is_open_keeps_its_error_and_a_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    document = smallest()
    sink = document["spec"]["sinks"][0]
    other = {**sink, "name": "other", "kafka": {"topic": {"name": "other-topic"}}}
    registry = {"format": "avro", "schemaRegistry": {"url": "http://registry:8081"}}
    pipeline = parse_manifest(changed(document, (("spec", "decode"), registry), (("spec", "sinks"), [sink, other])))
    circuit = OpenCircuit(opened_at=1_700_000_000_000, config_hash="h", message="5 failures in a row", remedy="look")
    told: list[list[dict[str, Any]]] = []

    def observe(observation: Observation) -> None:
        told.append(observation.status["sinks"])

    driver = Driver(
        pipeline=pipeline,
        sinks=resolve_sinks(pipeline, None),
        resume=Resume(identity=pipeline.identity, circuits=MappingProxyType({sink["name"]: circuit})),
        observe=observe,
        master=None,
        log_file=None,
        config_hash="h",
    )

    def away(*_: object) -> None:
        driver.stop.set()
        raise SinkPipelineError(Reason.SCHEMA_REGISTRY_UNREACHABLE, "no answer", "check it")

    monkeypatch.setattr(module, "Schemas", away)
    assert driver._read_schemas(None) is None  # type: ignore[arg-type]
    waiting, stopped = told
    assert [each["error"]["reason"] for each in waiting] == ["CircuitOpen", "SchemaRegistryUnreachable"]
    assert "5 failures in a row" in waiting[0]["error"]["message"]
    assert [each.get("error", {}).get("reason") for each in stopped] == ["CircuitOpen", None]
