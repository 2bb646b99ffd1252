"""What the operator does with a pipeline that reads a database: what its stage says, and what becomes of that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from sinkpipeline_operator.plugin.main import cli
from support.kube.operator_lab import OperatorLab
from support.kube.scripts import End, Script, SinkScript, SourceScript

pytestmark = pytest.mark.kube

Object = dict[str, Any]
FACT, REMEDY = "the facts of it", "what to do about it"


def of_a_database(lab: OperatorLab, name: str, **spec: Any) -> Object:
    """Its password is in a Secret, and brokers nobody asks."""
    source = {
        "servers": "127.0.0.1:9",
        "database": "shop",
        "auth": {"username": "cdc", "passwordSecretRef": {"name": f"{name}-cdc", "key": "password"}},
        "publication": {"name": "shop"},
        "slot": {"name": "s"},
        "startingPosition": "Now",
        "changes": {"bootstrapServers": "127.0.0.1:9", "topic": {"name": f"{name}-changes"}},
    }
    return lab.pipeline(name, source={"postgresql": source}, decode={"format": "raw"}, **spec)


def applied(lab: OperatorLab, name: str, **spec: Any) -> None:
    lab.kubectl("create", "secret", "generic", f"{name}-cdc", "--from-literal=password=secret")
    lab.apply(of_a_database(lab, name, **spec))


def error(reason: str) -> tuple[str, str, str]:
    return reason, FACT, REMEDY


@pytest.mark.parametrize(
    "kind", ["mariadb", pytest.param("mysql", marks=pytest.mark.thorough("MariaDB has it: the same code"))]
)
def test_a_server_that_keeps_nothing_for_a_stage(lab: OperatorLab, name: str, kind: str) -> None:
    """Of MariaDB or MySQL: there is no slot, and its password is the driver's alone."""
    source = {
        "server": "127.0.0.1:9",
        "auth": {"username": "cdc", "passwordSecretRef": {"name": f"{name}-cdc", "key": "password"}},
        "tables": ["shop.orders"],
        "startingPosition": "Now",
        "changes": {"bootstrapServers": "127.0.0.1:9", "topic": {"name": f"{name}-changes"}},
    }
    lab.apply(lab.pipeline(name, source={kind: source}, decode={"format": "raw"}))
    told = lab.until_condition(name, "Ready", "False", "SecretNotFound")
    assert f"Secret {name}-cdc does not exist" in told["message"]
    lab.kubectl("create", "secret", "generic", f"{name}-cdc", "--from-literal=password=secret")
    status = lab.until_ready(name)
    assert "slot" not in status["source"]
    assert status["source"]["state"] == "Running"
    assert lab.condition(name, "SourceHealthy")["status"] == "True"
    lab.driver(name).change(source=SourceScript(position="mariadb-bin.000003:4711", at_risk="its log is removed"))
    told = lab.until_condition(name, "SourceHealthy", "False", "LogAtRisk")
    assert "binlog_expire_logs_seconds" in told["message"]
    lab.until_ready(name)
    shown = shown_by_the_plugin(lab, name)
    assert "source: Running\n" in shown
    assert "mariadb-bin.000003:4711 index 4" in shown


def test_it_is_told_and_its_password_is_the_drivers_alone(lab: OperatorLab, name: str) -> None:
    lab.apply(of_a_database(lab, name))
    told = lab.until_condition(name, "Ready", "False", "SecretNotFound")
    assert f"Secret {name}-cdc does not exist" in told["message"]
    lab.kubectl("create", "secret", "generic", f"{name}-cdc", "--from-literal=password=secret")
    status = lab.until_ready(name)
    assert status["source"] == {
        "state": "Running",
        "slot": "s",
        "position": "0/3279E770",
        "index": 4,
        "changes": 7,
        "lagBytes": 64,
        "retainedBytes": 4096,
        "timeline": 1,
    }
    healthy = lab.condition(name, "SourceHealthy")
    assert (healthy["status"], healthy["reason"]) == ("True", "NoErrors")
    child = lab.child(name)
    assert child is not None
    mounted = {
        role: [each.get("secret", {}).get("secretName") for each in child["spec"][role]["template"]["spec"]["volumes"]]
        for role in ("driver", "executor")
    }
    assert f"{name}-cdc" in mounted["driver"]
    assert f"{name}-cdc" not in mounted["executor"]
    lab.kubectl("patch", "secret", f"{name}-cdc", "-p", json.dumps({"stringData": {"password": "another"}}))
    lab.until_started(name, 2)
    lab.until_ready(name)


