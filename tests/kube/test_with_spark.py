"""The headline cases with nothing played but the node: a real API server, a real broker, real Spark.

The operator runs with the rights of its chart, and rows are counted by a consumer that knows nothing of the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, LocalPostgresql, bin_directory
from support.changes.lab import LOGICAL, Lab
from support.kafka import topics
from support.kube.spark_pipeline import START_S, Pipeline
from support.runs.keeper import KEEPER
from support.sink.sql_sink import SqlSink

pytestmark = [pytest.mark.kube, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(420)]


def dead_letters(pipeline: Pipeline) -> None:
    pipeline.document["spec"]["decode"] = {"format": "raw", "onNull": "DeadLetter"}
    topic = {"name": f"{pipeline.name}-dlq", "replicationFactor": 1}
    pipeline.document["spec"]["sinks"][0]["deadLetter"] = {"topic": topic}


def tombstone(pipeline: Pipeline) -> None:
    topics.produce(pipeline.servers, pipeline.stream.topic, [(b"nothing", None)], partition=0)


def null_values(count: int) -> list[dict[str, object]]:
    return [{"class": "NullValue", "stage": "decode", "count": count, "dropped": 0}]


@pytest.mark.thorough(
    "three starts of Spark; tests/e2e/test_kills kills a driver, test_operator_endings shows what the operator does"
)
def test_rows_are_delivered_once_whatever_happens_to_the_driver(pipeline: Pipeline) -> None:
    dead_letters(pipeline)
    pipeline.stream.feed(500)
    pipeline.apply()
    pipeline.until_ready()
    pipeline.until_delivered()

    # A record that can't be delivered is told at once.
    tombstone(pipeline)
    pipeline.until(lambda: pipeline.sink["deadLetters"] == null_values(1), "the status tells its class")
    assert "went to" in "".join(pipeline.events("DeadLettered"))

    # Killed: the operator notes it, and starts another one.
    pipeline.stream.feed(500)
    tombstone(pipeline)
    pipeline.kubernetes.kill_driver(pipeline.name)
    pipeline.until(lambda: pipeline.status["restarts"]["total"] == 1, "the death is noted")
    pipeline.stream.feed(500)
    pipeline.until_ready()
    pipeline.until_delivered()
    assert pipeline.status["restarts"]["lastExitCode"] == 137

    # Suspended: the driver finishes its batch and goes; Kafka tells what is left to do.
    first = pipeline.status["sparkApplication"]["configHash"]
    pipeline.apply(suspend=True)
    pipeline.until(lambda: pipeline.status["phase"] == "Suspended", "it is suspended")
    pipeline.until(lambda: pipeline.kubernetes.pods() == [], "what is left of the pod is gone")
    pipeline.stream.feed(25)
    pipeline.until(
        lambda: pipeline.sink.get("lag") == 100, "the lag of 4 x 25 records is told while no driver runs", 90
    )
    assert pipeline.sink["deadLetters"] == null_values(2)
    assert len(topics.read_committed(pipeline.servers, f"{pipeline.name}-dlq")) == 2
    assert pipeline.told("TopicsReady") == "True TopicsAsRequested"

    # Resumed with another configuration.
    pipeline.apply(suspend=False, trigger={"interval": "100ms"})
    pipeline.until_ready()
    pipeline.until_delivered()
    assert pipeline.status["sparkApplication"]["configHash"] != first
    assert pipeline.told("ExactlyOnce") == "True Transactional"


@pytest.mark.long("three starts of Spark; test_operator_topics has lost topics, by scripted drivers")
def test_lost_topics_and_a_resource_that_comes_back(pipeline: Pipeline) -> None:
    pipeline.stream.feed(200)
    pipeline.apply()
    pipeline.until_ready()
    pipeline.until_delivered()

    # The progress topic, while a driver runs: it writes its own frontier back.
    before = topics.topic_id(pipeline.servers, pipeline.progress)
    topics.delete_topic(pipeline.servers, pipeline.progress)
    pipeline.until(lambda: pipeline.sink.get("progressTopicId") not in (None, before), "the topic is another one")
    pipeline.stream.feed(200)
    pipeline.until_delivered()
    assert pipeline.events("ProgressTopicRecreated")
    assert pipeline.told("ExactlyOnce") == "True Transactional"

    # Deleted and applied again: it goes on where it was.
    pipeline.until_ready()
    pipeline.delete()
    pipeline.stream.feed(200)
    pipeline.apply()
    pipeline.until_ready()
    pipeline.until_delivered()

    # The data topic: nothing is created, and a person is needed.
    topics.delete_topic(pipeline.servers, pipeline.data)
    pipeline.until(lambda: pipeline.told("Stalled") == "True DataTopicLost", "the data topic is lost")
    assert pipeline.told("Ready").startswith("False")
    assert pipeline.status["phase"] == "Failed"
    assert topics.topic_id(pipeline.servers, pipeline.data) is None


@pytest.mark.long("two starts of Spark; test_operator_topics has that status, tests/kafka/test_starting the seed")
def test_a_progress_topic_that_is_deleted_while_nothing_runs_is_restored_from_the_status(pipeline: Pipeline) -> None:
    pipeline.stream.feed(200)
    pipeline.apply(deletionPolicy="Delete")
    pipeline.until_ready()
    pipeline.until_delivered()
    pipeline.apply(suspend=True)
    pipeline.until(lambda: pipeline.status["phase"] == "Suspended", "it is suspended")
    pipeline.until(lambda: pipeline.sink.get("rowsDelivered") == 800, "the status knows all rows")
    topics.delete_topic(pipeline.servers, pipeline.progress)
    pipeline.stream.feed(10)
    pipeline.apply(suspend=False)
    pipeline.until_ready()
    pipeline.until(lambda: pipeline.told("ExactlyOnce") == "Unknown ProgressRestored", "it says so")
    pipeline.until_delivered()

    # Seeded progress doesn't know who made the data topic: what isn't known to be ours stays.
    pipeline.delete()
    assert topics.topic_id(pipeline.servers, pipeline.data) is not None
    assert pipeline.remembered() == {}


def table(pipeline: Pipeline, server: LocalPostgresql) -> SqlSink:
    """A second sink: a table of a server that asks for a password, which is in a Secret. Its schema is there."""
    found = SqlSink(server.address, name=pipeline.name.replace("-", "_"))
    found.sql("DO $$ BEGIN CREATE ROLE asked; EXCEPTION WHEN duplicate_object THEN END $$")
    found.sql(f"CREATE ROLE {found.name} LOGIN PASSWORD 'secret' IN ROLE asked")
    found.sql(f"CREATE SCHEMA {found.name} AUTHORIZATION {found.name}")
    found.sql(f"CREATE SCHEMA {found.name}_progress AUTHORIZATION {found.name}")
    pipeline.kubectl("create", "secret", "generic", f"{pipeline.name}-user", "--from-literal=password=secret")
    of_table = {"schema": found.name, "name": "copy", "columns": {"said": "text"}}
    pipeline.document["spec"]["sinks"].append(
        {
            "name": "table",
            "transform": {"select": {"columns": {"said": "CAST(value AS STRING)"}}},
            "postgresql": {
                "servers": server.address,
                "database": DATABASE,
                "auth": {
                    "username": found.name,
                    "passwordSecretRef": {"name": f"{pipeline.name}-user", "key": "password"},
                },
                "table": of_table,
                "progressSchema": f"{found.name}_progress",
            },
        }
    )
    return found


@pytest.mark.long("starts Spark; test_operator_topics has removals, tests/conformance what is removed")
def test_deletion_policy_delete_takes_what_it_made(pipeline: Pipeline, postgresql: LocalPostgresql) -> None:
    dead_letters(pipeline)
    sql = table(pipeline, postgresql)
    pipeline.stream.feed(50)
    pipeline.apply(deletionPolicy="Delete")
    pipeline.until_ready()
    pipeline.until_delivered()
    copied = f"SELECT said FROM {sql.name}.copy ORDER BY said"
    pipeline.until(lambda: len(sql.sql(copied)) >= pipeline.stream.total, "all rows are in the table", 60)
    assert [said for (said,) in sql.sql(copied)] == sorted(pipeline.stream.rows)
    assert pipeline.status["totals"]["sinksReady"] == "2/2"
    pipeline.delete()
    assert sql.sql(f"SELECT to_regclass('{sql.name}.copy')") == [(None,)]
    assert sql.sql(f"SELECT count(*) FROM {sql.name}_progress.progress") == [(0,)]
    told = "".join(pipeline.events("DataTopicDeleted"))
    assert f"{sql.name}.copy" in told
    assert f"the data topic {pipeline.data} is deleted" in "".join(pipeline.events("DataTopicDeleted"))
    assert topics.topic_id(pipeline.servers, pipeline.data) is None
    assert topics.topic_id(pipeline.servers, pipeline.name) is not None
    assert topics.topic_id(pipeline.servers, f"{pipeline.name}-dlq") is not None, "what nobody has looked at stays"
    assert f"{pipeline.name}-dlq stays" in "".join(pipeline.events("DeadLetterTopicKept"))
    assert pipeline.remembered() == {}


@pytest.fixture
def database(kafka: LocalKafka, tmp_path: Path) -> Iterator[Lab]:
    """A database of its own whose changes can be read; a role that asks for a password owns its table."""
    if bin_directory() is None:
        pytest.skip("no PostgreSQL server: make postgresql")
    server = KEEPER.get("logical", lambda: LocalPostgresql(settings=LOGICAL))
    found = Lab(server, kafka.bootstrap_servers, tmp_path)
    found.sql(
        "DO $$ BEGIN CREATE ROLE asked; EXCEPTION WHEN duplicate_object THEN END $$",
        f"CREATE ROLE {found.name} LOGIN REPLICATION PASSWORD 'secret' IN ROLE asked",
        f"GRANT CREATE ON DATABASE {found.name} TO {found.name}",
        "CREATE TABLE orders (id bigint PRIMARY KEY)",
        f"ALTER TABLE orders OWNER TO {found.name}",
    )
    yield found
    found.close()


def reads(pipeline: Pipeline, lab: Lab) -> None:
    """Its source is that database; the topic of its sink gets the changes as they are."""
    pipeline.kubectl("create", "secret", "generic", f"{pipeline.name}-cdc", "--from-literal=password=secret")
    secret = {"name": f"{pipeline.name}-cdc", "key": "password"}
    source = lab.as_source(
        auth={"username": lab.name, "passwordSecretRef": secret},
        startingPosition="Snapshot",
    )
    source["postgresql"]["changes"]["progressTopic"]["name"] = pipeline.progress
    pipeline.document["spec"]["source"] = source
    pipeline.document["spec"]["decode"] = {"format": "raw"}


@pytest.mark.thorough(
    "two starts of Spark; test_operator_source has what is told of a stage, tests/changes what it reads and removes"
)
def test_a_database_is_read_whatever_happens_to_the_driver_and_its_slot_goes_with_the_pipeline(
    database: Lab, pipeline: Pipeline
) -> None:
    def has(count: int) -> None:
        def ids() -> list[int]:
            records = topics.read_committed(pipeline.servers, pipeline.data)
            return sorted(each.document["after"]["id"] for each in records)

        pipeline.until(lambda: len(ids()) >= count, f"{count} rows are in the topic", START_S)
        assert ids() == [*range(count)]

    reads(pipeline, database)
    database.sql("INSERT INTO orders SELECT generate_series(0, 99)")
    pipeline.apply(deletionPolicy="Delete")
    pipeline.until_ready()
    assert pipeline.told("SourceHealthy") == "True NoErrors"
    database.sql("INSERT INTO orders SELECT generate_series(100, 199)")
    has(200)

    pipeline.kubernetes.kill_driver(pipeline.name)
    database.sql("INSERT INTO orders SELECT generate_series(200, 299)")
    pipeline.until(lambda: pipeline.status["restarts"]["total"] == 1, "the death is noted")
    pipeline.until_ready()
    has(300)
    pipeline.until(lambda: pipeline.status["source"].get("changes") == 300, "the status counts them")
    assert pipeline.status["source"]["slot"] == database.slot

    pipeline.delete()
    [(slots, publications)] = database.sql(
        "SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = current_database()),"
        " (SELECT count(*) FROM pg_publication)"
    )
    assert (slots, publications) == (0, 0)
    assert topics.topic_id(pipeline.servers, database.topic) is None
    assert f"slot {database.slot} is dropped now" in "".join(pipeline.events("SlotDropped"))
    assert pipeline.remembered() == {}


@pytest.mark.thorough(
    "two starts of Spark; tests/unit/test_operator_child shows what is mounted, tests/spark/test_lookups the rows"
)
def test_a_table_and_a_schema_come_from_a_config_map(pipeline: Pipeline) -> None:
    """Without a right of the operator's, as the kubelet reads it. One that is missing is told, and taken once there."""
    name = f"{pipeline.name}-tables"
    lookup = {
        "name": "said",
        "key": "word",
        "equals": "id",
        "format": "csv",
        "schema": "word STRING NOT NULL",
        "from": {"configMapRef": {"name": name, "key": "words.csv"}},
    }
    pipeline.document["spec"] |= {
        "decode": {"format": "csv", "schemaConfigMapRef": {"name": name, "key": "row.ddl"}},
        "transform": {"lookups": [lookup], "where": "said IS NULL AND id IS NOT NULL"},
        "failurePolicy": {"backoff": {"initial": "1s", "max": "2s"}},
    }
    pipeline.stream.feed(50)
    pipeline.apply()
    pipeline.until(lambda: pipeline.told("Ready") == "False ConfigMapNotFound", "the missing one is told", START_S)

    contents = {"words.csv": "no row says this", "row.ddl": "id STRING"}
    literals = (f"--from-literal={key}={text}" for key, text in contents.items())
    pipeline.kubectl("create", "configmap", name, *literals)
    pipeline.until_ready()
    pipeline.until_delivered()
    [told] = pipeline.status["lookups"]
    assert told["table"] == f"key words.csv of ConfigMap {name}"
    assert told["rows"] == 1
