"""A Python worker in a process of its own, as Spark forks them: so that it can be stopped, continued and killed."""

from __future__ import annotations

import os
import pickle
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from pyspark import cloudpickle
from typing_extensions import Self

from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks import failpoints
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.worker import Worker
from support.waiting import wait_until
from support.worlds.faults import batch_of, writer_of


class WorkerProcess:
    """Writes one batch after another, keeping its producers. Use it in a `with`, which leaves no process behind."""

    def __init__(self, failpoint_directory: Path) -> None:
        self._directory = failpoint_directory
        # Not forked: this process has clients, whose threads a child would not have.
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, failpoint_directory), daemon=True)
        self._process.start()
        theirs.close()
        self._answers = ThreadPoolExecutor(1, thread_name_prefix="answers")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._answers.shutdown()

    def write(
        self, plan: BatchPlan, partition: SourcePartition, *, point: str | None = None, retried: bool = False
    ) -> Future[Receipt]:
        """All rows of a plan; with a `point`, returns when the process is held there."""
        if point is not None:
            self._directory.mkdir(exist_ok=True)
            (self._directory / point).touch()
        self._pipe.send_bytes(cloudpickle.dumps((plan, partition, retried)))  # type: ignore[no-untyped-call]
        receipt = self._answers.submit(self._receive)
        if point is not None:
            held = self._directory / f"{point}.{self._process.pid}"
            wait_until(held.exists, f"the worker reaches {point}", 60)
        return receipt

    def _receive(self) -> Receipt:
        return Receipt.from_json(self._pipe.recv())

    def let_go(self) -> None:
        for held in self._directory.glob(f"*.{self._process.pid}"):
            held.unlink()

    def stop(self) -> None:
        """SIGSTOP: it does nothing any more, and its connections stay open."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.pid is None:
            raise ValueError("the process was started")
        os.kill(self._process.pid, number)


def _work(pipe: Pipe, failpoint_directory: Path) -> None:
    failpoints._DIRECTORY = str(failpoint_directory)
    worker = Worker()
    while True:
        try:
            plan, partition, retried = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        pipe.send(_write(plan, partition, worker, retried=retried).to_json())


def _write(plan: BatchPlan, partition: SourcePartition, worker: Worker, *, retried: bool) -> Receipt:
    """As a task does: an error travels in the receipt."""
    try:
        writer = writer_of(plan, partition, worker, retried=retried)
    except SinkPipelineError as error:
        return Receipt(partition=partition, error=error)
    try:
        writer.write(batch_of(plan, partition))
        writer.finish()
    except SinkPipelineError as error:
        return Receipt(partition=partition, progress=writer.receipt().progress, error=error)
    return writer.receipt()