def test_the_change_topic_is_enough(lab: OperatorLab, name: str) -> None:
    """A pipeline without sinks is what its stage is."""
    applied(lab, name, sinks=[])
    lab.until_ready(name)
    status = lab.status(name)
    assert (status["phase"], status["totals"]["sinksReady"], status["sinks"]) == ("Running", "0/0", [])
    assert "lag" not in status["totals"]
    for kind in ("SinksHealthy", "TopicsReady", "ExactlyOnce", "SourceHealthy"):
        assert lab.condition(name, kind)["status"] == "True", kind
    lab.driver(name).change(source=SourceScript(state="Retrying", error=error("SourceUnreachable")))
    lab.until_condition(name, "Ready", "False", "SourceUnreachable")
    assert lab.status(name)["phase"] == "Degraded"
    lab.driver(name).change(source=SourceScript(state="Starting", position=None))
    lab.until_condition(name, "Ready", "False", "SourceStarting")
    assert lab.status(name)["phase"] == "Starting"
    lab.driver(name).change(source=SourceScript())
    lab.until_ready(name)
    lab.patch(name, {"suspend": True})
    lab.until_phase(name, "Suspended")


@pytest.mark.parametrize(
    ("source", "phase", "healthy", "ready", "stalled"),
    [
        pytest.param(
            SourceScript(state="Starting", position=None),
            *("Starting", "Unknown SourceStarting", "False SourceStarting", "False"),
            id="it starts",
        ),
        pytest.param(
            SourceScript(state="Retrying", error=error("SourceUnreachable")),
            *("Degraded", "False SourceUnreachable", "False SourceUnreachable", "False"),
            id="its database is away",
        ),
        pytest.param(
            SourceScript(at_risk="the slot holds 4096 bytes of WAL, more than limits.maxRetained"),
            *("Running", "False SlotAtRisk", "True Running", "False"),
            id="its slot is at risk",
        ),
        pytest.param(
            SourceScript(
                snapshot={"phase": "Reading", "table": "public.orders", "rows": 20_000, "estimatedRows": 31_000}
            ),
            *("Running", "True NoErrors", "True Running", "False"),
            id="it reads the tables",
        ),
        pytest.param(
            SourceScript(
                incremental={"table": "public.orders", "tablesWaiting": 3, "rows": 20_000, "waitsFor": "it is locked"}
            ),
            *("Running", "True NoErrors", "True Running", "False"),
            id="it reads rows beside the stream",
        ),
    ],
)
@pytest.mark.thorough("each state", after=1)
def test_each_state_of_a_stage(
    lab: OperatorLab, name: str, source: SourceScript, phase: str, healthy: str, ready: str, stalled: str
) -> None:
    applied(lab, name)
    lab.until_ready(name)
    lab.driver(name).change(source=source)
    lab.until_condition(name, "SourceHealthy", *healthy.split())
    if source.snapshot is not None:
        lab.until_status(name, lambda seen: seen["source"].get("snapshot") == source.snapshot, "it is told")
        assert "snapshot   public.orders, 20,000 of about 31,000 rows" in shown_by_the_plugin(lab, name)
    if source.incremental is not None:
        told = source.incremental
        lab.until_status(name, lambda seen: seen["source"].get("incrementalSnapshot") == told, "it is told")
        shown = shown_by_the_plugin(lab, name)
        assert "rows of    public.orders and 2 more tables: 20,000" in shown
        assert "wait: it is locked" in shown
    found = {kind: lab.condition(name, kind) for kind in ("Ready", "Stalled", "SinksHealthy")}
    assert f"{found['Ready']['status']} {found['Ready']['reason']}" == ready
    assert (found["Stalled"]["status"], found["SinksHealthy"]["status"]) == (stalled, "True")
    assert (lab.status(name)["phase"], lab.status(name)["source"]["state"]) == (phase, source.state)
    # Where a stage starts, the driver has it forgotten; the status has not.
    assert lab.status(name)["source"]["position"] == "0/3279E770"
    if healthy.startswith("False"):
        reason = healthy.split()[1]
        lab.until(lambda: reason in lab.told(name), "an event tells it")
        text = FACT if source.error else "more than limits.maxRetained"
        assert text in lab.condition(name, "SourceHealthy")["message"]
        shown = shown_by_the_plugin(lab, name)
        assert f"source: {source.state}, slot s" in shown
        assert text in shown
    lab.driver(name).change(source=SourceScript())
    lab.until_condition(name, "SourceHealthy", "True")
    lab.until_ready(name)


