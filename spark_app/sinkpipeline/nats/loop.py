"""The event loop of this process: one thread for all connections, begun when it is needed.

A process that was forked has none: the thread stays behind with the parent.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as NotInTime
from typing import Any, TypeVar

T = TypeVar("T")

_SLACK_S = 30.0
"""A coroutine has a deadline of its own: this is for one that does not keep to it."""


class _Loop:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="nats", daemon=True).start()


_lock = threading.Lock()
_loop: _Loop | None = None


def _of_this_process() -> asyncio.AbstractEventLoop:
    global _loop, _lock  # noqa: PLW0603 - the state of the process
    if _loop is not None and _loop.pid != os.getpid():
        # Whoever held it stayed behind too.
        _loop, _lock = None, threading.Lock()
    with _lock:
        if _loop is None:
            _loop = _Loop()
        return _loop.loop


def run(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """What the coroutine gives, which ends itself after so many seconds.

    Raises:
        TimeoutError: it does not end.
    """
    future = asyncio.run_coroutine_threadsafe(work, _of_this_process())
    try:
        return future.result(seconds + _SLACK_S)
    except NotInTime as late:
        if future.done():
            raise
        future.cancel()
        raise TimeoutError(f"no end after {seconds + _SLACK_S:g} s") from late
    except BaseException:
        future.cancel()
        raise
