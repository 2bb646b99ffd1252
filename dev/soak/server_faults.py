"""What happens to the server of a sink, beside what happens to the command and to the source."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from typing_extensions import override

from servers.local_server import LocalServer
from servers.sql_proxy import Loss, SqlProxy
from soak.faults import TRAP_S, Driver, Fault, Faults, Fed
from soak.feeder import Feeder
from support.waiting import wait_until
from support.worlds.faults import FaultyKafka


@dataclass(frozen=True)
class FaultyServer:
    """One server, whose clients come through a proxy."""

    server: LocalServer
    proxy: SqlProxy

    @property
    def servers(self) -> str:
        """For the product."""
        return self.proxy.address

    def heal(self) -> None:
        """The proxy forwards everything, and the server runs."""
        self.proxy.heal()
        self.server.resume()
        if self.server.pid is None:
            self.server.start()


class ServerFaults(Faults):
    """Of sinks on a server of their own."""

    requests: Sequence[bytes]
    """What stands in requests, of which one at a time is lost."""
    commit: bytes
    """What stands in the request that commits."""
    within_a_commit: str
    """A point where a worker has rows and cell written, or is about to, and does not know that they are committed."""

    def __init__(self, seed: int, faulty: FaultyKafka, driver: Driver, place: FaultyServer) -> None:
        super().__init__(seed, faulty, driver)
        self._place = place

    def server_killed(self) -> None:
        away_s = self._chance.uniform(0, 3)
        self._kill_server()
        time.sleep(away_s)
        self._place.server.start()

    def server_killed_at_a_commit(self) -> None:
        """Before it has heard of it, or before anybody hears that it was done."""
        self._lose(self.commit, self._chance.choice(list(Loss)), self.point_s)
        self._kill_server()
        self._place.server.start()

    def server_killed_within_a_commit(self) -> None:
        """Whoever is in the middle of it goes on without it."""
        held = self._held_at(self.within_a_commit)
        self._kill_server()
        self._place.server.start()
        if held is not None:
            self.driver.app.release(self.within_a_commit)
        self.driver.app.disarm()

    def everything_killed(self) -> None:
        self.driver.run.kill()
        self.kills["driver"] += 1
        self._kill_server()
        self._place.server.start()
        self.driver.start()

    def _kill_server(self) -> None:
        self._place.server.kill()
        self.kills["server"] += 1

    def server_paused(self) -> None:
        self._place.server.pause()
        time.sleep(self._chance.uniform(0.5, 4))
        self._place.server.resume()

    def server_connections_cut(self) -> None:
        for _ in range(self._chance.randint(1, 4)):
            self._place.proxy.cut()
            time.sleep(self._chance.uniform(0, 1))

    def server_network_silent(self) -> None:
        self._place.proxy.hold()
        time.sleep(self._chance.uniform(0.5, 4))
        self._place.proxy.heal()

    def server_request_lost(self) -> None:
        self._lose(self._chance.choice(self.requests), self._chance.choice(list(Loss)), TRAP_S)

    def _lose(self, request: bytes, loss: Loss, for_s: float) -> None:
        proxy = self._place.proxy
        before = proxy.caught
        proxy.lose(request, loss)
        with suppress(AssertionError):
            wait_until(lambda: proxy.caught > before, "it is lost", for_s, poll_s=0.005)
        proxy.heal()


class FedServerFaults(Fed, ServerFaults):
    """Likewise, with a source that never stops."""

    def __init__(self, seed: int, faulty: FaultyKafka, driver: Driver, place: FaultyServer, feeder: Feeder) -> None:
        super().__init__(seed, faulty, driver, place)
        self._feeder = feeder

    def of_the_kind(self) -> Sequence[Fault]:
        """What only such a server can suffer."""
        return ()

    @override
    def deck(self) -> Sequence[Fault]:
        seldom = [
            self.driver_killed,
            self.spark_killed,
            self.everything_killed,
            self.broker_killed,
            self.server_killed,
            self.server_killed_at_a_commit,
            self.server_killed_within_a_commit,
            self.driver_stopped_and_started,
            self.driver_killed_at_a_point,
            self.worker_outlives_its_driver,
            self.source_grown,
        ]
        often = [
            self.worker_killed,
            self.worker_paused,
            *[self.worker_killed_at_a_point] * 2,
            self.server_paused,
            *self.of_the_kind(),
            self.server_connections_cut,
            self.server_network_silent,
            *[self.server_request_lost] * 3,
            self.connections_cut,
            self.network_silent,
        ]
        return [*seldom, *often, *often]
