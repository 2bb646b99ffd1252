"""The operator as a program of its own, in a namespace of its own, and what a person with kubectl sees of its work.

It has the rights of its chart and no others: what the chart forgot to grant fails the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Self

from kubeflow import pods
from servers.control_plane import Cluster, kubectl_executable
from servers.kube_api import ApiError, KubeApi, NotFoundError
from servers.local_process import HOST, LocalProcess, free_ports
from sinkpipeline_operator.child.builder import DRIVER_PORT
from support.kube.drivers import Drivers, Started
from support.kube.rights import Outside, install, remove
from support.resource.truthful import contradictions
from support.waiting import wait_until

Object = dict[str, Any]
T = TypeVar("T")

ACCOUNT = "sinkpipeline-driver"
IMAGE = "registry.invalid/sinkpipeline:1"
ACTIONS = "/apis/sinkpipeline.io/v1alpha1/namespaces/{}/sinkpipelineactions"
RESOURCES = "/apis/sinkpipeline.io/v1alpha1/namespaces/{}/sinkpipelines"
_FOLLOWED = {
    "sinkpipeline": RESOURCES,
    "sparkapplication": "/apis/sparkoperator.k8s.io/v1beta2/namespaces/{}/sparkapplications",
    "pod": "/api/v1/namespaces/{}/pods",
    "configmap": "/api/v1/namespaces/{}/configmaps",
    "sinkpipelineaction": ACTIONS,
}
_ALSO_READ = {
    "event": "/api/v1/namespaces/{}/events",
    "secret": "/api/v1/namespaces/{}/secrets",
    "job": "/apis/batch/v1/namespaces/{}/jobs",
}
_OPTIONS = (
    *("--image", IMAGE, "--no-kafka-access", "--log-format", "text"),
    *("--poll", "0.5", "--resync", "5", "--resync-at-rest", "5"),
)
"""So that tests need not wait long for what is only seen by looking; over those of the chart."""
_STARTED_S = 30.0
_STOPPED_S = 20.0

DEADLINE_S = 90.0
"""Of every wait, as nearly all wait for a pod's end: pods of what is deleted are the garbage collector's to remove.

It looks every 30 s for kinds that are new to it, and collects nothing meanwhile.
"""


@dataclass(frozen=True)
class Change:
    """What a watch saw."""

    at: float
    """By the monotonic clock."""
    kind: str
    """The kind of object: sinkpipeline, sparkapplication, pod or configmap."""
    event: str
    """ADDED, MODIFIED or DELETED."""
    new: Object
    old: Object | None

    @property
    def name(self) -> str:
        return str(self.new["metadata"]["name"])

    @property
    def version(self) -> int:
        """The store's revision: what was written later has a larger one, whatever its kind."""
        return int(self.new["metadata"]["resourceVersion"])


