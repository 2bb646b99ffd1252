"""Puts the model's clients, clock and threads where the product's modules have the real ones."""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import time
import types
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import confluent_kafka
from confluent_kafka.admin import AdminClient
from typing_extensions import Self, override

from model import clients, little_spark
from model.judge import CUT_ROWS
from model.scheduler import Process, Scheduler, Thread
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Mark
from sinkpipeline.kafka import kind, producers, progress_log, reading
from sinkpipeline.kafka.source import source
from sinkpipeline.kafka.source.marks import SourceMarks
from sinkpipeline.sinks import at_least_once, beside, delivery, small_batches
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.looks import VERDICTS
from sinkpipeline.spark import beyond, query, runner, task

T = TypeVar("T")
_SUFFIX = 4
_SNAPSHOT_EVERY = 8
_POLL_S = 1.0


@contextlib.contextmanager
def product_on_the_model() -> Iterator[None]:
    """While it lasts, the product's own code runs on the model. Sizes are scaled down, so small runs reach them."""
    numbers = itertools.count()
    # By the object that a module of the product refers to, wherever it does.
    replaced: dict[object, object] = {
        time: SimpleNamespace(monotonic=_now, time=_now, sleep=_sleep),
        random: _Middle,
        uuid: SimpleNamespace(uuid4=lambda: f"u{next(numbers)}"),
        ThreadPoolExecutor: _OneByOne,
        confluent_kafka.Producer: clients.Producer,
        confluent_kafka.Consumer: clients.Consumer,
        AdminClient: clients.AdminClient,
    }
    with contextlib.ExitStack() as patches:

        def patch(module: types.ModuleType, **values: object) -> None:
            for name, value in values.items():
                patches.enter_context(mock.patch.object(module, name, value))

        for module in _modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, Hashable) and value in replaced:
                    patch(module, **{name: replaced[value]})
        patch(progress_log, _FIRST_SUFFIX=_SUFFIX)
        patch(reading, _POLL_S=_POLL_S)
        # A client in memory has nothing on its way between two of its calls.
        patch(producers, leave=lambda producer, **_: producer.purge())
        patch(kind, CutPolicy=partial(CutPolicy, rows=CUT_ROWS))
        patch(at_least_once, CutPolicy=partial(CutPolicy, rows=CUT_ROWS))
        patch(delivery, SNAPSHOT_EVERY=_SNAPSHOT_EVERY)
        patch(small_batches, _FIRST_PAUSE_S=1.0)
        patch(source, SourceMarks=_Marks)
        patch(beside, in_a_thread=lambda work: _Look(work, late=next(clients.cluster().looks) % 2 == 1))
        threading = SimpleNamespace(Event=Event, Lock=Lock)
        patch(runner, threading=threading, InheritableThread=_RunnerThread, SinkDelivery=_Delivery)
        patch(
            query,
            threading=threading,
            tempfile=SimpleNamespace(mkdtemp=lambda **_: f"/checkpoint-{next(numbers)}"),
            shutil=SimpleNamespace(rmtree=lambda *_, **__: None),
            Checkpoint=little_spark.Checkpoint,
            read_stream=little_spark.read_stream,
            output_rows=lambda stream, _rows: stream,
            to_wire=little_spark.to_wire,
            collected=little_spark.collected,
        )
        patch(
            task,
            TaskContext=SimpleNamespace(get=lambda: _thread().context),
            _ReadAhead=little_spark.ReadAhead,
            # Records of the model name no schemas.
            decoded_part=lambda batch: (batch, ()),
            partition_of=lambda _plan, batch: batch.partition,
            to_rows=little_spark.to_rows,
            this_worker=lambda: _thread().context.worker,
            is_guarded=lambda: True,
        )
        yield


def _modules() -> list[types.ModuleType]:
    """Those of the product that talk to Kafka, wait, or draw lots."""
    found = [
        module
        for name, module in sys.modules.items()
        if name.startswith(
            ("sinkpipeline.kafka.", "sinkpipeline.sinks.", "sinkpipeline.cells.", "sinkpipeline.changes.")
        )
    ]
    return [*found, runner, beyond]


class _Marks(SourceMarks):
    """The product's, where logs may lose their ends; elsewhere nobody looks for that at each start and stop."""

    @override
    def renewed(self, *args: Any) -> dict[SourcePartition, Mark]:
        if not clients.cluster().has_leaders:
            return {}
        try:
            noted = super().renewed(*args)
        except SinkPipelineError:
            clients.cluster().on_lost_end()
            raise
        known: Mapping[SourcePartition, Mark] = args[0]
        for partition, mark in noted.items():
            if partition in known and known[partition] != mark:
                clients.cluster().on_marked(partition, known[partition], mark)
        return noted


class _Look(Future[T]):
    """It reads when it begins, or as late as its result is asked for: every second one."""

    def __init__(self, work: Callable[[], T], *, late: bool) -> None:
        super().__init__()
        self._work = work
        if not late:
            self._run()

    def _run(self) -> None:
        try:
            self.set_result(self._work())
        except (SinkPipelineError, Restart) as error:
            self.set_exception(error)

    @override
    def done(self) -> bool:
        if not super().done():
            self._run()
        return True

    @override
    def result(self, timeout: float | None = None) -> T:
        self.done()
        return super().result(timeout)


class _Delivery(delivery.SinkDelivery):
    """The product's. A verdict takes half a minute: who has it tells it, and doesn't begin that half minute again."""

    _verdict: SinkPipelineError | None = None

    @override
    def check_world(self) -> None:
        if self._verdict is not None:
            clients.cluster().on_second_verdict(self._verdict)
        try:
            super().check_world()
        except SinkPipelineError as error:
            if error.reason in VERDICTS:
                self._verdict = error
            raise


def _scheduler() -> Scheduler:
    return clients.cluster().scheduler


def _thread() -> Any:
    return _scheduler().current


def _now() -> float:
    return _scheduler().now


def _sleep(seconds: float) -> None:
    _scheduler().wait("sleep", None, seconds)


class _Middle:
    """Chance is the schedule's business."""

    @staticmethod
    def uniform(low: float, high: float) -> float:
        return (low + high) / 2


class _OneByOne:
    """A pool of one thread, the caller's."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [function(item) for item in items]


class Event:
    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout_s: float) -> bool:
        return _scheduler().wait("wait", self.is_set, timeout_s)


class Lock:
    """Who waits for it has it as soon as it is free, before the one that gives it back can take it again."""

    def __init__(self) -> None:
        self._free = True
        self._waiting: list[object] = []

    def acquire(self, *, blocking: bool = True) -> bool:
        if self._free:
            self._free = False
            return True
        if not blocking:
            return False
        turn = object()
        self._waiting.append(turn)
        _scheduler().wait("lock", lambda: turn not in self._waiting)
        return True

    def release(self) -> None:
        if self._waiting:
            self._waiting.pop(0)
        else:
            self._free = True

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _RunnerThread:
    def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
        self._target, self._name, self.daemon = target, name, daemon
        self._thread: Thread | None = None

    def start(self) -> None:
        process: Process = _thread().process
        self._thread = _scheduler().spawn(process, self._name, "runner", self._target)

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.done

    def join(self, timeout_s: float) -> None:
        _scheduler().wait("join", lambda: not self.is_alive(), timeout_s)
