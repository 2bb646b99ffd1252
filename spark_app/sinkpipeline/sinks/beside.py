"""Looks at the source's marks, beside the batches: none of them waits for it.

    a batch begins ─► 10 s since the last look? ─► a thread compares the marks with the source, and notes new ones
    a later one    ─► the thread is done?       ─► its marks count from here on

A look reads records of the source with a client of its own. That takes a tenth of a second where nothing is wrong, and
several where a broker is slow. Its answer holds while it is on its way: a mark is of a record that was handled
(`docs/design/0105-looks-beside-batches.md`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Ports
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Mark, PartitionProgress
from sinkpipeline.sinks.contract import Restart

_LOG = logging.getLogger("sinkpipeline.sink")
T = TypeVar("T")

EVERY_S = 10.0
_TELL_AFTER_S = 60.0

Marks = Mapping[SourcePartition, Mark]
Frontier = Mapping[SourcePartition, PartitionProgress]


class Beside:
    """The looks of one delivery, one at a time. One thread calls it.

    What a look is given are the marks of the look before: a mark that nobody compared would be replaced otherwise.
    """

    def __init__(self, ports: Ports, known: Marks) -> None:
        """`known`: as they were noted when the delivery began."""
        self._ports = ports
        self._known = known
        self._began_at = time.monotonic()
        self._look: Future[Marks] | None = None
        self._is_told = False

    def marks(self, frontier: Frontier) -> Marks:
        """Those that are known now. Begins a look where one is due and none is on its way.

        Args:
            frontier: of every partition that the source has now.

        Raises:
            Restart: the source has other records than those that were handled; the next start looks more than once.
        """
        self._take()
        age_s = time.monotonic() - self._began_at
        if self._look is not None:
            if age_s > _TELL_AFTER_S and not self._is_told:
                self._is_told = True
                _LOG.warning("%s: a look at the source's marks takes over %.0f s", self._ports.settings.id, age_s)
        elif age_s > EVERY_S:
            known, self._began_at, self._is_told = self._known, time.monotonic(), False
            self._look = in_a_thread(lambda: self._looked(known, frontier))
        return self._known

    def marks_now(self, frontier: Frontier) -> Marks:
        """Those of now, for whoever can wait for them; what is on its way is waited for, too.

        Raises:
            Restart: as `marks` does.
            SinkPipelineError: the source can't be asked.
        """
        self._take(wait=True)
        self._known = self._looked(self._known, frontier)
        return self._known

    def found(self) -> Marks:
        """Those that are known now, also where the last look says that the source has other records.

        The next start compares them. It raises nothing: whatever a look has met, what the driver knows is remembered.
        """
        try:
            self._take()
        except Restart as error:
            _LOG.debug("%s: %s", self._ports.settings.id, error)
        except Exception:  # noqa: BLE001 - a bug; the docstring says why it is only told
            _LOG.exception("%s: a look at the source's marks failed; please report this", self._ports.settings.id)
        return self._known

    def _take(self, *, wait: bool = False) -> None:
        if self._look is None or not (wait or self._look.done()):
            return
        look, self._look = self._look, None
        try:
            self._known = look.result()
        except SinkPipelineError as error:
            # It has passed, or whoever asks the source for this batch tells it.
            _LOG.debug("%s: the source's marks were not looked at: %s", self._ports.settings.id, error)

    def _looked(self, known: Marks, frontier: Frontier) -> Marks:
        source = self._ports.source
        beginnings, ends = source.beginnings(frontier), source.ends(frontier, readable=False)
        try:
            return source.marks(known, frontier, beginnings, ends)
        except SinkPipelineError as error:
            if error.reason is Reason.SOURCE_DATA_LOST:
                raise Restart(error.message) from error
            raise


def in_a_thread(work: Callable[[], T]) -> Future[T]:
    """It is left alone when the process ends: what it looks at is of no use any more."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whoever takes the result gets it
            future.set_exception(error)

    # With what log lines say of the sink.
    threading.Thread(target=copy_context().run, args=(run,), name="look", daemon=True).start()
    return future
