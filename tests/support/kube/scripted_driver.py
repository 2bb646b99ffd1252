"""A driver without Spark and Kafka: started like `main.py`, it serves, signals and ends as its script says.

`python -m support.kube.scripted_driver --script FILE --lock FILE <arguments of main.py>`. What it serves and says last
is rendered by the product, so that the shapes are those of a real driver; like that one it refuses a configuration or a
resume document that it can't read. Another driver of the same pipeline that runs meanwhile is noted in LOCK.violations.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typing_extensions import override

from sinkpipeline.cli.pod.metrics import CONTENT_TYPE, Metrics
from sinkpipeline.cli.pod.termination import TerminationLog
from sinkpipeline.cli.pod.vitals import Vitals
from sinkpipeline.core.changes.told import StageReport, with_source
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.held_back import HeldBack, OpenTransaction
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.resume import parse as parse_resume
from sinkpipeline.core.served import DriverInfo, Observation, RunCounts
from sinkpipeline.core.status import SinkReport, SinkState, render
from sinkpipeline.core.tally import checked
from sinkpipeline.core.work import Executors, StillClock
from support.kube.scripts import (
    BROKEN,
    GARBAGE,
    HANG,
    LARGE,
    LATE,
    LATE_S,
    REDIRECT,
    End,
    Script,
    SinkScript,
    SourceScript,
)

_LOOP_S = 0.05
_RUN = str(uuid.uuid4())


class ScriptedDriver:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._read_at = given.script.stat().st_mtime_ns
        self.script = Script.read(given.script)
        self.token = given.token_file.read_text().strip()
        self._ahead_s = 0
        self.log = TerminationLog(given.termination_log)
        self.vitals = Vitals(DriverInfo(config_hash=given.config_hash, run=_RUN, pid=os.getpid()), wall_ms=self._now_ms)
        self.log.vitals = self.vitals
        self.metrics = Metrics(self.vitals)
        self._config: dict[str, Any] = json.loads(given.config.read_text())
        self._status: dict[str, Any] | None = None
        self._still = StillClock()
        self._executors: Executors | None = None
        self._terminated = threading.Event()

    def run(self) -> int:
        signal.signal(signal.SIGTERM, lambda *_: self._terminated.set())
        self._read_what_it_was_given()
        self._observe()
        if self.script.listens:
            self._listen()
        print("ready", flush=True)
        while True:
            self._look()
            if self.script.end is not None:
                return self._end(self.script.end)
            if self._terminated.is_set() and not self.script.ignores_sigterm:
                self.log.done(stopped=True)
                return 0
            if not self.script.frozen:
                self._observe()
            self._terminated.wait(_LOOP_S)
            if self.script.ignores_sigterm:
                time.sleep(_LOOP_S)

    def _read_what_it_was_given(self) -> None:
        """Raises SinkPipelineError."""
        if self._given.resume is not None:
            parse_resume(_document(self._given.resume), self._config["spec"]["identity"])
        for reference in _secret_references(self._config["spec"]):
            if not Path(self._given.secrets_dir, *reference).is_file():
                raise SinkPipelineError(Reason.SECRET_NOT_FOUND, f"there is no {'/'.join(reference)}", "create it")

    def _look(self) -> None:
        changed_at = self._given.script.stat().st_mtime_ns
        if changed_at != self._read_at:
            self.script, self._read_at = Script.read(self._given.script), changed_at

    def _now_ms(self) -> int:
        return int((time.time() + self._ahead_s) * 1000)

    def _observe(self) -> None:
        now = self._now_ms()
        reports = [self._timed(self._report(sink), now) for sink in self._config["spec"]["sinks"]]
        self._executors = self._look_at_executors(reports, now)
        previous = self._status
        self._status = render(
            reports,
            identity=self._config["spec"]["identity"],
            generation=None,
            previous=previous,
            now_ms=now,
            executors=self._executors,
        )
        if "kafka" not in self._config["spec"]["source"]:
            self._status = with_source(self._status, self._stage(self.script.source), previous, now)
        counts = {report.name: RunCounts() for report in reports}
        supervising = self.script.supervising
        self.vitals.observe(Observation(status=self._status, counts=counts, supervising=supervising))
        # What begins with a script begins before its clock goes ahead.
        self._ahead_s = self.script.clock_ahead_s

    def _timed(self, report: SinkReport, now: int) -> SinkReport:
        told = self.script.sinks.get(report.name, SinkScript())
        if told.proved is None:
            return report
        still = self._still.seen(
            report.name,
            told.next,
            waits=report.state is SinkState.RUNNING and bool(report.lag) and self.script.executors != 0,
            moved=False,
            works=told.tasks_run,
            now_ms=now,
        )
        return replace(report, still_since=still)

    def _look_at_executors(self, reports: Iterable[SinkReport], now: int) -> Executors | None:
        registered = self.script.executors
        if registered is None:
            return None
        before = self._executors or Executors(registered=registered, wanted=2)
        needed = any(each.state is SinkState.RUNNING and (each.lag or not each.proved) for each in reports)
        return before.seen(registered, needed=needed, now_ms=now)

    def _report(self, sink: dict[str, Any]) -> SinkReport:
        told = self.script.sinks.get(sink["name"], SinkScript())
        return SinkReport(
            name=sink["name"],
            exactly_once=sink["deliveryGuarantee"] == "ExactlyOnce",
            state=SinkState(told.state),
            progress=self._progress(told) if told.known else None,
            lag=told.lag,
            held_back=_held_back(told),
            circuit_opened_at=told.circuit_opened_at,
            error=None if told.error is None else _error(told.error),
            proved=told.proved,
        )

    def _stage(self, told: SourceScript) -> StageReport:
        source = self._config["spec"]["source"]
        has_slot = "postgresql" in source
        slot = source["postgresql"].get("slot", {}).get("name", "sinkpipeline_slot") if has_slot else None
        return StageReport(
            slot=slot,
            state=SinkState(told.state),
            position=told.position,
            index=told.index,
            changes=told.changes,
            lag_bytes=told.lag_bytes,
            retained_bytes=told.retained_bytes if has_slot else None,
            safe_bytes=told.safe_bytes,
            timeline=1 if has_slot else None,
            at_risk=told.at_risk,
            snapshot=told.snapshot,
            incremental=told.incremental,
            error=None if told.error is None else _error(told.error),
        )

    def _progress(self, told: SinkScript) -> Progress:
        source = self._config["spec"]["source"]
        database = source.get("postgresql") or source.get("mariadb") or source.get("mysql")
        topics = None if database is None else [database["changes"]["topic"]["name"]]
        topic = (topics or source["kafka"].get("topics") or ["matched"])[0]
        states = {
            SourcePartition(topic, number): PartitionProgress(epoch=told.epoch, next=offset)
            for number, offset in enumerate(told.next)
        }
        states[SourcePartition(topic, 0)] = PartitionProgress(
            epoch=told.epoch,
            next=told.next[0],
            rows=told.rows,
            dead=told.dead + sum(told.dead_by_class.values()),
            dropped=told.dropped + sum(told.dropped_by_class.values()),
            lost=told.lost,
            by_class=checked(told.dead_by_class, told.dropped_by_class),
        )
        meta = self._config["metadata"]
        return Progress(
            meta=Meta(
                epoch=told.epoch,
                run=_RUN,
                owner=Owner(cluster=self._given.owner_cluster, name=f"{meta['namespace']}/{meta['name']}"),
                partitions={topic: len(told.next)},
                source={topic: "source-1"},
                data=told.data_id,
                progress=told.progress_id,
                restored=told.may_duplicate,
            ),
            partitions=states,
        )

    def _end(self, end: End) -> int:
        if not self.script.frozen:
            self._observe()
        if end.raw is not None:
            self._given.termination_log.write_text(end.raw)
        elif end.words is not None:
            self.log.failed(_error(end.words))
        if end.signal is not None:
            os.kill(os.getpid(), end.signal)
        return end.code

    def _listen(self) -> None:
        host, _, port = self._given.listen.rpartition(":")
        server = _Server((host, int(port)), self)
        threading.Thread(target=server.serve_forever, daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The next driver may get this address.
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], driver: ScriptedDriver) -> None:
        self.driver = driver
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        driver = self.server.driver
        if self.path == "/healthz":
            self._answer(200 if driver.vitals.alive else 503, b"ok\n")
        elif self.headers.get("Authorization") != f"Bearer {driver.script.token or driver.token}":
            self._answer(401, b"a bearer token is needed\n", {"WWW-Authenticate": "Bearer"})
        elif self.path == "/metrics":
            self._answer(200, driver.metrics.render(), {"Content-Type": CONTENT_TYPE})
        elif self.path == "/status":
            self._tell(driver)
        else:
            self._answer(404, b"")

    def _tell(self, driver: ScriptedDriver) -> None:
        how = driver.script.answer
        if how in {HANG, LATE}:
            time.sleep(600 if how == HANG else LATE_S)
        body, code, more = driver.vitals.body(), 200, {"Content-Type": "application/json"}
        if how == GARBAGE:
            body = b'{"phase": '
        elif how == LARGE:
            body = b'{"filler": "' + b"x" * 4_000_000 + b'"}'
        elif how == REDIRECT:
            code, more = 302, {"Location": f"http://{self.headers['Host']}/elsewhere"}
        elif how == BROKEN:
            body, code = b"", 500
        elif driver.script.lie is not None:
            body = _with(body, *driver.script.lie)
        self._answer(code, body, more)

    def _answer(self, code: int, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # who asked has had enough

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


def _with(body: bytes, path: Sequence[str | int], value: object) -> bytes:
    document = json.loads(body)
    within = document
    for key in path[:-1]:
        within = within[key]
    within[path[-1]] = value
    return json.dumps(document).encode()


def _document(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SinkPipelineError(Reason.STATUS_FILE_INVALID, f"{path} can't be read: {error}", "write it") from error


def _held_back(told: SinkScript) -> HeldBack | None:
    hanging = None if told.open_transaction is None else OpenTransaction(*told.open_transaction)
    return None if told.held_back is None else HeldBack(told.held_back, hanging)


def _error(told: tuple[str, str, str]) -> SinkPipelineError:
    reason, message, remedy = told
    return SinkPipelineError(Reason(reason), message, remedy)


def _secret_references(value: Any) -> list[tuple[str, str]]:
    """(Secret, key) of every `...SecretRef` in a document."""
    if isinstance(value, list):
        return [each for item in value for each in _secret_references(item)]
    if not isinstance(value, dict):
        return []
    found = [each for item in value.values() for each in _secret_references(item)]
    for name, reference in value.items():
        if name.endswith("SecretRef") and isinstance(reference, dict):
            keys = [reference[key] for key in ("key", "certKey", "keyKey") if key in reference]
            found += [(reference["name"], key) for key in keys]
    return found


def _alone(lock: Path) -> object:
    """Holds the lock while this process lives; who can't have it is a second driver."""
    file = lock.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with Path(f"{lock}.violations").open("a") as violations:
            violations.write(f"{os.getpid()} was started while another driver ran\n")
    return file


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--script", "--lock", "--config", "--token-file", "--termination-log"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--listen", "--owner-cluster", "--config-hash"):
        parser.add_argument(name, required=True)
    parser.add_argument("--open-metrics", action="store_true")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--secrets-dir", type=Path)
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    held = _alone(given.lock)
    driver = ScriptedDriver(given)
    try:
        return driver.run()
    except SinkPipelineError as error:
        driver.log.failed(error)
        print(error, file=sys.stderr)
        return error.reason.exit_code
    finally:
        del held


if __name__ == "__main__":
    # Not sys.exit: a request that hangs would be waited for.
    code = main()
    sys.stdout.flush()
    os._exit(code)
