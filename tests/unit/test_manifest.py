from __future__ import annotations

import contextlib
import copy
import datetime as dt
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sinkpipeline.core.errors import ExitCode, Reason
from sinkpipeline.core.manifest import (
    DecodeFormat,
    DeletionPolicy,
    DeliveryGuarantee,
    Duration,
    IsolationLevel,
    ManifestError,
    OnDataLoss,
    OnExistingData,
    OnNull,
    Partitioner,
    Problem,
    SaslMechanism,
    SinkPipeline,
    StartingOffsets,
    StringMap,
    parse_manifest,
)
from sinkpipeline.core.manifest.translate import UNTRANSLATED

EXAMPLES = Path(__file__).parents[2] / "examples"

# The resource of the design, without what is not served yet.
COMPLETE = """
apiVersion: sinkpipeline.io/v1alpha1
kind: SinkPipeline
metadata: {name: orders, namespace: shop}
spec:
  identity: shop.orders
  source:
    kafka:
      bootstrapServers: "kafka-0:9092,kafka-1:9092"
      topics: [orders-raw]
      startingOffsets: earliest
      onDataLoss: Fail
      isolationLevel: read_committed
      auth:
        tls:  {caSecretRef: {name: kafka-ca, key: ca.crt},
               certSecretRef: {name: client, certKey: tls.crt, keyKey: tls.key}}
        sasl: {mechanism: SCRAM-SHA-512, username: orders, passwordSecretRef: {name: kafka-user, key: password}}
      groupIdPrefix: sinkpipeline.shop.orders
      properties: {fetch.max.bytes: "8388608"}
  decode: {format: json, schema: "id BIGINT NOT NULL, amount DOUBLE, country STRING", onNull: DeadLetter}
  transform:
    where: "amount > 0"
    select: {key: "CAST(id AS STRING)", value: "to_json(struct(id, amount, country))"}
  trigger: {interval: 1s, maxOffsetsPerTrigger: 500000}
  sinks:
    - name: enriched
      deliveryGuarantee: ExactlyOnce
      onExistingData: Append
      kafka:
        bootstrapServers: "other:9092"
        topic: {name: orders-enriched, partitions: 6, replicationFactor: 3, config: {retention.ms: "604800000"}}
        progressTopic: {name: _sinkpipeline-progress, replicationFactor: 3}
        partitioner: murmur2
        properties: {compression.type: lz4}
  failurePolicy: {maxConsecutiveFailures: 5, backoff: {initial: 5s, max: 5m}, resetAfter: 10m}
  deletionPolicy: Retain
  suspend: false
  spark: {conf: {spark.ui.enabled: "false"}, driver: {cores: 1, memory: 1g},
          executor: {instances: 2, cores: 1, memory: 2g}}
"""

SMALLEST = """
apiVersion: sinkpipeline.io/v1alpha1
kind: SinkPipeline
metadata: {name: orders}
spec:
  source: {kafka: {bootstrapServers: "kafka:9092", topics: [orders]}}
  sinks: [{name: copy, kafka: {topic: {name: orders-copy}}}]
"""

Steps = tuple[str | int, ...]
KAFKA = ("spec", "source", "kafka")
SINK = ("spec", "sinks", 0)


class _Remove:
    pass


REMOVE = _Remove()


def smallest() -> dict[str, Any]:
    return dict(yaml.safe_load(SMALLEST))


def complete() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPLETE))


def changed(document: dict[str, Any], *changes: tuple[Steps, Any]) -> dict[str, Any]:
    document = copy.deepcopy(document)
    for steps, value in changes:
        place: Any = document
        for step in steps[:-1]:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        if value is REMOVE:
            del place[steps[-1]]
        elif isinstance(place, list) and steps[-1] == len(place):
            place.append(value)
        else:
            place[steps[-1]] = value
    return document


def problems_of(document: object) -> tuple[Problem, ...]:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(document)
    return caught.value.problems


def sink(name: str, topic: str, **kafka: Any) -> dict[str, Any]:
    return {"name": name, "kafka": {"topic": {"name": topic}, **kafka}}


# --- what is right ---


def test_the_complete_resource() -> None:
    pipeline = parse_manifest(complete())
    assert pipeline.identity == "shop.orders"
    assert pipeline.group_id_prefix == "sinkpipeline.shop.orders"
    source = pipeline.spec.source.kafka
    assert source.bootstrap_servers == "kafka-0:9092,kafka-1:9092"
    assert source.topics == ("orders-raw",)
    assert source.topic_pattern is None
    assert source.starting_offsets is StartingOffsets.EARLIEST
    assert source.on_data_loss is OnDataLoss.FAIL
    assert source.isolation_level is IsolationLevel.READ_COMMITTED
    assert source.properties == {"fetch.max.bytes": "8388608"}
    assert source.auth is not None
    assert source.auth.tls is not None
    assert source.auth.tls.ca_secret_ref is not None
    assert source.auth.tls.ca_secret_ref.name == "kafka-ca"
    assert source.auth.tls.cert_secret_ref is not None
    assert source.auth.tls.cert_secret_ref.key_key == "tls.key"
    assert source.auth.sasl is not None
    assert source.auth.sasl.mechanism is SaslMechanism.SCRAM_SHA_512
    assert source.auth.sasl.password_secret_ref.key == "password"
    assert pipeline.spec.decode.format is DecodeFormat.JSON
    assert pipeline.spec.decode.schema_ddl == "id BIGINT NOT NULL, amount DOUBLE, country STRING"
    assert pipeline.spec.transform.where == "amount > 0"
    assert pipeline.spec.transform.select is not None
    assert pipeline.spec.transform.select.key == "CAST(id AS STRING)"
    assert pipeline.spec.transform.select.headers is None
    (enriched,) = pipeline.spec.sinks
    assert enriched.kafka.topic.partitions == 6
    assert enriched.kafka.topic.config == {"retention.ms": "604800000"}
    assert enriched.kafka.progress_topic.replication_factor == 3
    assert enriched.kafka.partitioner is Partitioner.MURMUR2
    assert pipeline.spec.failure_policy.backoff.max == Duration.parse("5m")
    assert pipeline.spec.spark.conf == {"spark.ui.enabled": "false"}


