"""Rows with schemas of a registry: framed, registered before the first one, read again by Confluent's deserializers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from servers.local_kafka import LocalKafka
from servers.schema_registry import LocalRegistry
from support import avro
from support.app.command import App, manifest, sink
from support.kafka import topics

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(600)]

STRUCT = "struct(coalesce(id, 0) AS id, note, at)"
TIME = {"type": "long", "logicalType": "timestamp-micros"}
OF_THEIRS = [
    {"name": name, "type": ["null", kind], "default": None}
    for name, kind in (("note", "string"), ("more", "long"), ("at", TIME))
]
"""Fields of a schema that others have registered."""


def encoding(registry: LocalRegistry, kind: str, **more: Any) -> dict[str, Any]:
    return {"format": kind, "schemaRegistry": {"url": registry.url, **more}}


def in_one_partition(*sinks: dict[str, Any]) -> None:
    """For rows in their order: in the key stands an id that the registry gave, and so which partition it belongs to."""
    for each in sinks:
        each["kafka"]["topic"]["partitions"] = 1


def document(servers: str, name: str, value: str, *sinks: dict[str, Any]) -> dict[str, Any]:
    return manifest(
        servers,
        name,
        [f"{name}-in"],
        decode={"format": "json", "schema": "id BIGINT, note STRING, at TIMESTAMP"},
        transform={"select": {**({"key": "struct(id)"} if len(sinks) > 1 else {}), "value": value}},
        sinks=list(sinks),
    )


@pytest.fixture
def client(registry: LocalRegistry) -> Iterator[SchemaRegistryClient]:
    """Confluent's own, as other programs ask the registry."""
    with SchemaRegistryClient({"url": registry.url}) as found:
        yield found


