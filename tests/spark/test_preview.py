"""`sinkpipeline preview`: the rows that a run then writes, and nothing is written before."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.partitioner import partition_of_key
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.rowplan import row_plan, rows_of
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.preview import Outlook
from sinkpipeline.kafka.registry import Found
from sinkpipeline.kinds import ports
from sinkpipeline.kinds.previewing import TableChange, change_of, letters_topic, look
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.sinks.starting import SinkStarter
from sinkpipeline.spark.preview import PreviewRow, preview_rows
from sinkpipeline.spark.schemas import Schemas
from support import avro
from support.app.command import App, manifest
from support.app.command import sink as sink_of
from support.kafka import topics
from support.sink.starts import refusal

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SCHEMA = "id BIGINT NOT NULL, country STRING"
SELECT = {
    "key": "country",
    "value": "to_json(struct(id))",
    "headers": "map('origin', kafka.topic)",
    "timestamp": "CAST(1700000000000 + id AS BIGINT)",
    "partition": "CASE WHEN id >= 90 THEN 7 WHEN id < 3 THEN 1 END",
}


def world(servers: str, name: str) -> set[str]:
    """All topics and groups that there are, and where those of the pipeline of this name end."""
    client = AdminClient({"bootstrap.servers": servers})
    groups = client.list_consumer_groups(request_timeout=10).result().valid
    found = client.list_topics(timeout=10).topics
    # Of others something may still be written: markers of transactions that time out, rows of who ends.
    own = [(topic, partition) for topic, each in found.items() if name in topic for partition in each.partitions]
    ends = {f"{topic}-{partition} to {topics.offsets(servers, topic, partition)[1]}" for topic, partition in own}
    return {*found, *(f"group {each.group_id}" for each in groups), *ends}


@pytest.fixture
def app(kafka: LocalKafka, tmp_path: Path) -> App:
    """Seven records: four good ones of which one is filtered out, one that is no JSON, one beyond the partitions."""
    name, servers = topics.unique("preview"), kafka.bootstrap_servers
    topics.create_topic(servers, f"{name}-in")
    good = [{"id": 1, "country": "NL"}, {"id": 2, "country": "DE"}, {"id": 50}, {"id": 5, "country": "FR"}]
    values = [*(json.dumps(each).encode() for each in good), b"no json", json.dumps({"id": 90}).encode(), b'{"id":6}']
    topics.produce(servers, f"{name}-in", values)
    sink = {**sink_of("out", topic=f"{name}-out", progressTopic={"name": f"{name}-progress"})}
    document = manifest(
        servers,
        name,
        [f"{name}-in"],
        decode={"format": "json", "schema": SCHEMA},
        transform={"where": "id = 50", "select": SELECT},
        sinks=[
            {**sink, "transform": {"where": "id <> 50"}, "deadLetter": {"topic": {"name": f"{name}-dlq"}}},
        ],
    )
    return App(tmp_path, document)


def shown(spark: SparkSession, app: App, limit: int, *begin: str) -> tuple[Outlook, list[PreviewRow]]:
    pipeline = read_manifest(app.manifest)
    [settings] = resolve_sinks(pipeline, None)
    outlook = look(settings, parse_targets(begin) if begin else None)
    plan = rows_of(row_plan(pipeline), pipeline, settings.id.sink)
    return outlook, preview_rows(spark, settings, plan, outlook, limit)


def test_rows_as_they_would_be_written_and_nothing_is(spark: SparkSession, kafka: LocalKafka, app: App) -> None:
    [settings] = resolve_sinks(read_manifest(app.manifest), None)
    servers, name = kafka.bootstrap_servers, settings.source.topics[0].removesuffix("-in")
    before = world(servers, name)

    outlook, rows = shown(spark, app, 10)

    assert world(servers, name) == before
    assert not outlook.resumes
    assert [(row.offset, row.verdict and row.verdict.error_class.value) for row in rows] == [
        (0, None),
        (1, None),
        (3, None),
        (4, "MalformedJson"),
        (5, "PartitionOutOfRange"),
        (6, None),
    ]
    first, _, third, broken, _, last = rows
    assert (first.key, first.value, first.timestamp, first.partition) == (b"NL", b'{"id":1}', 1700000000001, 1)
    assert first.headers == [("origin", first.source.topic.encode())]
    assert third.partition == partition_of_key(b"FR", 3)
    assert (last.key, last.partition) == (None, None), "without a key the client takes any"
    assert broken.value == b"no json", "a dead letter is the record as it is"

    admin = Admin(settings.source.connection)
    starter = SinkStarter(ports=ports(settings, admin, admin), new_run=lambda: "run-1", remembered=Remembered(None))
    starter.start().hold.close()
    before = world(servers, name)
    outlook, again = shown(spark, app, 10)
    assert world(servers, name) == before, "a sink that has progress keeps it as it is"
    assert outlook.resumes
    assert again == rows


@pytest.mark.thorough("test_rows_as_they_would_be_written has the rows; these are limits")
def test_as_many_as_asked_from_where_one_says(spark: SparkSession, app: App) -> None:
    [settings] = resolve_sinks(read_manifest(app.manifest), None)
    source = settings.source.topics[0]
    assert [row.offset for row in shown(spark, app, 2)[1]] == [0, 1]
    assert [row.offset for row in shown(spark, app, 1, f"{source}:0=5")[1]] == [5]
    assert shown(spark, app, 1, "latest")[1] == []
    assert [row.offset for row in shown(spark, app, 1, "1970-01-01T00:00:00Z")[1]] == [0]
    refusal(lambda: shown(spark, app, 1, "nowhere=latest"), Reason.USAGE_INVALID)


@pytest.mark.thorough("test_avro has the same of a run")
def test_schemas_that_records_name_are_asked_for(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    name, servers = topics.unique("preview"), kafka.bootstrap_servers
    first, second = avro.record(("id", "long")), avro.record(("other", "string"))
    values = [avro.framed(1, first, {"id": each}) for each in (1, 2)]
    values += [avro.frame(8) + b"x", avro.framed(2, second, {"other": "x"}), avro.framed(1, first, {"id": 3})]
    topics.create_topic(servers, f"{name}-in")
    topics.produce(servers, f"{name}-in", values)
    found = {avro.frame(number): Found(avro.text(each), "AVRO") for number, each in ((1, first), (2, second))}
    registry = avro.Registry(found, latest=first)
    decode = {"format": "avro", "schemaRegistry": {"url": "http://registry:8081", "reader": {"version": "1"}}}
    select = {"value": "CAST(id AS STRING)"}
    document = manifest(servers, name, [f"{name}-in"], decode=decode, transform={"where": "id <> 2", "select": select})
    pipeline = read_manifest(App(tmp_path, document).manifest)
    [settings] = resolve_sinks(pipeline, None)
    assert settings.source.registry is not None
    schemas = Schemas(spark, registry, settings.source.registry)

    rows = preview_rows(spark, settings, row_plan(pipeline), look(settings, None), 4, schemas)

    assert [(row.offset, row.value if row.verdict is None else row.verdict.error_class.value) for row in rows] == [
        (0, b"1"),
        (2, "UnknownSchema"),
        (3, "IncompatibleSchema"),
        (4, b"3"),
    ]
    assert registry.asked[0] == {avro.frame(1), avro.frame(2), avro.frame(8)}, "together"
    assert {*registry.asked[1:]} == {frozenset({avro.frame(8)})}, "what the registry does not know yet"


@pytest.mark.thorough("test_rows_as_they_would_be_written shows a topic's")
def test_rows_of_a_table_as_they_would_be_written_and_nothing_is(
    spark: SparkSession, kafka: LocalKafka, postgresql: LocalPostgresql, tmp_path: Path
) -> None:
    name, servers = topics.unique("preview"), kafka.bootstrap_servers
    topics.create_topic(servers, f"{name}-in")
    good = [{"id": 1, "note": "tab\t"}, {"id": 2, "gone": True, "version": 7}, {"id": 0}]
    topics.produce(servers, f"{name}-in", [*(json.dumps(each).encode() for each in good), b"no json"])
    table = {
        "name": "rows",
        "transform": {"where": "id > 0 OR kafka.offset = 2", "select": {"columns": {"ratio": "1 div id"}}},
        "postgresql": {
            "servers": postgresql.address,
            "database": DATABASE,
            "auth": {"username": SUPERUSER},
            "table": {"name": name, "columns": dict.fromkeys(("id", "note", "ratio"), "text"), "primaryKey": ["id"]},
            "progressSchema": f"{name}-progress",
            "writeMode": "Upsert",
            "deleteWhen": "gone",
            "orderBy": "version",
        },
        "deadLetter": {"topic": {"name": f"{name}-dlq"}},
    }
    decode = {"format": "json", "schema": "id BIGINT NOT NULL, note STRING, gone BOOLEAN, version BIGINT"}
    app = App(tmp_path, manifest(servers, name, [f"{name}-in"], decode=decode, sinks=[table]))

    def objects() -> list[Any]:
        with psycopg.connect(host="127.0.0.1", port=postgresql.port, user=SUPERUSER, dbname=DATABASE) as session:
            found = "SELECT nspname FROM pg_namespace UNION ALL SELECT relname FROM pg_class ORDER BY 1"
            return session.execute(found.encode()).fetchall()

    before = world(servers, name), objects()

    outlook, rows = shown(spark, app, 10)

    assert (world(servers, name), objects()) == before
    assert not outlook.resumes
    [settings] = resolve_sinks(read_manifest(app.manifest), None)
    assert [row.verdict and row.verdict.error_class.value for row in rows] == [
        *(None, None, "EvaluationFailed", "MalformedJson"),
    ]
    assert [change_of(settings, row.value) for row in rows[:2]] == [
        TableChange(f"public.{name}", "upsert", {"id": "1", "note": "tab\t", "ratio": "1"}, None),
        TableChange(f"public.{name}", "delete", {"id": "2"}, "7"),
    ]
    assert (rows[3].value, letters_topic(settings)) == (b"no json", f"{name}-dlq")


@pytest.mark.long("two starts of Spark; the same in this process is above")
def test_a_run_writes_what_was_shown(kafka: LocalKafka, app: App) -> None:
    servers = kafka.bootstrap_servers

    def call() -> tuple[list[dict[str, Any]], str]:
        done = app.call("preview", "-f", str(app.manifest), "-o", "json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found, done.stderr

    rows, told = call()
    assert "6 rows of 7 offsets, beginning as a first start; nothing was written" in told
    told = app.call("preview", "-f", str(app.manifest)).stdout
    assert "dead letter in" in told
    assert "MalformedJson: " in told
    assert '  value     8 bytes, text:\n    {"id":1}' in told

    app.run_until_idle()

    good = [row for row in rows if row["error"] is None]
    written = {record.value: record for record in topics.read_committed(servers, good[0]["topic"])}
    assert len(good) == len(written) == 4
    for row in good:
        record = written[base64.b64decode(row["value"]["base64"])]
        assert row["timestamp"] == record.timestamp
        assert row["partition"] in (record.partition, None)
        assert (row["key"]["base64"] or None) == (record.key and base64.b64encode(record.key).decode())
        assert [(each["name"], base64.b64decode(each["base64"])) for each in row["headers"]] == record.headers
    assert [row["partition"] is None for row in good] == [False, False, False, True]
    letters = topics.read_committed(servers, next(row["topic"] for row in rows if row["error"]))
    assert [dict(each.headers)["sinkpipeline.dlq.error.class"].decode() for each in letters] == [  # type: ignore[union-attr]
        row["error"]["class"] for row in rows if row["error"]
    ]
    rows, told = call()
    assert rows == []
    assert "beginning at its progress" in told