def test_the_defaults() -> None:
    pipeline = parse_manifest(smallest())
    assert pipeline.metadata.namespace == "default"
    assert pipeline.identity == "default.orders"
    assert pipeline.group_id_prefix == "sinkpipeline.default.orders"
    spec = pipeline.spec
    assert spec.source.kafka.starting_offsets is StartingOffsets.EARLIEST
    assert spec.source.kafka.on_data_loss is OnDataLoss.FAIL
    assert spec.source.kafka.isolation_level is IsolationLevel.READ_COMMITTED
    assert spec.source.kafka.properties == {}
    assert (spec.decode.format, spec.decode.on_null) == (DecodeFormat.RAW, OnNull.PASS_THROUGH)
    assert (spec.transform.where, spec.transform.select) == (None, None)
    assert (spec.trigger.interval.milliseconds, spec.trigger.max_offsets_per_trigger) == (1000, 1_000_000)
    (only,) = spec.sinks
    assert only.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE
    assert only.on_existing_data is OnExistingData.APPEND
    assert (only.kafka.topic.partitions, only.kafka.topic.replication_factor) == (None, None)
    assert (only.kafka.progress_topic.name, only.kafka.progress_topic.replication_factor) == (
        "_sinkpipeline-progress",
        None,
    )
    assert spec.failure_policy.max_consecutive_failures == 5
    assert (str(spec.failure_policy.backoff.initial), str(spec.failure_policy.backoff.max)) == ("5s", "5m")
    assert str(spec.failure_policy.reset_after) == "10m"
    assert spec.deletion_policy is DeletionPolicy.RETAIN
    assert spec.suspend is False
    assert (spec.spark.driver.cores, spec.spark.driver.memory) == (1, "1g")
    assert (spec.spark.executor.instances, spec.spark.executor.cores, spec.spark.executor.memory) == (2, 1, "2g")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_parse(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        parse_manifest(document)


def test_the_flights_example() -> None:
    pipeline = parse_manifest(yaml.safe_load((EXAMPLES / "flights.yaml").read_text()))
    assert pipeline.identity == "demo.flights"
    assert pipeline.spec.source.kafka.topics == ("flights",)
    assert pipeline.spec.decode.schema_ddl is not None
    assert pipeline.spec.decode.schema_ddl.startswith("id BIGINT NOT NULL, year INT")
    assert [(sink.name, sink.kafka.topic.name) for sink in pipeline.spec.sinks] == [("delayed", "flights-delayed")]


def test_what_kubectl_prints_parses() -> None:
    document = changed(
        smallest(),
        (("status",), {"phase": "Running", "conditions": [{"anything": 1}]}),
        (
            ("metadata",),
            {
                "name": "orders",
                "namespace": "shop",
                "labels": {"a": "b"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
                "generation": 3,
                "uid": "8a1c",
                "resourceVersion": "42",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["sinkpipeline.io/delete"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}],
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:source": {".": {}}}}}],
                "selfLink": "/apis",
            },
        ),
    )
    metadata = parse_manifest(document).metadata
    assert metadata.labels == {"a": "b"}
    assert (metadata.generation, metadata.uid) == (3, "8a1c")
    assert (metadata.resource_version, metadata.finalizers) == ("42", ("sinkpipeline.io/delete",))
    assert metadata.owner_references[0].kind == "ConfigMap"


def test_a_timestamp_without_quotes_is_the_api_servers() -> None:
    stamp = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    pipeline = parse_manifest(changed(smallest(), (("metadata", "creationTimestamp"), stamp)))
    assert pipeline.metadata.creation_timestamp == "2026-01-01T00:00:00+00:00"


def test_null_is_absent() -> None:
    document = changed(
        smallest(),
        (("spec", "transform"), None),
        (("spec", "restartNonce"), None),
        (("spec", "trigger"), {"interval": None}),
        (("metadata", "creationTimestamp"), None),
    )
    assert parse_manifest(document) == parse_manifest(smallest())


@pytest.mark.parametrize(
    ("decode", "on_null"),
    [
        ({"format": "json", "schema": "a INT"}, OnNull.DEAD_LETTER),
        ({"format": "json", "schema": "a INT", "onNull": "PassThrough"}, OnNull.PASS_THROUGH),
        ({"format": "raw"}, OnNull.PASS_THROUGH),
        ({"format": "raw", "onNull": "DeadLetter"}, OnNull.DEAD_LETTER),
    ],
)
def test_what_a_tombstone_is_depends_on_the_format(decode: dict[str, str], on_null: OnNull) -> None:
    assert parse_manifest(changed(smallest(), (("spec", "decode"), decode))).spec.decode.on_null is on_null


OWN_AUTH: dict[str, Any] = {"tls": {}}
SOURCE_AUTH = {"sasl": {"mechanism": "PLAIN", "username": "u", "passwordSecretRef": {"name": "s", "key": "k"}}}


@pytest.mark.parametrize(
    ("kafka", "bootstrap", "auth"),
    [
        ({}, "kafka:9092", SOURCE_AUTH),
        ({"auth": OWN_AUTH}, "kafka:9092", OWN_AUTH),
        ({"bootstrapServers": "other:9092"}, "other:9092", None),
        ({"bootstrapServers": "kafka:9092"}, "kafka:9092", None),
        ({"bootstrapServers": "other:9092", "auth": OWN_AUTH}, "other:9092", OWN_AUTH),
    ],
)
def test_a_sinks_connection(kafka: dict[str, Any], bootstrap: str, auth: dict[str, Any] | None) -> None:
    document = changed(smallest(), ((*KAFKA, "auth"), SOURCE_AUTH), (SINK, sink("copy", "orders-copy", **kafka)))
    pipeline = parse_manifest(document)
    connection = pipeline.connection(pipeline.spec.sinks[0])
    assert connection.bootstrap_servers == bootstrap
    shown = (
        None if connection.auth is None else connection.auth.model_dump(mode="json", by_alias=True, exclude_none=True)
    )
    assert shown == auth


def test_bootstrap_servers_lose_their_blanks() -> None:
    servers = "kafka-0.shop:9092, 10.0.0.1:19092 ,[fd00::1]:9092"
    pipeline = parse_manifest(changed(smallest(), ((*KAFKA, "bootstrapServers"), servers)))
    assert pipeline.spec.source.kafka.bootstrap_servers == "kafka-0.shop:9092,10.0.0.1:19092,[fd00::1]:9092"


def test_a_topic_pattern_reads_whole_names() -> None:
    document = changed(
        smallest(), ((*KAFKA, "topics"), REMOVE), ((*KAFKA, "topicPattern"), r"orders|shop\.\w+-v[0-9]+")
    )
    source = parse_manifest(document).spec.source.kafka
    assert source.reads("orders")
    assert source.reads("shop.returns-v2")
    assert not source.reads("orders-copy")
    assert not source.reads("my-orders")
    assert not source.reads("shopXreturns-v2")


def test_a_hostile_pattern_takes_no_time() -> None:
    names = [sink(f"s{index}", "a" * 240 + f"-{index}") for index in range(32)]
    document = changed(smallest(), ((*KAFKA, "topics"), REMOVE), ((*KAFKA, "topicPattern"), "((a+)+)+"))
    parse_manifest(changed(document, (("spec", "sinks"), names)))


@pytest.mark.parametrize(
    "change",
    [
        (("spec", "trigger", "interval"), "0s"),
        ((*SINK, "name"), "control"),
        ((*SINK, "name"), "0"),
        (("metadata", "name"), "a" * 52),
        ((*KAFKA, "auth"), {"tls": {}}),
        (("spec", "transform"), {}),
        (("spec", "sinks"), [sink(f"s{index}", f"t{index}") for index in range(32)]),
        # Another cluster, as far as the manifest can know.
        (SINK, sink("copy", "orders", bootstrapServers="other:9092")),
        (("spec", "sinks", 1), sink("again", "orders-copy", bootstrapServers="other:9092")),
        (
            (*SINK, "kafka", "properties"),
            {"linger.ms": "0.5", "compression.level": "-1", "socket.keepalive.enable": "true"},
        ),
        (("spec", "spark", "conf"), {"spark.sql.session.timeZone": "UTC", "spark.executor.memoryOverhead": "1g"}),
    ],
)
def test_allowed(change: tuple[Steps, Any]) -> None:
    parse_manifest(changed(smallest(), change))


def test_the_document_of_a_pipeline_gives_the_same_pipeline() -> None:
    for document in (complete(), smallest()):
        pipeline = parse_manifest(document)
        assert parse_manifest(pipeline.to_document()) == pipeline
        assert yaml.safe_load(yaml.safe_dump(pipeline.to_document())) == pipeline.to_document()


def test_a_pipeline_is_a_value() -> None:
    first, second = parse_manifest(complete()), parse_manifest(complete())
    assert first == second
    assert hash(first) == hash(second)
    assert first != parse_manifest(changed(complete(), (("spec", "suspend"), True)))
    assert pickle.loads(pickle.dumps(first)) == first
    parts: list[tuple[Any, str]] = [
        (first, "spec"),
        (first.spec, "suspend"),
        (first.spec.sinks[0].kafka.topic, "name"),
        (first.spec.source.kafka.properties, "anything"),
    ]
    for part, name in parts:
        with pytest.raises((ValidationError, AttributeError)):
            setattr(part, name, None)
    properties: Any = first.spec.source.kafka.properties
    with pytest.raises(TypeError):
        properties["fetch.max.bytes"] = "1"


def test_a_string_map_does_not_show_its_values() -> None:
    assert repr(StringMap({"b": "secret", "a": "secret"})) == "StringMap(a, b)"


# --- what is wrong: where, a change, the path that is named, a word of the message ---

WRONG: list[tuple[Steps, Any, str, str]] = [
    # The envelope.
    (("apiVersion",), REMOVE, "apiVersion", "is missing"),
    (("apiVersion",), "sinkpipeline.io/v1", "apiVersion", "use sinkpipeline.io/v1alpha1"),
    (("kind",), "SinkPipline", "kind", "use SinkPipeline"),
    (("metadata",), REMOVE, "metadata", "is missing"),
    (("spec",), REMOVE, "spec", "is missing"),
    (("spec",), "x", "spec", "is text, not a mapping"),
    (("spec",), [], "spec", "is a list, not a mapping"),
    (("spce",), {}, "spce", "did you mean spec?"),
    (("metadata", "name"), REMOVE, "metadata.name", "is missing"),
    (("metadata", "name"), "a" * 53, "metadata.name", "has 53 characters"),
    (("metadata", "name"), "1orders", "metadata.name", "DNS-1035"),
    (("metadata", "name"), "orders-", "metadata.name", "DNS-1035"),
    (("metadata", "name"), "Orders", "metadata.name", 'is "Orders"'),
    (("metadata", "name"), "", "metadata.name", "DNS-1035"),
    (("metadata", "name"), 5, "metadata.name", "put it in quotes"),
    (("metadata", "namespace"), "a.b", "metadata.namespace", "DNS-1123"),
    (("metadata", "nmespace"), "x", "metadata.nmespace", "did you mean namespace?"),
    (("metadata", "labels"), {"a": 1}, "metadata.labels.a", "put it in quotes"),
    # identity
    (("spec", "identity"), "Shop", "spec.identity", "a-z, 0-9, . and -"),
    (("spec", "identity"), "a/b", "spec.identity", 'is "a/b"'),
    (("spec", "identity"), "a" * 201, "spec.identity", "has 201 characters"),
    (("spec", "identity"), "a\n", "spec.identity", "1 to 200"),
    # source
    (("spec", "source"), REMOVE, "spec.source", "is missing"),
    (("spec", "source"), {}, "spec.source.kafka", "is missing"),
    ((*KAFKA, "bootstrapServers"), REMOVE, "spec.source.kafka.bootstrapServers", "is missing"),
    ((*KAFKA, "bootstrapServers"), "", "spec.source.kafka.bootstrapServers", "it is not host:port"),
    ((*KAFKA, "bootstrapServers"), "kafka", "spec.source.kafka.bootstrapServers", "host:port"),
    ((*KAFKA, "bootstrapServers"), "a:1,b", "spec.source.kafka.bootstrapServers", "entry 2 of 2"),
    ((*KAFKA, "bootstrapServers"), "a:1,", "spec.source.kafka.bootstrapServers", "entry 2 of 2"),
    ((*KAFKA, "bootstrapServers"), "a:0", "spec.source.kafka.bootstrapServers", "host:port"),
    ((*KAFKA, "bootstrapServers"), "a:65536", "spec.source.kafka.bootstrapServers", "host:port"),
    ((*KAFKA, "bootstrapServers"), "ssl://a:9092", "spec.source.kafka.bootstrapServers", "host:port"),
    ((*KAFKA, "bootstrapServers"), "::1:9092", "spec.source.kafka.bootstrapServers", "host:port"),
    ((*KAFKA, "bootstrapServers"), ["a:1"], "spec.source.kafka.bootstrapServers", "is a list, not text"),
    ((*KAFKA, "bootstrapServers"), "a:1," * 4000, "spec.source.kafka.bootstrapServers", "at most 8192"),
    ((*KAFKA, "topics"), REMOVE, "spec.source.kafka.topics", "or give topicPattern"),
    ((*KAFKA, "topics"), [], "spec.source.kafka.topics", "is empty"),
    ((*KAFKA, "topics"), "orders", "spec.source.kafka.topics", "is text, not a list"),
    ((*KAFKA, "topics"), ["a", "b", "a"], "spec.source.kafka.topics[2]", 'repeats "a"'),
    ((*KAFKA, "topics"), ["a/b"], "spec.source.kafka.topics[0]", "Kafka topic name"),
    ((*KAFKA, "topics"), [".."], "spec.source.kafka.topics[0]", 'is ".."'),
    ((*KAFKA, "topics"), ["a", "."], "spec.source.kafka.topics[1]", 'is "."'),
    ((*KAFKA, "topics"), ["a" * 250], "spec.source.kafka.topics[0]", "has 250 characters"),
    ((*KAFKA, "topics"), [None], "spec.source.kafka.topics[0]", "is null, not text"),
    ((*KAFKA, "topics"), [f"t{index}" for index in range(1001)], "spec.source.kafka.topics", "at most 1000"),
    ((*KAFKA, "topicPattern"), "a.*", "spec.source.kafka.topicPattern", "not both"),
    ((*KAFKA, "startingOffsets"), "first", "spec.source.kafka.startingOffsets", "use earliest or latest"),
    ((*KAFKA, "onDataLoss"), "skip", "spec.source.kafka.onDataLoss", "use Fail or Skip"),
    ((*KAFKA, "isolationLevel"), "x", "spec.source.kafka.isolationLevel", "read_committed or read_uncommitted"),
    ((*KAFKA, "groupIdPrefix"), "a b", "spec.source.kafka.groupIdPrefix", "1 to 249"),
    ((*KAFKA, "topic"), "orders", "spec.source.kafka.topic", "use topics, a list"),
    ((*KAFKA, "bootstrap_servers"), "a:1", "spec.source.kafka.bootstrap_servers", "did you mean bootstrapServers?"),
    # auth
    ((*KAFKA, "auth"), {}, "spec.source.kafka.auth", "give tls, sasl or both"),
    ((*KAFKA, "auth", "sasl"), {}, "spec.source.kafka.auth.sasl.username", "is missing"),
    (
        (*KAFKA, "auth", "sasl", "mechanism"),
        "GSSAPI",
        "spec.source.kafka.auth.sasl.mechanism",
        "PLAIN, SCRAM-SHA-256 or",
    ),
    ((*KAFKA, "auth", "sasl", "username"), " ", "spec.source.kafka.auth.sasl.username", "is empty"),
    ((*KAFKA, "auth", "sasl", "username"), "\0", "spec.source.kafka.auth.sasl.username", "NUL"),
    (
        (*KAFKA, "auth", "sasl", "password"),
        "x",
        "spec.source.kafka.auth.sasl.password",
        "did you mean passwordSecretRef?",
    ),
    (
        (*KAFKA, "auth", "sasl", "passwordSecretRef"),
        {"name": "../x", "key": "k"},
        "spec.source.kafka.auth.sasl.passwordSecretRef.name",
        "name of a Secret",
    ),
    (
        (*KAFKA, "auth", "sasl", "passwordSecretRef"),
        {"name": "x", "key": ".."},
        "spec.source.kafka.auth.sasl.passwordSecretRef.key",
        "begins with ..",
    ),
    (
        (*KAFKA, "auth", "tls", "caSecretRef"),
        {"name": "x", "key": "a/b"},
        "spec.source.kafka.auth.tls.caSecretRef.key",
        "key of a Secret",
    ),
    (
        (*KAFKA, "auth", "tls", "certSecretRef"),
        {"name": "x", "certKey": "."},
        "spec.source.kafka.auth.tls.certSecretRef.certKey",
        "key of a Secret",
    ),
    (
        (*KAFKA, "auth", "tls", "certSecretRef"),
        {"name": "x", "certKey": "c"},
        "spec.source.kafka.auth.tls.certSecretRef.keyKey",
        "is missing",
    ),
    # properties of the source
    ((*KAFKA, "properties"), {"fetch.max.bytes": 1}, 'spec.source.kafka.properties["fetch.max.bytes"]', "in quotes"),
    ((*KAFKA, "properties"), {"fetch.max.bytes": None}, 'spec.source.kafka.properties["fetch.max.bytes"]', "is null"),
    (
        (*KAFKA, "properties"),
        {"fetch.max.bytes": "8MB"},
        'spec.source.kafka.properties["fetch.max.bytes"]',
        "whole number",
    ),
    ((*KAFKA, "properties"), {"fetch.max.byte": "1"}, 'spec.source.kafka.properties["fetch.max.byte"]', "did you mean"),
    ((*KAFKA, "properties"), {"zzz": "1"}, "spec.source.kafka.properties.zzz", "allowed are client.dns.lookup"),
    ((*KAFKA, "properties"), {"group.id": "1"}, 'spec.source.kafka.properties["group.id"]', "groupIdPrefix"),
    (
        (*KAFKA, "properties"),
        {"isolation.level": "1"},
        'spec.source.kafka.properties["isolation.level"]',
        "isolationLevel",
    ),
    (
        (*KAFKA, "properties"),
        {"auto.offset.reset": "latest"},
        'spec.source.kafka.properties["auto.offset.reset"]',
        "startingOffsets",
    ),
    (
        (*KAFKA, "properties"),
        {"sasl.jaas.config": "x"},
        'spec.source.kafka.properties["sasl.jaas.config"]',
        "use auth beside properties",
    ),
    (
        (*KAFKA, "properties"),
        {"security.protocol": "SSL"},
        'spec.source.kafka.properties["security.protocol"]',
        "use auth beside properties",
    ),
    (
        (*KAFKA, "properties"),
        {"enable.auto.commit": "true"},
        'spec.source.kafka.properties["enable.auto.commit"]',
        "progress",
    ),
    (
        (*KAFKA, "properties"),
        {"bootstrap.servers": "a:1"},
        'spec.source.kafka.properties["bootstrap.servers"]',
        "bootstrapS",
    ),
    # decode
    (("spec", "decode"), {}, "spec.decode.format", "is missing"),
    (("spec", "decode"), {"format": "text"}, "spec.decode.format", "use json or raw"),
    (("spec", "decode"), {"format": "json"}, "spec.decode.schema", "format json needs it"),
    (("spec", "decode"), {"format": "json", "schema": ""}, "spec.decode.schema", "is empty"),
    (("spec", "decode"), {"format": "json", "schema": "é" * 32769}, "spec.decode.schema", "65536 bytes"),
    (("spec", "decode"), {"format": "raw", "schema": "a INT"}, "spec.decode.schema", "no meaning for format raw"),
    (("spec", "decode"), {"format": "raw", "onNull": "Drop"}, "spec.decode.onNull", "DeadLetter or PassThrough"),
    # transform
    (("spec", "transform"), {"where": " "}, "spec.transform.where", "is empty"),
    (("spec", "transform"), {"where": True}, "spec.transform.where", "put it in quotes"),
    (("spec", "transform"), {"where": "a" * 16385}, "spec.transform.where", "is too long"),
    (("spec", "transform"), {"select": {}}, "spec.transform.select", "is empty"),
    (("spec", "transform"), {"select": {"value": ""}}, "spec.transform.select.value", "is empty"),
    (("spec", "transform"), {"select": {"valeu": "a"}}, "spec.transform.select.valeu", "did you mean value?"),
    # trigger
    (("spec", "trigger"), {"interval": "1"}, "spec.trigger.interval", "such as 30s"),
    (("spec", "trigger"), {"interval": 1}, "spec.trigger.interval", "put it in quotes"),
    (("spec", "trigger"), {"interval": "9999h"}, "spec.trigger.interval", "8760h"),
    (("spec", "trigger"), {"maxOffsetsPerTrigger": 0}, "spec.trigger.maxOffsetsPerTrigger", "use 1 or more"),
    (("spec", "trigger"), {"maxOffsetsPerTrigger": "3"}, "spec.trigger.maxOffsetsPerTrigger", "without quotes"),
    (("spec", "trigger"), {"maxOffsetsPerTrigger": 1.5}, "spec.trigger.maxOffsetsPerTrigger", "whole number"),
    (("spec", "trigger"), {"maxOffsetsPerTrigger": True}, "spec.trigger.maxOffsetsPerTrigger", "not a whole number"),
    # sinks
    (("spec", "sinks"), REMOVE, "spec.sinks", "is missing"),
    (("spec", "sinks"), [], "spec.sinks", "is empty"),
    (("spec", "sinks"), {}, "spec.sinks", "is a mapping, not a list"),
    (("spec", "sinks"), [sink(f"s{index}", f"t{index}") for index in range(33)], "spec.sinks", "at most 32"),
    (("spec", "sinks", 1), sink("copy", "other"), "spec.sinks[1].name", 'repeats "copy"'),
    ((*SINK, "name"), REMOVE, "spec.sinks[0].name", "is missing"),
    ((*SINK, "name"), "a.redrive", "spec.sinks[0].name", "DNS-1123"),
    ((*SINK, "name"), "a/b", "spec.sinks[0].name", "DNS-1123"),
    ((*SINK, "name"), "a" * 64, "spec.sinks[0].name", "has 64 characters"),
    ((*SINK, "deliveryGuarantee"), "AtMostOnce", "spec.sinks[0].deliveryGuarantee", "use ExactlyOnce or AtLeastOnce"),
    ((*SINK, "onExistingData"), "Fail", "spec.sinks[0].onExistingData", "use Append or Refuse"),
    ((*SINK, "kafka"), REMOVE, "spec.sinks[0].kafka", "is missing"),
    ((*SINK, "kafak"), {}, "spec.sinks[0].kafak", "did you mean kafka?"),
    ((*SINK, "kafka", "bootstrapServers"), "b", "spec.sinks[0].kafka.bootstrapServers", "host:port"),
    ((*SINK, "kafka", "topic"), REMOVE, "spec.sinks[0].kafka.topic", "is missing"),
    ((*SINK, "kafka", "topics"), ["a"], "spec.sinks[0].kafka.topics", "several sinks"),
    ((*SINK, "kafka", "topic", "name"), "a b", "spec.sinks[0].kafka.topic.name", "Kafka topic name"),
    ((*SINK, "kafka", "topic", "partitions"), 0, "spec.sinks[0].kafka.topic.partitions", "use 1 or more"),
    ((*SINK, "kafka", "topic", "partitions"), 10001, "spec.sinks[0].kafka.topic.partitions", "use 10000 or less"),
    ((*SINK, "kafka", "topic", "replicationFactor"), 0, "spec.sinks[0].kafka.topic.replicationFactor", "1 or more"),
    (
        (*SINK, "kafka", "topic", "replicationFactor"),
        32768,
        "spec.sinks[0].kafka.topic.replicationFactor",
        "32767 or less",
    ),
    (
        (*SINK, "kafka", "topic", "config"),
        {"retention": "1"},
        "spec.sinks[0].kafka.topic.config.retention",
        "retention.ms",
    ),
    (
        (*SINK, "kafka", "topic", "config"),
        {"retention.ms": 1},
        'spec.sinks[0].kafka.topic.config["retention.ms"]',
        "in quotes",
    ),
    (
        (*SINK, "kafka", "progressTopic"),
        {"partitions": 1},
        "spec.sinks[0].kafka.progressTopic.partitions",
        "exactly 1 partition",
    ),
    ((*SINK, "kafka", "progressTopic"), {"name": ""}, "spec.sinks[0].kafka.progressTopic.name", "Kafka topic name"),
    ((*SINK, "kafka", "partitioner"), "random", "spec.sinks[0].kafka.partitioner", "use murmur2"),
    ((*SINK, "kafka", "auth"), {"tls": 1}, "spec.sinks[0].kafka.auth.tls", "is a number, not a mapping"),
    *(
        ((*SINK, "kafka", "properties"), {name: "1"}, f'spec.sinks[0].kafka.properties["{name}"]', word)
        for name, word in {
            "enable.idempotence": "deliveryGuarantee",
            "transactional.id": "deliveryGuarantee",
            "transaction.timeout.ms": "deliveryGuarantee",
            "message.timeout.ms": "deliveryGuarantee",
            "socket.timeout.ms": "deliveryGuarantee",
            "max.in.flight.requests.per.connection": "deliveryGuarantee",
            "message.max.bytes": "max.message.bytes",
            "ssl.ca.location": "use auth",
            "sasl.password": "use auth",
            "allow.auto.create.topics": "topic only",
            "linger.msec": "did you mean linger.ms?",
        }.items()
    ),
    ((*SINK, "kafka", "properties"), {"acks": "1"}, "spec.sinks[0].kafka.properties.acks", "deliveryGuarantee"),
    ((*SINK, "kafka", "properties"), {"retries": "1"}, "spec.sinks[0].kafka.properties.retries", "deliveryGuarantee"),
    (
        (*SINK, "kafka", "properties"),
        {"partitioner": "1"},
        "spec.sinks[0].kafka.properties.partitioner",
        "kafka.partitioner",
    ),
    (
        (*SINK, "kafka", "properties"),
        {"compression.type": "brotli"},
        'spec.sinks[0].kafka.properties["compression.type"]',
        "none, gzip, snappy, lz4 or zstd",
    ),
    # between source and sinks
    (SINK, sink("copy", "orders"), "spec.sinks[0].kafka.topic.name", "is a source topic too"),
    (
        SINK,
        sink("copy", "orders", bootstrapServers="x:1,KAFKA:9092"),
        "spec.sinks[0].kafka.topic.name",
        "is a source topic too",
    ),
    (
        SINK,
        sink("copy", "x", progressTopic={"name": "orders"}),
        "spec.sinks[0].kafka.progressTopic.name",
        "is a source topic too",
    ),
    (SINK, sink("copy", "_sinkpipeline-progress"), "spec.sinks[0].kafka.topic.name", "is the progress topic too"),
    (
        ("spec", "sinks", 1),
        sink("b", "_sinkpipeline-progress", progressTopic={"name": "p"}),
        "spec.sinks[1].kafka.topic.name",
        'is the progress topic of sink "copy"',
    ),
    (
        ("spec", "sinks", 1),
        sink("b", "orders-copy"),
        "spec.sinks[1].kafka.topic.name",
        'is the topic of sink "copy" too',
    ),
    # operation
    (
        ("spec", "failurePolicy"),
        {"maxConsecutiveFailures": 0},
        "spec.failurePolicy.maxConsecutiveFailures",
        "1 or more",
    ),
    (("spec", "failurePolicy"), {"backoff": {"initial": "0s"}}, "spec.failurePolicy.backoff.initial", "longer than 0s"),
    (
        ("spec", "failurePolicy"),
        {"backoff": {"initial": "6m"}},
        "spec.failurePolicy.backoff.initial",
        "longer than max, 5m",
    ),
    (("spec", "failurePolicy"), {"resetAfter": "0s"}, "spec.failurePolicy.resetAfter", "longer than 0s"),
    (("spec", "deletionPolicy"), "Orphan", "spec.deletionPolicy", "use Retain"),
    (("spec", "suspend"), "yes", "spec.suspend", "write true or false, without quotes"),
    (("spec", "suspend"), 1, "spec.suspend", "is a number, not true or false"),
    (("spec", "spark"), {"driver": {"cores": 0}}, "spec.spark.driver.cores", "1 or more"),
    (("spec", "spark"), {"driver": {"memory": "1Gi"}}, "spec.spark.driver.memory", "512m or 2g"),
    (("spec", "spark"), {"driver": {"memory": "0g"}}, "spec.spark.driver.memory", "512m or 2g"),
    (("spec", "spark"), {"driver": {"memory": 1024}}, "spec.spark.driver.memory", "put it in quotes"),
    (("spec", "spark"), {"executor": {"instances": 0}}, "spec.spark.executor.instances", "1 or more"),
    (("spec", "spark"), {"executor": {"instance": 1}}, "spec.spark.executor.instance", "did you mean instances?"),
    (("spec", "spark"), {"conf": {"spark.x": 1}}, 'spec.spark.conf["spark.x"]', "put it in quotes"),
    (("spec", "spark"), {"conf": {"sql.x": "1"}}, 'spec.spark.conf["sql.x"]', "begins with spark."),
    *(
        (("spec", "spark"), {"conf": {name: "1"}}, f'spec.spark.conf["{name}"]', word)
        for name, word in {
            "spark.master": "where the pipeline runs",
            "spark.app.name": "identity",
            "spark.task.maxFailures": "try again",
            "spark.speculation": "two attempts",
            "spark.speculation.multiplier": "two attempts",
            "spark.python.daemon.module": "workers keep producers",
            "spark.python.worker.reuse": "workers keep producers",
            "spark.sql.streaming.checkpointLocation": "progress topic",
            "spark.scheduler.mode": "its own pool",
            "spark.sql.execution.arrow.pyspark.enabled": "Arrow",
            "spark.kubernetes.container.image": "image",
            "spark.kubernetes.driver.container.image": "image",
            "spark.kubernetes.container.image.pullPolicy": "image",
            "spark.kubernetes.driver.podTemplateFile": "operator",
            "spark.jars.packages": "image",
            "spark.executor.cores": "spec.spark.executor.cores",
            "spark.driver.memory": "spec.spark.driver.memory",
            "spark.hadoop.fs.s3a.secret.key": "Secrets",
            "spark.ssl.keyPassword": "Secrets",
        }.items()
    ),
    # What YAML can say and JSON can't.
    (("spec", "suspend"), dt.date(2026, 1, 1), "spec.suspend", "is a date"),
    (("spec", "trigger", "maxOffsetsPerTrigger"), 2**63, "spec.trigger.maxOffsetsPerTrigger", "64 bits"),
    (("spec", "trigger", "maxOffsetsPerTrigger"), math.nan, "spec.trigger.maxOffsetsPerTrigger", "finite"),
    (("spec", "transform", "where"), "\ud800", "spec.transform.where", "Unicode"),
    (("spec", "transform", "where"), b"x", "spec.transform.where", "plain YAML"),
    (("spec", 1), "x", "spec", "put the key in quotes"),
    (("spec", "\ud800"), "x", "spec", "a key that is not valid Unicode"),
]


@pytest.mark.parametrize(("steps", "value", "path", "word"), WRONG)
def test_wrong(steps: Steps, value: Any, path: str, word: str) -> None:
    problems = problems_of(changed(smallest(), (steps, value)))
    assert path in {problem.path for problem in problems}
    (problem, *_) = [problem for problem in problems if problem.path == path]
    assert word in str(problem)
    assert problem.reason is Reason.MANIFEST_INVALID


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("(", "is not such a regular expression"),
        ("a)|(b", "is not such a regular expression"),
        ("(?=a)b", "no look-around"),
        (r"(a)\1", "no back-references"),
        ("(?P<x>a)", "named group"),
        ("a++", "possessive"),
        ("", "1 to 1024 characters"),
        ("a" * 1025, "1 to 1024 characters"),
    ],
)
def test_wrong_patterns(pattern: str, word: str) -> None:
    document = changed(smallest(), ((*KAFKA, "topics"), REMOVE), ((*KAFKA, "topicPattern"), pattern))
    (problem,) = problems_of(document)
    assert problem.path == "spec.source.kafka.topicPattern"
    assert word in str(problem)


