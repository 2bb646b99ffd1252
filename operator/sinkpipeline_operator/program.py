"""The operator as a process: its parts, put together."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from typing_extensions import override

from sinkpipeline.core.log_lines import Json, Plain
from sinkpipeline_operator.act.asking import of_bug
from sinkpipeline_operator.act.definitions import Definitions, own
from sinkpipeline_operator.act.turns import Turns
from sinkpipeline_operator.act.workbench import Workbench
from sinkpipeline_operator.child.kubeflow import KubeflowChild
from sinkpipeline_operator.kube.client import ApiRefused, ApiUnavailable, Cluster, Ref, connect, take_deep_objects
from sinkpipeline_operator.observe.kafka_view import KafkaView
from sinkpipeline_operator.observe.observer import Observer
from sinkpipeline_operator.observe.switchboard import Switchboard
from sinkpipeline_operator.reconcile import Reconciler
from sinkpipeline_operator.report.events import Recorder
from sinkpipeline_operator.report.metrics import Metrics
from sinkpipeline_operator.report.web import Web
from sinkpipeline_operator.settings import Settings, parse
from sinkpipeline_operator.watch import handlers
from sinkpipeline_operator.watch.workqueue import WORKERS, WorkQueue

_AGAIN_S = 2.0
"""After so long somebody may have brought the CustomResourceDefinitions."""

_LOG = logging.getLogger("sinkpipeline.operator")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT; 0 then, 1 where there is no API server."""
    settings = parse(sys.argv[1:] if arguments is None else arguments)
    take_deep_objects()
    _log(settings)
    try:
        cluster = Cluster(connect())
        _LOG.info("the cluster is %s", cluster.id)
    except (ApiUnavailable, ApiRefused) as error:
        _LOG.error("%s", error)
        return 1
    _serve(settings, cluster)
    return 0


def _serve(settings: Settings, cluster: Cluster) -> None:
    metrics = Metrics()
    definitions = Definitions(cluster, own(), may_upgrade=settings.crd_upgrade)
    running = _Running(cluster, definitions, look_s=settings.resync_s)
    with (
        ThreadPoolExecutor(WORKERS, thread_name_prefix="look") as executor,
        Switchboard() as drivers,
        KafkaView(every_s=settings.resync_s, tell=running.nudge) as kafka,
        Workbench(running.touch, of_bug) as bench,
        Web(settings.host, settings.port, is_alive=running.trouble, is_ready=running.waiting, metrics=metrics),
    ):
        observer = Observer(cluster=cluster, child_kind=KubeflowChild(), runtime=settings.runtime, drivers=drivers)
        reconciler = Reconciler(
            cluster=cluster,
            observer=observer,
            settings=settings,
            recorder=Recorder(cluster),
            metrics=metrics,
            kafka=kafka if settings.kafka_access else None,
            bench=bench,
            turns=Turns(settings.max_concurrent_restarts, patience_s=settings.start_deadline_s, tell=running.touch),
        )

        def make_queue() -> WorkQueue:
            queue = WorkQueue(
                look=reconciler.reconcile,
                poll=reconciler.poll,
                executor=executor,
                has_seen=reconciler.has_seen,
                took=metrics.took,
                failed=metrics.failed,
            )
            running.begins(queue)
            return queue

        registry, kopf_settings = handlers.build(
            running.until_served,
            make_queue,
            observer.child_kind.api,
            settings.namespaces,
            lambda: cluster.access,
            settings.selector,
        )
        handlers.run(registry, kopf_settings, settings.namespaces)
    _LOG.info("stopped; drivers go on without their operator")


class _Running:
    """What this process has come to, for whoever asks from another thread."""

    def __init__(self, cluster: Cluster, definitions: Definitions, look_s: float) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._look_s = look_s
        self._unserved = ""
        self._queue: WorkQueue | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def until_served(self) -> Coroutine[None, None, None]:
        """Waits for CustomResourceDefinitions that this operator can work with; what looks at them from then on."""
        while await self._unserved_now():  # noqa: ASYNC110 - the API server is asked, and tells of nothing
            await asyncio.sleep(_AGAIN_S)
        return self._look_on()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN_S if self._unserved else self._look_s)
            await self._unserved_now()

    async def _unserved_now(self) -> str:
        self._unserved = await asyncio.to_thread(self._definitions.check)
        return self._unserved

    def begins(self, queue: WorkQueue) -> None:
        """From the event loop that it runs in."""
        self._queue, self._loop = queue, asyncio.get_running_loop()

    def touch(self, ref: Ref) -> None:
        if self._queue is not None:
            self._soon(self._queue.touch, ref)

    def nudge(self, ref: Ref) -> None:
        if self._queue is not None:
            self._soon(self._queue.nudge, ref)

    def _soon(self, tell: Callable[[Ref], None], ref: Ref) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(tell, ref)

    def waiting(self) -> str:
        """Why this process isn't ready; empty where it is."""
        if self._unserved:
            return self._unserved
        return "not watching yet" if self._queue is None else self._cluster.trouble()

    def trouble(self) -> str:
        """Why this process should be ended; empty where all is well."""
        if self._queue is not None and self._queue.is_over:
            return "the work queue has ended: no pipeline is looked at any more"
        stuck = [] if self._queue is None else self._queue.stuck
        return f"no end of the look at {', '.join(map(str, stuck))}" if stuck else ""


def _log(settings: Settings) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if settings.runtime.log_json else Plain("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    # kopf tells of every object that it sees, and clients of every request.
    for noisy in ("kopf", "aiohttp", "urllib3", "kubernetes"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(settings.log_level)))
    # Brokers that don't answer are told in the status; the client would tell of every attempt.
    logging.getLogger("sinkpipeline.kafka").setLevel(logging.CRITICAL)


class _Json(Json):
    """With the pipeline that a line begins with."""

    @override
    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        about = record.args[0] if isinstance(record.args, tuple) and record.args else None
        return {"pipeline": str(about)} if isinstance(about, Ref) else {}
