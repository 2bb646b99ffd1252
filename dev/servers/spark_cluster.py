"""A Spark cluster of this machine: a master, and a worker that can go away and come back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.request import ProxyHandler, build_opener

import pyspark
from typing_extensions import Self

from servers.local_process import HOST, LocalProcess, end_all, free_ports

_SPARK_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY: Final = "org.apache.spark.deploy"
_SMALL: Final = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_LOCAL_IP": HOST, "SPARK_NO_DAEMONIZE": "1"}
_GRACE_S: Final = 5.0


class SparkCluster:
    """Use it in a `with`; it has no worker at first.

    Executors are children of the worker: they have its environment, and die with it.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = {**environment, **_SMALL, "SPARK_LOG_DIR": str(directory)}
        port, self._page = free_ports(2)
        self.master = f"spark://{HOST}:{port}"
        self._processes = [self._start("master.Master", "--port", str(port), "--webui-port", str(self._page))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_all(self._processes, _GRACE_S)

    def start_worker(self) -> None:
        """Drivers that wait for executors get them from it once it has registered."""
        more = ("--cores", "1", "--memory", "2g", "--webui-port", "0", "--work-dir", str(self._directory / "work"))
        self._processes.append(self._start("worker.Worker", *more, self.master))

    def kill_worker(self) -> None:
        """With its executors."""
        self._processes.pop().kill()

    @property
    def is_up(self) -> bool:
        """Whether the master takes workers and drivers."""
        with suppress(OSError), build_opener(ProxyHandler({})).open(f"http://{HOST}:{self._page}/json/", timeout=5):
            return True
        return False

    def _start(self, name: str, *arguments: str) -> LocalProcess:
        argv = [str(_SPARK_CLASS), f"{_DEPLOY}.{name}", "--host", HOST, *arguments]
        environment = {**os.environ, **self._environment}
        return LocalProcess(argv, self._directory / f"{name}.log", env=environment, cwd=self._directory)
