"""What a Python worker keeps from batch to batch: producers, and the token by which the driver knows it.

A worker keeps a partition's transactional producer as long as the driver's owner token names it: making one costs a
fence, a sentinel and a read.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from sinkpipeline.core.limits import Clock
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer

_PlainKey = tuple[Connection, tuple[tuple[str, str], ...]]

_IDLE_S = 600.0
"""A producer whose partition went elsewhere is dropped after this time."""


@dataclass
class _Kept:
    producer: TransactionalProducer
    run: str
    used: float = field(default_factory=time.monotonic)


class Worker:
    """The state of one process. Get it with `this_worker`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # The uuid guards against a process number that is used again.
        self._token = f"{socket.gethostname()}/{self.pid}/{uuid.uuid4()}"
        self._kept: dict[str, _Kept] = {}
        self._plain: dict[_PlainKey, PlainProducer] = {}
        self._admins: dict[Connection, Admin] = {}
        self.clock = Clock()

    def token(self, run: str) -> str:
        """Names host, process and run."""
        return f"{self._token}/{run}"

    def take(self, transactional_id: str, run: str) -> TransactionalProducer | None:
        """The kept producer of an id, which is no longer kept: a failing user of it just drops it."""
        kept = self._kept.pop(transactional_id, None)
        return kept.producer if kept is not None and kept.run == run else None

    def keep(self, producer: TransactionalProducer, run: str) -> None:
        now = time.monotonic()
        for transactional_id in [each for each, kept in self._kept.items() if now - kept.used > _IDLE_S]:
            self.drop(transactional_id)
        self._kept[producer.transactional_id] = _Kept(producer, run, now)

    def drop(self, transactional_id: str) -> None:
        kept = self._kept.pop(transactional_id, None)
        if kept is not None:
            kept.producer.close()

    def take_plain(self, connection: Connection, properties: Mapping[str, str]) -> PlainProducer:
        """The kept idempotent producer, which is no longer kept; or a new one."""
        producer = self._plain.pop(_plain_key(connection, properties), None)
        return producer if producer is not None else PlainProducer(connection, properties)

    def keep_plain(self, connection: Connection, properties: Mapping[str, str], producer: PlainProducer) -> None:
        self._plain[_plain_key(connection, properties)] = producer

    def admin(self, connection: Connection) -> Admin:
        if connection not in self._admins:
            self._admins[connection] = Admin(connection)
        return self._admins[connection]


def _plain_key(connection: Connection, properties: Mapping[str, str]) -> _PlainKey:
    return connection, tuple(sorted(properties.items()))


_worker: Worker | None = None


def this_worker() -> Worker:
    """This process's own state, also where the process was forked from one that had some."""
    global _worker  # noqa: PLW0603 - the state of the process
    if _worker is None or _worker.pid != os.getpid():
        _worker = Worker()
    return _worker
