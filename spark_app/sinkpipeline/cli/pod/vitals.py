"""What the driver last said of itself: written by its supervising loop, read by those who answer requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sinkpipeline.core.served import START_ALLOWANCE_S, STARTING, DriverInfo, Observation, status_body, told_sinks

STALE_AFTER_S = 30.0
"""A supervising loop that has been silent for so long hangs."""


class Vitals:
    """Of one driver process; any thread may ask."""

    def __init__(
        self,
        driver: DriverInfo,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self.driver = driver
        self._monotonic, self._wall_ms = monotonic, wall_ms
        # A signal may ask for the last words in the very thread that is in the middle of `observe`.
        self._lock = threading.RLock()
        self._seen = Observation(status=STARTING, counts={}, supervising=False)
        self._at, self._at_ms = monotonic(), wall_ms()

    def observe(self, seen: Observation) -> None:
        with self._lock:
            self._seen, self._at, self._at_ms = seen, self._monotonic(), self._wall_ms()

    @property
    def seen(self) -> Observation:
        with self._lock:
            return self._seen

    @property
    def heartbeat_ms(self) -> int:
        """When the driver last said something, Unix milliseconds."""
        with self._lock:
            return self._at_ms

    @property
    def alive(self) -> bool:
        with self._lock:
            silent_s = self._monotonic() - self._at
            return silent_s <= (STALE_AFTER_S if self._seen.supervising else START_ALLOWANCE_S)

    def sinks(self) -> list[dict[str, Any]]:
        """The entries of `status.sinks` for the last words."""
        return told_sinks(self.seen.status, self.driver)

    def body(self) -> bytes:
        """The body of `GET /status`."""
        with self._lock:
            seen, at_ms = self._seen, self._at_ms
        return status_body(seen.status, self.driver, at_ms, supervising=seen.supervising)
