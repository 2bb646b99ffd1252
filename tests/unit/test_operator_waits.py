"""What a start waits for, and why one was refused, from the words of others."""

from __future__ import annotations

from typing import Any

import pytest

from kubeflow import pods, submission
from sinkpipeline.core.status import timestamp, told_executors
from sinkpipeline.core.work import Executors
from sinkpipeline_operator.child import refusals
from sinkpipeline_operator.child.driverpod import Child, ChildState, DriverPod
from sinkpipeline_operator.child.podwait import PodWait, wait_of
from sinkpipeline_operator.child.waits import Executor, of_executors, of_refusal, of_registration, of_start

NOW = 1_750_000_000_000
DEADLINE_S = 300.0
NODES = "0/1 nodes are available: 1 Insufficient cpu."
QUOTA = 'pods "orders-driver" is forbidden: exceeded quota: tight, requested: pods=1, used: pods=0, limited: pods=0'
APP = {"metadata": {"namespace": "shop", "name": "orders"}}


def waiting(reason: str, message: str = "", name: str = "spark-kubernetes-driver") -> dict[str, Any]:
    return {"containerStatuses": [{"name": name, "state": {"waiting": {"reason": reason, "message": message}}}]}


PULL = 'failed to pull and unpack image "x:1": not found'
PODS: dict[str, tuple[dict[str, Any], tuple[str, str, bool, bool] | None]] = {
    "nothing is said": ({}, None),
    "it runs": ({"containerStatuses": [{"name": "a", "state": {"running": {}}}]}, None),
    "no node": (pods.unschedulable(NODES), ("Unschedulable", NODES, True, False)),
    "its volumes are mounted": (waiting("ContainerCreating"), ("ContainerCreating", "", False, False)),
    "no image": (
        waiting("ErrImagePull", PULL),
        ("ImagePullBackOff", f"spark-kubernetes-driver: {PULL}", True, False),
    ),
    "no image, and it waits": (
        waiting("ImagePullBackOff", f'Back-off pulling image "x:1": ErrImagePull: {PULL}'),
        ("ImagePullBackOff", f"spark-kubernetes-driver: {PULL}", True, False),
    ),
    "no such name": (waiting("InvalidImageName"), ("InvalidImageName", "", True, True)),
    "another container complains": (
        {
            "initContainerStatuses": waiting("PodInitializing", name="init")["containerStatuses"],
            "containerStatuses": waiting("CreateContainerConfigError", "no key", name="side")["containerStatuses"],
        },
        ("CreateContainerConfigError", "side: no key", True, False),
    ),
    "a reason that is no word": (waiting("not a word"), ("PodWaiting", "", True, False)),
}


@pytest.mark.parametrize("row", PODS)
def test_why_a_pod_waits(row: str) -> None:
    status, expected = PODS[row]
    found = wait_of(status)
    assert (found and (found.reason, found.message, found.complains, found.for_good)) == expected


def start(age_s: float, shown: str = "SUBMITTED", pod: PodWait | None = None, *, is_there: bool = True) -> Any:
    child = Child(
        uid="c", state=ChildState.SUBMITTING, shown_state=shown, config_hash="new", nonce=None, pod_name="p-driver",
        created_ms=NOW - int(age_s * 1000), is_noticed=shown != "NEW",
    )  # fmt: skip
    driver = DriverPod(uid="p", name="p-driver", owned_by="c", phase="Pending", wait=pod) if is_there else None
    wait = of_start(child, driver, "shop", NOW, DEADLINE_S)
    assert wait.message
    return wait.reason, wait.alarm, wait.needs_person


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (start(80, "NEW", is_there=False), ("NEW", False, False)),
        (start(121, "NEW", is_there=False), ("NotSubmitted", True, False)),
        (start(301, "NEW", is_there=False), ("NotSubmitted", True, True)),
        (start(1, is_there=False), ("SUBMITTED", False, False)),
        (start(1), ("SUBMITTED", False, False)),
        (start(301), ("StartDeadlineExceeded", True, True)),
        (start(1, pod=PodWait(reason="Unschedulable", message=NODES, complains=True)), ("Unschedulable", True, False)),
        (start(301, pod=PodWait(reason="Unschedulable", message=NODES, complains=True)), ("Unschedulable", True, True)),
        (
            start(1, pod=PodWait(reason="InvalidImageName", message="", complains=True, for_good=True)),
            ("InvalidImageName", True, True),
        ),
    ],
)
def test_what_a_start_waits_for(found: tuple[str, bool, bool], expected: tuple[str, bool, bool]) -> None:
    assert found == expected


