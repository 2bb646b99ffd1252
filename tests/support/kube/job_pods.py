"""Plays scheduler and kubelet for the pods of Jobs: each runs as a process of this machine, by its own argv."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from typing_extensions import Self

from kubeflow import pods, volumes
from kubeflow.pods import Ended, driver_container
from servers.control_plane import Cluster
from servers.kube_api import KubeApi
from servers.local_process import HOST, LocalProcess

Object = dict[str, Any]
_LABEL = "sinkpipeline.io/action"


class JobPods:
    """Of one namespace; use it in a `with`. One pod at a time."""

    def __init__(self, cluster: Cluster, namespace: str, before: Callable[[Object], None] = lambda _: None) -> None:
        """`before`: is called with each pod, before it is run."""
        self._api = KubeApi(cluster.kubeconfig)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._before = before
        self._directory = Path(tempfile.mkdtemp(prefix="job-pods-"))
        self._ran: set[str] = set()
        self.seen: list[Object] = []
        self.log = ""
        self.kill_next = False
        """Whether the next one gets SIGKILL as soon as it runs."""
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()
        self._thread.join()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _follow(self) -> None:
        for change in self._api.follow(self._pods, labelSelector=_LABEL):
            uid = change.new["metadata"]["uid"]
            if change.kind != "DELETED" and uid not in self._ran and not change.new["spec"].get("nodeName"):
                self._ran.add(uid)
                self.seen.append(change.new)
                self._run(change.new)

    def _run(self, pod: Object) -> None:
        self._before(pod)
        directory = self._directory / pod["metadata"]["name"]
        files = directory / "files"
        volumes.mount(self._api, pod, files, directory / "volumes")
        container = driver_container(pod)
        words = files / container["terminationMessagePath"].lstrip("/")
        words.parent.mkdir(parents=True, exist_ok=True)
        words.touch()
        mounts = [PurePosixPath(each["mountPath"]) for each in container["volumeMounts"]]

        def local(argument: str) -> str:
            path = PurePosixPath(argument)
            inside = argument == container["terminationMessagePath"] or any(
                path.is_relative_to(mount) or mount.is_relative_to(path) for mount in mounts
            )
            return str(files / argument.lstrip("/")) if path.is_absolute() and inside else argument

        program, *arguments = container["args"]
        assert program == "python"
        log = directory / "log"
        env = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ},
            **{each["name"]: each["value"] for each in container.get("env", ()) if "value" in each},
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        started = dt.datetime.now(dt.timezone.utc)
        process = LocalProcess([sys.executable, *map(local, arguments)], log, env=env, cwd=directory)
        try:
            self._report(pod, pods.running(pod, HOST, started))
            if self.kill_next:
                self.kill_next = False
                process.kill()
            process.wait(120.0)
        finally:
            process.kill()
        self.log += log.read_text(errors="replace")
        code = process.exit_code or 0
        reason = "Completed" if code == 0 else "Error"
        ended = Ended(code, reason, words.read_text()[-4096:], started, dt.datetime.now(dt.timezone.utc))
        self._report(pod, pods.ended(pod, ended))

    def _report(self, pod: Object, status: Object) -> None:
        self._api.merge(f"{self._pods}/{pod['metadata']['name']}/status", {"status": status})
