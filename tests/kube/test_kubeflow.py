from __future__ import annotations

import functools
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kubeflow.spark_operator import SparkOperator
from servers.control_plane import Cluster
from servers.kube_api import KubeApi
from support.cluster.pods_seen import unlike_pods
from support.cluster.recording import POD, Recorder
from support.kube.spark_applications import RUN_UNTIL_TERMINATED, SparkApplications, python_driver
from support.waiting import wait_until

pytestmark = [
    pytest.mark.kube,
    pytest.mark.thorough("about the stand-in for Kubeflow's operator, which every test of the operator here uses"),
]

SUBMITTED_AND_RUN = ("SUBMITTED", "RUNNING")

IGNORE_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: time.sleep(60)
"""

END_ON_SIGTERM = """
import os, signal, sys
def end(*_):
    open(os.environ["TERMINATION_LOG"], "w").write("terminated")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True: signal.pause()
"""


MOUNTED = [{"name": "run", "mountPath": "/etc/run"}]


@pytest.fixture
def applications(api_server: Cluster, namespace: str) -> Iterator[SparkApplications]:
    ours = SparkApplications(api_server, namespace)
    yield ours
    ours.close()


@pytest.fixture
def refusals() -> dict[str, str]:
    """What spark-submit says of an application, by its name."""
    return {}


@pytest.fixture
def slow() -> set[str]:
    """Names of applications whose spark-submit still runs."""
    return set()


@pytest.fixture
def start(
    api_server: Cluster, applications: SparkApplications, refusals: dict[str, str], slow: set[str]
) -> Iterator[Callable[[], SparkOperator]]:
    """Starts another operator; the fixture stops all of them, once their drivers' pods are gone."""
    started: list[SparkOperator] = []

    def one() -> SparkOperator:
        operator = SparkOperator(
            api_server.kubeconfig,
            python_driver,
            refuse_submission=lambda app: refusals.get(app["metadata"]["name"]),
            is_submitting=lambda app: app["metadata"]["name"] in slow,
        )
        started.append(operator)
        operator.start()
        return operator

    yield one
    applications.kubectl("delete", "sparkapplications", "--all", "--timeout=30s")
    if started:
        wait_until(lambda: not applications.pods(), "no pod is left")
    for operator in started:
        operator.stop()


@pytest.fixture
def operator(start: Callable[[], SparkOperator]) -> SparkOperator:
    return start()


def driver_process(operator: SparkOperator, applications: SparkApplications, name: str) -> psutil.Process:
    pid = operator.node.pid(applications.namespace, f"{name}-driver")
    assert pid is not None
    return psutil.Process(pid)


def await_ready(operator: SparkOperator, applications: SparkApplications, name: str) -> None:
    applications.await_states(name, *SUBMITTED_AND_RUN)
    pod = f"{name}-driver"
    wait_until(lambda: "ready" in operator.node.log(applications.namespace, pod), f"{pod} handles its signals")


@pytest.mark.usefixtures("operator")
def test_exit_0_completes(applications: SparkApplications) -> None:
    applications.apply("good", "import os; open(os.environ['TERMINATION_LOG'], 'w').write('all is well')")
    applications.await_states("good", *SUBMITTED_AND_RUN, "SUCCEEDING", "COMPLETED")
    status, ended = applications.status("good"), applications.terminated("good")
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "all is well")
    assert (status["executionAttempts"], status["submissionAttempts"]) == (1, 1)
    assert status["terminationTime"] >= status["lastSubmissionAttemptTime"]
    assert status["driverInfo"] == {"podName": "good-driver"}
    pod = applications.pod("good")
    assert pod is not None
    assert pod["status"]["phase"] == "Succeeded"
    assert pod["metadata"]["labels"]["sparkoperator.k8s.io/submission-id"] == status["submissionID"]
    assert pod["metadata"]["labels"]["spark-app-selector"] == status["sparkApplicationId"]


