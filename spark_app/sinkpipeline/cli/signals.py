"""What signals do to a driver."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sinkpipeline.core.errors import ExitCode


@contextmanager
def stop_on_signal(stop: threading.Event, at_once: Callable[[], None] = lambda: None) -> Iterator[None]:
    """The first SIGTERM or SIGINT lets the running batch finish; a second one ends the process, after `at_once`."""

    def handle(_number: int, _frame: object) -> None:
        if stop.is_set():
            try:
                at_once()
            finally:
                os._exit(ExitCode.FAILED)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
