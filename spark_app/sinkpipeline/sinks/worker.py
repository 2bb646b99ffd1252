"""What a Python worker keeps from batch to batch: sessions, and the token by which the driver knows it.

A worker keeps a partition's session as long as the driver's owner token names it: taking one costs a fence and a read.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sinkpipeline.core.limits import Clock
from sinkpipeline.core.task_ports import Session

T = TypeVar("T")

_IDLE_S = 600.0
"""A session whose partition went elsewhere is dropped after this time."""


@dataclass
class _Kept:
    session: Session
    term: str
    used: float = field(default_factory=time.monotonic)


class Worker:
    """The state of one process. Get it with `this_worker`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # The uuid guards against a process number that is used again.
        self._token = f"{socket.gethostname()}/{self.pid}/{uuid.uuid4()}"
        self._kept: dict[str, _Kept] = {}
        self._spare: dict[Hashable, Any] = {}
        self._shared: dict[Hashable, Any] = {}
        self.clock = Clock()

    def token(self, term: str) -> str:
        """Names host, process and the term of a plan."""
        return f"{self._token}/{term}"

    def take(self, key: str, term: str) -> Session | None:
        """The kept session of that key, which is no longer kept: a failing user of it just drops it."""
        kept = self._kept.pop(key, None)
        return kept.session if kept is not None and kept.term == term else None

    def keep(self, session: Session, term: str) -> None:
        now = time.monotonic()
        for key in [each for each, kept in self._kept.items() if now - kept.used > _IDLE_S]:
            self.drop(key)
        self._kept[session.key] = _Kept(session, term, now)

    def drop(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            kept.session.close()

    def spare(self, key: Hashable, make: Callable[[], T]) -> T:
        """What a kind has kept by this key, which is no longer kept; or a new one."""
        found: T | None = self._spare.pop(key, None)
        return make() if found is None else found

    def keep_spare(self, key: Hashable, spare: object) -> None:
        self._spare[key] = spare

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """What a kind has one of, for all tasks of this process."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found


_worker: Worker | None = None


def this_worker() -> Worker:
    """This process's own state, also where the process was forked from one that had some."""
    global _worker  # noqa: PLW0603 - the state of the process
    if _worker is None or _worker.pid != os.getpid():
        _worker = Worker()
    return _worker
