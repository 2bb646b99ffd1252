"""A driver's pod without a cluster: its files, its port, and the process."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import Self

from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.resume import Resume, render
from sinkpipeline.core.status import condition_of, instant
from support.app.command import App, Run

MAIN = Path(__file__).parents[3] / "spark_app" / "main.py"
TOKEN = "a-t0ken-that-nobody-tells"
CLUSTER = "5b0c1c5e-kube-system"


def moment(told: str) -> int:
    found = instant(told)
    assert found is not None
    return found


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Pod:
    """What a Spark pod would hold: files, a port, and the process; as long as a `with` lasts."""

    def __init__(
        self,
        directory: Path,
        document: Mapping[str, Any],
        *,
        config_hash: str = "hash-1",
        resume: Resume | None = None,
        master: str | None = "local[2]",
        hold: bool = False,
    ) -> None:
        """`hold`: the configuration is there once `release` was called."""
        # As the operator writes it: every default spelled out.
        self.app = App(directory, parse_manifest(document).to_document())
        self.words_file = directory / "termination-log"
        self.words_file.write_text("")
        (directory / "token").write_text(f"{TOKEN}\n")
        self.port = unused_port()
        config = self.app.manifest
        if hold:
            config = directory / "config"
            os.mkfifo(config)
        self._config = config
        more: Sequence[str] = () if master is None else ("--master", master)
        if resume is not None:
            (directory / "resume.json").write_text(json.dumps(render(resume)))
            more = (*more, "--resume", str(directory / "resume.json"))
        self.run = Run(
            self.app,
            [
                *(sys.executable, str(MAIN), "--config", str(config), "--secrets-dir", str(directory)),
                *("--listen", f"127.0.0.1:{self.port}", "--token-file", str(directory / "token")),
                *("--termination-log", str(self.words_file), "--owner-cluster", CLUSTER),
                *("--config-hash", config_hash, *more),
            ],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run.kill()

    def release(self) -> None:
        self._config.write_text(self.app.manifest.read_text())

    def ask(self, path: str, token: str | None = TOKEN) -> tuple[int, str]:
        """Status code and body; 0 where nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionRefusedError:
            return 0, ""
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        code, body = self.ask("/status")
        document: dict[str, Any] = json.loads(body) if code == 200 else {}
        return document

    def sinks(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self.status().get("sinks", [])}

    def condition(self, kind: str) -> str:
        """Its status and reason."""
        found = condition_of(self.status(), kind)
        return f"{found.get('status')} {found.get('reason')}"

    def stands_still_s(self, sink: str) -> float:
        """As the driver reckons it, by its own clock."""
        status, told = self.status(), self.sinks().get(sink, {}).get("stillSince")
        return 0.0 if told is None else (moment(status["now"]) - moment(told)) / 1000

    def until_rows(self, rows: int) -> None:
        self.run.eventually(
            lambda: self.status().get("totals", {}).get("rowsDelivered", 0) >= rows, f"{rows} rows delivered"
        )

    def words(self) -> dict[str, Any]:
        text = self.words_file.read_text()
        assert len(text.encode()) <= 4096
        assert TOKEN not in text + self.run.stderr
        words: dict[str, Any] = json.loads(text)
        assert set(words) == {"reason", "message", "remedy", "sinks"}
        return words
