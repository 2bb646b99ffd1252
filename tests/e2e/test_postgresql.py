"""A table as a sink, by the command: rows and progress in one transaction, whatever is killed."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, LocalPostgresql
from support.app.command import BY_TASKS, App, manifest, sink
from support.cookbook import feed, recipe, typed
from support.kafka.topics import produce, read_committed, unique
from support.tables import DECODE, PARTITIONS, Orders, rows_of, session_of, table

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_table_and_a_topic_are_killed_and_the_server_is_stopped(
    kafka: LocalKafka, postgresql: LocalPostgresql, tmp_path: Path
) -> None:
    name = unique("orders")
    source = Orders(kafka, name)
    app = App(
        tmp_path,
        manifest(
            kafka.bootstrap_servers,
            name,
            [source.topic],
            decode=DECODE,
            spark=BY_TASKS,
            sinks=[
                sink(f"{name}-topic", topic=f"{name}-out"),
                {**table(postgresql, name), "deadLetter": {"topic": {"name": f"{name}-dead"}}},
            ],
        ),
    )

    def in_topic() -> int:
        return int(app.sink_status(f"{name}-topic").get("rowsDelivered", 0))

    def in_table() -> int:
        return int(app.sink_status(f"{name}-table").get("rowsDelivered", 0))

    for point in ("sql-before-commit", "sql-after-cell"):
        source.feed(60)
        app.arm(point)
        with app.start() as run:
            run.until_held(point)
            run.kill()
        app.disarm()
    with app.start() as run:
        run.eventually(lambda: in_table() == in_topic() == len(source.rows), "both have all rows")
        assert rows_of(postgresql, name) == source.rows

        before = len(source.rows)
        postgresql.kill()
        try:
            source.feed(60)
            run.eventually(lambda: in_topic() == len(source.rows), "the topic does not wait for the table")
            run.until_state("Retrying", f"{name}-table")
            assert in_table() == before
            told = app.sink_status(f"{name}-table")["error"]
            assert told["reason"] == "SinkUnreachable"
        finally:
            postgresql.start()
        run.eventually(lambda: in_table() == len(source.rows), "the table goes on by itself")

        with session_of(postgresql) as session:
            session.execute(f"ALTER TABLE {name.replace('-', '_')} ADD CHECK (id >= 0)".encode())
        produce(source.servers, source.topic, [b'{"id": -1}', b'{"id": 1, "amount": 1000000000000}'], partition=0)
        source.feed(1)
        run.eventually(lambda: in_table() == len(source.rows), "bad records hold nothing up")
        assert run.terminate() == 0, run.stderr

    assert rows_of(postgresql, name) == source.rows
    assert app.sink_status(f"{name}-table")["deadLettered"] == 2
    listed = json.loads(app.call("dlq", "list", "-f", str(app.manifest), "-o", "json").stdout)
    assert sorted(each["class"] for each in listed) == ["EvaluationFailed", "RecordRefused"]
    topic = [(each.document["id"], each.document.get("note")) for each in read_committed(source.servers, f"{name}-out")]
    assert sorted(each for each in topic if each[1] is not None) == [(number, text) for number, text, _ in source.rows]


@pytest.mark.thorough("starts Spark; tests/postgresql/test_merging and tests/spark/test_table_rows show both halves")
def test_changes_of_one_key_in_several_partitions(
    kafka: LocalKafka, postgresql: LocalPostgresql, tmp_path: Path
) -> None:
    """The newest change of each key stands, also where an older one is delivered after it; a deletion is a change.

    As docs/cookbook.md has it, with many changes beside those of the page.
    """
    shown, servers = recipe("A table in PostgreSQL"), kafka.bootstrap_servers
    feed(servers, shown.before, partitions=PARTITIONS)
    [topic] = {each.topic for each in shown.before}
    chance = random.Random(5)
    versions = list(range(1_000))
    chance.shuffle(versions)
    changes = [
        {
            "id": chance.randrange(100, 140),
            "name": f" {version}\t",
            "price": version / 4,
            "version": version,
            "gone": chance.random() < 0.3,
        }
        for version in versions
    ]
    for partition in range(PARTITIONS):
        documents = [json.dumps(each).encode() for each in changes[partition::PARTITIONS]]
        produce(servers, topic, documents, partition=partition)
    with session_of(postgresql) as session:
        session.execute("DO $$ BEGIN CREATE ROLE asked; EXCEPTION WHEN duplicate_object THEN END $$")
        session.execute("CREATE ROLE sinkpipeline LOGIN PASSWORD 'correct horse' IN ROLE asked")
        session.execute(f"GRANT CREATE ON DATABASE {DATABASE} TO sinkpipeline".encode())
        session.execute("GRANT CREATE ON SCHEMA public TO sinkpipeline")
    password = tmp_path / "secrets" / "postgresql" / "password"
    password.parent.mkdir(parents=True)
    password.write_text("correct horse")
    here = {"kafka:9092": servers, "postgresql:5432": postgresql.address, "database: shop": f"database: {DATABASE}"}
    app = App(tmp_path / "app", {})
    # Several batches, so that a change comes when a newer one was committed.
    several = "  trigger: {interval: 0s, maxOffsetsPerTrigger: 300}\n"
    app.manifest.write_text(typed(shown, here) + several)
    app.run_until_idle("--secrets-dir", str(tmp_path / "secrets"))

    newest: dict[int, dict[str, Any]] = {}
    for each in sorted(changes, key=lambda change: int(change["version"])):
        newest[each["id"]] = each
    expected = [
        (number, f"{each['version']}\t", Decimal(each["version"]) / 4)
        for number, each in sorted(newest.items())
        if not each["gone"]
    ]
    with session_of(postgresql) as session:
        rows = session.execute("SELECT id, name, price FROM products ORDER BY id").fetchall()
    assert [row for row in rows if row[0] >= 100] == expected
    assert 0 < len(expected) < len(newest), "some are deleted, and some are not"
    heads, *table_shown = [re.split(r"\s{2,}", line) for line in shown.tables[1].splitlines()]
    assert heads == ["id", "name", "price"]
    told = [["null" if value is None else str(value) for value in row] for row in rows if row[0] < 100]
    assert told == table_shown
