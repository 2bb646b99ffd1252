"""The stand-in for Kubeflow's operator whose drivers follow scripts, and every start that it has seen."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from typing_extensions import Self

from kubeflow.command import local_arguments
from kubeflow.node import Command, Driver
from kubeflow.spark_operator import SparkOperator
from sinkpipeline.core.manifest import parse_manifest
from support.kube.scripts import Script

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name of a pipeline."""


@dataclass
class Started:
    """One driver process, and what it was given."""

    pipeline: Key
    application: Object
    pod: Object
    options: Mapping[str, str]
    """The arguments of main.py, by option."""
    config: Object
    resume: Object | None
    address: str
    script: Script
    _file: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def config_hash(self) -> str:
        return self.options["--config-hash"]

    def change(self, **changes: Any) -> None:
        """Changes its script; the driver follows within a tenth of a second."""
        with self._lock:
            self.script = replace(self.script, **changes)
            self.script.write(self._file)


Play = Callable[[Started], Script]
"""The script of a driver that is about to start."""


class Drivers:
    """Plays Kubeflow's operator in the whole cluster; use it in a `with`. One at a time for an API server."""

    def __init__(self, kubeconfig: Path) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="drivers-"))
        self._plays: dict[Key, Play] = {}
        self._starts: list[Started] = []
        self._refusals: dict[Key, str] = {}
        self._unsubmitted: set[Key] = set()
        self._obstacles: dict[Key, Object] = {}
        self._complaints: list[str] = []
        self._changed = threading.Lock()
        self.operator = SparkOperator(
            kubeconfig,
            self._command,
            refuse_submission=self._refuse,
            is_submitting=lambda application: _key(application) in self._unsubmitted,
            obstacle=lambda pod: self._obstacles.get(_pipeline_of(pod)),
        )

    def __enter__(self) -> Self:
        self.operator.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.operator.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def play(self, pipeline: Key, play: Play | Script) -> None:
        """What drivers of that pipeline do that start from now on."""
        self._plays[pipeline] = (lambda _: play) if isinstance(play, Script) else play

    def refuse(self, pipeline: Key, message: str | None) -> None:
        """What spark-submit says of that pipeline from now on; None: it submits."""
        if message is None:
            self._refusals.pop(pipeline, None)
        else:
            self._refusals[pipeline] = message

    def hold(self, pipeline: Key) -> None:
        """From now on its SparkApplication is not touched: spark-submit takes its time, or nobody is there."""
        self._unsubmitted.add(pipeline)

    def submit(self, pipeline: Key) -> None:
        """After `hold`."""
        self._unsubmitted.discard(pipeline)

    def keep(self, pipeline: Key, status: Object | None) -> None:
        """Its driver's pods have that status, and don't start; None: they may from now on."""
        if status is None:
            self._obstacles.pop(pipeline, None)
        else:
            self._obstacles[pipeline] = status

    def starts(self, pipeline: Key) -> list[Started]:
        """All drivers of that pipeline that were started, in order."""
        with self._changed:
            return [each for each in self._starts if each.pipeline == pipeline]

    def kill(self, pipeline: Key, reason: str = "Error") -> None:
        """SIGKILL to the running driver."""
        self.operator.node.kill(pipeline[0], f"{pipeline[1]}-driver", reason)

    def lose(self, pipeline: Key) -> None:
        """The power of its driver's node."""
        self.operator.node.lose(pipeline[0], f"{pipeline[1]}-driver")

    def complaints(self, namespace: str) -> list[str]:
        """What no driver of that namespace may ever have met: another one at the same time, a wrong configuration."""
        told = [each for each in self._complaints if each.startswith(f"{namespace}/")]
        overlaps = ((path.name, path.read_text().strip()) for path in self._directory.glob(f"{namespace}.*.violations"))
        # A driver that is about to say it has made the file already.
        return told + [f"{name}: {text}" for name, text in overlaps if text]

    def forget_complaints(self, namespace: str) -> None:
        """By a test that wanted them."""
        self._complaints = [each for each in self._complaints if not each.startswith(f"{namespace}/")]
        for path in self._directory.glob(f"{namespace}.*.lock.violations"):
            path.unlink()

    def _refuse(self, application: Object) -> str | None:
        return self._refusals.get(_key(application))

    def _command(self, driver: Driver) -> Command:
        arguments = local_arguments(driver)
        valued = [each for each in arguments if each != "--open-metrics"]
        options = dict(zip(valued[::2], valued[1::2], strict=True))
        meta = driver.application["metadata"]
        pipeline = (meta["namespace"], meta["name"])
        file = self._directory / f"{driver.pod['metadata']['uid']}.json"
        started = Started(
            pipeline=pipeline,
            application=driver.application,
            pod=driver.pod,
            options=options,
            config=json.loads(Path(options["--config"]).read_text()),
            resume=_document(options.get("--resume")),
            address=driver.address,
            script=Script(),
            _file=file,
        )
        self._check(started)
        play = self._plays.get(pipeline)
        started.change(**vars(Script() if play is None else play(started)))
        with self._changed:
            self._starts.append(started)
        lock = self._directory / f"{'.'.join(pipeline)}.lock"
        argv = [sys.executable, "-m", "support.kube.scripted_driver", "--script", str(file), "--lock", str(lock)]
        return Command([*argv, *arguments], {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})

    def _check(self, started: Started) -> None:
        try:
            parse_manifest(started.config)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, a real driver would end
            self._complaints.append(f"{'/'.join(started.pipeline)}: its configuration can't be read: {error}")


def _key(application: Object) -> Key:
    return application["metadata"]["namespace"], application["metadata"]["name"]


def _pipeline_of(pod: Object) -> Key:
    return pod["metadata"]["namespace"], pod["metadata"]["labels"]["spark-app-name"]


def _document(path: str | None) -> Object | None:
    if path is None or not Path(path).is_file():
        return None
    document: Object = json.loads(Path(path).read_text())
    return document
