"""A table follows a table: envelopes that Debezium wrote of a real one, by the command, which is killed in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from servers.schema_registry import LocalRegistry
from support.app.command import BY_TASKS, App
from support.debezium import Recorded, frame, recorded
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


COLUMNS = {
    "id": "bigint",
    "name": "text",
    "price": "numeric(10,2)",
    "amount": "numeric",
    "at_zone": "timestamp with time zone",
    "uid": "uuid",
    "big": "text",
}
UID = "123e4567-e89b-12d3-a456-426614174000"
AS_TEXT = "SELECT id, name, price::text, amount::text, at_zone::text, uid::text, length(big)"


@pytest.mark.long("starts Spark; the same in JSON is above, and tests/spark/test_debezium has the rows in Avro")
def test_a_table_follows_a_table_in_avro(
    kafka: LocalKafka, registry: LocalRegistry, postgresql: LocalPostgresql, tmp_path: Path
) -> None:
    """What Kafka Connect's converter wrote, by schemas of a real registry: two of them come while it runs."""
    run, name = recorded("postgresql"), unique("inavro")
    records = run.of("shop.public.items")
    until = next(at for at, each in enumerate(records) if each.op == "d" and each.key == '{"id":2}')
    document = following(kafka, postgresql, name)
    spec = document["spec"]
    spec["decode"] = {
        "format": "debezium",
        "schemaRegistry": {"url": registry.url, "reader": {"version": "1"}},
    }
    [sink] = spec["sinks"]
    sink["deadLetter"] = {"topic": {"name": f"{name}-dead", "partitions": 1, "replicationFactor": 1}}
    sink["postgresql"]["table"]["columns"] = COLUMNS
    create_topic(kafka.bootstrap_servers, f"{name}-in", partitions=1)
    ids: dict[bytes, int] = {}

    def write(changes: list[Recorded]) -> None:
        """As a connector does: it registers a schema with the first record of it."""
        values = []
        for each in changes:
            if each.avro is not None and each.avro[:5] not in ids:
                schema = run.schemas[int.from_bytes(each.avro[1:5], "big")]
                ids[each.avro[:5]] = registry.register(f"{name}-in-value", schema)
            value = None if each.avro is None else frame(ids[each.avro[:5]]) + each.avro[5:]
            values.append((each.key and each.key.encode(), value))
        produce(kafka.bootstrap_servers, f"{name}-in", values, partition=0)

    def rows() -> list[tuple[Any, ...]]:
        with psycopg.connect(host="127.0.0.1", port=postgresql.port, user=SUPERUSER, dbname=DATABASE) as session:
            session.execute("SET timezone = 'UTC'")
            return session.execute(f"{AS_TEXT} FROM {name.replace('-', '_')} ORDER BY id".encode()).fetchall()

    def dead() -> dict[str, int]:
        return {each["class"]: each["count"] for each in app.sink_status("orders").get("deadLetters", [])}

    # Of these, the creation of a key that had another one comes without a value, and an infinite date is none of ours.
    told = {"UnavailableValue": 1, "WrongType": 1}
    write(records[:until])
    app = App(tmp_path, document)
    with app.start() as driver:
        driver.until_rows(7)
        assert dead() == told
        assert rows() == [
            (2, "big is as it was", "0.00", "-0.00001", "2024-02-29 10:34:56.789012+00", UID, None),
            (3, "nulls", None, None, None, None, None),
        ]
        write(records[until:])
        # Those behind the alteration, by which a column of milliseconds became one of microseconds.
        told["IncompatibleSchema"] = 4
        driver.eventually(lambda: dead() == told, "all is handled", deadline_s=120)
        assert driver.terminate() == 0, driver.stderr
    assert [each[:2] for each in rows()] == [(3, "nulls")]
    assert len(ids) == 3