def test_a_pattern_that_reads_what_the_pipeline_writes() -> None:
    document = changed(smallest(), ((*KAFKA, "topics"), REMOVE), ((*KAFKA, "topicPattern"), ".*"))
    assert [(problem.path, problem.wrong) for problem in problems_of(document)] == [
        ("spec.sinks[0].kafka.topic.name", "matches the source's topicPattern"),
        ("spec.sinks[0].kafka.progressTopic.name", "matches the source's topicPattern"),
    ]


def test_rows_in_the_progress_topic_are_one_problem() -> None:
    (problem,) = problems_of(changed(smallest(), (("spec", "sinks", 1), sink("b", "_sinkpipeline-progress"))))
    assert (problem.path, problem.wrong) == ("spec.sinks[1].kafka.topic.name", "is the progress topic too")


UNSERVED: list[tuple[Steps, Any]] = [
    ((*SINK, "deadLetter"), {"topic": {"name": "dlq"}}),
    ((*SINK, "decode"), {"format": "raw"}),
    ((*SINK, "transform"), {"where": "a"}),
    ((*SINK, "kafka", "key"), "id"),
    (("spec", "deletionPolicy"), "Delete"),
    (("spec", "restartNonce"), 1),
    (("spec", "spark", "template"), {}),
    (("spec", "spark", "image"), "x"),
    (("spec", "spark", "version"), "4.0.4"),
    (("spec", "spark", "serviceAccount"), "x"),
    (("spec", "decode", "format"), "avro"),
    (("spec", "decode", "format"), "protobuf"),
    (("spec", "transform", "groupBy"), "a"),
]


