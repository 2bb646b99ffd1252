"""A pipeline of a database on a real cluster: its stage in the driver's pod, its status, its restarts, and its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.target import Target
from servers import postgresql
from servers.local_kafka import LocalKafka
from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from support.changes.lab import LOGICAL, Lab
from support.cluster.installed import START_S, Pipeline

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(postgresql.bin_directory() is None, reason="no PostgreSQL server: make postgresql"),
]

COLUMNS = {"id": "bigint", "name": "text"}


@pytest.fixture
def lab(target: Target, brokers: LocalKafka, tmp_path: Path) -> Iterator[Lab]:
    """Of a server that pods reach, too."""
    settings = {**LOGICAL, "listen_addresses": ",".join({HOST, target.kafka_host})}
    anybody = "host all all all trust\nhost replication all all trust"
    with LocalPostgresql(settings=settings, hba=anybody) as server:
        found = Lab(server, brokers.bootstrap_servers, tmp_path)
        yield found
        found.close()


def following(lab: Lab, pipeline: Pipeline, servers: str) -> dict[str, Any]:
    """The spec: `orders` of the lab's database, followed by a table in another database of that server."""
    spec = pipeline.document["spec"]
    replicas = spec["sinks"][0]["kafka"]["topic"]["replicationFactor"]
    source = lab.as_source(servers=servers, startingPosition="IncrementalSnapshot")
    for topic in ("topic", "progressTopic"):
        source["postgresql"]["changes"][topic]["replicationFactor"] = replicas
    table = {"name": lab.name, "columns": COLUMNS, "primaryKey": ["id"]}
    target = {"servers": servers, "database": DATABASE, "auth": {"username": SUPERUSER}, "table": table}
    written = {"writeMode": "Upsert", "deleteWhen": "op = 'd'", "orderBy": "position.lsn"}
    return {
        "source": source,
        "decode": {"format": "change", "schema": "id BIGINT NOT NULL, name STRING"},
        "sinks": [{"name": "copy", "postgresql": {**target, "progressSchema": f"{lab.name}_progress", **written}}],
        "deletionPolicy": "Delete",
    }


def is_same(lab: Lab) -> bool:
    with lab.connected(DATABASE) as session:
        if session.execute("SELECT to_regclass(%s)", (lab.name,)).fetchone() == (None,):
            return False
        copy = session.execute(f"SELECT id, name FROM {lab.name} ORDER BY id".encode()).fetchall()
    return copy == lab.sql("SELECT id, name FROM orders ORDER BY id")


def until_same(lab: Lab, pipeline: Pipeline, case: str) -> None:
    seconds = pipeline.until(lambda: is_same(lab), "the copy is the source", START_S)
    pipeline.installed.report.tell(case, seconds, "the copy is the source", pipeline.line)


def test_a_table_follows_a_table(pipeline: Pipeline, lab: Lab, target: Target) -> None:
    case = "a table of a database"
    lab.sql("CREATE TABLE orders (id bigint PRIMARY KEY, name text)")
    lab.sql("INSERT INTO orders SELECT g, 'old ' || g FROM generate_series(1, 3000) AS g")
    pipeline.apply(**following(lab, pipeline, f"{target.kafka_host}:{lab.server.port}"))
    until_same(lab, pipeline, case)
    pipeline.until_told(case, "SourceHealthy", "True NoErrors")
    pipeline.until_told(case, "Ready", "True Running", deadline_s=START_S)
    pipeline.until(lambda: "incrementalSnapshot" not in pipeline.status["source"], "the status has no rows to read", 30)
    assert pipeline.status["source"]["state"] == "Running"
    assert pipeline.status["source"]["slot"] == lab.slot

    case = "a table of a database: a driver's pod is deleted"
    lab.sql("INSERT INTO orders SELECT g, 'new' FROM generate_series(3001, 4000) AS g", "UPDATE orders SET name = 'u'")
    driver = pipeline.driver
    assert driver is not None
    lab.sql("DELETE FROM orders WHERE id % 7 = 0")
    pipeline.installed.kubectl("delete", "pod", driver["metadata"]["name"], "--force", "--grace-period=0")
    lab.sql("INSERT INTO orders SELECT g, 'later' FROM generate_series(5001, 5100) AS g")
    until_same(lab, pipeline, case)
    pipeline.until_told(case, "Ready", "True Running", deadline_s=START_S)

    case = "a table of a database: its server is away"
    lab.server.kill()
    pipeline.until_told(case, "SourceHealthy", "False SourceUnreachable")
    assert pipeline.told("Ready").startswith("False")
    lab.server.start()
    lab.sql("UPDATE orders SET name = 'after'")
    until_same(lab, pipeline, f"{case}, and comes back")
    pipeline.until_told(f"{case}, and comes back", "Ready", "True Running", deadline_s=START_S)
    page = pipeline.plugin("status", pipeline.name)
    assert lab.slot in page, page

    begun = time.monotonic()
    pipeline.delete("--timeout=90s")
    pipeline.installed.report.tell(f"{case}: deleted", time.monotonic() - begun, "the resource is gone")
    assert lab.sql("SELECT slot_name FROM pg_replication_slots") == []
    assert lab.sql("SELECT pubname FROM pg_publication") == []