@pytest.mark.thorough("three starts of Spark and a registry; each part is shown without them")
def test_what_is_written_is_read_by_others_and_by_us(
    kafka: LocalKafka, registry: LocalRegistry, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    name, servers = topics.unique("encode"), kafka.bootstrap_servers
    topics.create_topic(servers, f"{name}-in")
    topics.produce(servers, f"{name}-in", [b'{"id": 1, "note": "a", "at": "2024-05-06T07:08:09Z"}', b'{"id": 2}'])
    progress = {"name": f"{name}-progress", "replicationFactor": 1}
    key, record = encoding(registry, "json"), f"a.{name.replace('-', '_')}"
    by_record = {"subjectNameStrategy": "RecordName", "recordName": record}
    in_avro = {"key": key, "value": encoding(registry, "avro", **by_record)}
    in_json = {"key": key, "value": encoding(registry, "json")}
    # Somebody else's, of which the rows fill a part: only looked up.
    subject, first = f"{name}-theirs", avro.record(("id", "long"), name=name.replace("-", "_"))
    latest = {**first, "fields": [*first["fields"], *OF_THEIRS]}
    known_id = [registry.register(subject, each) for each in (first, latest)][-1]
    as_theirs = {"key": key, "value": encoding(registry, "avro", subject=subject, autoRegister=False)}
    avro_sink = sink("avro", topic=f"{name}-avro", encode=in_avro, progressTopic=progress)
    json_sink = sink("json", topic=f"{name}-json", encode=in_json, progressTopic=progress)
    their_sink = sink("theirs", topic=f"{name}-theirs", encode=as_theirs, progressTopic=progress)
    # Its registry refuses the schema of its rows; the others go on without it.
    taken = f"{name}-taken"
    registry.register(taken, avro.record(("id", "string"), name=taken.replace("-", "_")))
    registry.compatibility(taken, "BACKWARD")
    as_taken = {"key": key, "value": encoding(registry, "avro", subject=taken)}
    refused = sink("refused", topic=f"{name}-refused", encode=as_taken, progressTopic=progress)
    sinks = [avro_sink, json_sink, their_sink, {**refused, "required": False}]
    in_one_partition(*sinks)
    app = App(tmp_path, document(servers, name, STRUCT, *sinks))

    app.run_until_idle()

    error = app.sink_status("refused")["error"]
    assert error["reason"] == "SchemaRefused"
    assert f"refuses the schema for subject {taken}" in error["message"]
    assert topics.read(servers, f"{name}-refused", committed=False) == []
    assert client.get_versions(taken) == [1]
    assert client.get_versions(subject) == [1, 2], "nothing was registered"
    their_rows = topics.read(servers, f"{name}-theirs")
    assert [each.value and each.value[:5] for each in their_rows] == [avro.frame(known_id)] * 2
    found = [AvroDeserializer(client)(each.value, at(f"{name}-theirs")) for each in their_rows]
    assert [(each["id"], each["note"], each["at"] is None, each["more"]) for each in found] == [
        (1, "a", False, None),
        (2, None, True, None),
    ]
    assert {record, f"{name}-avro-key", f"{name}-json-key", f"{name}-json-value"} <= set(client.get_subjects())
    ours = [AvroDeserializer(client)(each.value, at(f"{name}-avro")) for each in topics.read(servers, f"{name}-avro")]
    assert [(each["id"], each["note"], each["at"] and each["at"].isoformat()) for each in ours] == [
        (1, "a", "2024-05-06T07:08:09+00:00"),
        (2, None, None),
    ]
    found = topics.read(servers, f"{name}-json")
    of_json = JSONDeserializer(None, schema_registry_client=client)
    assert [of_json(each.value, at(f"{name}-json")) for each in found] == [
        {"id": 1, "note": "a", "at": "2024-05-06T07:08:09.000000Z"},
        {"id": 2},
    ]
    keys = [of_json(each.key, SerializationContext(f"{name}-json", MessageField.KEY)) for each in found]
    assert keys == [{"id": 1}, {"id": 2}]

    again = manifest(
        servers,
        f"{name}-again",
        [f"{name}-avro"],
        decode={"format": "avro", "schemaRegistry": {"url": registry.url, **by_record}},
        transform={"select": {"value": "concat(id, ' ', coalesce(note, '-'))"}},
    )
    in_one_partition(*again["spec"]["sinks"])
    App(tmp_path / "again", again).run_until_idle()
    assert topics.texts(topics.read(servers, f"{name}-again-out")) == ["1 a", "2 -"]


@pytest.mark.long("a start of Spark and a registry; tests/unit/test_several_topics has the subjects")
def test_rows_of_several_topics_have_one_schema(
    kafka: LocalKafka, registry: LocalRegistry, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    """By the name of the record, or under a given subject: none follows from a topic, and none is registered for it."""
    name, servers = topics.unique("encode"), kafka.bootstrap_servers
    topics.create_topic(servers, f"{name}-in")
    values = [b'{"id": %d, "note": "%s"}' % (number, note) for number, note in enumerate((b"a", b"b", b"x", b"a"))]
    topics.produce(servers, f"{name}-in", values)
    record = f"a.{name.replace('-', '_')}"
    by_record = {"subjectNameStrategy": "RecordName", "recordName": record}
    out = {
        "name": "out",
        "deliveryGuarantee": "ExactlyOnce",
        "transform": {
            "select": {"topic": f"concat('{name}-', note)", "key": "struct(id)", "value": "struct(id, note AS called)"}
        },
        "kafka": {
            "topics": [{"name": f"{name}-{each}", "partitions": 1} for each in "ab"],
            "progressTopic": {"name": f"{name}-progress", "replicationFactor": 1},
            "encode": {
                "key": encoding(registry, "json", subject=f"{name}-keys"),
                "value": encoding(registry, "avro", **by_record),
            },
        },
        "deadLetter": {"topic": {"name": f"{name}-dead"}},
    }
    decode = {"format": "json", "schema": "id BIGINT, note STRING"}
    app = App(tmp_path, manifest(servers, name, [f"{name}-in"], decode=decode, sinks=[out]))

    app.run_until_idle()

    found = {each: topics.read(servers, f"{name}-{each}") for each in "ab"}
    number = client.get_latest_version(record).schema_id
    assert number is not None
    assert {each.value and each.value[:5] for rows in found.values() for each in rows} == {avro.frame(number)}
    read = AvroDeserializer(client)
    rows = {each: [read(row.value, at(f"{name}-{each}"))["id"] for row in found[each]] for each in "ab"}
    assert rows == {"a": [0, 3], "b": [1]}
    of_json = JSONDeserializer(None, schema_registry_client=client)
    at_key = SerializationContext(f"{name}-b", MessageField.KEY)
    assert [of_json(row.key, at_key) for row in found["b"]] == [{"id": 1}]
    assert {each for each in client.get_subjects() if name in each or each == record} == {record, f"{name}-keys"}
    assert topics.texts(topics.read(servers, f"{name}-dead")) == [values[2].decode()], "as it was in the source"


@pytest.mark.long("four starts of Spark; tests/spark/test_encode has the refusal, test_what_is_written the rows")
def test_an_incompatible_schema_is_refused_before_a_row(
    kafka: LocalKafka, registry: LocalRegistry, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    name, servers = topics.unique("encode"), kafka.bootstrap_servers
    topics.create_topic(servers, f"{name}-in")
    topics.produce(servers, f"{name}-in", [b'{"id": 1}'])
    out = sink(name, encode={"value": encoding(registry, "avro")})
    app = App(tmp_path, document(servers, name, "struct(id)", out))
    app.run_until_idle()
    registry.compatibility(f"{name}-out-value", "BACKWARD")
    topics.produce(servers, f"{name}-in", [b'{"id": 2}'])

    app.write(document(servers, name, "struct(CAST(id AS STRING) AS id)", out))
    checked = app.call("validate", "-f", str(app.manifest))
    with app.start("--until-idle") as run:
        ran = run.wait()

    path = f"sinks[0].kafka.encode.value.schemaRegistry: the registry refuses the schema for subject {name}-out-value"
    assert (checked.returncode, ran) == (3, 3)
    assert f"SchemaRefused: {path}" in checked.stderr
    assert f"SchemaRefused: {path}" in run.stderr
    [problem] = json.loads(app.call("validate", "-f", str(app.manifest), "-o", "json").stdout)["problems"]
    assert (problem["path"], problem["reason"]) == ("spec.sinks[0].kafka.encode.value", "SchemaRefused")
    assert len(topics.read(servers, f"{name}-out")) == 1
    app.write(document(servers, name, "struct(id, note)", out))
    shown = app.call("preview", "-f", str(app.manifest))
    assert f"a run registers it for subject {name}-out-value" in shown.stderr
    assert client.get_versions(f"{name}-out-value") == [1]
    app.run_until_idle()
    assert client.get_versions(f"{name}-out-value") == [1, 2]
    assert len(topics.read(servers, f"{name}-out")) == 2


def at(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


@pytest.mark.long("a start of Spark and a registry of its own; tests/kafka/test_registry has one that is away")
def test_a_sink_waits_for_its_registry_and_no_other_does(kafka: LocalKafka, tmp_path: Path) -> None:
    name, servers = topics.unique("encode"), kafka.bootstrap_servers
    topics.create_topic(servers, f"{name}-in")
    topics.produce(servers, f"{name}-in", [b'{"id": 1}'])
    with LocalRegistry() as registry:
        progress = {"name": f"{name}-progress", "replicationFactor": 1}
        waits = sink("waits", topic=f"{name}-out", encode={"value": encoding(registry, "avro")}, progressTopic=progress)
        plain = sink("plain", topic=f"{name}-plain", progressTopic=progress)
        made = document(servers, name, "struct(id)", waits, plain)
        made["spec"]["transform"] = {}
        made["spec"]["sinks"][0]["transform"] = {"select": {"value": "struct(id)"}}
        app = App(tmp_path, made)
        registry.stop()
        with app.start() as run:

            def told() -> bool:
                return bool(app.sink_status("waits").get("error", {}).get("reason") == "SchemaRegistryUnreachable")

            run.eventually(told, "the sink waits for the registry")
            run.until_rows(1)
            assert len(topics.read(servers, f"{name}-plain")) == 1
            registry.go_on()
            run.until_rows(2)
            run.until_state("Running", "waits")
            assert run.terminate() == 0
    assert [each.value and each.value[:1] for each in topics.read(servers, f"{name}-out")] == [b"\0"]