def nameless(uid: int) -> list[str]:
    """What starts a program as that user; needs root."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]


class OperatorLab:
    """An operator whose chart is installed in a namespace, which exists already; use it in a `with`.

    It serves that namespace, or `everywhere` all of them. `options` are added to the operator's, `values` to the
    chart's. Another `installer` leaves the chart to whoever it is.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        drivers: Drivers,
        *,
        options: Sequence[str] = (),
        everywhere: bool = False,
        values: Mapping[str, Any] | None = None,
        installer: Callable[[Cluster, str, Mapping[str, Any]], Outside] = install,
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.drivers = drivers
        self.port = free_ports(1)[0]
        self._options = options
        self._values = {**({} if everywhere else {"watchNamespaces": [namespace]}), **(values or {})}
        self._install = installer
        self._installed: Outside | None = None
        self._stack = contextlib.ExitStack()
        self._log = cluster.directory / f"operator-{namespace}.log"
        self._failpoints = cluster.directory / f"failpoints-{namespace}"
        self._process: LocalProcess | None = None
        self._api = KubeApi(cluster.kubeconfig)
        self._history: list[Change] = []
        self._watches = [threading.Thread(target=self._follow, args=each, daemon=True) for each in _FOLLOWED.items()]

    def __enter__(self) -> Self:
        for watch in self._watches:
            watch.start()
        self._installed = self._install(self.cluster, self.namespace, self._values)
        return self

    def __exit__(self, *_: object) -> None:
        """Without an operator nothing comes back."""
        self.kill()
        self._stack.close()
        remove(self.cluster, self.namespace)
        for resource in self.all("sinkpipelines"):
            if resource["metadata"].get("finalizers"):
                patch = '{"metadata":{"finalizers":null}}'
                self.kubectl("patch", "sinkpipeline", resource["metadata"]["name"], "--type=merge", "-p", patch)
        self.kubectl("delete", "sinkpipelines,sparkapplications", "--all", "--wait=false")
        self.cluster.remove_pods(self.namespace)
        self._api.close()
        for watch in self._watches:
            watch.join()

    def install_anew(self) -> None:
        """After somebody has taken the release away."""
        self._installed = self._install(self.cluster, self.namespace, self._values)

    # --- the operator's process ---

    def start(
        self,
        *,
        failpoint: str | None = None,
        nameless_uid: int | None = None,
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        """Starts it; who first reaches the failpoint is held there.

        With a `nameless_uid` it runs as that user, as in a pod: in no group, and without a name or a home.
        Another `python` imports what it finds by itself.
        """
        self.begin(failpoint=failpoint, nameless_uid=nameless_uid, python=python)
        if failpoint is None:
            self.until(lambda: self.answer("/readyz")[0] == 200, "it is ready", _STARTED_S)

    def begin(
        self,
        *,
        failpoint: str | None = None,
        nameless_uid: int | None = None,
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        """Likewise, and waits for nothing."""
        installed = self._installed
        assert installed is not None
        assert self._process is None or self._process.exit_code is not None
        env = {
            **os.environ,
            "KUBECONFIG": str(installed.kubeconfig),
        }
        if tuple(python) == (sys.executable,):
            env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        shutil.rmtree(self._failpoints, ignore_errors=True)
        self._failpoints.mkdir()
        if failpoint is not None:
            (self._failpoints / failpoint).touch()
            env["SINKPIPELINE_FAILPOINT_DIR"] = str(self._failpoints)
        argv = [
            *(*python, "-m", "sinkpipeline_operator", *installed.arguments),
            *("--listen", f"{HOST}:{self.port}", *_OPTIONS, *self._options),
        ]
        if nameless_uid is not None:
            argv = [*nameless(nameless_uid), *argv]
            env = {name: value for name, value in env.items() if name not in ("HOME", "LOGNAME", "USER")}
            env["KUBECONFIG"] = str(self._kubeconfig_for(nameless_uid, installed.kubeconfig))
        self._process = LocalProcess(argv, self._log, env=env)

    def _kubeconfig_for(self, uid: int, kubeconfig: Path) -> Path:
        """A copy in one file that this user can read: only its owner enters the cluster's directory."""
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="operator-")))
        ours = directory / "kubeconfig"
        ours.touch(mode=0o600)
        ours.write_text(self.cluster.kubectl("config", "view", "--raw", "--flatten", kubeconfig=kubeconfig))
        for path in (directory, ours):
            os.chown(path, uid, -1)
        return ours

    @contextlib.contextmanager
    def beside(self, *options: str) -> Iterator[None]:
        """Another operator of the same release, with these options too; what it logs stands with the rest."""
        assert self._installed is not None
        env = {
            **os.environ,
            "KUBECONFIG": str(self._installed.kubeconfig),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        [port] = free_ports(1)
        ours = ["--listen", f"{HOST}:{port}", *_OPTIONS, *self._options, *options]
        argv = [sys.executable, "-m", "sinkpipeline_operator", *self._installed.arguments, *ours]
        process = LocalProcess(argv, self._log, env=env)
        try:
            self._wait(lambda: _answer(port, "/readyz")[0] == 200, "another operator is ready", _STARTED_S)
            yield
            assert process.exit_code is None, self.log_tail()
        finally:
            process.end(_STOPPED_S)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        if not self._process.wait(_STOPPED_S):
            raise AssertionError(f"it still runs {_STOPPED_S:.0f} s after SIGTERM\n{self.log_tail()}")
        self._process.kill()  # what it leaves behind
        return self._process.exit_code or 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def kill_at(self, failpoint: str) -> None:
        """SIGKILL once it is held at the point that it was started with."""
        self.until(lambda: list(self._failpoints.glob(f"{failpoint}.*")), f"the operator reaches {failpoint}")
        self.kill()

    def restart(self) -> None:
        """After SIGKILL."""
        self.kill()
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log.splitlines()[-lines:])

    def answer(self, path: str) -> tuple[int, str]:
        """Code and body of a request to the operator; (0, "") where nobody listens."""
        return _answer(self.port, path)

    # --- what a person does ---

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin)

    def pipeline(self, name: str, *, sinks: Sequence[str] = ("copy",), **spec: Any) -> Object:
        """A manifest whose brokers nobody asks, and whose patience with failures is short."""
        return {
            "apiVersion": "sinkpipeline.io/v1alpha1",
            "kind": "SinkPipeline",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "source": {"kafka": {"bootstrapServers": "127.0.0.1:9", "topics": ["numbers"]}},
                "sinks": [{"name": sink, "kafka": {"topic": {"name": f"{name}-{sink}"}}} for sink in sinks],
                "failurePolicy": {"maxConsecutiveFailures": 3, "backoff": {"initial": "300ms", "max": "2s"}},
                **spec,
            },
        }

    def apply(self, manifest: Mapping[str, Any]) -> str:
        """As `kubectl apply -f` does; the resource's name."""
        name: str = manifest["metadata"]["name"]
        self._write("apply", "-f", "-", stdin=json.dumps(manifest))
        return name

    def patch(self, name: str, spec: Mapping[str, Any], *, kind: str = "sinkpipeline") -> None:
        self._write("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def _write(self, *arguments: str, stdin: str | None = None) -> None:
        """And waits until the watch has it too, so that a test which looks next does not see what was there before."""
        written = json.loads(self.kubectl(*arguments, "--output=json", stdin=stdin))
        kind, meta = written["kind"].lower(), written["metadata"]
        if kind in _FOLLOWED:
            version = int(meta["resourceVersion"])
            seen = partial(self.history, kind, meta["name"])
            self._wait(
                lambda: any(each.version >= version for each in seen()), "the watch has what was written", DEADLINE_S
            )

    def type(self, command: str) -> str:
        """What somebody pastes into a shell; what it prints. An AssertionError where it does not end with 0."""
        environ = {
            **os.environ,
            "PATH": f"{Path(kubectl_executable()).parent}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "KUBECACHEDIR": str(self.cluster.directory / "kubectl-cache"),
        }
        # Any shell will do: also one that knows nothing of bash.
        done = subprocess.run(["sh", "-c", command], env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout

    def ask(self, **spec: Any) -> str:
        """Creates an action; its name."""
        document = {
            "apiVersion": "sinkpipeline.io/v1alpha1",
            "kind": "SinkPipelineAction",
            "metadata": {"generateName": "act-", "namespace": self.namespace},
            "spec": spec,
        }
        made = self._api.create(self._path("sinkpipelineaction"), document)
        return str(made["metadata"]["name"])

    def asked(self, name: str) -> Object:
        """The status of an action, as the watch saw it last."""
        found = self._latest("sinkpipelineaction", name)
        status: Object = {} if found is None else found.get("status") or {}
        return status

    def until_asked(self, name: str, phase: str, deadline_s: float = DEADLINE_S) -> Object:
        """Until an action is in that phase; its status."""

        def look() -> Object | None:
            status = self.asked(name)
            over = status.get("phase") in ("Succeeded", "Failed") and status["phase"] != phase
            assert not over, f"action {name} has {status}"
            return status if status.get("phase") == phase else None

        found = self.until(look, f"{name}: the action is {phase}", deadline_s)
        assert found is not None
        return found

    def confirm(self, name: str, digest: str | None = None) -> None:
        self.patch(name, {"confirm": digest or self.asked(name)["digest"]}, kind="sinkpipelineaction")

    def suspend_all(self) -> None:
        """What a test leaves behind costs the tests after it nothing: no driver is asked twice a second."""
        for resource in self.all("sinkpipelines"):
            if not resource["spec"].get("suspend"):
                name = resource["metadata"]["name"]
                with contextlib.suppress(NotFoundError):
                    self._api.merge(f"{self._path('sinkpipeline')}/{name}", {"spec": {"suspend": True}})

    def annotate(self, name: str, annotation: str) -> None:
        """`key=value`, or `key-` to take it away."""
        self._write("annotate", "--overwrite", "sinkpipeline", name, annotation)

    def delete(self, kind: str, name: str, *options: str) -> None:
        self.kubectl("delete", kind, name, *(options or ("--timeout=30s",)))

    def make_silent(self, name: str) -> None:
        """A driver that accepts connections and never answers, without a process; hold its application before."""
        app = self.until(lambda: self.child(name), f"{name}: there is an application")
        assert app is not None
        meta = app["metadata"]
        labels = {**app["spec"]["driver"]["template"]["metadata"]["labels"], "spark-role": "driver"}
        owner = {"apiVersion": app["apiVersion"], "kind": app["kind"], "name": name, "uid": meta["uid"]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-driver",
                "labels": labels,
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {"containers": [{"name": "spark-kubernetes-driver", "image": IMAGE}]},
        }
        self._api.create(self._path("pod"), pod)
        address = self._stack.enter_context(_silence(DRIVER_PORT))
        running = {"name": "spark-kubernetes-driver", "image": IMAGE, "imageID": "", "ready": True, "restartCount": 0}
        began = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        status["containerStatuses"] = [{**running, "state": began}]
        self._api.merge(f"{self._path('pod')}/{name}-driver/status", {"status": status})
        state: Object = {"applicationState": {"state": "RUNNING"}, "driverInfo": {"podName": f"{name}-driver"}}
        state |= {"executionAttempts": 1, "lastSubmissionAttemptTime": None, "terminationTime": None}
        self._api.merge(f"{self._path('sparkapplication')}/{name}/status", {"status": state})

    def make_executor(self, name: str, number: int, status: Mapping[str, Any], *, node: str = "") -> None:
        """A pod as Spark's driver makes it; by default without a node, and on none that would run it."""
        driver = self.pod(name)
        assert driver is not None
        pod = pods.executor_pod(driver, number)
        pod["spec"]["nodeName"] = node
        self._api.create(self._path("pod"), pod)
        self.set_executor(name, number, status)

    def set_executor(self, name: str, number: int, status: Mapping[str, Any]) -> None:
        """What a scheduler and a kubelet say of it."""
        self._api.merge(f"{self._path('pod')}/{name}-exec-{number}/status", {"status": dict(status)})

    def refuses_applications(self) -> bool:
        """Whether the API server takes no SparkApplication here, for its webhook."""
        meta = {"name": "probe", "namespace": self.namespace}
        document = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": meta}
        try:
            self._api.create(f"{self._path('sparkapplication')}?dryRun=All", document)
        except ApiError as error:
            return "failed calling webhook" in str(error)
        return False

    def is_refused(self, name: str) -> bool:
        """Whether the API server would take no ConfigMap of that name here, by a policy."""
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.namespace}}
        try:
            self._api.create(f"{self._path('configmap')}?dryRun=All", document)
        except ApiError as error:
            return "denied request" in str(error)
        return False

    # --- what a person sees ---

    # Not by kubectl: each takes a tenth of a second of a core, and what is waited for is asked for often.

    def find(self, kind: str, name: str) -> Object | None:
        return self._api.find(f"{self._path(kind)}/{name}")

    def all(self, kind: str) -> list[Object]:
        items: list[Object] = self._api.get(self._path(kind))["items"]
        return items

    def _path(self, kind: str) -> str:
        """Of the objects of a kind, which is named in the singular or in the plural."""
        return (_FOLLOWED | _ALSO_READ)[kind.removesuffix("s")].format(self.namespace)

    def resource(self, name: str) -> Object:
        found = self._latest("sinkpipeline", name)
        assert found is not None, f"there is no SinkPipeline {name}"
        return found

    def status(self, name: str) -> Object:
        """As the watch saw it last; empty where there is none."""
        found = self._latest("sinkpipeline", name)
        status: Object = {} if found is None else found.get("status") or {}
        return status

    def condition(self, name: str, kind: str) -> Object:
        """Empty where it has none of that type."""
        return next((each for each in self.status(name).get("conditions", []) if each["type"] == kind), {})

    def sink(self, name: str, sink: str = "copy") -> Object:
        return next((each for each in self.status(name).get("sinks", []) if each["name"] == sink), {})

    def child(self, name: str) -> Object | None:
        return self._latest("sparkapplication", name)

    def pod(self, name: str) -> Object | None:
        """The driver's."""
        return self._latest("pod", f"{name}-driver")

    def driver(self, name: str) -> Started:
        """The one that was started last."""
        return self.drivers.starts((self.namespace, name))[-1]

    def starts(self, name: str) -> int:
        return len(self.drivers.starts((self.namespace, name)))

    def events(self, name: str) -> list[Object]:
        """Of the resource."""
        found = [each for each in self.all("events") if each["involvedObject"]["name"] == name]
        return [each for each in found if each["involvedObject"]["kind"] == "SinkPipeline"]

    def told(self, name: str) -> str:
        """Its events, a line for each: reason and message."""
        return "\n".join(f"{each['reason']}: {each['message']}" for each in self.events(name))

    def table(self, name: str, *, wide: bool = False) -> dict[str, str]:
        """What `kubectl get sinkpipelines NAME` prints, by column; MESSAGE is the rest of the line."""
        header, row = self.kubectl("get", "sinkpipelines", name, *(("-o", "wide") if wide else ())).splitlines()
        starts = [header.index(column) for column in header.split()]
        return {
            column: row[start:end].strip()
            for column, start, end in zip(header.split(), starts, [*starts[1:], None], strict=True)
        }

    def history(self, kind: str, name: str) -> list[Change]:
        """All that happened to the objects of that name, in order."""
        return [each for each in list(self._history) if each.kind == kind and each.name == name]

    def status_writes(self, name: str) -> int:
        """How often its status has changed."""
        return sum(
            (each.old or {}).get("status") != each.new.get("status") for each in self.history("sinkpipeline", name)
        )

    # --- waiting ---

    def until(self, condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
        """The first true value; an operator that died meanwhile fails at once."""

        def look() -> T:
            value = condition()
            if not value and not self.is_running:
                raise AssertionError(f"the operator is dead while waiting until {what}")
            return value

        return self._wait(look, what, deadline_s)

    def until_status(
        self, name: str, condition: Callable[[Object], object], what: str, deadline_s: float = DEADLINE_S
    ) -> Object:
        """Of the current generation only: what is older says nothing of the present spec."""

        def look() -> Object | None:
            found = self._latest("sinkpipeline", name)
            status: Object = (found or {}).get("status") or {}
            current = found is not None and status.get("observedGeneration") == found["metadata"]["generation"]
            return status if current and condition(status) else None

        found = self.until(look, f"{name}: {what}", deadline_s)
        assert found is not None
        return found

    def until_condition(
        self, name: str, kind: str, status: str, reason: str | None = None, deadline_s: float = DEADLINE_S
    ) -> Object:
        def holds(seen: Object) -> bool:
            found: Object = next((each for each in seen.get("conditions", []) if each["type"] == kind), {})
            return found.get("status") == status and reason in {None, found.get("reason")}

        self.until_status(name, holds, f"{kind} is {status}, {reason or 'for any reason'}", deadline_s)
        return self.condition(name, kind)

    def until_ready(self, name: str) -> Object:
        self.until_condition(name, "Ready", "True")
        return self.status(name)

    def until_phase(self, name: str, phase: str) -> Object:
        return self.until_status(name, lambda status: status.get("phase") == phase, f"its phase is {phase}")

    def until_started(self, name: str, count: int) -> Started:
        """That many drivers were started, and no more yet."""
        self.until(lambda: self.starts(name) >= count, f"{name}: it has had {count} drivers")
        assert self.starts(name) == count
        return self.driver(name)

    def stays(self, condition: Callable[[], object], what: str, seconds: float) -> None:
        """That nothing happens shows only with time."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if not condition():
                raise AssertionError(f"it did not stay so that {what}\n{self.describe()}")
            time.sleep(0.1)

    def check(self, *, may_lack: str = "") -> None:
        """What may never be so, whatever a test did; `may_lack`: words of a refusal that tests lead to."""
        assert self.drivers.complaints(self.namespace) == []
        assert "Traceback" not in self.log, self.log_tail(200)
        refused = [line for line in self.log.splitlines() if f"system:serviceaccount:{self.namespace}:" in line]
        wrong = [line for line in refused if not may_lack or may_lack not in line]
        assert wrong == [], "the chart does not grant what the operator needs"
        told = [each.new for each in list(self._history) if each.kind == "sinkpipeline"]
        assert [wrong for resource in told for wrong in contradictions(resource)] == []

    def describe(self, about: str = "") -> str:
        """For the message of a test that failed: of the objects whose names begin so."""
        last: dict[tuple[str, str], Object] = {}
        for change in list(self._history):
            key = (change.kind, change.name)
            if change.event == "DELETED":
                last.pop(key, None)
            else:
                last[key] = change.new
        # What says most comes first: a report of a run may be cut short.
        order = {"sinkpipeline": 0, "sparkapplication": 1, "pod": 2}
        lines = [
            f"{kind} {name}: {json.dumps(found.get('status') or found.get('data'))[: 3000 if kind in order else 300]}"
            for (kind, name), found in sorted(last.items(), key=lambda each: (order.get(each[0][0], 3), each[0]))
            if name.startswith(about) and name != "kube-root-ca.crt"
        ]
        log = [line for line in self.log.splitlines() if about in line or "ERROR" in line or "Error" in line]
        return "\n".join(["--- the operator's log", *log[-20:], "--- the objects", *lines])

    def _wait(self, condition: Callable[[], T], what: str, deadline_s: float) -> T:
        try:
            return wait_until(condition, what, deadline_s)
        except AssertionError as error:
            about = what.partition(": ")[0] if ": " in what else ""
            raise AssertionError(f"{error}\n{self.describe(about)}") from None

    def _latest(self, kind: str, name: str) -> Object | None:
        changes = self.history(kind, name)
        return None if not changes or changes[-1].event == "DELETED" else changes[-1].new

    def _follow(self, kind: str, path: str) -> None:
        for seen in self._api.follow(path.format(self.namespace)):
            self._history.append(Change(time.monotonic(), kind, seen.kind, seen.new, seen.old))


def _answer(port: int, path: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{HOST}:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@contextlib.contextmanager
def _silence(port: int) -> Iterator[str]:
    """An address of this machine at which somebody listens and never answers."""
    while True:
        address = f"127.201.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
        with contextlib.suppress(OSError), socket.create_server((address, port), backlog=256):
            yield address
            return
