from __future__ import annotations

import contextlib
import datetime as dt
import pickle
import re
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
    JsonObject,
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
from sinkpipeline.core.manifest.clear_text import credentials_in_clear
from sinkpipeline.core.manifest.operation import SMALL_BATCHES
from sinkpipeline.core.manifest.translate import UNTRANSLATED
from support.resource.manifests import (
    ALLOWED,
    AVRO,
    KAFKA,
    PATTERNS,
    REMOVE,
    SINK,
    UNSERVED,
    WRONG,
    Steps,
    changed,
    complete,
    encoded,
    of_database,
    places_of,
    registry,
    sink,
    smallest,
    tokens,
)
from support.resource.streams import stream

PASSWORD = {"username": "u", "passwordSecretRef": {"name": "s", "key": "k"}}
EXAMPLES = Path(__file__).parents[2] / "examples"


def problems_of(document: object) -> tuple[Problem, ...]:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(document)
    return caught.value.problems


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
    assert pipeline.spec.decode.schema_text == "id BIGINT NOT NULL, amount DOUBLE, country STRING"
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


def test_names_of_functions_differ_in_more_than_case() -> None:
    functions = [{"name": "Mask", "className": "a.B"}, {"name": "mask", "className": "a.B"}]
    [problem] = problems_of(changed(smallest(), (("spec", "spark"), {"functions": functions})))
    assert (problem.path, problem.wrong) == ("spec.spark.functions[1].name", 'repeats "mask"')


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
    assert pipeline.spec.decode.schema_text is not None
    assert pipeline.spec.decode.schema_text.startswith("id BIGINT NOT NULL, year INT")
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
        (AVRO, OnNull.DEAD_LETTER),
        ({"format": "raw"}, OnNull.PASS_THROUGH),
        ({"format": "raw", "onNull": "DeadLetter"}, OnNull.DEAD_LETTER),
        ({"format": "debezium", "schema": "a INT"}, OnNull.SKIP),
        ({"format": "change", "schema": "a INT"}, OnNull.SKIP),
        ({"format": "json", "schema": "a INT", "onNull": "Skip"}, OnNull.SKIP),
    ],
)
def test_what_a_tombstone_is_depends_on_the_format(decode: dict[str, Any], on_null: OnNull) -> None:
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


@pytest.mark.parametrize("change", ALLOWED)
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


def test_what_the_operator_is_told() -> None:
    assert parse_manifest(smallest()).spec.restart_nonce is None
    assert parse_manifest(smallest()).spec.spark.template is None
    template = {"metadata": {"labels": {"team": "shop"}}, "spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": []}}
    document = changed(
        smallest(),
        (("spec", "restartNonce"), 7),
        (("spec", "deletionPolicy"), "Delete"),
        (("spec", "spark"), {"template": template}),
    )
    pipeline = parse_manifest(document)
    assert (pipeline.spec.restart_nonce, pipeline.spec.deletion_policy) == (7, DeletionPolicy.DELETE)
    assert pipeline.spec.spark.template is not None
    assert pipeline.spec.spark.template.to_dict() == template
    assert parse_manifest(pipeline.to_document()) == pipeline
    assert hash(parse_manifest(pipeline.to_document())) == hash(pipeline)
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline


def test_a_pod_template_is_a_value_that_is_not_shown() -> None:
    template = JsonObject({"spec": {"env": "hunter2"}})
    assert template == JsonObject({"spec": {"env": "hunter2"}})
    assert template != JsonObject({})
    assert template != {"spec": {"env": "hunter2"}}
    template.to_dict()["spec"]["env"] = "changed"
    assert template.to_dict() == {"spec": {"env": "hunter2"}}
    assert "hunter2" not in repr(template)


def test_the_largest_pod_template() -> None:
    template = {"spec": {"x": ""}}
    template["spec"]["x"] = "a" * (32 * 1024 - JsonObject(template).size)
    parse_manifest(changed(smallest(), (("spec", "spark"), {"template": template})))
    template["spec"]["x"] += "a"
    (problem,) = problems_of(changed(smallest(), (("spec", "spark"), {"template": template})))
    assert problem.path == "spec.spark.template"


@pytest.mark.parametrize("offsets", ["0", "9999", "10000", "50000", "50001", "-1", "all"])
def test_how_many_offsets_a_batch_of_the_drivers_own_may_have(offsets: str) -> None:
    document = changed(smallest(), (("spec", "spark"), {"conf": {SMALL_BATCHES: offsets}}))
    if offsets in ("0", "9999", "10000", "50000"):
        assert parse_manifest(document).spec.spark.conf == {SMALL_BATCHES: offsets}
    else:
        [problem] = problems_of(document)
        assert problem.path == f'spec.spark.conf["{SMALL_BATCHES}"]'
        assert 'use a number from "0"' in problem.right