@pytest.mark.parametrize(("steps", "value"), UNSERVED)
def test_unserved_is_refused_by_name(steps: Steps, value: Any) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(changed(smallest(), (steps, value)))
    (problem,) = caught.value.problems
    assert problem.path == ".".join(map(str, steps)).replace(".0", "[0]")
    assert "not served yet" in problem.wrong
    assert caught.value.reason is Reason.NOT_SERVED


@pytest.mark.parametrize("kind", ["nats", "redis", "postgres"])
def test_another_kind_of_sink_is_one_problem(kind: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(changed(smallest(), (SINK, {"name": "copy", kind: {}})))
    assert [problem.path for problem in caught.value.problems] == [f"spec.sinks[0].{kind}"]
    assert caught.value.reason is Reason.NOT_SERVED


def test_another_kind_of_source_is_one_problem() -> None:
    (problem,) = problems_of(changed(smallest(), (("spec", "source"), {"pulsar": {}})))
    assert (problem.path, problem.reason) == ("spec.source.pulsar", Reason.NOT_SERVED)


def test_two_kinds_are_not_one_sink() -> None:
    (problem,) = problems_of(changed(smallest(), ((*SINK, "nats"), {})))
    assert problem.path == "spec.sinks[0].nats"


def test_a_schema_registry_is_not_served() -> None:
    decode = {"format": "avro", "schemaRegistry": {"url": "http://x"}}
    with pytest.raises(ManifestError) as caught:
        parse_manifest(changed(smallest(), (("spec", "decode"), decode)))
    assert {problem.path for problem in caught.value.problems} == {"spec.decode.format", "spec.decode.schemaRegistry"}
    assert caught.value.reason is Reason.NOT_SERVED


# --- the error ---


def test_every_problem_is_listed() -> None:
    document = changed(
        smallest(),
        ((*SINK, "deliveryGuarantee"), "AtMostOnce"),
        ((*SINK, "deadLetter"), {}),
        (("spec", "suspend"), "no"),
    )
    with pytest.raises(ManifestError) as caught:
        parse_manifest(document)
    error = caught.value
    assert error.reason is Reason.MANIFEST_INVALID
    assert error.reason.exit_code is ExitCode.MANIFEST
    assert error.message.splitlines() == [
        'spec.sinks[0].deliveryGuarantee: is "AtMostOnce"; use ExactlyOnce or AtLeastOnce',
        "spec.sinks[0].deadLetter: is not served yet; remove it: a bad record stops its sink",
        "spec.suspend: is text, not true or false; write true or false, without quotes",
    ]


def test_a_wrong_sink_does_not_make_the_list_empty() -> None:
    assert {problem.path for problem in problems_of(changed(smallest(), ((*SINK, "name"), "A")))} == {
        "spec.sinks[0].name"
    }


def test_the_error_crosses_processes() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest({})
    copied = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copied, ManifestError)
    assert (copied.problems, str(copied)) == (caught.value.problems, str(caught.value))


