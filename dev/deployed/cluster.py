"""A Kubernetes API server, the operator of deploy/install.yaml, and drivers, as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import psutil

import crd
from deployed import manifest
from deployed.chart import NAMESPACE
from kubeflow.command import local_arguments
from kubeflow.node import Command, Driver
from kubeflow.spark_operator import SparkOperator
from servers import control_plane
from servers.control_plane import Cluster, ControlPlaneError
from servers.local_process import HOST, LocalProcess, free_ports
from servers.waiting import InVainError, wait_for

ROOT: Final = Path(__file__).parents[2]
MASTER: Final = "local[2]"
POLL_S: Final = 0.2
KIND: Final = "sinkpipeline"
TAIL_LINES: Final = 25
_STOP_S: Final = 20.0

T = TypeVar("T")


class DemoError(Exception):
    """What was waited for did not come."""


def spark_driver(driver: Driver) -> Command:
    """The real driver: `main.py` with Spark, executors and all in one process tree."""
    temporary = driver.files / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    environment = {
        "TMPDIR": str(temporary),
        "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}",
        "PYTHONPATH": str(ROOT / "spark_app"),
    }
    main = ROOT / "spark_app" / "main.py"
    return Command([sys.executable, str(main), *local_arguments(driver), "--master", MASTER], environment)


class Kubernetes:
    """All of it, for one pipeline's namespace; use it in a `with`."""

    def __init__(self, directory: Path, namespace: str, *operator_options: str) -> None:
        self._directory = directory
        self.namespace = namespace
        [port] = free_ports(1)
        self.operator_address: str = f"{HOST}:{port}"
        """Where it answers /metrics."""
        self._operator_options = operator_options
        self._stack = contextlib.ExitStack()
        self.cluster: Cluster
        self.drivers: SparkOperator
        self._operator: LocalProcess

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            crds = [*control_plane.spark_application_crds(), *crd.PATHS]
            self.cluster = stack.enter_context(control_plane.cluster(crds=crds))
            self.cluster.kubectl("create", "namespace", self.namespace)
            manifest.apply(self.cluster, self.namespace)
            self.drivers = stack.enter_context(SparkOperator(self.cluster.kubeconfig, spark_driver))
            self._operator = self._start_operator()
            stack.callback(self._operator.end, _STOP_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_operator(self) -> LocalProcess:
        account = self.cluster.service_account_kubeconfig(NAMESPACE, manifest.operator_account())
        # Of options that are given twice the last one counts.
        options = [
            f"--namespace={self.namespace}",
            f"--listen={self.operator_address}",
            *("--resync=10", "--log-format=text"),
        ]
        arguments = [*manifest.operator_arguments(), *options, *self._operator_options]
        # The one of this tree, as the driver is: what is installed may be another one.
        trees = os.pathsep.join(str(ROOT / folder) for folder in ("operator", "spark_app"))
        return LocalProcess(
            [sys.executable, "-m", "sinkpipeline_operator", *arguments],
            self._directory / "operator.log",
            env=os.environ | {"KUBECONFIG": str(account), "PYTHONPATH": trees},
        )

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments)

    def refused(self, manifest: Path) -> str:
        """What the API server says to a manifest that it refuses; empty where it takes it."""
        try:
            self.kubectl("apply", "-f", str(manifest))
        except ControlPlaneError as error:
            return str(error).partition(": ")[2]
        return ""

    @contextlib.contextmanager
    def watching(self) -> Iterator[Callable[[], list[str]]]:
        """`kubectl get sinkpipelines -w`: a function that gives the lines that it has printed so far."""
        output = self._directory / "watch.txt"
        argv = [control_plane.kubectl_executable(), f"--kubeconfig={self.cluster.kubeconfig}", "get", "sinkpipelines"]
        watch = LocalProcess([*argv, "--watch", f"--namespace={self.namespace}"], output)
        try:
            yield lambda: output.read_text().splitlines()
        finally:
            watch.kill()

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.cluster.get(KIND, name, f"--namespace={self.namespace}").get("status") or {}
        return status

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        return next((each for each in self.status(name).get("conditions", ()) if each["type"] == kind), {})

    def pods(self) -> list[str]:
        """The names of all that are there."""
        items = self.cluster.get("pods", f"--namespace={self.namespace}")["items"]
        return [str(each["metadata"]["name"]) for each in items]

    def pid(self, name: str) -> int | None:
        """The process of the driver's pod."""
        try:
            return self.drivers.node.pid(self.namespace, f"{name}-driver")
        except LookupError:
            return None

    def kill_driver(self, name: str) -> int:
        """SIGKILL for the driver, its JVM and its Python workers; how many processes that were."""
        pid = self.pid(name)
        family = [] if pid is None else psutil.Process(pid).children(recursive=True)
        self.drivers.node.kill(self.namespace, f"{name}-driver", "Error")
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return 1 + len(family)

    def stage(self, name: str) -> psutil.Process | None:
        """What reads a database beside the driver; None while nothing does."""
        pid = self.pid(name)
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in [] if pid is None else psutil.Process(pid).children(recursive=True):
                if process.cmdline()[1:3] == ["-m", "sinkpipeline.changes"]:
                    return process
        return None

    def wait_for(self, what: str, deadline_s: float, look: Callable[[], T | None], poll_s: float = POLL_S) -> T:
        """What `look` returns, as soon as it is something."""

        def check() -> None:
            if self._operator.exit_code is not None:
                raise DemoError(f"the operator ended with exit code {self._operator.exit_code} before {what}")

        try:
            return wait_for(look, what, deadline_s, poll_s=poll_s, check=check)
        except InVainError as error:
            raise DemoError(str(error)) from None

    def tails(self, name: str) -> str:
        """What a person needs to see when something did not do what was expected."""
        driver = "(no driver)"
        with contextlib.suppress(LookupError, OSError):
            driver = self.drivers.node.log(self.namespace, f"{name}-driver")
        parts = {"operator": self._operator.log_tail(), "driver": driver}
        return "\n".join(
            f"--- the end of the {title}'s log:\n" + "\n".join(text.splitlines()[-TAIL_LINES:])
            for title, text in parts.items()
        )
