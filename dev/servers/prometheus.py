"""A real Prometheus on this machine, and promtool: Debian's package, which `dev/install.sh prometheus` fetches."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import yaml

from servers.local_process import HOST, LocalProcess, cache_directory, free_ports
from servers.waiting import wait_for

if TYPE_CHECKING:
    from types import TracebackType

START_DEADLINE: Final = 60.0
PROMTOOL_DEADLINE: Final = 60.0
_STOP_DEADLINE: Final = 5.0


class PrometheusError(RuntimeError):
    """There is none, or it refuses."""


def executable(name: str) -> str:
    """Of `prometheus` or `promtool`."""
    ours = cache_directory() / "prometheus-debian" / "usr" / "bin" / name
    found = shutil.which(name) or (str(ours) if ours.is_file() else None)
    if found is None:
        raise PrometheusError(f"there is no {name}: run `make prometheus`")
    return found


def promtool(*arguments: str, stdin: str = "") -> tuple[int, str]:
    """Its exit code, and all that it says."""
    done = subprocess.run(
        [executable("promtool"), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PROMTOOL_DEADLINE,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


class Prometheus:
    """Scrapes by these scrape_configs, every second, and evaluates these rules; use it in a `with`."""

    def __init__(self, scrape_configs: Sequence[dict[str, Any]], rules: Sequence[Path] = ()) -> None:
        [port] = free_ports(1)
        self._url = f"http://{HOST}:{port}"
        self._directory = Path(tempfile.mkdtemp(prefix="prometheus-"))
        config = self._directory / "prometheus.yaml"
        document = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": list(scrape_configs),
            "rule_files": [str(path) for path in rules],
        }
        config.write_text(yaml.safe_dump(document))
        argv = [
            executable("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address={HOST}:{port}",
        ]
        self._process = LocalProcess(argv, self._directory / "log", cwd=self._directory)

    def __enter__(self) -> Self:
        try:
            wait_for(self._is_ready, "Prometheus is ready", START_DEADLINE, check=self._check)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Samples, as the HTTP API gives them.

        Raises:
            PrometheusError: it is none that Prometheus can evaluate.
        """
        return self._result("query", {"query": expression})

    def query_range(self, expression: str, start: float, end: float, step_s: float) -> list[dict[str, Any]]:
        """Series, as the HTTP API gives them; times are seconds since 1970.

        Raises:
            PrometheusError: it is none that Prometheus can evaluate.
        """
        return self._result("query_range", {"query": expression, "start": start, "end": end, "step": step_s})

    def _result(self, kind: str, parameters: Mapping[str, object]) -> list[dict[str, Any]]:
        code, answer = self._ask(f"/api/v1/{kind}?{urllib.parse.urlencode(parameters)}")
        if code != 200:  # noqa: PLR2004 - HTTP's own
            raise PrometheusError(f"{parameters['query']}: {answer.get('error', code)}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def _is_ready(self) -> bool:
        return self._ask("/-/ready")[0] == 200  # noqa: PLR2004 - HTTP's own

    def _check(self) -> None:
        if self._process.exit_code is not None:
            raise PrometheusError(f"it ended\n{self._process.log_tail()}")

    def _ask(self, path: str) -> tuple[int, dict[str, Any]]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text, code = b"", 0
        try:
            with opener.open(self._url + path, timeout=10) as answer:
                code, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            code, text = error.code, error.read()
        except OSError:
            return 0, {}
        document: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            document = json.loads(text)
        return code, document

    def _end(self) -> None:
        self._process.end(_STOP_DEADLINE)
        shutil.rmtree(self._directory, ignore_errors=True)
