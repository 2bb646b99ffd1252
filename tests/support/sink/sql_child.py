"""A driver of a PostgreSQL sink in a process of its own, which a test may kill.

ADDRESS NAME STEP IDLE_TIMEOUT_MS, and for one with dead letters SERVERS STEM: its record at offset 2 is refused.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from servers.waiting import Patience
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.postgresql import client
from sinkpipeline.sinks import delivery, takeover, transactional
from support.sink.sql_letters import LetteredSql
from support.sink.sql_sink import SqlSink

_DEADLINE_S = 60.0


class Process:
    """One that holds at a failpoint that was asked for."""

    def __init__(self, directory: Path, failpoints: Iterable[str], module: str, *arguments: str) -> None:
        self._directory = directory
        for name in failpoints:
            (directory / name).touch()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            # What pytest has added to the path, the child has to be told.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "SINKPIPELINE_FAILPOINT_DIR": str(directory),
            },
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_at(self, failpoint: str) -> None:
        self._until((self._directory / f"{failpoint}.{self._process.pid}").exists)

    def release(self, failpoint: str) -> None:
        (self._directory / f"{failpoint}.{self._process.pid}").unlink()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> dict[str, Any]:
        """What it says at last."""
        try:
            told, _ = self._process.communicate(timeout=_DEADLINE_S)
        finally:
            self._process.kill()
            self._process.communicate()
        return dict(json.loads(told)) if told else {}

    def _until(self, condition: Callable[[], bool]) -> None:
        patience = Patience(_DEADLINE_S)
        while not condition():
            if self._process.poll() is not None or patience.is_over():
                raise AssertionError(f"it never came there: {self.end()}")
            time.sleep(0.01)


class Child(Process):
    """A driver of this sink."""

    def __init__(
        self,
        sink: SqlSink,
        directory: Path,
        *failpoints: str,
        step: int = 4,
        idle_ms: int = 60_000,
        lettered: tuple[str, ...] = (),
    ) -> None:
        arguments = (sink.address, sink.name, str(step), str(idle_ms), *lettered)
        super().__init__(directory, failpoints, __name__, *arguments)


def main() -> None:
    address, name, step, idle_ms, *lettered = sys.argv[1:]
    takeover._MAX_DELAY_S, transactional._MAX_DELAY_S, delivery._ANNOUNCED_S = 0.11, 0.02, 0.0
    sink: SqlSink = SqlSink(address, name=name)
    if lettered:
        servers, stem = lettered
        sink = LetteredSql(address, name=name, servers=servers, stem=stem, bad={2: "no number"})
    told = "done"
    try:
        driver = sink.lettered(int(step)) if isinstance(sink, LetteredSql) else sink.driver(int(step))
        client.IDLE_TIMEOUT_MS = int(idle_ms)
        driver.drain()
    except SinkPipelineError as error:
        told = error.reason.value
        if error.reason is not Reason.SUPERSEDED:
            told = str(error)
    finally:
        sink.close()
    print(json.dumps({"told": told}))


if __name__ == "__main__":
    main()
