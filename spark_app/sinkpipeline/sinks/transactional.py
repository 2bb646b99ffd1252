"""Writers that hold a session: after any trouble the partition is taken again, and the truth is read."""

from __future__ import annotations

import abc
import logging
import random
import time
from collections.abc import Callable, Iterable

from typing_extensions import override

from sinkpipeline.core import troubles
from sinkpipeline.core.commit_counts import CommitCounts
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.deadletter import Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Fenced, InDoubt, RecordRefused
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.records import Row
from sinkpipeline.core.task_ports import Session
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.partition_writer import JudgedAnew, PartitionWriter
from sinkpipeline.sinks.worker import Worker

_LOG = logging.getLogger("sinkpipeline.sink")

_MAX_DELAY_S = 0.5


class TransactionalWriter(PartitionWriter):
    """What is open is open in a session; after trouble another one is taken, and the truth is read."""

    _again = "the batch is tried again"

    def __init__(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, cuts: CutPolicy | None) -> None:
        super().__init__(plan, partition, worker, cuts)
        self._troubles = troubles.NONE
        self._costs = CommitCounts()
        self._session: Session | None = None

    @abc.abstractmethod
    def _take_over(self) -> None:
        """Gives up the session, and takes another one, behind all that counts."""

    def _guard(self, step: Callable[[], None]) -> None:
        """Runs a step; after trouble, takes the partition over again and repeats it. Steps begin at `_produced`."""
        while True:
            try:
                step()
            except (Fenced, InDoubt) as trouble:
                self._recover(trouble)
            except RecordRefused as refusal:
                # Nobody will take the partition over soon, and an open transaction holds up whoever reads these topics.
                self._abort()
                self._isolate(refusal)
                self._go_on()
            except JudgedAnew:
                self._abort()
                self._renew()
            except SinkPipelineError as error:
                if not self._can_do_without_letters(error):
                    raise
                self._abort()
                self._go_on()
            else:
                return

    def _go_on(self) -> None:
        """After a transaction that was refused: that is no trouble, and is not counted as one."""
        self._renew()

    def _renew(self) -> None:
        """Goes on with a new session."""
        try:
            self._take_over()
        except (Fenced, InDoubt) as trouble:
            self._recover(trouble)

    def _recover(self, trouble: Fenced | InDoubt) -> None:
        if self._is_open:
            share = trouble.share if isinstance(trouble, InDoubt) and _is_outage(trouble) else None
            self._cuts = self._cuts.after_trouble(rows=self._open.handled, size=self._open_size, share=share)
        while True:
            now = time.monotonic()
            self._troubles = self._troubles.met(now)
            self._costs = self._costs.with_retry(_why(trouble))
            if self._troubles.are_enough(now, outage=_is_outage(trouble)) or _is_silent(trouble):
                raise self._given_up(trouble) from trouble
            _LOG.warning("%s: %s: %s; reading the truth", self._partition, type(trouble).__name__, trouble)
            self._give_up()
            time.sleep(random.uniform(0, _MAX_DELAY_S))  # noqa: S311 - no secret
            try:
                self._take_over()
            except (Fenced, InDoubt) as again:
                trouble = again
            else:
                return

    def _given_up(self, trouble: Fenced | InDoubt) -> SinkPipelineError:
        """An outage is told as one, and does not count towards the circuit, however it came to us."""
        fact = f"{self._partition}: gave up after {self._troubles.count} attempts, the last one: {trouble}"
        told = trouble.told if isinstance(trouble, InDoubt) else None
        remedy = "look at the broker's log" if told is None else told.remedy
        outage = trouble.outage if isinstance(trouble, InDoubt) else None
        reason = Reason.TRANSACTION_FAILED if outage is None else outage.reason
        return SinkPipelineError(reason, fact, f"{remedy}; {self._again}")

    @override
    def _count(self, state: PartitionProgress) -> None:
        super()._count(state)
        self._troubles = troubles.NONE

    def _abort(self) -> None:
        """Ends what is open, for nothing."""
        self._owned().abort()

    def _give_up(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    @override
    def _begin(self) -> None:
        session = self._owned()
        if not session.is_open:
            session.begin()
            self._opened_at = time.monotonic()

    @override
    def _send(self, rows: Iterable[Row]) -> None:
        self._owned().send(rows)

    @override
    def _send_dead(self, rows: Iterable[Row]) -> None:
        self._owned().send_dead(rows)

    @override
    def _would_refuse(self, timestamp: int) -> Verdict | None:
        return self._owned().would_refuse(timestamp)

    def _owned(self) -> Session:
        if self._session is None:
            raise ValueError("a writer is not used after finish()")
        return self._session


def _why(trouble: Fenced | InDoubt) -> str:
    """A reason where the table of causes has one."""
    if isinstance(trouble, Fenced):
        return "Fenced"
    if trouble.told is not None:
        return trouble.told.reason.value
    return "Aborted" if trouble.aborted else "InDoubt"


def _is_silent(trouble: Fenced | InDoubt) -> bool:
    """A task that waits holds a core that other sinks need; the driver, which goes on, holds none."""
    return isinstance(trouble, InDoubt) and trouble.silent


def _is_outage(trouble: Fenced | InDoubt) -> bool:
    return isinstance(trouble, InDoubt) and trouble.outage is not None
