"""The `sinkpipeline` command as a person runs it: started, watched through its status file, killed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
import yaml

COMMAND: Final = Path(sys.executable).with_name("sinkpipeline")
POLL_S: Final = 0.1
COMMAND_DEADLINE_S: Final = 100.0  # a read of the progress topic may wait for the transaction of a dead driver: 60 s
KILL_DEADLINE_S: Final = 15.0
TAIL_LINES: Final = 25

T = TypeVar("T")


class DemoError(Exception):
    """The demo can't go on."""


class Pipeline:
    """A manifest, and the runs of it that share a status file."""

    def __init__(self, example: Path, bootstrap_servers: str, directory: Path) -> None:
        document = yaml.safe_load(example.read_text())
        document["spec"]["source"]["kafka"]["bootstrapServers"] = bootstrap_servers
        self.manifest = directory / example.name
        self.manifest.write_text(yaml.safe_dump(document, sort_keys=False))
        self.status_file = directory / "status.json"
        self.stderr_file = directory / "stderr.txt"
        self.log_file = directory / "spark.log"
        temporary = directory / "tmp"
        temporary.mkdir()
        # What a killed driver leaves behind goes away with our directory.
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "TMPDIR": str(temporary),
            "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={temporary}",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0

    @contextlib.contextmanager
    def run(self, *options: str) -> Iterator[None]:
        """`sinkpipeline run`; whatever is left of it is killed at the end."""
        files: list[str | Path] = ["-f", self.manifest, "--status-file", self.status_file, "--log-file", self.log_file]
        self._started = time.time_ns()
        with self.stderr_file.open("wb") as stderr:
            # A process group of its own: Ctrl-C in the terminal is for the demo, which then ends the pipeline.
            self._process = subprocess.Popen(
                [COMMAND, "run", *files, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=self._environment,
                process_group=0,
            )
        try:
            yield
        finally:
            self.kill()

    def processes(self) -> list[psutil.Process]:
        """The driver, its JVM and its Python workers, known by their environment: also after their parent's death."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("TMPDIR") == self._environment["TMPDIR"]:
                    found.append(process)
        return found

    def kill(self, aim: Sequence[psutil.Process] = ()) -> int:
        """SIGKILL for all of `processes`, those of `aim` at once; returns how many that were."""
        killed = set()
        deadline = time.monotonic() + KILL_DEADLINE_S
        targets = list(aim) or self.processes()
        while targets:
            for process in targets:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                    killed.add(process)
            self._running().poll()
            if time.monotonic() > deadline:
                raise DemoError(f"these processes can't be killed: {targets}")
            targets = self.processes()
        self._running().wait(KILL_DEADLINE_S)
        return len(killed)

    def wait_for(self, what: str, deadline_s: float, look: Callable[[], T | None], poll_s: float = POLL_S) -> T:
        """What `look` returns, as soon as it is not None. The pipeline must not end meanwhile."""
        deadline = time.monotonic() + deadline_s
        while True:
            ended = self._running().poll()
            found = look()
            if found is not None:
                return found
            if ended is not None:
                raise DemoError(f"the pipeline ended with exit code {ended} before {what}")
            if time.monotonic() > deadline:
                raise DemoError(f"not within {deadline_s:.0f} s: {what}")
            time.sleep(poll_s)

    def exit_code(self, deadline_s: float) -> int:
        """Waits for the pipeline's own end."""
        try:
            return self._running().wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise DemoError(f"not within {deadline_s:.0f} s: the pipeline's end") from None

    def sink(self) -> dict[str, Any]:
        """The only sink's part of the status file; empty until this run has written it."""
        if not self.status_file.exists() or self.status_file.stat().st_mtime_ns < self._started:
            return {}
        sink: dict[str, Any] = json.loads(self.status_file.read_text())["sinks"][0]
        return sink

    def handled(self) -> int:
        """Source records below the frontier, as the status file has it."""
        return sum(sum(topic["next"]) for topic in self.sink().get("frontier", []))

    def progress_table(self) -> str:
        return self._command("progress", "-f", self.manifest)

    def progress(self) -> dict[int, dict[str, Any]]:
        """`sinkpipeline progress` by source partition; empty where there is none."""
        lines = json.loads(self._command("progress", "-f", self.manifest, "-o", "json"))
        return {line["partition"]: line for line in lines}

    def stderr_lines(self) -> list[str]:
        return self.stderr_file.read_text(errors="replace").splitlines()

    def tails(self) -> str:
        """What a person needs to see when the pipeline did not do what was expected."""
        tails = []
        for title, file in (("stderr", self.stderr_file), ("log", self.log_file)):
            lines = file.read_text(errors="replace").splitlines() if file.exists() else []
            tails.append("\n".join([f"--- the end of the driver's {title}:", *(lines[-TAIL_LINES:] or ["(empty)"])]))
        return "\n".join(tails)

    def _command(self, *arguments: str | Path) -> str:
        try:
            done = subprocess.run(
                [COMMAND, *arguments],
                capture_output=True,
                text=True,
                timeout=COMMAND_DEADLINE_S,
                env=self._environment,
                check=False,
                process_group=0,
            )
        except subprocess.TimeoutExpired:
            raise DemoError(f"not within {COMMAND_DEADLINE_S:.0f} s: sinkpipeline {arguments[0]}") from None
        if done.returncode != 0:
            raise DemoError(f"sinkpipeline {arguments[0]} ended with exit code {done.returncode}:\n{done.stderr}")
        return done.stdout

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise DemoError("the pipeline was not started")
        return self._process