@pytest.mark.usefixtures("operator")
def test_another_exit_code_fails_and_is_not_run_again(applications: SparkApplications) -> None:
    applications.apply("bad", "import sys, os; open(os.environ['TERMINATION_LOG'], 'w').write('x' * 5000); sys.exit(3)")
    applications.await_states("bad", *SUBMITTED_AND_RUN, "FAILING", "FAILED")
    assert applications.error("bad") == "driver container failed with ExitCode: 3, Reason: Error"
    ended = applications.terminated("bad")
    assert (ended["exitCode"], ended["message"]) == (3, "x" * 4096)


def test_out_of_memory(operator: SparkOperator, applications: SparkApplications) -> None:
    applications.apply("large", RUN_UNTIL_TERMINATED)
    applications.await_states("large", *SUBMITTED_AND_RUN)
    operator.node.kill(applications.namespace, "large-driver")
    applications.await_states("large", *SUBMITTED_AND_RUN, "FAILING", "FAILED")
    assert applications.error("large") == "driver container failed with ExitCode: 137, Reason: OOMKilled"


def test_a_pod_that_is_deleted_by_hand_ends_with_sigterm(
    operator: SparkOperator, applications: SparkApplications
) -> None:
    applications.apply("deleted", END_ON_SIGTERM)
    await_ready(operator, applications, "deleted")
    applications.kubectl("delete", "pod", "deleted-driver")
    applications.await_states("deleted", *SUBMITTED_AND_RUN, "SUCCEEDING", "COMPLETED")


def test_a_deleted_pod_whose_driver_knows_no_sigterm_fails(
    operator: SparkOperator, applications: SparkApplications
) -> None:
    applications.apply("stubborn", IGNORE_SIGTERM, pod={"terminationGracePeriodSeconds": 1})
    await_ready(operator, applications, "stubborn")
    applications.kubectl("delete", "pod", "stubborn-driver")
    applications.await_states("stubborn", *SUBMITTED_AND_RUN, "FAILING", "FAILED")
    assert applications.error("stubborn") == "driver container failed with ExitCode: 137, Reason: Error"
    wait_until(lambda: applications.pod("stubborn") is None, "the pod is gone")


def test_a_pod_whose_deletion_is_forced_is_not_found(operator: SparkOperator, applications: SparkApplications) -> None:
    applications.apply("forced", RUN_UNTIL_TERMINATED)
    applications.await_states("forced", *SUBMITTED_AND_RUN)
    process = driver_process(operator, applications, "forced")
    applications.kubectl("delete", "pod", "forced-driver", "--force", "--grace-period=0")
    applications.await_states("forced", *SUBMITTED_AND_RUN, "FAILING", "FAILED")
    assert applications.error("forced") == "driver pod not found"
    process.wait(10)


@pytest.mark.usefixtures("operator")
def test_an_edit_while_it_runs_submits_it_again(applications: SparkApplications) -> None:
    applications.apply("edited", RUN_UNTIL_TERMINATED)
    applications.await_states("edited", *SUBMITTED_AND_RUN)
    before, old = applications.status("edited"), applications.pod("edited")
    applications.patch("edited", {"arguments": [f"{RUN_UNTIL_TERMINATED} # edited"]})
    applications.await_states("edited", *SUBMITTED_AND_RUN, "INVALIDATING", "PENDING_RERUN", *SUBMITTED_AND_RUN)
    after, new = applications.status("edited"), applications.pod("edited")
    assert after["submissionID"] != before["submissionID"]
    assert (after["executionAttempts"], after["submissionAttempts"]) == (1, 1)
    assert old is not None
    assert new is not None
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["spec"]["containers"][0]["args"][-1].endswith("# edited")


def test_an_edit_while_the_operator_is_down_is_missed(
    start: Callable[[], SparkOperator], applications: SparkApplications
) -> None:
    first = start()
    applications.apply("missed", "pass")
    applications.await_states("missed", *SUBMITTED_AND_RUN, "SUCCEEDING", "COMPLETED")
    first.stop()
    applications.patch("missed", {"arguments": ["raise SystemExit(1)"]})
    start()
    # It sees an object that comes after the edited one, and so it has seen that one.
    applications.apply("later", "pass")
    applications.await_states("later", *SUBMITTED_AND_RUN, "SUCCEEDING", "COMPLETED")
    assert applications.history("missed")[-1] == "COMPLETED"


