"""Clients, shared by all who ask the same cluster with the same credentials; and which clusters are silent."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.diagnosis import connect

_CONNECT_S = 5.0
_MOST = 32
"""Clients that are kept: each has a connection and some threads."""
_IDLE_S = 300.0
_FIRST_S, _LONGEST_S = 5.0, 30.0
"""After so long a silent cluster is asked again, at first and at last; nobody asks it before."""


@dataclass
class _Circuit:
    error: SinkPipelineError
    failures: int
    opens_at: float
    """When the next one may ask."""


class KafkaClients:
    """Usable from several threads."""

    def __init__(
        self, make: Callable[[Connection], Admin] = Admin, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock = clock
        self._admins: OrderedDict[Connection, tuple[Admin, float]] = OrderedDict()
        """With when each was asked for last, the one that was used least lately first."""
        self._circuits: dict[Connection, _Circuit] = {}
        self._lock = threading.Lock()

    def admin(self, connection: Connection) -> Admin:
        """Raises SinkPipelineError, as its making does."""
        with self._lock:
            kept = self._admins.get(connection)
        # Not with the lock held: files are read.
        made = self._make(connection) if kept is None else kept[0]
        with self._lock:
            admin, _ = self._admins.pop(connection, (made, 0.0))
            now = self._clock()
            self._admins[connection] = admin, now
            # Their connections are closed once nobody uses them any more.
            for each, (_, used_at) in list(self._admins.items()):
                if len(self._admins) > _MOST or now - used_at > _IDLE_S:
                    del self._admins[each]
        return admin

    def check(self, connection: Connection) -> None:
        """That the cluster answers; of one that has not answered lately this is known without asking.

        Raises:
            SinkPipelineError: as it was said when it was asked.
        """
        with self._lock:
            circuit = self._circuits.get(connection)
            if circuit is not None:
                now = self._clock()
                if now < circuit.opens_at:
                    raise circuit.error
                # One asks, and the others wait for what it is told.
                circuit.opens_at = now + _pause_s(circuit.failures)
        try:
            connect(self.admin(connection), _CONNECT_S)
        except SinkPipelineError as error:
            self._failed(connection, error)
            raise
        with self._lock:
            self._circuits.pop(connection, None)

    def _failed(self, connection: Connection, error: SinkPipelineError) -> None:
        with self._lock:
            # Else it would go on trying to connect.
            self._admins.pop(connection, None)
            if error.reason is not Reason.BROKER_UNREACHABLE:
                self._circuits.pop(connection, None)
                return
            failures = 1 if (before := self._circuits.get(connection)) is None else before.failures + 1
            self._circuits[connection] = _Circuit(error, failures, self._clock() + _pause_s(failures))


def _pause_s(failures: int) -> float:
    return min(_LONGEST_S, _FIRST_S * 2.0 ** min(failures - 1, 10))