def shown_by_the_plugin(lab: OperatorLab, name: str) -> str:
    arguments = ["status", name, f"--namespace={lab.namespace}", f"--kubeconfig={lab.cluster.kubeconfig}"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_stage_that_fails_for_good_needs_a_person(lab: OperatorLab, name: str) -> None:
    """Its driver ends by it, with what it said last."""
    applied(lab, name)
    lab.until_ready(name)
    lost = ("SlotLost", "slot s is gone", "go on under another spec.identity")
    lab.driver(name).change(source=SourceScript(state="Failed", error=lost), end=End(code=3, words=lost))
    told = lab.until_condition(name, "Stalled", "True", "SlotLost")
    as_typed = "go on as a new resource, under another metadata.name and spec.identity"
    assert told["message"] == f"source: slot s is gone ({as_typed})"
    assert lab.status(name)["phase"] == "Failed"
    source = lab.status(name)["source"]
    assert source["error"] == {"reason": "SlotLost", "message": "slot s is gone", "remedy": as_typed}
    assert (source["state"], source["position"]) == ("Failed", "0/3279E770")
    assert "retainedBytes" not in source, "nobody looks"
    assert lab.condition(name, "Ready")["reason"] == "SlotLost"
    lab.until(lambda: "SlotLost: source: slot s is gone" in lab.told(name), "an event tells it")
    # It is tried again: perhaps somebody has brought the server back that had the slot.
    lab.until_ready(name)
    assert "error" not in lab.status(name)["source"]


def test_suspended_it_says_that_its_slot_keeps_the_log(lab: OperatorLab, name: str) -> None:
    applied(lab, name)
    lab.until_ready(name)
    lab.patch(name, {"suspend": True})
    lab.until_phase(name, "Suspended")
    told = lab.until_condition(name, "SourceHealthy", "Unknown", "NotYetKnown")
    assert told["message"] == "no stage runs, and slot s keeps the database's log until one does"
    source = lab.status(name)["source"]
    assert (source["state"], source["position"]) == ("Suspended", "0/3279E770")
    assert "lagBytes" not in source
    lab.patch(name, {"suspend": False})
    lab.until_ready(name)
    assert lab.starts(name) == 2


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("source",), None),
        (("source", "state"), "Draining"),
        (("source", "position"), "nowhere"),
        (("source", "lagBytes"), -1),
        (("source", "error"), {"reason": "no word", "message": "m", "remedy": "r"}),
    ],
    ids=str,
)
@pytest.mark.thorough("waits for time-outs; tests/unit/test_documents has all that is wrong")
def test_a_stage_that_is_told_wrongly_is_not_believed(
    lab: OperatorLab, name: str, path: tuple[str, ...], value: object
) -> None:
    applied(lab, name)
    lab.until_ready(name)
    lab.driver(name).change(lie=(path, value))
    lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
    assert lab.status(name)["source"]["position"] == "0/3279E770", "what was known is not forgotten"
    lab.driver(name).change(lie=None)
    lab.until_ready(name)


def test_a_restart_goes_on_and_waits_for_its_stage(lab: OperatorLab, name: str) -> None:
    """Sinks begin once a stage has its source: until then nothing is told that would sound like a fault."""
    starts = SinkScript(state="Starting", known=False, lag=None)
    waiting = Script(source=SourceScript(state="Starting", position=None), sinks={"copy": starts})
    lab.drivers.play((lab.namespace, name), waiting)
    applied(lab, name)
    told = lab.until_condition(name, "Ready", "False", "SourceStarting")
    assert told["message"] == "nothing is read yet: slot s is being taken"
    assert lab.status(name)["phase"] == "Starting"
    lab.drivers.play((lab.namespace, name), Script())
    lab.patch(name, {"restartNonce": 1})
    lab.driver(name).change(source=SourceScript(), sinks={})
    lab.until_ready(name)
    lab.patch(name, {"restartNonce": 2})
    lab.until_started(name, 2)
    lab.until_ready(name)