def executor(name: str, phase: str = "Pending", *, of: str = "p", age_s: int = 1, waits: bool = True) -> Executor:
    wait = PodWait(reason="Unschedulable", message=NODES, complains=True) if waits and phase == "Pending" else None
    return Executor(name=name, owned_by=of, phase=phase, created_ms=NOW - age_s * 1000, wait=wait)


def test_executors_that_cannot_start() -> None:
    def told(*executors: Executor) -> tuple[bool, bool, str] | None:
        found = of_executors(executors, "p", NOW, DEADLINE_S)
        return None if found is None else (found.none_runs, found.wait.needs_person, found.wait.message)

    assert told() is None
    assert told(executor("a", "Running"), executor("b", waits=False)) is None
    assert told(executor("old", of="another driver")) is None
    assert told(executor("a", age_s=301)) == (True, True, f"no executor runs: pod a: {NODES}")
    assert told(executor("a", "Running"), executor("b")) == (False, False, f"1 of 2 executors run: pod b: {NODES}")
    assert told(executor("a", "Running"), executor("b", age_s=301)) == (
        *(False, False, f"1 of 2 executors run: pod b: {NODES}"),
    )
    assert told(executor("a", "Failed"), executor("b")) == (True, False, f"no executor runs: pod b: {NODES}")


LOST = Executors(registered=0, wanted=2, none_since=NOW)


@pytest.mark.parametrize(
    ("age_s", "executors", "alarm", "person", "words"),
    [
        (29, (), None, None, ""),
        (30, (), True, False, "a quota or a webhook may refuse them, which the driver logs, `kubectl -n shop logs d`"),
        (300, (), True, True, "a quota or a webhook may refuse them"),
        (30, (executor("a", waits=False),), False, False, "1 of their pods are being set up"),
        (300, (executor("a", waits=False),), True, True, "1 of their pods are being set up"),
        (
            30,
            (executor("a", "Running"),),
            True,
            False,
            "1 of their pods run: see what they log, `kubectl -n shop logs a`",
        ),
        (30, (executor("a", "Running", of="another"),), True, False, "no pod of theirs is there"),
    ],
)
def test_no_executor_joins_the_driver(
    age_s: int, executors: tuple[Executor, ...], alarm: bool | None, person: bool | None, words: str
) -> None:
    pod = DriverPod(uid="p", name="d", owned_by="c", phase="Running")
    document = {"now": timestamp(NOW + age_s * 1000), "executors": told_executors(LOST)}
    found = of_registration(document, executors, pod, "shop", DEADLINE_S)
    if alarm is None:
        assert found is None
        return
    assert found is not None
    assert (found.none_runs, found.wait.reason, found.wait.alarm, found.wait.needs_person) == (
        *(True, "NoExecutors", alarm, person),
    )
    assert found.wait.message.startswith(
        f"none of 2 executors registered since {timestamp(NOW)}, and sinks wait for one"
    )
    assert words in found.wait.message


def test_a_driver_that_tells_nothing_of_executors_lacks_none() -> None:
    pod = DriverPod(uid="p", name="d", owned_by="c", phase="Running")
    for document in ({}, {"now": timestamp(NOW)}, {"now": "soon", "executors": told_executors(LOST)}):
        assert of_registration(document, (), pod, "shop", DEADLINE_S) is None


