"""Threads that all pipelines share, so that no pipeline's or cluster's work can take all of them.

Work stands in a lane: that of whom it waits for. Of one lane only so much is under way at once, the lanes take turns,
and those that have lately kept us waiting get no more than half of the threads between them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

_LOG = logging.getLogger("sinkpipeline.operator")

SLOW_S = 3.0
"""Work that takes so long makes its lane a slow one, and work that takes less makes it none again."""

Work = Callable[[], None]


@dataclass
class _Lane:
    waiting: deque[Work] = field(default_factory=deque)
    began: list[float] = field(default_factory=list)
    """Of the work that is under way."""
    was_slow: bool = False


class Lanes:
    """Usable from several threads."""

    def __init__(
        self, name: str, *, threads: int, each: int, slow_s: float = SLOW_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`each`: how much of one lane may be under way at once."""
        self._threads = threads
        self._each = each
        self._slow_s = slow_s
        self._clock = clock
        self._lanes: dict[Hashable, _Lane] = {}
        """In the order of their turns."""
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._closed = False

    def submit(self, lane: Hashable, work: Work) -> None:
        """`work` is done once, some time; what it raises is only logged."""
        with self._lock:
            self._lanes.setdefault(lane, _Lane()).waiting.append(work)
            self._start()

    def close(self) -> None:
        """Nothing is begun any more; what is under way is not waited for."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        """With the lock held."""
        started = True
        while started and not self._closed:
            started = False
            for key in list(self._lanes):
                lane = self._lanes[key]
                if lane.waiting and len(lane.began) < self._each and self._has_room(lane):
                    # To the end of the turns.
                    self._lanes[key] = self._lanes.pop(key)
                    began = self._clock()
                    lane.began.append(began)
                    self._pool.submit(self._work, key, lane, lane.waiting.popleft(), began)
                    started = True

    def _has_room(self, lane: _Lane) -> bool:
        under_way = sum(len(each.began) for each in self._lanes.values())
        if under_way >= self._threads:
            return False
        slow = sum(len(each.began) for each in self._lanes.values() if self._is_slow(each))
        return not self._is_slow(lane) or slow < self._threads // 2

    def _is_slow(self, lane: _Lane) -> bool:
        now = self._clock()
        return lane.was_slow or any(now - began >= self._slow_s for began in lane.began)

    def _work(self, key: Hashable, lane: _Lane, work: Work, began: float) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - a thread's last resort
            _LOG.exception("work for %s failed by a bug", key)
        finally:
            with self._lock:
                lane.began.remove(began)
                lane.was_slow = self._clock() - began >= self._slow_s
                if not lane.began and not lane.waiting and not lane.was_slow:
                    self._lanes.pop(key, None)
                self._start()
