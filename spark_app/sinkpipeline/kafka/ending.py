"""Where a client ends that asks for its tokens in a thread of its own: never in that thread.

There our callback runs, and with it, at any allocation, Python's garbage collector. Where that finds the client itself
in a cycle (the traceback of a kept exception is enough), it would destroy the client in one of the client's threads.
librdkafka ends the process then (`rd_kafka_destroy_app`: "calling rd_kafka_destroy() from librdkafka owned thread").
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_ended: SimpleQueue[object] = SimpleQueue()
"""Clients that nobody has any more. Of all queues only this one may be given something by the garbage collector."""
_thread: threading.Thread | None = None
_LOOK_AGAIN_S = 0.05


def ending_elsewhere(kind: Callable[[dict[str, Any]], T]) -> Callable[[dict[str, Any]], T]:
    """That kind of client, whose instances are destroyed by one thread of ours.

    An instance must not hold itself, by its callbacks: it is handed over once (PEP 442).
    """
    make_sure_of_the_thread()
    derived: Callable[[dict[str, Any]], T] = _derived(kind)
    return derived


@cache
def _derived(kind: Any) -> Any:
    return type(kind.__name__, (kind,), {"__del__": _hand_over})


def make_sure_of_the_thread() -> None:
    """That it runs in this process, also after a fork."""
    global _thread  # noqa: PLW0603 - there is one in a process
    with _lock:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_destroy, name="ends-kafka-clients", daemon=True)
            _thread.start()


def _hand_over(client: object) -> None:
    _ended.put(client)


def _destroy() -> None:
    kept: list[object] = []
    while True:
        with suppress(Empty):
            kept.append(_ended.get(timeout=_LOOK_AGAIN_S if kept else None))
        # Whoever has handed one over holds it still, until the collector is through. Who drops it last destroys it.
        kept = [client for client, held in zip(kept, _references(kept), strict=True) if held > _ALONE]


def _references(clients: list[object]) -> list[int]:
    """How many there are to each, and some of ours."""
    return [sys.getrefcount(client) for client in clients]


[_ALONE] = _references([object()])
