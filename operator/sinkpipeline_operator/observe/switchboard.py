"""Asks drivers for their status, so that no pipeline waits for the silent driver of another one.

A driver that answers does so within milliseconds: a look waits for it. Of one that doesn't, the next look hears. From
then on it is asked in threads that only silent drivers share, and less and less often. So a thousand silent drivers
take nothing from those that answer.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass

from typing_extensions import Self

from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.observe.driver_client import NO_NEWS, Answer, DriverClient

_LOG = logging.getLogger("sinkpipeline.operator")

_THREADS = 32
_THREADS_FOR_SILENT = 16
_PATIENCE_S = 0.25
"""For how long a look waits for an answer: far longer than a driver on a busy node takes."""
_FIRST_S, _LONGEST_S = 1.0, 15.0
"""After so long a silent driver is asked again, at first and at last."""


@dataclass(frozen=True)
class Line:
    """By what a driver is reached, and known: with another one nothing of before holds."""

    ip: str
    token: str
    identity: str
    config_hash: str


@dataclass
class _Call:
    line: Line
    future: Future[tuple[Answer, float]] | None = None
    """Its answer, and how many seconds that took."""
    silences: int = 0
    """How often in a row it has kept us waiting in vain; one that refuses at once costs nothing."""
    ask_at: float = 0.0


class Switchboard:
    """Usable from several threads; use it in a `with`."""

    def __init__(
        self,
        ask: Callable[[Line], Answer] | None = None,
        *,
        patience_s: float = _PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask`: how a driver is asked; by default over the network."""
        self._ask = ask or _Network().ask
        self._patience_s = patience_s
        self._clock = clock
        self._calls: dict[Ref, _Call] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="driver")
        self._pool_for_silent = ThreadPoolExecutor(_THREADS_FOR_SILENT, thread_name_prefix="silent-driver")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self._pool, self._pool_for_silent):
            pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, ref: Ref, line: Line) -> Answer:
        """What the driver says, or that it didn't, once for each time that it was asked; else that there is no news."""
        with self._lock:
            call = self._calls.get(ref)
            if call is None or call.line != line:
                call = self._calls[ref] = _Call(line)
            future = call.future
            if future is None:
                if self._clock() < call.ask_at:
                    return NO_NEWS
                pool = self._pool_for_silent if call.silences else self._pool
                future = call.future = pool.submit(self._timed, line)
            wait = call.silences == 0
        try:
            answer, took_s = future.result(self._patience_s if wait else 0)
        except NotYet:
            with self._lock:
                # Once it has kept somebody waiting, it keeps nobody waiting any more.
                call.silences = max(1, call.silences)
            return NO_NEWS
        with self._lock:
            if call.future is future:
                call.future = None
                self._remember(call, answer, took_s)
        return answer

    def forget(self, ref: Ref) -> None:
        with self._lock:
            self._calls.pop(ref, None)

    def _timed(self, line: Line) -> tuple[Answer, float]:
        began = self._clock()
        try:
            answer = self._ask(line)
        except Exception as error:  # noqa: BLE001 - a thread's last resort: a silence like any other
            _LOG.exception("asking a driver failed by a bug")
            answer = Answer(trouble=f"{type(error).__name__}: {error}")
        return answer, self._clock() - began

    def _remember(self, call: _Call, answer: Answer, took_s: float) -> None:
        if answer.document is not None or took_s < self._patience_s:
            call.silences, call.ask_at = 0, 0.0
            return
        longest = min(_LONGEST_S, _FIRST_S * 2.0 ** min(call.silences, 10))
        call.silences += 1
        # Those that fell silent together are not asked together.
        call.ask_at = self._clock() + random.uniform(longest / 2, longest)  # noqa: S311 - no secret


class _Network:
    def __init__(self) -> None:
        self._client = DriverClient()

    def ask(self, line: Line) -> Answer:
        return self._client.ask(line.ip, line.token, identity=line.identity, config_hash=line.config_hash)