def test_a_message_stays_readable_however_much_is_wrong() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest({f"field{index}": 1 for index in range(5000)})
    assert len(caught.value.problems) == 5004
    assert caught.value.message.endswith("and 4904 more")


@pytest.mark.parametrize("document", [None, [], "x", 1, True, b"x", object()])
def test_what_is_no_mapping(document: object) -> None:
    (problem,) = problems_of(document)
    assert problem.path == "manifest"


def test_yaml_that_contains_itself() -> None:
    (problem,) = problems_of(yaml.safe_load("&a [*a, *a]"))
    assert "alias" in problem.right


def test_yaml_that_grows_without_bound() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{index}: &a{index} [{', '.join([f'*a{index - 1}'] * 9)}]" for index in range(1, 12)]
    (problem,) = problems_of(yaml.safe_load("\n".join(lines)))
    assert "too large" in problem.wrong


SECRET = "hunter2:hunter2"


@pytest.mark.parametrize(
    "steps",
    [
        (*KAFKA, "auth", "sasl", "username"),
        (*KAFKA, "auth", "sasl", "mechanism"),
        (*KAFKA, "auth", "sasl", "password"),
        (*KAFKA, "auth", "sasl", "passwordSecretRef"),
        (*KAFKA, "auth", "sasl", "passwordSecretRef", "name"),
        (*KAFKA, "auth", "sasl", "passwordSecretRef", "key"),
        (*KAFKA, "auth", "tls"),
        (*KAFKA, "auth"),
        (*KAFKA, "bootstrapServers"),
        (*KAFKA, "properties", "sasl.jaas.config"),
        (*KAFKA, "properties", "fetch.max.bytes"),
        (*KAFKA, "properties", "client.rack"),
        (*KAFKA, "properties", SECRET),
        (*SINK, "kafka", "properties", "acks"),
        (*SINK, "kafka", "topic", "config", "x"),
        ("spec", "spark", "conf", "spark.ssl.keyPassword"),
        ("spec", "password"),
    ],
)
def test_secrets_are_not_shown(steps: Steps) -> None:
    document = changed(smallest(), (("spec", "sinks", 0, "nonsense"), 1), (steps, SECRET))
    with pytest.raises(ManifestError) as caught:
        parse_manifest(document)
    error = caught.value
    assert "hunter2" not in f"{error} {error!r} {error.problems} {error.to_dict()}"
    assert error.__cause__ is None
    assert error.__context__ is None


