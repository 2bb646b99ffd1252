"""Flights into a sink on a server of its own: the driver killed, the server killed, and every row counted."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from demo import data
from demo.audit import Audit, Broker
from demo.data import Row
from demo.stage import DELIVERY_S, REACTION_S, START_S, FlightsStage
from demo.story import Story
from deployed.cluster import Kubernetes
from servers.local_server import LocalServer

APPENDED: Final = 20_000
_POLL_S: Final = 1.0


class ServerDemo(FlightsStage):
    """A subclass knows what stands on the server, by a client of that server."""

    place: str
    """Where the rows are, in a sentence."""
    counted_by: str

    def __init__(
        self,
        story: Story,
        broker: Broker,
        kubernetes: Kubernetes,
        directory: Path,
        document: dict[str, Any],
        server: LocalServer,
    ) -> None:
        super().__init__(story, broker, kubernetes, directory, document)
        self._server = server

    @abc.abstractmethod
    def count(self) -> int:
        """Rows that are there; 0 where there is no place for them yet."""

    @abc.abstractmethod
    def rows(self) -> Iterable[dict[str, Any]]:
        """All that are there, each with its `id`."""

    @abc.abstractmethod
    def wanted(self, row: Row) -> dict[str, Any]:
        """What `rows` should give of a flight."""

    @override
    def play(self) -> None:
        flights = self.load()
        self.apply()
        self.kill()
        self.stop_server(flights)
        self._story.table(self._audits, by=self.counted_by)

    def kill(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step("Killing the driver while it delivers")
        kubernetes.wait_for(f"some rows are in {self.place}", DELIVERY_S, lambda: self.count() > 0 or None, 0.05)
        killed = kubernetes.kill_driver(self.name)
        story.say(f"kill -9 for the driver, its JVM and its Python workers: {killed} processes")
        story.say(f"{self.count():,} of {len(self._expected):,} rows are in {self.place}")
        kubernetes.wait_for("the operator has noted it", REACTION_S, self._has_restarts)
        kubernetes.wait_for("the rest is delivered", START_S + DELIVERY_S, self._is_all_delivered, _POLL_S)
        self._audited("driver killed, started again", self._audit())

    def stop_server(self, flights: Any) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step("Killing the server, and appending records meanwhile")
        kubernetes.wait_for("the pipeline is Ready", START_S, self._is_ready)
        self._server.kill()
        more = data.with_ids(flights.head(APPENDED), first=self._broker.records(self._source))
        data.produce(more, self._broker.bootstrap_servers, self._source)
        self._expected |= data.expected_rows(more)
        kubernetes.wait_for("the sink tells of it", REACTION_S, self._is_unreachable)
        self._get()
        error = self._sink().get("error", {})
        story.check(f"the sink waits, and says why: {error.get('reason')}", holds=bool(error.get("remedy")))
        self._server.start()
        story.say("the server runs again; it recovers by its own log")
        kubernetes.wait_for("the rest is delivered", START_S + DELIVERY_S, self._is_all_delivered, _POLL_S)
        self._audited("server killed, started again", self._audit())

    def _is_unreachable(self) -> bool | None:
        return self._sink().get("error", {}).get("reason") == "SinkUnreachable" or None

    def _is_all_delivered(self) -> bool | None:
        return self.count() >= len(self._expected) or None

    def _audit(self) -> Audit:
        """All of them, row by row."""
        seen: Counter[int] = Counter()
        wrong = 0
        for row in self.rows():
            seen[row["id"]] += 1
            expected = self._expected.get(row["id"])
            wrong += expected is None or self.wanted(expected) != row
        return Audit(
            expected=len(self._expected),
            delivered=seen.total(),
            duplicates=seen.total() - len(seen),
            missing=len(self._expected.keys() - seen.keys()),
            wrong=wrong,
        )
