"""`make demo SINK=postgresql`: flights into a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import yaml
from typing_extensions import override

from demo.audit import Broker
from demo.data import Row
from demo.server_demo import ServerDemo
from demo.stage import Stage
from demo.story import Story
from deployed.cluster import ROOT, Kubernetes
from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql

EXAMPLE: Final = ROOT / "examples" / "flights-postgresql.yaml"
_FLIGHT: Final = "id, carrier, flight, tailnum, origin, dest, time_hour, dep_delay, arr_delay, distance"


@contextmanager
def table_demo(story: Story, broker: Broker, kubernetes: Kubernetes, directory: Path) -> Iterator[Stage]:
    story.step("Starting a PostgreSQL server")
    with LocalPostgresql() as server:
        story.say(f"it listens on {server.address}")
        document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
        postgresql = document["spec"]["sinks"][0]["postgresql"]
        # It trusts whoever comes from this machine.
        postgresql |= {"servers": server.address, "database": DATABASE, "auth": {"username": SUPERUSER}}
        yield _TableDemo(story, broker, kubernetes, directory, document, server)


class _TableDemo(ServerDemo):
    place = "the table"
    counted_by = "SQL session"

    @override
    def count(self) -> int:
        try:
            return int(self._answers(f"SELECT count(*) FROM {self._table}")[0][0])  # noqa: S608 - the example's name
        except psycopg.errors.UndefinedTable:
            return 0

    @override
    def rows(self) -> Iterator[dict[str, Any]]:
        flights = f"SELECT {_FLIGHT} FROM {self._table}"  # noqa: S608 - of the example
        documents = f"SELECT row_to_json(f)::text FROM ({flights}) AS f"  # noqa: S608 - likewise
        for (text,) in self._answers(documents):
            yield {name: value for name, value in json.loads(text).items() if value is not None}

    @override
    def wanted(self, row: Row) -> dict[str, Any]:
        return row[1]

    @property
    def _table(self) -> str:
        return str(self._document["spec"]["sinks"][0]["postgresql"]["table"]["name"])

    def _answers(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(host=HOST, port=self._server.port, user=SUPERUSER, dbname=DATABASE) as session:
            return session.execute(statement.encode()).fetchall()