def test_a_string_map_does_not_show_its_values() -> None:
    assert repr(StringMap({"b": "secret", "a": "secret"})) == "StringMap(a, b)"


@pytest.mark.parametrize(("steps", "value", "path", "word"), WRONG)
def test_wrong(steps: Steps, value: Any, path: str, word: str) -> None:
    problems = problems_of(changed(smallest(), (steps, value)))
    assert path in {problem.path for problem in problems}
    (problem, *_) = [problem for problem in problems if problem.path == path]
    assert word in str(problem)
    assert problem.reason is Reason.MANIFEST_INVALID


@pytest.mark.parametrize(("pattern", "word"), PATTERNS.items())
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


@pytest.mark.parametrize(("steps", "value"), UNSERVED)
def test_unserved_is_refused_by_name(steps: Steps, value: Any) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(changed(smallest(), (steps, value)))
    (problem,) = caught.value.problems
    assert problem.path == ".".join(map(str, steps)).replace(".0", "[0]")
    assert "not served yet" in problem.wrong
    assert caught.value.reason is Reason.NOT_SERVED


def test_what_of_a_database_is_not_served_yet() -> None:
    (problem,) = problems_of(changed(smallest(), (("spec", "source"), of_database(onDataLoss="Skip"))))
    assert (problem.path, problem.reason) == ("spec.source.postgresql.onDataLoss", Reason.NOT_SERVED)


def test_the_sinks_of_a_database_read_its_change_topic() -> None:
    own = {"bootstrapServers": "other:9092", "auth": SOURCE_AUTH}
    document = changed(smallest(), (("spec", "source"), of_database({"bootstrapServers": REMOVE})))
    document = changed(document, (("spec", "sinks"), [sink("a", "b"), sink("copy", "orders-copy", **own)]))
    pipeline = parse_manifest(document)
    assert pipeline.spec.reads.topics == ("shop-changes",)
    assert pipeline.spec.reads.bootstrap_servers == "other:9092"
    assert pipeline.spec.reads.auth is not None
    assert [pipeline.connection(each).bootstrap_servers for each in pipeline.spec.sinks] == ["other:9092"] * 2
    assert parse_manifest(pipeline.to_document()) == pipeline
    other = parse_manifest(changed(document, (("spec", "source"), of_database())))
    assert other.spec.reads.bootstrap_servers == "kafka:9092"
    assert other.spec.reads.auth is None


def test_each_identity_has_a_slot_of_its_own() -> None:
    def slot(identity: str, **postgresql: Any) -> str:
        document = changed(
            smallest(), (("spec", "source"), of_database(**postgresql)), (("spec", "identity"), identity)
        )
        pipeline = parse_manifest(document)
        assert pipeline.spec.source.postgresql is not None
        return pipeline.spec.source.postgresql.slot_name(pipeline.identity)

    names = [slot(each) for each in ("shop.a", "shop-a", "a" * 200, "a" * 199)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("sinkpipeline_[a-z0-9_]{10,50}", each) for each in names)
    assert slot("shop.a", slot={"name": "mine"}) == "mine"


@pytest.mark.parametrize(("text", "size"), [("20Gi", 20 << 30), ("500", 500), ("3Ki", 3072)])
def test_how_much_a_slot_may_hold(text: str, size: int) -> None:
    document = changed(smallest(), (("spec", "source"), of_database(limits={"maxRetained": text})))
    source = parse_manifest(document).spec.source.postgresql
    assert source is not None
    assert source.limits.max_retained_bytes == size


