"""The operator on a real cluster, installed as docs/install.md says, and a pipeline as kubectl shows it."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from cluster.target import ROOT, Target
from deployed.chart import helm_executable
from node.cgroups import resident_bytes
from servers.control_plane import Cluster, ControlPlaneError, kubectl_executable
from servers.kube_api import KubeApi
from support.app.command import manifest
from support.cluster.first_row import marks, parts
from support.cluster.recording import Recorder
from support.cluster.report import Report
from support.kafka import topics
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.resource.seen import REACTION_S, Object, SeenPipeline
from support.resource.truthful import PIPELINE
from support.waiting import wait_until

NAMESPACE = "shop"
SYSTEM = "sinkpipeline-system"
KUBEFLOW = "spark-operator"
OPERATOR = "app.kubernetes.io/name=sinkpipeline-operator"
"""The label of its pods."""
APPLICATIONS = "/apis/sparkoperator.k8s.io/v1beta2/namespaces/{}/sparkapplications"
START_S = 180.0
ACTION_S = 150.0
TOKEN_S = 600
"""For how long a token is good: the shortest time that an API server gives."""
_PRINTED = re.compile(r"`([^`]+)`")
_COMMANDS_S = 300.0
_TAIL_LINES = 40
SMALL = {"spark.kubernetes.driver.request.cores": "200m", "spark.kubernetes.executor.request.cores": "200m"}
"""So that several fit on two processors."""


def documented_commands(section: str, page: str = "install.md", block: int = 0) -> str:
    """The commands of a block below that heading of a page of docs."""
    text = (ROOT / "docs" / page).read_text()
    # A script begins with `#!`.
    found = re.search(rf"^#+ {section}\n(.*?)^#+ ", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/{page} has no section {section}"
    blocks: list[str] = re.findall(r"```sh\n(.*?)```", found[1], re.DOTALL)
    assert len(blocks) > block, f"the section {section} of docs/{page} has {len(blocks)} blocks of commands"
    return blocks[block]


def is_ready(pod: Object) -> bool:
    """Whether it is, and is not about to go."""
    conditions = pod["status"].get("conditions", ())
    told = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return told and "deletionTimestamp" not in pod["metadata"]


class Installation:
    """A cluster on which the operator is, or will be, installed."""

    def __init__(self, target: Target, directory: Path, report: Report, recorded: Path | None = None) -> None:
        """`recorded`: the folder for what is seen, where other processes write too."""
        self.target = target
        self.cluster: Cluster = target.cluster
        self.api = KubeApi(Path(target.kubeconfig))
        self.report = report
        self.recorder = Recorder(self.api, NAMESPACE, recorded or directory / "recorded")
        self._directory = directory
        self._leaving: list[Pipeline] = []

    def leave(self, pipeline: Pipeline) -> None:
        """It is deleted, and ends while something else begins."""
        pipeline.delete("--wait=false")
        self._leaving.append(pipeline)

    def install(self) -> None:
        """By the commands of docs/install.md."""
        self.type("helm uninstall sinkpipeline-operator --namespace sinkpipeline-system --ignore-not-found --wait")
        # What a run that was broken off has left.
        for kind in ("sinkpipelines", "sparkapplications"):
            self.type(f"kubectl delete {kind} --all --namespace {NAMESPACE} --timeout=60s || true")
        commands = documented_commands("Install")
        # The pipelines are those of the tests.
        not_now = "kubectl apply --namespace shop -f sinkpipeline.yaml\n"
        assert not_now in commands
        self.type(commands.replace(not_now, ""))

    def shorten_tokens(self, seconds: int, release: str = "sinkpipeline-operator", namespace: str = SYSTEM) -> None:
        """The operator's pod gets tokens of the API server for so long; the kubelet renews them meanwhile."""
        token = {"serviceAccountToken": {"path": "token", "expirationSeconds": seconds}}
        authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
        field = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
        sources = [token, authority, {"downwardAPI": {"items": [field]}}]
        mount = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
        # Where something is mounted already, the API server mounts no token of its own.
        spec = {
            "volumes": [{"name": "token", "projected": {"sources": sources}}],
            "containers": [{"name": "operator", "volumeMounts": [mount]}],
        }
        patch = json.dumps({"spec": {"template": {"spec": spec}}})
        self.kubectl("patch", f"deployment/{release}", "--type=strategic", "-p", patch, namespace=namespace)
        self.until_rolled_out(release, namespace)

    def operators(self, namespace: str = SYSTEM) -> list[Object]:
        return self.pods(OPERATOR, namespace)

    def operator_age_s(self, namespace: str = SYSTEM) -> float:
        """Of its oldest pod."""
        begun = [dt.datetime.fromisoformat(pod["status"]["startTime"]) for pod in self.operators(namespace)]
        return (dt.datetime.now(dt.timezone.utc) - min(begun)).total_seconds()

    def operator_memory(self) -> str:
        """As the kernel counts it, where the node runs on this machine."""
        if self.target.kind != "local":
            return "not known here"
        found = [resident_bytes(pod["metadata"]["uid"]) for pod in self.operators()]
        return f"{max(found) / 1e6:.0f} MB resident"

    @contextlib.contextmanager
    def kubeflow_away(self) -> Iterator[None]:
        with self._away("spark-operator-controller", "app.kubernetes.io/component=controller", KUBEFLOW):
            yield

    @contextlib.contextmanager
    def webhook_away(self) -> Iterator[None]:
        """Kubeflow's, which every SparkApplication passes."""
        with self._away("spark-operator-webhook", "app.kubernetes.io/component=webhook", KUBEFLOW):
            yield

    @contextlib.contextmanager
    def operator_away(self) -> Iterator[None]:
        with self._away("sinkpipeline-operator", OPERATOR, SYSTEM):
            yield
        self.until_rolled_out("sinkpipeline-operator", SYSTEM)

    @contextlib.contextmanager
    def _away(self, deployment: str, selector: str, namespace: str) -> Iterator[None]:
        """Without any of its pods."""
        scale = ("scale", f"deployment/{deployment}")
        try:
            self.kubectl(*scale, "--replicas=0", namespace=namespace)
            wait_until(lambda: not self.pods(selector, namespace), f"{deployment} is gone", 150)
            yield
        finally:
            self.kubectl(*scale, "--replicas=1", namespace=namespace)

    def until_rolled_out(self, deployment: str, namespace: str) -> None:
        """Its pods are there and ready, which is more than its status says.

        For a minute after the API server was away, controllers may count pods from before: they took a Deployment that
        was scaled to 0 and back to 1 for available, and no pod was there.
        """

        def rolled_out() -> bool:
            found = self.cluster.get(f"deployment/{deployment}", f"--namespace={namespace}")
            status, spec = found["status"], found["spec"]
            seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
            counts = [status.get(count, 0) for count in ("replicas", "updatedReplicas", "availableReplicas")]
            labels = ",".join(f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items())
            ready = sum(is_ready(pod) for pod in self.pods(labels, namespace))
            return seen and [*counts, ready] == [spec["replicas"]] * 4

        wait_until(rolled_out, f"{deployment} is rolled out", 150, poll_s=0.5)

    def restart_operator(self) -> None:
        """Its pod is deleted, and another one is Ready."""
        self.kubectl("delete", "pod", f"--selector={OPERATOR}", namespace=SYSTEM)
        self.until_rolled_out("sinkpipeline-operator", SYSTEM)

    def type(self, commands: str, **environ: str) -> str:
        """What a person types, in a shell in the root of the repository; what it prints."""
        programs = self._directory / "bin"
        programs.mkdir(exist_ok=True)
        plugin = Path(sys.executable).with_name("kubectl-sinkpipeline")
        for name, path in (("kubectl", kubectl_executable()), ("helm", helm_executable()), (plugin.name, plugin)):
            if not (programs / name).exists():
                (programs / name).symlink_to(path)
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMANDS_S,
            cwd=ROOT,
            env={
                **os.environ,
                **environ,
                "KUBECONFIG": self.target.kubeconfig,
                "KUBECACHEDIR": str(self._directory / "kubectl-cache"),
                "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
                "REGISTRY": self.target.registry,
            },
        )
        assert result.returncode == 0, f"{commands}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def kubectl(self, *arguments: str, namespace: str = NAMESPACE) -> str:
        return self.cluster.kubectl(f"--namespace={namespace}", *arguments)

    def pods(self, selector: str, namespace: str = NAMESPACE) -> list[Object]:
        items: list[Object] = self.cluster.get("pods", f"--namespace={namespace}", f"--selector={selector}")["items"]
        return items

    def operator_log(self) -> str:
        try:
            return self.kubectl("logs", "deployment/sinkpipeline-operator", f"--tail={_TAIL_LINES}", namespace=SYSTEM)
        except ControlPlaneError as error:
            return str(error)

    def close(self) -> None:
        """Once what was left to end has ended."""
        for pipeline in self._leaving:
            pipeline.delete("--timeout=90s")
        self.api.close()
        self.recorder.close()