SPARK = "failed to submit spark application: failed to run spark-submit: failed to run spark-submit: "
CHAIN = (
    "26/11/22 10:00:00 WARN A: b\n"
    'Exception in thread "main" io.fabric8.KubernetesClientException: An error has occurred.\n\tat a.b(c)\n'
    "Caused by: java.io.IOException: no route\n\tat a.b(c)\n\t... 8 more\n"
    "Caused by: java.net.UnknownHostException: kubernetes.default.svc\n\t... 9 more\n"
    "26/11/22 10:00:01 INFO ShutdownHookManager: Shutdown hook called\n"
)
CAUSES = {
    "the API server refuses": (submission.stderr(APP, 403, QUOTA), QUOTA),
    "Spark refuses": (
        'Exception in thread "main" org.apache.spark.SparkException: Must specify the driver container image',
        "SparkException: Must specify the driver container image",
    ),
    "an exception with its cause": (
        CHAIN,
        "KubernetesClientException: An error has occurred., caused by UnknownHostException: kubernetes.default.svc",
    ),
    "no exception": ("26/11/22 10:00:00 INFO A: b\nError: Cannot load main class\n26/11/22 10:00:01 INFO A: c",
                     "Error: Cannot load main class"),
    "only a log": ("26/11/22 10:00:00 INFO A: b\n26/11/22 10:00:01 ERROR A: bad", "A: bad"),
    "no words": ("", ""),
}  # fmt: skip


@pytest.mark.parametrize("row", CAUSES)
def test_the_line_that_says_why_a_submission_failed(row: str) -> None:
    stderr, cause = CAUSES[row]
    assert refusals.cause(SPARK + stderr) == cause


def test_a_long_cause_is_cut_and_takes_no_time() -> None:
    assert len(refusals.cause(SPARK + 'Exception in thread "main" a.B: ' + "Message: " * 200_000)) <= 700


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (QUOTA, "QuotaExceeded"),
        ('admission webhook "v.example.com" denied the request: no', "AdmissionRefused"),
        ("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "AdmissionRefused"),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": ...', "AdmissionRefused"),
        ('Internal error occurred: failed calling webhook "w": connection refused', "WebhookUnavailable"),
        ('pods "x" is forbidden: unable to create new content in namespace n because it is being terminated',
         "NamespaceTerminating"),
        ('ConfigMap "x" is invalid: []: Too long: may not be more than 1048576 bytes', "ManifestTooLarge"),
        ("etcdserver: request is too large", "ManifestTooLarge"),
        ("Request entity too large: limit is 3145728", "ManifestTooLarge"),
        ("rpc error: code = ResourceExhausted desc = trying to send message larger than max (2165248 vs. 2097152)",
         "ManifestTooLarge"),
        ("anything else", "ObjectRefused"),
    ],
)  # fmt: skip
def test_what_a_refusal_is_called(words: str, reason: str) -> None:
    wait = of_refusal(words, passing=False)
    assert wait is not None
    assert (wait.reason, wait.alarm, wait.needs_person) == (reason, True, True)
    assert words in wait.message


@pytest.mark.parametrize("words", ["the server could not find the requested resource", "404 page not found"])
def test_a_cluster_without_kubeflow(words: str) -> None:
    wait = of_refusal(words, passing=False)
    assert wait is not None
    assert (wait.reason, wait.message.partition(" (")[0]) == (
        *("KubeflowMissing", "the API server knows no SparkApplication"),
    )


def test_an_answer_that_may_pass_needs_nobody_yet() -> None:
    webhook = of_refusal('failed calling webhook "w": connection refused', passing=True)
    assert webhook is not None
    assert not webhook.needs_person
    assert of_refusal("etcdserver: request timed out", passing=True) is None
