"""When each pipeline is looked at next: at once when something happened, and when its own time has come.

One look at a time for each pipeline, a bounded number at once for all: a dead cluster must not slow the others. What
happens during a look leads to another one after it. The idea is controller-runtime's work queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from sinkpipeline_operator.kube.client import ApiRefused, ApiUnavailable, Conflict, Ref

_LOG = logging.getLogger("sinkpipeline.reconcile")

WORKERS = 8
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 60.0
_STUCK_S = 300.0

Look = Callable[[Ref], float | None]


@dataclass(kw_only=True)
class _Entry:
    due: float
    whole: bool = True
    """Whether everything is to be looked at, or the driver is only to be asked."""
    running_since: float | None = None
    touched: bool = False
    """Something happened while it was looked at."""
    nudged: bool = False
    """Likewise, and to nothing that the API server has."""
    generation: int | None = None
    """Of the resource, as a watch told last."""
    urgent: bool = False
    """Somebody has changed the resource: it is looked at before those whose own time has come."""
    told: str | None = None
    """The version of the resource that a watch told of while it was looked at."""
    failures: int = 0


class WorkQueue:
    """For one event loop; the looks run in the executor's threads."""

    def __init__(
        self,
        *,
        look: Look,
        poll: Look,
        executor: Executor,
        has_seen: Callable[[Ref, str], bool] = lambda *_: False,
        took: Callable[[float], None] = lambda _: None,
        failed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`look`, `poll`: in how many seconds to look again, or None where there is nothing any more.

        `has_seen`: whether a look has seen that version of the resource, or has written it.
        """
        self._has_seen = has_seen
        self._look = look
        self._poll = poll
        self._executor = executor
        self._took = took
        self._failed = failed
        self._entries: dict[Ref, _Entry] = {}
        self._wake = asyncio.Event()
        self.is_over = False
        """Whether nothing is looked at any more, for whatever reason."""
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, ref: Ref, version: str, generation: int | None = None) -> None:
        """The resource is there in that version: news, unless it was seen or written here, which a look may just do.

        Another generation was asked for by somebody who waits.
        """
        entry = self._entries.get(ref)
        if entry is not None:
            entry.urgent = entry.urgent or entry.generation not in (None, generation)
            entry.generation = generation
        if entry is not None and entry.running_since is not None:
            entry.told = version
        elif not self._has_seen(ref, version):
            self.touch(ref)
            self._entries[ref].generation = generation

    def touch(self, ref: Ref) -> None:
        """Something happened to a pipeline, or to what belongs to it."""
        entry = self._entries.setdefault(ref, _Entry(due=0.0))
        entry.touched = True
        entry.whole = True
        entry.due = min(entry.due, time.monotonic())
        self._wake.set()

    def nudge(self, ref: Ref) -> None:
        """There is something to be told of a pipeline, and what the API server has is as it was seen."""
        entry = self._entries.get(ref)
        if entry is not None:
            entry.nudged = True
            entry.due = min(entry.due, time.monotonic())
            self._wake.set()

    def knows(self, ref: Ref) -> bool:
        return ref in self._entries

    @property
    def stuck(self) -> list[Ref]:
        """Those whose look does not come to an end, though every call in it has a deadline."""
        now = time.monotonic()
        return [
            ref
            for ref, entry in list(self._entries.items())
            if entry.running_since is not None and now - entry.running_since > _STUCK_S
        ]

    async def run(self) -> None:
        """Until it is cancelled; what runs then comes to its end."""
        try:
            while True:
                self._wake.clear()
                self._start_what_is_due()
                # Not wait_for(): before Python 3.12 it may swallow a cancellation.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._until_next()):
                        await self._wake.wait()
        finally:
            self.is_over = True
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        waiting = [item for item in self._entries.items() if item[1].running_since is None and item[1].due <= now]
        for ref, entry in sorted(waiting, key=lambda item: (not item[1].urgent, item[1].due)):
            if len(self._tasks) >= WORKERS:
                return
            entry.running_since, entry.touched, entry.told, entry.urgent = now, False, None, False
            entry.nudged = False
            task = asyncio.create_task(self._work(ref, entry))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()

    async def _work(self, ref: Ref, entry: _Entry) -> None:
        look = self._look if entry.whole else self._poll
        began = time.monotonic()
        wait: float | None
        failed = False
        try:
            wait = await asyncio.get_running_loop().run_in_executor(self._executor, look, ref)
            entry.failures = 0
        except Conflict:
            # Somebody else was faster, so there is something new to see.
            wait, failed = 0.05, True
        except (ApiUnavailable, ApiRefused) as error:
            wait = self._backoff(entry)
            self._failed(type(error).__name__)
            _LOG.warning("%s: %s; looking again in %.1f s", ref, error, wait)
        except Exception:  # noqa: BLE001 - told with its stack; the other pipelines go on
            wait = self._backoff(entry)
            self._failed("InternalError")
            _LOG.exception("%s: this is a bug; looking again in %.1f s", ref, wait)
        finally:
            entry.running_since = None
            self._took(time.monotonic() - began)
        # The echo of what was written comes before the answer to the write.
        entry.touched = entry.touched or (entry.told is not None and not self._has_seen(ref, entry.told))
        if entry.touched and wait is None:
            wait = 0.0
        if (entry.touched or entry.nudged) and wait is not None:
            wait = min(wait, 0.05)
        if wait is None:
            self._entries.pop(ref, None)
            return
        entry.whole = entry.touched or failed or entry.failures > 0 or wait == 0.0
        entry.due = time.monotonic() + wait

    @staticmethod
    def _backoff(entry: _Entry) -> float:
        entry.failures += 1
        longest = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** min(entry.failures - 1, 10))
        return random.uniform(longest / 2, longest)  # noqa: S311 - no secret

    def _until_next(self) -> float | None:
        if len(self._tasks) >= WORKERS:
            return None
        due = [entry.due for entry in self._entries.values() if entry.running_since is None]
        return max(0.0, min(due) - time.monotonic()) if due else None
