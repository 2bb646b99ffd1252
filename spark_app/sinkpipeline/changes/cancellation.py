"""What a thread waits for at a server, given up by another thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable


class Cancellation:
    """Of what one thread does. `add` and `is_set` are for that thread, `set` for any other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ways: list[Callable[[], object]] = []
        self._is_set = False

    @property
    def is_set(self) -> bool:
        return self._is_set

    def add(self, way: Callable[[], object]) -> None:
        """A way to end what is waited for: it is gone at once where nobody wants it any more. It may be called late."""
        with self._lock:
            self._ways.append(way)
            is_late = self._is_set
        if is_late:
            way()

    def set(self) -> None:
        """Nobody wants it any more. Does not wait."""
        with self._lock:
            self._is_set, ways = True, list(self._ways)
        if ways:
            threading.Thread(target=_go, args=(ways,), name="cancellation", daemon=True).start()


def _go(ways: list[Callable[[], object]]) -> None:
    for way in ways:
        # Whatever it waited for may have ended by itself.
        with contextlib.suppress(Exception):
            way()