def test_a_driver_whose_node_went_down_is_lost(
    start: Callable[[], SparkOperator], applications: SparkApplications
) -> None:
    first = start()
    applications.apply("lost", RUN_UNTIL_TERMINATED)
    applications.await_states("lost", *SUBMITTED_AND_RUN)
    process = driver_process(first, applications, "lost")
    first.stop()
    assert not process.is_running()
    start()
    applications.await_states("lost", *SUBMITTED_AND_RUN, "FAILING", "FAILED")
    assert applications.terminated("lost")["reason"] == "ContainerStatusUnknown"


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"image": ""}, "Must specify the driver container image", id="no image"),
        pytest.param({"driver": {"serviceAccount": "absent"}}, 'serviceaccount "absent" not found', id="no account"),
    ],
)
def test_a_submission_that_the_api_server_or_spark_refuses(
    applications: SparkApplications, spec: dict[str, Any], message: str
) -> None:
    applications.apply("refused", "pass", **spec)
    applications.await_states("refused", "SUBMISSION_FAILED", "FAILED")
    told = applications.error("refused")
    assert told.startswith("failed to submit spark application: failed to run spark-submit: failed to run spark-submit")
    assert message in told
    assert "executionAttempts" not in applications.status("refused")
    assert applications.pod("refused") is None


@pytest.mark.usefixtures("operator")
def test_a_scripted_submission_failure_is_tried_again_where_the_policy_says_so(
    applications: SparkApplications, refusals: dict[str, str]
) -> None:
    refusals["again"] = "the API server is tired"
    policy = {"type": "OnFailure", "onSubmissionFailureRetries": 5, "onSubmissionFailureRetryInterval": 1}
    applications.apply("again", "pass", restartPolicy=policy)
    applications.await_states("again", "SUBMISSION_FAILED")
    assert "the API server is tired" in applications.error("again")
    refusals.clear()
    applications.await_states("again", "SUBMISSION_FAILED", *SUBMITTED_AND_RUN, "SUCCEEDING", "COMPLETED")


@pytest.mark.usefixtures("operator")
def test_the_api_servers_refusal_stands_deep_in_what_spark_submit_wrote(applications: SparkApplications) -> None:
    applications.apply("deep", "pass", driver={"serviceAccount": "absent"})
    applications.await_states("deep", "SUBMISSION_FAILED", "FAILED")
    told = applications.error("deep")
    assert told.index("KubernetesClientException") > 1024, "a status has no room for what comes before it"
    assert told.splitlines()[-1].endswith("Deleting directory /tmp/spark-" + told.rpartition("-")[2].strip())


@pytest.mark.usefixtures("operator")
def test_nothing_is_written_while_spark_submit_runs(applications: SparkApplications, slow: set[str]) -> None:
    slow.add("waits")
    applications.apply("waits", "pass")
    applications.apply("later", "pass")
    applications.await_states("later", *SUBMITTED_AND_RUN, "SUCCEEDING", "COMPLETED")
    assert applications.status("waits") == {}
    slow.clear()
    applications.await_states("waits", *SUBMITTED_AND_RUN, "SUCCEEDING", "COMPLETED")


def test_a_container_ends_before_its_pods_phase_says_so(
    operator: SparkOperator, applications: SparkApplications, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator.node, "phase_after_s", 1.0)
    applications.apply("ended", "raise SystemExit(3)")

    def phase_at_its_end() -> str:
        status = (applications.pod("ended") or {}).get("status") or {}
        containers = status.get("containerStatuses") or [{"state": {}}]
        return str(status.get("phase")) if "terminated" in containers[0]["state"] else ""

    assert wait_until(phase_at_its_end, "the container has ended") == "Running"
    applications.await_states("ended", *SUBMITTED_AND_RUN, "FAILING", "FAILED")
    assert phase_at_its_end() == "Failed"


