"""A table follows a table: envelopes that Debezium wrote of a real one, by the command, which is killed in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from support.app.command import BY_TASKS, App
from support.debezium import recorded
from support.kafka.topics import create_topic, produce, unique

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders-debezium.yaml"


def following(kafka: LocalKafka, server: LocalPostgresql, name: str) -> dict[str, Any]:
    """The example, with the servers of this test and names of its own."""
    document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    spec = document["spec"]
    document["metadata"] = {"name": name, "namespace": "test"}
    spec["source"]["kafka"] = {"bootstrapServers": kafka.bootstrap_servers, "topics": [f"{name}-in"]}
    spec["trigger"] = {"interval": "0s", "maxOffsetsPerTrigger": 60}
    spec["failurePolicy"] = {"backoff": {"initial": "200ms", "max": "1s"}}
    spec["spark"] = BY_TASKS
    sql = spec["sinks"][0]["postgresql"]
    sql |= {"servers": server.address, "database": DATABASE, "auth": {"username": SUPERUSER}}
    sql["table"]["name"] = name.replace("-", "_")
    sql["progressSchema"] = f"{name.replace('-', '_')}_progress"
    return document


def table(server: LocalPostgresql, name: str) -> list[tuple[str | None, ...]]:
    with psycopg.connect(host="127.0.0.1", port=server.port, user=SUPERUSER, dbname=DATABASE) as session:
        session.execute("SET timezone = 'UTC'")
        found: list[tuple[str | None, ...]] = session.execute(
            "SELECT id::text, name, price::text, at::text, day::text, big "
            f"FROM {name.replace('-', '_')} ORDER BY id".encode()
        ).fetchall()
    return found


@pytest.mark.thorough("starts Spark; tests/spark/test_debezium has the rows, test_postgresql a table that is killed")
def test_a_table_follows_a_table(kafka: LocalKafka, postgresql: LocalPostgresql, tmp_path: Path) -> None:
    run = recorded("postgresql-orders")
    assert any(each.plain and b"__debezium_unavailable_value" in each.plain for each in run.records)
    name = unique("follow")
    create_topic(kafka.bootstrap_servers, f"{name}-in", partitions=1)
    app = App(tmp_path, following(kafka, postgresql, name))
    half = len(run.records) // 2
    # Debezium was killed too: what it had said last it says again.
    said = [*run.records[:half], *run.records[half - 20 :]]
    records = [(each.key and each.key.encode(), each.wrapped) for each in said]
    produce(kafka.bootstrap_servers, f"{name}-in", records, partition=0)
    app.arm("sql-before-commit")
    with app.start() as driver:
        driver.until_held("sql-before-commit")
        driver.kill()
    app.disarm()
    changes = sum(each.wrapped is not None for each in said)
    with app.start() as driver:
        driver.eventually(
            lambda: int(app.sink_status("orders").get("rowsDelivered", 0)) == changes,
            "all but tombstones are delivered",
            # A quarter of a minute of a core goes into compiling the plan, at each start.
            deadline_s=240,
        )
        assert driver.terminate() == 0, driver.stderr
    assert table(postgresql, name) == list(run.table)
