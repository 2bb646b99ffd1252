"""The scripted driver as the operator's own child starts it: a test that relies on it relies on these."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from servers.control_plane import Cluster
from sinkpipeline.core.manifest import SinkPipeline, parse_manifest
from sinkpipeline_operator.child.builder import DRIVER_PORT, Order
from sinkpipeline_operator.child.kubeflow import KubeflowChild
from sinkpipeline_operator.child.runconfig import Runtime, run_config
from support.kube.drivers import Drivers, Started
from support.kube.scripts import GARBAGE, LARGE, REDIRECT, End, Script, SinkScript
from support.waiting import wait_until

pytestmark = [
    pytest.mark.kube,
    pytest.mark.thorough("about the scripted driver, which every test of the operator here uses"),
]

TOKEN = "a-t0ken"
RUNTIME = Runtime(image="registry.invalid/x:1", spark_version="4.1.1", service_account="default")
Object = dict[str, Any]


class Place:
    """What the operator makes for one pipeline, made by hand."""

    def __init__(self, cluster: Cluster, namespace: str, drivers: Drivers) -> None:
        self.cluster, self.namespace, self.drivers = cluster, namespace, drivers
        self.key = (namespace, "orders")
        self.pipeline = self._pipeline()

    def create(self) -> Started:
        run = run_config(self.pipeline, RUNTIME, {})
        resume = {"v": 1, "identity": self.pipeline.identity, "sinks": []}
        self._literal("configmap", run.name("orders"), "pipeline.json", run.to_json())
        self._literal("configmap", "orders-resume", "resume.json", json.dumps(resume))
        self._literal("secret", "orders-driver-token", "token", TOKEN)
        order = Order(pipeline=self.pipeline, run=run, runtime=RUNTIME, cluster="c-1")
        child = KubeflowChild().build(order)
        child["metadata"].pop("ownerReferences")
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(child))
        return wait_until(lambda: self.drivers.starts(self.key), "a driver was started")[0]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin)

    def pod(self) -> Object:
        found: Object = json.loads(self.kubectl("get", "pod", "orders-driver", "-o", "json"))
        return found

    def ended(self) -> Object:
        """How the driver's container ended."""

        def look() -> Object | None:
            state: Object = self.pod()["status"]["containerStatuses"][0]["state"]
            return state.get("terminated")

        found = wait_until(look, "the driver has ended")
        assert found is not None
        return found

    def _literal(self, kind: str, name: str, key: str, text: str) -> None:
        kinds = ("secret", "generic") if kind == "secret" else (kind,)
        self.kubectl("create", *kinds, name, f"--from-literal={key}={text}")

    def _pipeline(self) -> SinkPipeline:
        sinks = [{"name": "copy", "kafka": {"topic": {"name": "out"}}}]
        source = {"kafka": {"bootstrapServers": "127.0.0.1:9", "topics": ["in"]}}
        return parse_manifest(
            {
                "apiVersion": "sinkpipeline.io/v1alpha1",
                "kind": "SinkPipeline",
                "metadata": {"name": "orders", "namespace": self.namespace, "uid": "u-1"},
                "spec": {"source": source, "sinks": sinks},
            }
        )


@pytest.fixture
def place(api_server: Cluster, namespace: str, drivers: Drivers) -> Iterator[Place]:
    ours = Place(api_server, namespace, drivers)
    yield ours
    ours.kubectl("delete", "sparkapplications", "--all", "--wait=false")
    api_server.remove_pods(namespace)
    assert drivers.complaints(namespace) == []


def asked(driver: Started, path: str, token: str = TOKEN) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(driver.address, DRIVER_PORT, timeout=3)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def told(driver: Started) -> Object:
    code, body = asked(driver, "/status")
    document: Object = json.loads(body) if code == 200 else {}
    return document


def test_it_serves_what_its_script_says(place: Place) -> None:
    place.drivers.play(place.key, Script(sinks={"copy": SinkScript(rows=7, next=(3, 4), lag=2)}))
    driver = place.create()
    document = wait_until(lambda: told(driver), "it answers")
    assert (document["phase"], document["configHash"]) == ("Running", driver.config_hash)
    (sink,) = document["sinks"]
    assert (sink["rowsDelivered"], sink["lag"]) == (7, 2)
    assert sink["frontier"] == [{"topic": "in", "topicId": "source-1", "next": [3, 4]}]
    assert asked(driver, "/status", "another")[0] == 401
    assert asked(driver, "/healthz")[0] == 200
    assert b'sinkpipeline_sink_rows_delivered_total{sink="copy"} 7.0' in asked(driver, "/metrics")[1]

    driver.change(sinks={"copy": SinkScript(state="Retrying", error=("BrokerUnreachable", "m", "r"))})
    wait_until(lambda: told(driver)["sinks"][0].get("error"), "the error is told")
    assert told(driver)["phase"] == "Degraded"
    for answer, code, size in ((GARBAGE, 200, 10), (LARGE, 200, 4_000_014), (REDIRECT, 302, None)):
        driver.change(answer=answer)
        wait_until(lambda: asked(driver, "/status")[0] == code, f"{answer}: it answers with {code}")  # noqa: B023
        wait_until(lambda: size in {None, len(asked(driver, "/status")[1])}, f"{answer} comes")  # noqa: B023


def test_it_ends_as_its_script_says(place: Place) -> None:
    driver = place.create()
    wait_until(lambda: told(driver), "it answers")
    driver.change(end=End(code=3, words=("DataTopicLost", "the facts", "the remedy")))
    ended = place.ended()
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    words = json.loads(ended["message"])
    assert (words["reason"], words["message"], words["remedy"]) == ("DataTopicLost", "the facts", "the remedy")
    assert words["sinks"][0]["name"] == "copy"


def test_it_may_be_killed(place: Place) -> None:
    driver = place.create()
    wait_until(lambda: told(driver), "it answers")
    driver.change(end=End(signal=signal.SIGKILL))
    ended = place.ended()
    assert (ended["exitCode"], ended.get("message", "")) == (137, "")


def test_it_stops_at_sigterm_when_its_script_lets_it(place: Place) -> None:
    driver = place.create()
    wait_until(lambda: told(driver), "it answers")
    driver.change(ignores_sigterm=True)
    place.kubectl("delete", "pod", "orders-driver", "--wait=false")
    wait_until(lambda: "deletionTimestamp" in place.pod()["metadata"], "it is asked to end")
    assert told(driver)
    driver.change(ignores_sigterm=False)
    words = json.loads(place.ended()["message"])
    assert words["reason"] == "Stopped"


def test_a_second_driver_of_a_pipeline_is_noticed(place: Place) -> None:
    driver = place.create()
    wait_until(lambda: told(driver), "it answers")
    driver.change(ignores_sigterm=True)
    # As if an operator did not wait until the pod is gone: another child of the same name and another pod's name.
    child = json.loads(place.kubectl("get", "sparkapplication", "orders", "-o", "json"))
    second = {**child, "metadata": {"name": "orders", "namespace": place.namespace}}
    second["spec"]["driver"]["podName"] = "orders-2-driver"
    second.pop("status")
    place.kubectl("delete", "sparkapplication", "orders", "--cascade=orphan")
    place.kubectl("create", "-f", "-", stdin=json.dumps(second))
    complaints = wait_until(lambda: place.drivers.complaints(place.namespace), "it is noticed")
    assert "was started while another driver ran" in complaints[0]
    driver.change(ignores_sigterm=False)
    place.drivers.forget_complaints(place.namespace)
