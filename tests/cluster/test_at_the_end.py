"""What all that came before has to show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from cluster.target import ROOT
from servers.local_kafka import LocalKafka
from support.cluster import witness
from support.cluster.installed import Installation
from support.cluster.recording import unlike
from support.resource.truthful import APPLICATION, PIPELINE, untrue

pytestmark = [pytest.mark.cluster, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]


def test_an_operator_outlives_its_tokens(installed: Installation, brokers: LocalKafka) -> None:
    witness.works_on(installed, brokers.bootstrap_servers)


def test_the_stand_in_would_have_done_what_kubeflow_did(installed: Installation) -> None:
    """In all that came before: so what dev/kubeflow plays for the quick tests is what happens."""
    lines = [line for line in installed.recorder.lines if line["kind"] != PIPELINE]
    _keep(lines, "kubeflow.json")
    replayed, strange = unlike(lines)
    assert strange == []
    installed.report.tell("the stand-in replays Kubeflow's changes of state", 0, f"{replayed} of {replayed}")
    installed.report.tell("the operator's memory", 0, installed.operator_memory())


def test_no_status_ever_said_what_was_not_so(installed: Installation) -> None:
    """In all that came before."""
    lines = [line for line in installed.recorder.lines if line["kind"] in (PIPELINE, APPLICATION)]
    _keep(lines, "told.json")
    statuses = [line for line in lines if line["kind"] == PIPELINE]
    assert untrue(lines) == []
    installed.report.tell("what statuses said", 0, f"{len(statuses)} of {len(statuses)} were true in themselves")


def _keep(lines: Sequence[dict[str, Any]], name: str) -> None:
    recording = ROOT / "build" / "e2e" / name
    recording.parent.mkdir(parents=True, exist_ok=True)
    recording.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
