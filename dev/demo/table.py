"""`make demo SINK=postgresql`: flights into a table, the driver killed, the server killed, and every row counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import yaml
from typing_extensions import override

from demo import data
from demo.audit import Audit, Broker
from demo.stage import DELIVERY_S, REACTION_S, START_S, Stage
from demo.story import Story
from deployed.cluster import ROOT, Kubernetes
from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql

EXAMPLE: Final = ROOT / "examples" / "flights-postgresql.yaml"
APPENDED: Final = 20_000
_POLL_S: Final = 1.0
_FLIGHT: Final = "id, carrier, flight, tailnum, origin, dest, time_hour, dep_delay, arr_delay, distance"


@contextmanager
def table_demo(story: Story, broker: Broker, kubernetes: Kubernetes, directory: Path) -> Iterator[Stage]:
    story.step("Starting a PostgreSQL server")
    with LocalPostgresql() as server:
        story.say(f"it listens on {server.address}")
        yield _TableDemo(story, broker, kubernetes, directory, server)


class _TableDemo(Stage):
    def __init__(
        self, story: Story, broker: Broker, kubernetes: Kubernetes, directory: Path, server: LocalPostgresql
    ) -> None:
        document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
        postgresql = document["spec"]["sinks"][0]["postgresql"]
        # It trusts whoever comes from this machine.
        postgresql |= {"servers": server.address, "database": DATABASE, "auth": {"username": SUPERUSER}}
        super().__init__(story, broker, kubernetes, directory, document)
        self._server = server
        self._table: str = postgresql["table"]["name"]

    @override
    def play(self) -> None:
        flights = self.load()
        self.apply()
        self.kill()
        self.stop_server(flights)
        self._story.table(self._audits, by="SQL session")

    def kill(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step("Killing the driver while it delivers")
        kubernetes.wait_for("some rows are in the table", DELIVERY_S, lambda: self._count() > 0 or None, 0.05)
        killed = kubernetes.kill_driver(self.name)
        story.say(f"kill -9 for the driver, its JVM and its Python workers: {killed} processes")
        story.say(f"{self._count():,} of {len(self._expected):,} rows are in the table")
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
        return self._count() >= len(self._expected) or None

    def _count(self) -> int:
        try:
            return int(self._rows(f"SELECT count(*) FROM {self._table}")[0][0])  # noqa: S608 - the example's name
        except psycopg.errors.UndefinedTable:
            return 0

    def _audit(self) -> Audit:
        """All of the table, row by row."""
        seen: Counter[int] = Counter()
        wrong = 0
        flights = f"SELECT {_FLIGHT} FROM {self._table}"  # noqa: S608 - of the example
        documents = f"SELECT row_to_json(f)::text FROM ({flights}) AS f"  # noqa: S608 - likewise
        for (text,) in self._rows(documents):
            row = {name: value for name, value in json.loads(text).items() if value is not None}
            seen[row["id"]] += 1
            expected = self._expected.get(row["id"])
            wrong += expected is None or expected[1] != row
        return Audit(
            expected=len(self._expected),
            delivered=seen.total(),
            duplicates=seen.total() - len(seen),
            missing=len(self._expected.keys() - seen.keys()),
            wrong=wrong,
        )

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(host=HOST, port=self._server.port, user=SUPERUSER, dbname=DATABASE) as session:
            return session.execute(statement.encode()).fetchall()
