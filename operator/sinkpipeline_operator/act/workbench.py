"""Work that takes longer than a look may: it runs in threads of its own, and a later look asks for its result."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from typing_extensions import Self

from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.lanes import Lanes

_LOG = logging.getLogger("sinkpipeline.operator")
_THREADS = 8
_EACH = 2
"""Threads that wait for one cluster."""

T = TypeVar("T")


class Workbench(Generic[T]):
    """Usable from several threads; use it in a `with`.

    What is under way when the process ends is not waited for: whoever asks for work must be able to ask again.
    """

    def __init__(self, tell: Callable[[Ref], None], of_bug: Callable[[Exception], T]) -> None:
        """`tell`: is called when a piece of work for a pipeline is done; `of_bug`: its outcome, where it raised."""
        self._tell = tell
        self._of_bug = of_bug
        self._done: dict[str, T] = {}
        self._under_way: dict[str, Ref] = {}
        self._lock = threading.Lock()
        self._lanes = Lanes("action", threads=_THREADS, each=_EACH)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lanes.close()

    def ask(self, key: str, ref: Ref, work: Callable[[], T], *, lane: Hashable = None) -> T | None:
        """The outcome, once; None while it is on its way. Begins it where nobody has; `lane`: what it waits for."""
        with self._lock:
            if key in self._done:
                return self._done.pop(key)
            if key not in self._under_way:
                self._under_way[key] = ref
                self._lanes.submit(lane, lambda: self._work(key, ref, work))
        return None

    def is_busy(self, ref: Ref) -> bool:
        """Whether anything is under way for a pipeline."""
        with self._lock:
            return ref in self._under_way.values()

    def _work(self, key: str, ref: Ref, work: Callable[[], T]) -> None:
        try:
            outcome = work()
        except Exception as error:  # noqa: BLE001 - a thread's last resort: told as what became of it
            _LOG.exception("%s: an action failed by a bug", ref)
            outcome = self._of_bug(error)
        with self._lock:
            del self._under_way[key]
            self._done[key] = outcome
        self._tell(ref)