def test_its_pods_are_as_a_recording_of_kubeflows_is_compared_with(
    operator: SparkOperator, applications: SparkApplications, api_server: Cluster, tmp_path: Path
) -> None:
    api = KubeApi(api_server.kubeconfig)
    recorder = Recorder(api, applications.namespace, tmp_path)
    try:
        applications.apply("ended", "raise SystemExit(3)")
        applications.await_states("ended", *SUBMITTED_AND_RUN, "FAILING", "FAILED")
        applications.apply("deleted", END_ON_SIGTERM)
        await_ready(operator, applications, "deleted")
        applications.kubectl("delete", "pod", "deleted-driver")
        absent = [{"name": "run", "configMap": {"name": "absent"}}]
        applications.apply("waits", "pass", pod={"volumes": absent, "container": {"volumeMounts": MOUNTED}})
        wait_until(lambda: "absent" in str((applications.pod("waits") or {}).get("status")), "it waits for its volume")
        applications.kubectl("delete", "pod", "waits-driver")
        gone = {"deleted-driver", "waits-driver"}
        wait_until(lambda: gone <= {name for name, _, event in told(recorder) if event == "DELETED"}, "both are gone")
    finally:
        api.close()
        recorder.close()
    assert unlike_pods(recorder.lines) == (3, [])
    seen = [(name, look) for name, look, _ in told(recorder)]
    assert ("ended-driver", "Running terminated Error") in seen
    assert ("deleted-driver", "Running terminated Completed") not in seen, "its kubelet waits until it can say more"
    assert ("deleted-driver", "Succeeded terminated Completed") in seen
    assert ("waits-driver", "Failed terminated ContainerStatusUnknown") in seen


def told(recorder: Recorder) -> list[tuple[str, str, str]]:
    """Of each line on a pod its name, its phase with the state of its container, and what became of it."""
    found = []
    for line in recorder.lines:
        if line["kind"] == POD:
            states = [each["state"] for each in line["status"]["containerStatuses"]]
            words = [f"{kind} {told.get('reason', '')}" for state in states for kind, told in state.items()]
            found.append((line["metadata"]["name"], " ".join([line["status"]["phase"], *words]), line["event"]))
    return found