class Pipeline(SeenPipeline):
    """One resource, its topics, and what is seen of it. Its source topic, of its name, is made by who feeds it."""

    poll_s = 0.5
    restarts_alone = True

    def __init__(self, installed: Installation, servers: str, *, namespace: str = NAMESPACE, replicas: int = 1) -> None:
        name = topics.unique("p")
        document = manifest(servers, name, [name])
        document["metadata"]["namespace"] = namespace
        super().__init__(installed.cluster, installed.api, document)
        self.installed = installed
        self.servers = servers
        self.stream = Stream(servers, name)
        self.conf = {**self.document["spec"]["spark"]["conf"], **SMALL}
        self.document["spec"] |= {
            "trigger": {"interval": "1s"},
            "failurePolicy": {"backoff": {"initial": "1s", "max": "5s"}},
            "spark": {"driver": {"memory": "1g"}, "executor": {"instances": 1, "memory": "1g"}, "conf": self.conf},
        }
        kafka = self.document["spec"]["sinks"][0]["kafka"]
        for topic in (kafka["topic"], kafka["progressTopic"]):
            topic["replicationFactor"] = replicas
        self.data = f"{self.name}-out"

    # --- what a person does ---

    def set_conf(self, **conf: str) -> None:
        """Of Spark; `_` in a name stands for a dot."""
        self.conf |= {name.replace("_", "."): value for name, value in conf.items()}
        self.apply(spark={**self.document["spec"]["spark"], "conf": self.conf})

    def edit(self) -> None:
        """A change that restarts it, and changes nothing of its rows."""
        before = self.document["spec"]["trigger"]["interval"]
        self.apply(trigger={"interval": "2s" if before == "1s" else "1s"})

    # --- what a person sees ---

    @property
    def driver(self) -> Object | None:
        return self.installed.api.find(f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-driver")

    @property
    def driver_uid(self) -> str | None:
        driver = self.driver
        return None if driver is None else str(driver["metadata"]["uid"])

    def executors(self) -> list[Object]:
        selector = f"sinkpipeline.io/pipeline={self.name},spark-role=executor"
        return [each for each in self.installed.pods(selector, self.namespace) if each["status"]["phase"] == "Running"]

    def first_row(self, seconds: float) -> str:
        """What took how long of the seconds from `kubectl apply` to the first row."""
        application = self.installed.api.get(f"{APPLICATIONS.format(self.namespace)}/{self.name}")
        driver, [executor, *_] = self.driver, self.executors()
        assert driver is not None
        return parts(marks(self.installed.api.get(self.path), application, driver, executor), seconds)

    def plugin(self, *arguments: str) -> str:
        """`kubectl sinkpipeline <arguments>`, as a person types it."""
        return self.installed.type(f"kubectl sinkpipeline --namespace {self.namespace} {shlex.join(arguments)}")

    @property
    def line(self) -> str:
        """As `kubectl get sinkpipelines` shows it."""
        lines = self.installed.kubectl("get", "sinkpipelines", self.name, namespace=self.namespace).splitlines()
        return " ".join(lines[-1].split())

    @property
    def last_event(self) -> str:
        """As `kubectl describe` shows it, last."""
        found = self.cluster.get("events", f"--namespace={self.namespace}")["items"]
        ours = [each for each in found if each["involvedObject"]["name"] == self.name]
        last = max(ours, key=lambda each: str(each.get("lastTimestamp")), default=None)
        return "" if last is None else f"{last['type']} {last['reason']}: {last['message']}"

    def delivered(self) -> int:
        """By an independent consumer."""
        if topics.topic_id(self.servers, self.data) is None:
            return 0
        return self.stream.total - self.stream.judge(self.data).missing

    # --- waiting ---

    def statuses(self) -> list[Object]:
        """All that were told since the recording began, in order."""
        return [
            line["status"]
            for line in self.installed.recorder.lines
            if line["kind"] == PIPELINE and line["metadata"]["name"] == self.name
        ]

    def until_told(self, case: str, kind: str, wanted: str, words: str = "", deadline_s: float = REACTION_S) -> str:
        """Until a condition is `<status> <reason>` with those words; the message, which the report has too."""

        def look() -> bool:
            return self.told(kind) == wanted and words in self.condition(kind)["message"]

        seconds = self.until(look, f"{kind} is {wanted} {words!r}", deadline_s)
        message: str = self.condition(kind)["message"]
        self.installed.report.tell(case, seconds, f"{kind} {wanted}: {message}", self.line, self.last_event)
        return message

    def printed(self) -> str:
        """The one command that the status prints, once it does."""

        def look() -> set[str]:
            return {each for condition in self.status["conditions"] for each in _PRINTED.findall(condition["message"])}

        self.until(lambda: len(look()) == 1, "the status prints a command")
        [command] = look()
        return command

    def until_delivered(self, case: str, deadline_s: float = START_S) -> None:
        """All that was fed, and each row once."""
        seconds = self.until(lambda: self.delivered() == self.stream.total, "all rows are delivered", deadline_s)
        verdict = self.stream.judge(self.data)
        assert verdict == EXACTLY_ONCE
        self.installed.report.tell(case, seconds, f"{self.stream.total} rows are there, each once", self.line)

    # --- actions ---

    def carry_out(self, case: str, ask: str) -> Object:
        """Types what asks for an action, and what the action prints to confirm it; its status in the end."""
        installed = self.installed
        name = installed.type(ask).split()[0].rpartition("/")[2]
        shown = self._until_action(case, name, "AwaitingConfirmation")
        [confirm] = _PRINTED.findall(shown["message"])
        installed.type(confirm)
        done = self._until_action(case, name, "Succeeded")
        described = installed.kubectl("describe", "sinkpipelineaction", name, namespace=self.namespace)
        for words in (shown["preview"].splitlines()[0], "Succeeded", "Events:"):
            assert words in described, f"{words!r} is not in\n{described}"
        return done

    def _until_action(self, case: str, name: str, phase: str) -> Object:
        def look() -> Object | None:
            found: Object = self.installed.cluster.get("sinkpipelineaction", name, f"--namespace={self.namespace}")
            status: Object = found.get("status") or {}
            return status if status.get("phase") in {phase, "Failed"} else None

        begun = time.monotonic()
        self.until(look, f"{name} is {phase}", ACTION_S)
        status = look()
        assert status is not None
        assert status["phase"] == phase, status
        get = ("get", "sinkpipelineactions", name, "--no-headers", "-o", "wide")
        line = " ".join(self.installed.kubectl(*get, namespace=self.namespace).split())
        seconds = time.monotonic() - begun
        self.installed.report.tell(case, seconds, f"{name} {phase}: {status.get('message', '')}", line)
        return status

    @override
    def describe(self) -> str:
        parts = [json.dumps(self.status), *self.events(), "--- the operator's log", self.installed.operator_log()]
        for command in (("get", "pods", "-o", "wide"), ("logs", f"{self.name}-driver", f"--tail={_TAIL_LINES}")):
            try:
                parts.append(self.installed.kubectl(*command, namespace=self.namespace))
            except ControlPlaneError as error:
                parts.append(str(error))
        return "\n".join(parts)