@pytest.mark.parametrize("kind", ["mqtt", "pulsar", "postgres"])
def test_another_kind_of_sink_is_one_problem(kind: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(changed(smallest(), (SINK, {"name": "copy", kind: {}})))
    assert [problem.path for problem in caught.value.problems] == [f"spec.sinks[0].{kind}"]
    assert caught.value.reason is Reason.NOT_SERVED


def test_another_kind_of_source_is_one_problem() -> None:
    (problem,) = problems_of(changed(smallest(), (("spec", "source"), {"pulsar": {}})))
    assert (problem.path, problem.reason) == ("spec.source.pulsar", Reason.NOT_SERVED)


def test_two_kinds_are_not_one_sink() -> None:
    (problem,) = problems_of(changed(smallest(), ((*SINK, "mqtt"), {})))
    assert problem.path == "spec.sinks[0].mqtt"


@pytest.mark.parametrize(
    ("fields", "subject"),
    [
        ({}, "orders-value"),
        ({"subject": "mine"}, "mine"),
        ({"subjectNameStrategy": "TopicName"}, "orders-value"),
        ({"subjectNameStrategy": "RecordName", "recordName": "a.B"}, "a.B"),
        ({"subjectNameStrategy": "TopicRecordName", "recordName": "a.B"}, "orders-a.B"),
    ],
)
def test_how_a_subject_is_called(fields: dict[str, Any], subject: str) -> None:
    pipeline = parse_manifest(changed(smallest(), (("spec", "decode"), registry(**fields))))
    of_source = pipeline.spec.decode.schema_registry
    assert of_source is not None
    assert of_source.subject_of("orders", "value") == subject
    encode = parse_manifest(changed(smallest(), (SINK, encoded("key", **fields)))).spec.sinks[0].kafka.encode
    assert encode is not None
    [(part, each)] = encode.parts()
    assert each.schema_registry.subject_of("orders", part) == subject.replace("value", "key")


def test_a_subject_of_a_record_alone_needs_no_topic() -> None:
    by_pattern = changed(smallest(), ((*KAFKA, "topics"), REMOVE), ((*KAFKA, "topicPattern"), "orders-[0-9]"))
    for strategy, problems in (("RecordName", 0), ("TopicRecordName", 1)):
        decode = registry(subjectNameStrategy=strategy, recordName="a.B")
        document = changed(by_pattern, (("spec", "decode"), decode))
        assert len(problems_of(document) if problems else [parse_manifest(document)][1:]) == problems


@pytest.mark.parametrize(
    ("steps", "value", "told"),
    [
        ((*KAFKA, "auth"), {"sasl": tokens()}, "spec.source.kafka.auth: the token"),
        ((*SINK, "kafka", "auth"), {"sasl": {**PASSWORD, "mechanism": "PLAIN"}}, "spec.sinks[0].kafka.auth: the pass"),
        ((*KAFKA, "auth"), {"sasl": {**PASSWORD, "mechanism": "SCRAM-SHA-256"}}, None),
        ((*KAFKA, "auth"), {"tls": {}, "sasl": tokens()}, None),
        (("spec", "decode"), registry(auth={"basic": PASSWORD}), "spec.decode.schemaRegistry: the password"),
        (("spec", "decode"), registry(url="https://r:1", auth={"basic": PASSWORD}), None),
        (("spec", "decode"), AVRO, None),
        *(
            (SINK, stream(auth={f"{name}SecretRef": {"name": "s", "key": "k"}, **more}), told)
            for name, more, told in (
                ("password", {"username": "u"}, "spec.sinks[0].nats.auth: the password"),
                ("token", {}, "spec.sinks[0].nats.auth: the token"),
                ("token", {"tls": {}}, None),
                ("nkey", {}, None),
                ("creds", {}, None),
            )
        ),
        (SINK, encoded(auth={"basic": PASSWORD}), "spec.sinks[0].kafka.encode.value.schemaRegistry: the password"),
    ],
)
def test_credentials_that_are_sent_in_clear_are_told(steps: Steps, value: Any, told: str | None) -> None:
    warnings = list(credentials_in_clear(parse_manifest(changed(smallest(), (steps, value)))))
    assert [each.startswith(told or "") for each in warnings] == ([] if told is None else [True])


def test_an_address_of_a_registry_that_is_refused_is_not_shown() -> None:
    decode = registry(url="https://user:hidden@registry:8081")
    (problem,) = problems_of(changed(smallest(), (("spec", "decode"), decode)))
    assert "hidden" not in str(problem)


# --- the error ---


def test_every_problem_is_listed() -> None:
    document = changed(
        smallest(),
        ((*SINK, "deliveryGuarantee"), "AtMostOnce"),
        ((*SINK, "decode"), {}),
        (("spec", "suspend"), "no"),
    )
    with pytest.raises(ManifestError) as caught:
        parse_manifest(document)
    error = caught.value
    assert error.reason is Reason.MANIFEST_INVALID
    assert error.reason.exit_code is ExitCode.MANIFEST
    assert error.message.splitlines() == [
        'spec.sinks[0].deliveryGuarantee: is "AtMostOnce"; use ExactlyOnce or AtLeastOnce',
        "spec.sinks[0].decode: is not served yet; use spec.decode for all sinks, or another SinkPipeline",
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
        ("spec", "spark", "template"),
        ("spec", "spark", "template", "x"),
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
        if "template" in place[:-1]:
            continue  # anything at all
        wrong: object = [[]] if place[-1] not in open_maps else [1]
        path_problems = problems_of(changed(complete(), (place, wrong)))
        assert all(problem.wrong and problem.right for problem in path_problems)