# --- any document at all ---

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates() | st.binary(max_size=3)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4),
    max_leaves=12,
)


def places_of(value: object, steps: Steps = ()) -> list[Steps]:
    children: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [place for key, child in children for place in [(*steps, key), *places_of(child, (*steps, key))]]


PLACES = places_of(complete())


def refused_well(document: object) -> None:
    try:
        pipeline = parse_manifest(document)
    except ManifestError as error:
        problems, text = error.problems, str(error)
    else:
        assert isinstance(pipeline, SinkPipeline)
        assert parse_manifest(pipeline.to_document()) == pipeline
        return
    assert problems
    text.encode()
    assert UNTRANSLATED not in text
    assert "Input should" not in text


@settings(deadline=None)
@given(anything)
def test_any_document_is_parsed_or_refused(document: object) -> None:
    refused_well(document)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)
@given(
    st.sampled_from(
        [complete(), smallest(), {**smallest(), "spec": {**smallest()["spec"], "decode": {"format": "raw"}}}]
    ),
    st.lists(st.tuples(st.sampled_from(PLACES), anything | st.just(REMOVE)), min_size=1, max_size=3),
)
def test_a_manifest_with_anything_anywhere_is_parsed_or_refused(
    document: dict[str, Any], changes: list[tuple[Steps, Any]]
) -> None:
    for change in changes:
        # An earlier change may have taken the place away.
        with contextlib.suppress(KeyError, IndexError, TypeError, AttributeError):
            document = changed(document, change)
    refused_well(document)


def test_every_place_refuses_another_type() -> None:
    open_maps = {"labels", "properties", "config", "conf"}
    for place in PLACES:
        wrong: object = [[]] if place[-1] not in open_maps else [1]
        path_problems = problems_of(changed(complete(), (place, wrong)))
        assert all(problem.wrong and problem.right for problem in path_problems)
