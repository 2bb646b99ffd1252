"""Running the `sinkpipeline` command as its users do, and killing it as their machines do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import yaml
from typing_extensions import Self

from sinkpipeline.core.manifest.operation import SMALL_BATCHES
from sinkpipeline.spark.java import JAVA_OPTIONS, SHORT_LIVED
from support.waiting import wait_until

COMMAND = Path(sys.executable).with_name("sinkpipeline")
START_DEADLINE_S = 90.0
_CALL_S = 240.0
T = TypeVar("T")


def manifest(bootstrap_servers: str, name: str, topics: Sequence[str], **spec: Any) -> dict[str, Any]:
    """A SinkPipeline whose rows pass as they are, into the topic `<name>-out`; `spec` replaces parts."""
    return {
        "apiVersion": "sinkpipeline.io/v1alpha1",
        "kind": "SinkPipeline",
        "metadata": {"name": name, "namespace": "test"},
        "spec": {
            "source": {"kafka": {"bootstrapServers": bootstrap_servers, "topics": list(topics)}},
            "trigger": {"interval": "0s"},
            # Half the start-up time; nothing runs long enough here to miss the second compiler.
            "spark": {"conf": {JAVA_OPTIONS: SHORT_LIVED}},
            "failurePolicy": {"backoff": {"initial": "200ms", "max": "1s"}},
            "sinks": [sink(name)],
            **spec,
        },
    }


def by_driver(offsets: int) -> dict[str, Any]:
    """As `spark` of a manifest: batches with at most so many offsets are the driver's, the others those of tasks."""
    return {"conf": {JAVA_OPTIONS: SHORT_LIVED, SMALL_BATCHES: str(offsets)}}


BY_TASKS = by_driver(0)


def sink(name: str, *, topic: str | None = None, guarantee: str = "ExactlyOnce", **kafka: Any) -> dict[str, Any]:
    return {
        "name": name,
        "deliveryGuarantee": guarantee,
        "kafka": {
            "topic": {"name": topic or f"{name}-out", "partitions": 3, "replicationFactor": 1},
            "progressTopic": {"name": f"{name}-progress", "replicationFactor": 1},
            **kafka,
        },
    }