@pytest.mark.usefixtures("operator")
def test_a_foreign_pod_of_the_drivers_name(applications: SparkApplications) -> None:
    pod = {"containers": [{"name": "x", "image": "registry.invalid/x"}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-driver"}, "spec": pod}
    applications.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    applications.apply("taken", "pass")
    applications.await_states("taken", "SUBMISSION_FAILED", "FAILED")
    told = "failed to submit spark application: failed to run spark-submit: driver pod already exist"
    assert applications.error("taken") == told
    applications.kubectl("delete", "pod", "taken-driver")


def test_deletion_of_the_application_ends_its_driver(operator: SparkOperator, applications: SparkApplications) -> None:
    applications.apply("gone", IGNORE_SIGTERM, pod={"terminationGracePeriodSeconds": 2})
    await_ready(operator, applications, "gone")
    process = driver_process(operator, applications, "gone")
    applications.kubectl("delete", "sparkapplication", "gone")
    wait_until(
        lambda: "deletionTimestamp" in (applications.pod("gone") or {"metadata": {}})["metadata"], "its end began"
    )
    assert process.is_running()  # its grace period has only begun
    wait_until(lambda: applications.pod("gone") is None, "its pod is gone")
    assert not process.is_running()


def test_suspended_it_has_no_driver_and_resumed_another(
    operator: SparkOperator, applications: SparkApplications
) -> None:
    applications.apply("paused", END_ON_SIGTERM)
    await_ready(operator, applications, "paused")
    applications.patch("paused", {"suspend": True})
    applications.await_states("paused", *SUBMITTED_AND_RUN, "SUSPENDING", "SUSPENDED")
    wait_until(lambda: applications.pod("paused") is None, "the driver is gone")
    applications.patch("paused", {"suspend": False})
    resumed = ("SUSPENDING", "SUSPENDED", "RESUMING", *SUBMITTED_AND_RUN)
    applications.await_states("paused", *SUBMITTED_AND_RUN, *resumed)


REPORT = """
import json, os, pathlib
files = pathlib.Path(os.environ["FILES"])
token = files / "var/run/secrets/kubernetes.io/serviceaccount/token"
told = {
    "config": (files / "etc/app/pipeline.yaml").read_text(),
    "secret": (files / "etc/secrets/user/password").read_text(),
    "one": os.environ["ONE"],
    "ip": os.environ["POD_IP"] == os.environ["ADDRESS"],
    "kubeconfig": "KUBECONFIG" in os.environ,
    "token": token.read_text(),
}
pathlib.Path(os.environ["TERMINATION_LOG"]).write_text(json.dumps(told))
"""


@pytest.mark.usefixtures("operator")
def test_a_driver_waits_for_what_it_mounts_and_has_it_and_its_own_account(
    applications: SparkApplications, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    applications.kubectl("create", "serviceaccount", "driver")
    applications.kubectl("create", "secret", "generic", "user", "--from-literal=password=s3cret")
    container = {
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/app"},
            {"name": "user", "mountPath": "/etc/secrets/user"},
        ],
        "env": [
            {"name": "ONE", "valueFrom": {"secretKeyRef": {"name": "user", "key": "password"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "terminationMessagePath": "/var/log/last-words",
    }
    volumes = [
        {"name": "config", "configMap": {"name": "run", "items": [{"key": "run.yaml", "path": "pipeline.yaml"}]}},
        {"name": "user", "secret": {"secretName": "user"}},
    ]
    pod = {"serviceAccountName": "driver", "volumes": volumes, "container": container}
    applications.apply("mounts", REPORT, pod=pod)
    wait_until(lambda: "message" in str(container_state(applications, "mounts")), "the pod waits for the ConfigMap")
    waiting = container_state(applications, "mounts")["waiting"]
    assert waiting == {"reason": "ContainerCreating", "message": 'configmaps "run" not found'}
    assert applications.history("mounts") == ["SUBMITTED"]
    applications.kubectl("create", "configmap", "run", "--from-literal=run.yaml=kind: SinkPipeline")
    applications.await_states("mounts", *SUBMITTED_AND_RUN, "SUCCEEDING", "COMPLETED")
    told = json.loads(applications.terminated("mounts")["message"])
    token = told.pop("token")
    assert told == {
        "config": "kind: SinkPipeline",
        "secret": "s3cret",
        "one": "s3cret",
        "ip": True,
        "kubeconfig": False,
    }
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    seen = json.loads(applications.cluster.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review)))
    assert seen["status"]["user"]["username"] == f"system:serviceaccount:{applications.namespace}:driver"


LISTEN = """
import os, signal, socket
server = socket.create_server((os.environ["ADDRESS"], int(os.environ["PORT_STATUS"])))
signal.pause()
"""


@pytest.mark.usefixtures("operator")
def test_two_drivers_listen_on_one_port_each_on_its_address(applications: SparkApplications) -> None:
    container = {"ports": [{"name": "status", "containerPort": 28090}]}
    for name in ("left", "right"):
        applications.apply(name, LISTEN, pod={"container": container})
        applications.await_states(name, *SUBMITTED_AND_RUN)
    pods = [applications.pod(name) or {} for name in ("left", "right")]
    places = {(pod["status"]["podIP"], pod["spec"]["containers"][0]["ports"][0]["containerPort"]) for pod in pods}
    assert len(places) == 2
    for place in places:
        wait_until(functools.partial(answers, place), f"somebody listens on {place}")


def answers(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=1).close()
    except OSError:
        return False
    return True


def container_state(applications: SparkApplications, name: str) -> dict[str, Any]:
    pod = applications.pod(name) or {}
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    state: dict[str, Any] = statuses[0].get("state", {})
    return state
