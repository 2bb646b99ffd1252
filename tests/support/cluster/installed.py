"""The operator on a real cluster, installed as docs/install.md says, and a pipeline as kubectl shows it."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from cluster.target import ROOT, Target
from deployed.chart import helm_executable
from servers.control_plane import Cluster, ControlPlaneError, kubectl_executable
from servers.kube_api import KubeApi
from sinkpipeline.core.manifest import parse_manifest
from support.app.command import manifest
from support.cluster.recording import Recorder
from support.cluster.report import Report
from support.kafka import topics
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.waiting import wait_until

Object = dict[str, Any]

NAMESPACE = "shop"
SYSTEM = "sinkpipeline-system"
RESOURCES = "/apis/sinkpipeline.io/v1alpha1/namespaces/{}/sinkpipelines"
START_S = 180.0
REACTION_S = 60.0
_COMMANDS_S = 300.0
_POLL_S = 0.5
_TAIL_LINES = 40
_SMALL = {"spark.kubernetes.driver.request.cores": "200m", "spark.kubernetes.executor.request.cores": "200m"}
"""So that several fit on two processors."""


def documented_commands(section: str) -> str:
    """The first block of commands below that heading of docs/install.md."""
    text = (ROOT / "docs" / "install.md").read_text()
    found = re.search(rf"^#+ {section}\n(.*?)^#", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/install.md has no section {section}"
    block = re.search(r"```sh\n(.*?)```", found[1], re.DOTALL)
    assert block is not None, f"the section {section} of docs/install.md has no commands"
    return block[1]


class Installation:
    """A cluster on which the operator is, or will be, installed."""

    def __init__(self, target: Target, directory: Path, report: Report) -> None:
        self.target = target
        self.cluster: Cluster = target.cluster
        self.api = KubeApi(Path(target.kubeconfig))
        self.report = report
        self.recorder = Recorder(self.api, NAMESPACE)
        self._directory = directory

    def type(self, commands: str, **environ: str) -> str:
        """What a person types, in a shell in the root of the repository; what it prints."""
        programs = self._directory / "bin"
        programs.mkdir(exist_ok=True)
        for name, path in (("kubectl", kubectl_executable()), ("helm", helm_executable())):
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
        return self.cluster.kubectl(*arguments, f"--namespace={namespace}")

    def pods(self, selector: str, namespace: str = NAMESPACE) -> list[Object]:
        items: list[Object] = self.cluster.get("pods", f"--namespace={namespace}", f"--selector={selector}")["items"]
        return items

    def operator_log(self) -> str:
        try:
            return self.kubectl("logs", "deployment/sinkpipeline-operator", f"--tail={_TAIL_LINES}", namespace=SYSTEM)
        except ControlPlaneError as error:
            return str(error)

    def close(self) -> None:
        self.api.close()


class Pipeline:
    """One resource, its topics, and what is seen of it."""

    def __init__(self, installed: Installation, servers: str, *, namespace: str = NAMESPACE, like: str = "p") -> None:
        self.installed = installed
        self.servers = servers
        self.namespace = namespace
        self.name = topics.unique(like)
        self.stream = Stream(servers, self.name).create()
        self.document = manifest(servers, self.name, [self.name])
        self.document["metadata"]["namespace"] = namespace
        self.conf = {**self.document["spec"]["spark"]["conf"], **_SMALL}
        self.document["spec"] |= {
            "trigger": {"interval": "1s"},
            "failurePolicy": {"backoff": {"initial": "1s", "max": "5s"}},
            "spark": {"driver": {"memory": "1g"}, "executor": {"instances": 1, "memory": "1g"}, "conf": self.conf},
        }
        self.data = f"{self.name}-out"
        self._path = f"{RESOURCES.format(namespace)}/{self.name}"

    # --- what a person does ---

    def apply(self, **spec: Any) -> None:
        self.document["spec"] |= spec
        # What the model refuses, no test applies by mistake.
        parse_manifest(copy.deepcopy(self.document))
        self.installed.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(self.document))

    def set_conf(self, **conf: str) -> None:
        """Of Spark; `_` in a name stands for a dot."""
        self.conf |= {name.replace("_", "."): value for name, value in conf.items()}
        self.apply(spark={**self.document["spec"]["spark"], "conf": self.conf})

    def delete(self, *options: str) -> None:
        self.installed.kubectl("delete", "sinkpipeline", self.name, *options, namespace=self.namespace)

    # --- what a person sees ---

    @property
    def status(self) -> Object:
        # Not by kubectl: it takes a tenth of a second of a core each time, and the pods need both.
        status: Object = (self.installed.api.find(self._path) or {}).get("status") or {}
        return status

    def condition(self, kind: str) -> Object:
        return next((each for each in self.status.get("conditions", ()) if each["type"] == kind), {})

    def told(self, kind: str) -> str:
        """`<status> <reason>` of a condition."""
        found = self.condition(kind)
        return f"{found.get('status')} {found.get('reason')}"

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

    @property
    def line(self) -> str:
        """As `kubectl get sinkpipelines` shows it."""
        lines = self.installed.kubectl("get", "sinkpipelines", self.name, namespace=self.namespace).splitlines()
        return " ".join(lines[-1].split())

    def events(self) -> list[str]:
        found = self.installed.cluster.get("events", f"--namespace={self.namespace}")["items"]
        return [f"{each['reason']}: {each['message']}" for each in found if each["involvedObject"]["name"] == self.name]

    def delivered(self) -> int:
        """By an independent consumer."""
        if topics.topic_id(self.servers, self.data) is None:
            return 0
        return self.stream.total - self.stream.judge(self.data).missing

    # --- waiting ---

    def until(self, condition: Callable[[], object], what: str, deadline_s: float = REACTION_S) -> float:
        """Seconds that it took."""
        begun = time.monotonic()
        try:
            wait_until(condition, f"{self.name}: {what}", deadline_s, poll_s=_POLL_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None
        return time.monotonic() - begun

    def until_told(self, case: str, kind: str, wanted: str, words: str = "", deadline_s: float = REACTION_S) -> str:
        """Until a condition is `<status> <reason>` with those words; the message, which the report has too."""

        def look() -> bool:
            return self.told(kind) == wanted and words in self.condition(kind)["message"]

        seconds = self.until(look, f"{kind} is {wanted} {words!r}", deadline_s)
        message: str = self.condition(kind)["message"]
        self.installed.report.tell(case, seconds, f"{kind} {wanted}: {message}", self.line)
        return message

    def until_delivered(self, case: str, deadline_s: float = START_S) -> None:
        """All that was fed, and each row once."""
        seconds = self.until(lambda: self.delivered() == self.stream.total, "all rows are delivered", deadline_s)
        verdict = self.stream.judge(self.data)
        assert verdict == EXACTLY_ONCE
        self.installed.report.tell(case, seconds, f"{self.stream.total} rows are there, each once", self.line)

    def describe(self) -> str:
        parts = [json.dumps(self.status), *self.events(), "--- the operator's log", self.installed.operator_log()]
        for command in (("get", "pods", "-o", "wide"), ("logs", f"{self.name}-driver", f"--tail={_TAIL_LINES}")):
            try:
                parts.append(self.installed.kubectl(*command, namespace=self.namespace))
            except ControlPlaneError as error:
                parts.append(str(error))
        return "\n".join(parts)