class App:
    """The command with one manifest, in a directory of its own."""

    def __init__(self, directory: Path, document: Mapping[str, Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.manifest = directory / "sinkpipeline.yaml"
        self.status_file = directory / "status.json"
        self.log_file = directory / "spark.log"
        self.failpoints = directory / "failpoints"
        self.failpoints.mkdir(exist_ok=True)
        self.write(document)

    def write(self, document: Mapping[str, Any]) -> None:
        self.manifest.write_text(yaml.safe_dump(dict(document)))

    def call(self, *arguments: str, deadline_s: float = _CALL_S) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        return subprocess.run(
            [COMMAND, *arguments],
            capture_output=True,
            text=True,
            timeout=deadline_s,
            cwd=self.directory,
            env=self.environment,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        """Whoever is killed leaves its temporary files below the test's own directory."""
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        return {**os.environ, "TMPDIR": str(temporary), "SINKPIPELINE_FAILPOINT_DIR": str(self.failpoints)}

    def run_until_idle(self, *more: str, deadline_s: float = _CALL_S) -> None:
        done = self.call(*self._run_arguments(), "--until-idle", *more, deadline_s=deadline_s)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}\n{self.log_tail()}"

    def start(self, *more: str) -> Run:
        return Run(self, [str(COMMAND), *self._run_arguments(), *more])

    def _run_arguments(self) -> list[str]:
        return [
            "run",
            "-f",
            str(self.manifest),
            "--status-file",
            str(self.status_file),
            "--log-file",
            str(self.log_file),
            "--master",
            "local[2]",
        ]

    def progress(self) -> list[dict[str, Any]]:
        done = self.call("progress", "-f", str(self.manifest), "-o", "json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def status(self) -> dict[str, Any]:
        """The status document, {} before the first; never half of one."""
        try:
            document: dict[str, Any] = json.loads(self.status_file.read_text())
        except FileNotFoundError:
            return {}
        return document

    def sink_status(self, name: str | None = None) -> dict[str, Any]:
        found = [each for each in self.status().get("sinks", []) if name in (None, each["name"])]
        return found[0] if found else {}

    def rows_delivered(self) -> int:
        return int(self.status().get("totals", {}).get("rowsDelivered", 0))

    def log_tail(self, lines: int = 40) -> str:
        with suppress(FileNotFoundError):
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
        return "(no log)"

    def arm(self, point: str) -> None:
        """The next process that reaches the point is held there."""
        (self.failpoints / point).touch()

    def held(self, point: str) -> int | None:
        """The pid that is held at a point."""
        found = [int(path.suffix[1:]) for path in self.failpoints.glob(f"{point}.*")]
        return found[0] if found else None

    def release(self, point: str) -> None:
        for path in self.failpoints.glob(f"{point}.*"):
            path.unlink()

    def disarm(self) -> None:
        shutil.rmtree(self.failpoints)
        self.failpoints.mkdir()


class Run:
    """A running `sinkpipeline run`; use it in a `with`, which leaves no process behind."""

    def __init__(self, app: App, command: list[str]) -> None:
        self.app = app
        self._stderr = app.directory / "stderr.log"
        self._tree: dict[int, psutil.Process] = {}
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=app.directory,
                env=app.environment,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    def workers(self) -> list[psutil.Process]:
        """The Python workers: children of the daemon, which is a child of the JVM."""
        # The JVM's command line names the module too, as a setting.
        found = [each for each in self._descendants() if _command(each)[1:3] == ["-m", "sinkpipeline.spark.daemon"]]
        daemons = {each.pid for each in found}
        return [each for each in found if _parent(each) in daemons]

    def stage(self) -> list[psutil.Process]:
        """What reads the changes of a database; empty before it starts."""
        return [each for each in self._descendants() if _command(each)[1:3] == ["-m", "sinkpipeline.changes"]]

    def jvm(self) -> list[psutil.Process]:
        """Spark itself; empty before it starts."""
        found = [each for each in self._descendants() if "org.apache.spark.deploy.SparkSubmit" in _command(each)]
        # A child that has not called exec yet has its parent's arguments.
        own = {each.pid for each in found}
        return [each for each in found if _parent(each) not in own]

    def eventually(self, look: Callable[[], T], what: str, deadline_s: float = START_DEADLINE_S) -> T:
        """Like `wait_until`, but a run that ended meanwhile fails at once, with what it said."""

        def alive() -> T:
            found = look()
            if not found and self._process.poll() is not None:
                raise AssertionError(f"ended with {self._process.returncode} while waiting until {what}")
            return found

        try:
            return wait_until(alive, what, deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.stderr}\n{self.app.log_tail()}") from None

    def until_held(self, point: str) -> int:
        return self.eventually(lambda: self.app.held(point), f"somebody reaches {point}") or 0

    def until_rows(self, rows: int) -> None:
        self.eventually(lambda: self.app.rows_delivered() >= rows, f"{rows} rows delivered")

    def until_state(self, state: str, name: str | None = None) -> None:
        self.eventually(lambda: self.app.sink_status(name).get("state") == state, f"sink {name} is {state}")

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, deadline_s: float = START_DEADLINE_S) -> int:
        try:
            wait_until(lambda: self._process.poll() is not None, "it ends", deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.stderr}\n{self.app.log_tail()}") from None
        return self._process.wait()

    def kill_driver(self) -> None:
        """SIGKILL to the driver alone: its JVM and workers notice in their own time."""
        self._descendants()
        self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL to everything, at once."""
        tree = self._descendants()
        if self._process.poll() is None:
            self._process.kill()
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(tree, timeout=10)

    def _descendants(self) -> list[psutil.Process]:
        """All that was ever seen below the driver and still runs; remembered, as orphans leave the tree."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                self._tree[child.pid] = child
        for known in list(self._tree.values()):
            with suppress(psutil.NoSuchProcess):
                for child in known.children(recursive=True):
                    self._tree[child.pid] = child
        return [process for process in self._tree.values() if process.is_running()]


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.Error:
        return None


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""
