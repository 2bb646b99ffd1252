"""A table as the command's sink, beside a source whose every record is known."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import psycopg

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from support.kafka.topics import create_topic, produce

Row = tuple[int, str, Decimal | None]
PARTITIONS = 2
TEXTS = ("plain", "tab\there", "line\nbreak\r", "back\\slash \\N", "ünï ✓", "")


def table(server: LocalPostgresql, name: str, **postgresql: Any) -> dict[str, Any]:
    """A sink whose rows are `Row`."""
    return {
        "name": f"{name}-table",
        "transform": {"select": {"columns": {"said": "note", "amount": "CAST(amount / 100 AS DECIMAL(10,2))"}}},
        "postgresql": {
            "servers": server.address,
            "database": DATABASE,
            "auth": {"username": SUPERUSER},
            "table": {
                "name": name.replace("-", "_"),
                "columns": {"id": "bigint", "said": "text", "amount": "numeric(10,2)"},
            },
            "progressSchema": f"{name.replace('-', '_')}_progress",
            **postgresql,
        },
    }


class Orders:
    """A source of JSON whose every record is known."""

    def __init__(self, kafka: LocalKafka, name: str) -> None:
        self.servers, self.topic = kafka.bootstrap_servers, f"{name}-in"
        self.rows: list[Row] = []
        create_topic(self.servers, self.topic, partitions=PARTITIONS)

    def feed(self, rows: int) -> None:
        """Into each partition."""
        for partition in range(PARTITIONS):
            documents = []
            for _ in range(rows):
                number = len(self.rows)
                amount = None if number % 7 == 0 else number
                text = f"{number} {TEXTS[number % len(TEXTS)]}"
                documents.append(json.dumps({"id": number, "note": text, "amount": amount}).encode())
                self.rows.append((number, text, None if amount is None else Decimal(amount) / 100))
            produce(self.servers, self.topic, documents, partition=partition)


def session_of(server: LocalPostgresql) -> psycopg.Connection[Any]:
    return psycopg.connect(host="127.0.0.1", port=server.port, user=SUPERUSER, dbname=DATABASE)


def rows_of(server: LocalPostgresql, name: str) -> list[Row]:
    with session_of(server) as session:
        found: list[Row] = session.execute(
            f"SELECT id, said, amount FROM {name.replace('-', '_')} ORDER BY id".encode()
        ).fetchall()
    return found


DECODE = {"format": "json", "schema": "id BIGINT NOT NULL, note STRING, amount BIGINT"}
