"""A thousand drivers in one process: what plays Kubeflow's operator, a kubelet and the drivers where processes would be
too dear.

Each driver has an address of this machine of its own. What it answers is rendered by the product; one that is silent
accepts connections and answers nothing. Nothing is checked here that `support.kube.drivers` checks.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import Self

from kubeflow import pods, states
from servers.kube_api import ApiError, Change, KubeApi
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.served import DriverInfo, status_body
from sinkpipeline.core.status import SinkReport, SinkState, render
from sinkpipeline.core.work import Executors
from sinkpipeline_operator.child.builder import DRIVER_PORT

Object = dict[str, Any]
_THREADS = 8
_APPLICATIONS = "/apis/sparkoperator.k8s.io/v1beta2"
_PER_SECOND = 100
"""Rows of a driver that delivers."""


@dataclass
class _Driver:
    identity: str
    config_hash: str
    run: str = field(default_factory=lambda: str(uuid.uuid4()))
    rows: int = 0
    at: float = field(default_factory=time.monotonic)
    delivered_ms: int = 0
    """When rows came last: a time that went on without them would be another status each time."""
    status: Object | None = None

    def body(self, *, delivers: bool) -> bytes:
        now, now_ms = time.monotonic(), int(time.time() * 1000)
        if delivers:
            self.rows += int(_PER_SECOND * (now - self.at))
            self.delivered_ms = now_ms
        self.at = now
        self.status = render(
            [self._report()],
            identity=self.identity,
            generation=None,
            previous=self.status,
            now_ms=now_ms,
            executors=Executors(registered=2, wanted=2),
        )
        return status_body(self.status, DriverInfo(config_hash=self.config_hash, run=self.run, pid=1), now_ms)

    def _report(self) -> SinkReport:
        topic = "numbers"
        meta = Meta(
            epoch=0,
            run=self.run,
            owner=Owner(cluster="bench", name=self.identity),
            partitions={topic: 1},
            source={topic: "source-1"},
            data="data-1",
            progress="progress-1",
        )
        partition = PartitionProgress(epoch=0, next=self.rows, rows=self.rows, at=self.delivered_ms)
        progress = Progress(meta=meta, partitions={SourcePartition(topic, 0): partition})
        return SinkReport(
            name="copy", exactly_once=True, state=SinkState.RUNNING, progress=progress, lag=0, proved=True
        )


class Fleet:
    """Drivers of all SparkApplications of a cluster; use it in a `with`, one at a time for an API server."""

    def __init__(self, kubeconfig: Path, *, is_silent: Callable[[str], bool], gone: Callable[[str], None]) -> None:
        """`is_silent`: by the pipeline's name; `gone`: told as soon as an application was deleted, or is to be."""
        self.delivers = False
        """Whether rows are delivered now."""
        self.asked = 0
        """How often drivers were asked."""
        self.began: dict[str, float] = {}
        """When each pipeline had its first application, by the monotonic clock."""
        self.started: Counter[str] = Counter()
        """How many applications each has had."""
        self.running: set[str] = set()
        """Those that have one."""
        self._api = KubeApi(kubeconfig)
        self._is_silent = is_silent
        self._gone = gone
        self._drivers: dict[str, _Driver] = {}
        """By address."""
        self._servers: dict[str, tuple[str, asyncio.Server]] = {}
        """By the application's uid, with its address."""
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="fleet")
        self._threads = [
            threading.Thread(target=self._loop.run_forever, name="fleet-drivers", daemon=True),
            threading.Thread(target=self._follow, name="fleet-applications", daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()
        self._threads[1].join()
        self._pool.shutdown(cancel_futures=True)
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._threads[0].join()

    def _follow(self) -> None:
        for change in self._api.follow(f"{_APPLICATIONS}/sparkapplications"):
            meta = change.new["metadata"]
            if change.kind == "DELETED" or "deletionTimestamp" in meta:
                self._gone(meta["name"])
            if change.kind == "ADDED":
                self.began.setdefault(meta["name"], time.monotonic())
                self.started[meta["name"]] += 1
                self.running.add(meta["name"])
                self._pool.submit(self._start, change)
            elif change.kind == "DELETED":
                self.running.discard(meta["name"])
                self._pool.submit(self._stop, change)

    def _start(self, change: Change) -> None:
        app = change.new
        meta = app["metadata"]
        place = f"/namespaces/{meta['namespace']}"
        try:
            pod = self._api.create(f"/api/v1{place}/pods", pods.driver_pod(app, str(uuid.uuid4())))
            address = self._listen(app)
            now = dt.datetime.now(dt.timezone.utc)
            running = {"status": pods.running(pod, address, now)}
            self._api.merge(f"/api/v1{place}/pods/{pod['metadata']['name']}/status", running)
            begun = states.begin_submission(app, states.status_of(app), str(uuid.uuid4()), now)
            status = {**states.end_submission(begun, None), "applicationState": {"state": states.RUNNING}}
            self._api.merge(f"{_APPLICATIONS}{place}/sparkapplications/{meta['name']}/status", {"status": status})
        except ApiError as error:
            print(f"{meta['name']}: no driver: {error}", flush=True)

    def _listen(self, app: Object) -> str:
        number = next(self._numbers)
        address = f"127.{200 + number // 62500}.{number // 250 % 250}.{1 + number % 250}"
        meta, arguments = app["metadata"], app["spec"]["arguments"]
        config_hash = arguments[arguments.index("--config-hash") + 1]
        if not self._is_silent(meta["name"]):
            identity = f"{meta['namespace']}.{meta['name']}"
            self._drivers[address] = _Driver(identity=identity, config_hash=config_hash)
        begun = asyncio.start_server(self._answer, address, DRIVER_PORT)
        server = asyncio.run_coroutine_threadsafe(begun, self._loop).result()
        self._servers[meta["uid"]] = (address, server)
        return address

    def _stop(self, change: Change) -> None:
        meta = change.new["metadata"]
        pod = f"/api/v1/namespaces/{meta['namespace']}/pods/{states.driver_pod_name(change.new)}"
        address, server = self._servers.pop(meta["uid"], ("", None))
        self._drivers.pop(address, None)
        if server is not None:
            self._loop.call_soon_threadsafe(server.close)
        try:
            self._api.delete(pod, {"gracePeriodSeconds": 0})
        except ApiError as error:
            print(f"{meta['name']}: its pod stays: {error}", flush=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("sockname")[0]
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.asked += 1
                driver = self._drivers.get(address)
                if driver is None:
                    await reader.read()
                    break
                body = driver.body(delivers=self.delivers)
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # who asked has had enough
        finally:
            writer.close()

    async def _end(self) -> None:
        for _, server in self._servers.values():
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
