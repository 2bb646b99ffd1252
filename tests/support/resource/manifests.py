"""Manifests, right and wrong, and changes to them: what the types, the schema and the API server are held against."""

from __future__ import annotations

import copy
import datetime as dt
import functools
import json
import math
import re
from typing import Any

import yaml

from sinkpipeline.core.manifest.properties import SINK as SINK_PROPERTIES
from sinkpipeline.core.manifest.properties import SOURCE
from support.resource import redis, streams

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
    lookups:
      - {name: rate, key: code, equals: country, format: csv, csv: {delimiter: ";", header: true},
         schema: "code STRING NOT NULL, rate DOUBLE", from: {configMapRef: {name: rates, key: rates.csv}}}
    where: "amount > 0"
    select: {key: "CAST(id AS STRING)", value: "to_json(struct(id, amount, country))"}
  trigger: {interval: 1s, maxOffsetsPerTrigger: 500000}
  sinks:
    - name: enriched
      deliveryGuarantee: ExactlyOnce
      required: true
      onExistingData: Append
      kafka:
        bootstrapServers: "other:9092"
        topic: {name: orders-enriched, partitions: 6, replicationFactor: 3, config: {retention.ms: "604800000"}}
        progressTopic: {name: _sinkpipeline-progress, replicationFactor: 3}
        partitioner: murmur2
        properties: {compression.type: lz4}
      deadLetter:
        topic: {name: orders-dlq, partitions: 1, replicationFactor: 3, config: {retention.ms: "2592000000"}}
        onFailure: Stop
        autoCreate: true
  failurePolicy: {maxConsecutiveFailures: 5, backoff: {initial: 5s, max: 5m}, resetAfter: 10m}
  deletionPolicy: Retain
  suspend: false
  restartNonce: 1
  spark: {conf: {spark.ui.enabled: "false"}, driver: {cores: 1, memory: 1g},
          functions: [{name: mask, className: com.example.Mask, returns: STRING}],
          executor: {instances: 2, cores: 1, memory: 2g}, template: {spec: {priorityClassName: high}}}
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
    return copy.deepcopy(_read(SMALLEST))


def complete() -> dict[str, Any]:
    return copy.deepcopy(_read(COMPLETE))


@functools.cache
def _read(text: str) -> dict[str, Any]:
    """Once: hundreds of tests are made from it where they are collected, in each process of a run."""
    return dict(yaml.safe_load(text))


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


def as_sent(document: object) -> bool:
    """Whether a client can send it as it is: YAML and Python know values that JSON, or the API server's, doesn't."""
    try:
        text = json.dumps(document, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError):
        return False
    too_large = any(int(number) >= 2**63 for number in re.findall(r"\d{19,}", text))
    return bool(json.loads(text) == document) and not too_large


def topics_of(*names: str, select: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The sink of the smallest manifest, with several topics."""
    return {
        "name": smallest()["spec"]["sinks"][0]["name"],
        "transform": {"select": {"topic": "CAST(key AS STRING)"} if select is None else select},
        "kafka": {"topics": [{"name": each} for each in names]},
        **more,
    }


def sink(name: str, topic: str, **kafka: Any) -> dict[str, Any]:
    return {"name": name, "kafka": {"topic": {"name": topic}, **kafka}}


def dead(document: dict[str, Any], topic: str) -> dict[str, Any]:
    """A sink with a dead-letter topic."""
    return {**document, "deadLetter": {"topic": {"name": topic}}}


def lookup(name: str = "rate", source: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """One of `lookups`; `source` is its `from`."""
    return {
        "name": name,
        "key": "code",
        "equals": "CAST(key AS STRING)",
        "format": "csv",
        "schema": "code STRING, rate DOUBLE",
        "from": {"inline": "NL,1"} if source is None else source,
        **fields,
    }


_OWN_LOOKUPS = (*SINK, "transform", "lookups")
_IN_CONFIG_MAP = {"name": "schemas", "key": "order.avsc"}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; }'
AVRO: dict[str, Any] = {"format": "avro", "schemaRegistry": {"url": "http://registry:8081"}}
_DELIMITER = "spec.decode.csv.delimiter"
_DATABASE = "spec.source.postgresql"
_MARIADB = "spec.source.mariadb"
_BOTH = {
    "basic": {"username": "u", "passwordSecretRef": {"name": "s", "key": "k"}},
    "bearer": {"tokenSecretRef": {"name": "s", "key": "t"}},
}


def registry(decode: dict[str, Any] | None = None, **registry: Any) -> dict[str, Any]:
    """`decode` of Avro with a registry; `registry` are fields of it."""
    return {**AVRO, **(decode or {}), "schemaRegistry": {**AVRO["schemaRegistry"], **registry}}


def of_tables(*tables: str) -> dict[str, Any]:
    """`decode` of the changes of these tables."""
    return {"format": "change", "schema": "a INT", "change": {"tables": [*tables]}}


def of_database(changes: dict[str, Any] | None = None, **postgresql: Any) -> dict[str, Any]:
    """`source` of the changes of a database; `postgresql` are fields of it, `changes` of its changes."""
    of_changes = {"bootstrapServers": "kafka:9092", "topic": {"name": "shop-changes"}, **(changes or {})}
    found = {
        "servers": "pg:5432",
        "database": "shop",
        "auth": {"username": "cdc"},
        "publication": {"name": "shop"},
        "startingPosition": "Now",
        "changes": {name: value for name, value in of_changes.items() if value is not REMOVE},
        **postgresql,
    }
    return {"postgresql": {name: value for name, value in found.items() if value is not REMOVE}}


def of_slot(**start_from: Any) -> dict[str, Any]:
    """`source` that goes on with the slot of another program."""
    slot = {"name": "theirs", "create": False}
    return of_database(startFrom=start_from, startingPosition=REMOVE, slot=slot)


def of_mariadb(changes: dict[str, Any] | None = None, **mariadb: Any) -> dict[str, Any]:
    """`source` of the changes of a MariaDB server; `mariadb` are fields of it, `changes` of its changes."""
    of_changes = {"bootstrapServers": "kafka:9092", "topic": {"name": "shop-changes"}, **(changes or {})}
    found = {
        "server": "mariadb:3306",
        "auth": {"username": "cdc"},
        "tables": ["shop.orders"],
        "startingPosition": "Now",
        "changes": {name: value for name, value in of_changes.items() if value is not REMOVE},
        **mariadb,
    }
    return {"mariadb": {name: value for name, value in found.items() if value is not REMOVE}}


def of_mysql(changes: dict[str, Any] | None = None, **mysql: Any) -> dict[str, Any]:
    """Likewise, of a MySQL server."""
    return {"mysql": of_mariadb(changes, **mysql)["mariadb"]}


def of_binlog(**start_from: Any) -> dict[str, Any]:
    """`source` that goes on where another program has stopped to read a log."""
    return of_mariadb(startFrom=start_from, startingPosition=REMOVE)


def encoded(part: str = "value", select: dict[str, Any] | None = None, **registry: Any) -> dict[str, Any]:
    """`spec.sinks[0]` that encodes a part; `registry` are fields of its registry."""
    selected = {part: "struct(id)"} if select is None else select
    own = {"transform": {"select": selected}} if selected else {}
    encode = {part: {"format": "avro", "schemaRegistry": {"url": "http://registry:8081", **registry}}}
    return {**sink("copy", "orders-copy", encode=encode), **own}


def places_of(value: object, steps: Steps = ()) -> list[Steps]:
    children: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [place for key, child in children for place in [(*steps, key), *places_of(child, (*steps, key))]]


TOKENS: dict[str, Any] = {
    "tokenEndpointUrl": "https://idp.example.org:8443/realms/shop/token?a=b",
    "clientId": "orders",
    "clientSecretRef": {"name": "oauth", "key": "secret"},
    "scope": "kafka api://shop/.default",
    "extensions": {"logicalCluster": "lkc-1"},
    "caSecretRef": {"name": "oauth", "key": "ca.crt"},
}
OAUTHBEARER = "spec.source.kafka.auth.sasl.oauthbearer"


_MSK: dict[str, Any] = {"mechanism": "AWS_MSK_IAM", "awsMskIam": {"region": "eu-central-1"}}
"""A log-in with IAM of Amazon MSK."""


def tokens(**others: Any) -> dict[str, Any]:
    """A log-in with tokens."""
    return {"mechanism": "OAUTHBEARER", "oauthbearer": TOKENS, **others}


def table(name: str = "copy", *, select: dict[str, Any] | None = None, **postgresql: Any) -> dict[str, Any]:
    """A sink that is a table; `postgresql` are fields of it, `of_table` of which is of its table."""
    of_table = {"name": "orders", "columns": {"id": "bigint", "note": "text"}, **postgresql.pop("of_table", {})}
    return {
        "name": name,
        **({} if select is None else {"transform": {"select": select}}),
        "postgresql": {
            "servers": "pg:5432",
            "database": "shop",
            "auth": {"username": "u"},
            "table": of_table,
            **postgresql,
        },
    }


UPSERT: dict[str, Any] = {"writeMode": "Upsert", "of_table": {"primaryKey": ["id"]}}
_POSTGRESQL = "spec.sinks[0].postgresql"

ALLOWED: list[tuple[Steps, Any]] = [
    (SINK, topics_of("a", "b", deadLetter={"topic": {"name": "c"}})),
    (("spec", "sinks", 1), {**sink("more", "orders-more"), "required": False}),
    (
        ("spec",),
        {**smallest()["spec"], "source": of_database(), "decode": {"format": "change", "schema": "a INT"}, "sinks": []},
    ),
    *streams.ALLOWED,
    *redis.ALLOWED,
    (SINK, table()),
    (SINK, table(select={"columns": {"id": "key", "note": "CAST(value AS STRING)"}}, of_table={"schema": "shop"})),
    (SINK, table(**UPSERT, deleteWhen="op = 'd'", orderBy="version", progressSchema="p")),
    (SINK, dead(table(auth={"username": "u", "passwordSecretRef": {"name": "s", "key": "k"}, "tls": {}}), "dlq")),
    (SINK, table(of_table={"columns": dict.fromkeys(("a b", "é".encode().hex()), "timestamp (3) with time zone")})),
    (SINK, table(of_table={"columns": {"a": "numeric(10, 2)[]", "b": "double precision", "c": "s.my_type"}})),
    (("spec", "sinks"), [sink("a", "t"), table("b"), table("c", of_table={"schema": "other"})]),
    (("spec", "trigger", "interval"), "0s"),
    ((*SINK, "name"), "control"),
    ((*SINK, "name"), "0"),
    (("metadata", "name"), "a" * 52),
    ((*KAFKA, "auth"), {"tls": {}}),
    ((*KAFKA, "auth"), {"tls": {}, "sasl": tokens()}),
    ((*SINK, "kafka", "auth"), {"sasl": tokens()}),
    (("spec", "transform"), {}),
    ((*SINK, "transform"), {"where": "true"}),
    ((*SINK, "transform"), {"explode": {"array": "a", "positionAs": "pos"}}),
    (("spec", "transform"), {"explode": {"array": "a", "as": "item", "positionAs": "n", "maxRowsPerRecord": 100_000}}),
    (("spec", "transform", "lookups"), [lookup(f"a{index}") for index in range(8)]),
    (("spec", "transform", "lookups"), [lookup(source={"file": "/tables/é.csv"}, key="a b")]),
    (("spec", "transform", "lookups"), [lookup(format="json", source={"configMapRef": _IN_CONFIG_MAP})]),
    (_OWN_LOOKUPS, [lookup(csv={"delimiter": "|"})]),
    (_OWN_LOOKUPS, []),
    ((*SINK, "transform"), {"where": "a", "select": {"key": "k", "partition": "1"}}),
    (("spec", "sinks"), [sink(f"s{index}", f"t{index}") for index in range(32)]),
    *(
        ((*KAFKA, "startFrom"), {"timestamp": text})
        for text in ("2026-01-01T00:00:00Z", "1970-01-01T00:00:00.000+05:30", "2024-02-29T23:59:59-23:59")
    ),
    ((*KAFKA, "startFrom"), {"group": "connect-é"}),
    ((*KAFKA, "startFrom"), {"checkpoint": "/mnt/a b/é"}),
    ((*SINK, "deadLetter"), {"topic": {"name": "dlq"}}),
    ((*SINK, "deadLetter"), {"topic": {"name": "dlq"}, "onFailure": "DropAndContinue", "autoCreate": False}),
    # Two sinks may share one; what is a topic of another cluster is another topic.
    (("spec", "sinks"), [dead(sink("a", "t0"), "dlq"), dead(sink("b", "t1"), "dlq")]),
    (("spec", "sinks"), [dead(sink("a", "t0"), "t1"), sink("b", "t1", bootstrapServers="other:9092")]),
    (("spec", "sinks"), [dead(sink("a", "t0", bootstrapServers="other:9092"), "orders")]),
    # Another cluster, as far as the manifest can know.
    (SINK, sink("copy", "orders", bootstrapServers="other:9092")),
    (("spec", "sinks", 1), sink("again", "orders-copy", bootstrapServers="other:9092")),
    (
        (*SINK, "kafka", "properties"),
        {"linger.ms": "0.5", "compression.level": "-1", "socket.keepalive.enable": "true"},
    ),
    (("spec", "spark", "conf"), {"spark.sql.session.timeZone": "UTC", "spark.executor.memoryOverhead": "1g"}),
    (("spec", "deletionPolicy"), "Delete"),
    (("spec", "decode"), {"format": "avro", "schema": '{"type": "record", "name": "a", "fields": []}'}),
    (("spec", "decode"), {"format": "avro", "schemaConfigMapRef": _IN_CONFIG_MAP}),
    (("spec", "decode"), {"format": "csv", "schemaConfigMapRef": _IN_CONFIG_MAP}),
    (("spec", "decode"), {**AVRO, "format": "json", "schemaConfigMapRef": _IN_CONFIG_MAP}),
    (("spec", "decode"), AVRO),
    (("spec", "decode"), {"format": "protobuf", "schema": PROTO}),
    (("spec", "decode"), {"format": "protobuf", "schema": PROTO, "message": "shop.Order"}),
    (("spec", "decode"), {**AVRO, "format": "protobuf", "message": "Order"}),
    (("spec", "decode"), registry({"format": "protobuf"}, reader={"version": "3"}, subject="orders")),
    (("spec", "decode"), {"format": "csv", "schema": "a INT", "csv": {"delimiter": ";"}}),
    (("spec", "decode"), {"format": "csv", "schema": "a INT", "csv": {}}),
    (("spec", "decode"), {"format": "debezium", "schema": "a INT", "debezium": {"withoutRow": "PassThrough"}}),
    (("spec", "decode"), {**AVRO, "format": "debezium", "onNull": "PassThrough"}),
    (("spec", "source"), of_mariadb()),
    (("spec", "source"), of_mysql()),
    (("spec", "source"), of_mysql(startFrom={"binlog": "binlog.000003:4711"}, startingPosition=REMOVE)),
    (("spec", "source"), of_mariadb(startingPosition="Snapshot", serverId=4_294_967_295, transactions="Whole")),
    (("spec", "source"), of_binlog(binlog="mariadb-bin.000003:4711")),
    (("spec", "source"), of_binlog(debeziumOffsets='{"file":"mysql-bin.000003","pos":4711,"row":3,"event":2}')),
    (("spec", "source"), of_mariadb(auth={"username": "u", "passwordSecretRef": {"name": "s", "key": "k"}, "tls": {}})),
    (("spec", "source"), of_database()),
    (("spec", "source"), of_slot(lsn="0/3279E770")),
    (("spec", "source"), of_database({"onExistingData": "Append"})),
    (("spec", "source"), of_slot(lsn="FFFFFFFF/0 (439)")),
    (("spec", "source"), of_slot(debeziumOffsets='{"lsn_proc":7,"lsn_commit":5,"lsn":7}')),
    (
        ("spec", "source"),
        of_database(
            {
                "bootstrapServers": "other:9092",
                "auth": {
                    "sasl": {"mechanism": "PLAIN", "username": "u", "passwordSecretRef": {"name": "s", "key": "k"}}
                },
                "topic": {"name": "c", "partitions": 6, "replicationFactor": 3, "config": {"retention.ms": "1"}},
                "progressTopic": {"name": "p", "replicationFactor": 1},
                "deadLetter": {"topic": {"name": "dead"}, "autoCreate": False},
            },
            auth={"username": "cdc", "passwordSecretRef": {"name": "pg", "key": "password"}, "tls": {}},
            publication={"name": "shop", "create": True, "tables": ["public.orders", "public.lines"]},
            slot={"name": "shop_orders", "create": False, "failover": True},
            transactions="Whole",
            replicaIdentity="RequireFull",
            limits={"maxRetained": "20Gi", "idleAdvance": "30s"},
        ),
    ),
    (("spec", "decode"), {"format": "change", "schema": "a INT", "change": {"withoutRow": "PassThrough"}}),
    (("spec", "decode"), {"format": "change", "schema": "a INT", "change": {"tables": ["public.a", "x.b c.d"]}}),
    (("spec", "decode"), {"format": "text", "onNull": "PassThrough"}),
    (("spec", "decode"), registry(url="https://[::1]:8080/apis/ccompat/v7", auth={"tls": {}, "basic": _BOTH["basic"]})),
    (("spec", "decode"), registry(auth={"bearer": _BOTH["bearer"]}, subject="a.b", reader={"version": "3"})),
    (("spec", "decode"), registry(reader={"schema": '\n {"type": "record"}'}, idFormat="Int64")),
    (("spec", "decode"), registry({"format": "json", "schema": "a INT"})),
    (("spec", "decode"), registry(subjectNameStrategy="TopicRecordName", recordName="com.example.Order")),
    (("spec", "decode"), registry(subjectNameStrategy="TopicName")),
    (("spec", "decode"), registry({"format": "json"}, reader={"version": "3"}, subject="orders")),
    (("spec", "decode"), registry({"format": "json"})),
    (SINK, encoded(autoRegister=False, recordName="com.example.Order")),
    (SINK, encoded("key", subjectNameStrategy="RecordName", recordName="Order")),
    (SINK, encoded(url="https://r:1", auth={"tls": {}, "basic": _BOTH["basic"]}, subject="orders")),
    (("spec", "restartNonce"), 0),
    (("spec", "spark", "template"), {}),
    (("spec", "spark", "template"), {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {}, "spec": {}}),
]
"""Changes to the smallest manifest that are right."""

MODEL_ONLY: list[tuple[Steps, Any, str, str]] = [
    # The change topic is on the cluster of the source, or of a sink.
    (
        ("spec",),
        {**smallest()["spec"], "source": of_database(), "sinks": [sink("copy", "shop-changes")]},
        "spec.sinks[0].kafka.topic.name",
        "never end",
    ),
    (
        ("spec",),
        {**smallest()["spec"], "source": of_database({"progressTopic": {"name": "orders-copy"}})},
        f"{_DATABASE}.changes.progressTopic.name",
        'a topic of sink "copy" too',
    ),
    (
        ("spec",),
        {**smallest()["spec"], "source": of_database({"deadLetter": {"topic": {"name": "orders-copy"}}})},
        f"{_DATABASE}.changes.deadLetter.topic.name",
        'a topic of sink "copy" too',
    ),
    # No host name is so long, but only a rule that splits the text could say it.
    ((*KAFKA, "bootstrapServers"), "a" * 254 + ":1", "spec.source.kafka.bootstrapServers", "host:port"),
    # One cluster under two texts.
    (
        SINK,
        sink("copy", "orders", bootstrapServers="x:1,KAFKA:9092"),
        "spec.sinks[0].kafka.topic.name",
        "is a source topic too",
    ),
    # Kubernetes' keys of lists know capitals.
    (
        ("spec", "transform", "lookups"),
        [lookup("rate"), lookup("Rate")],
        "spec.transform.lookups[1].name",
        "name of its own",
    ),
    # CEL reads no JSON.
    (("spec", "decode"), {"format": "avro", "schema": "{"}, "spec.decode.schema", "is no JSON"),
    (
        ("spec", "decode"),
        registry(reader={"schema": '{"a":' * 10_000}),
        "spec.decode.schemaRegistry.reader.schema",
        "is no JSON",
    ),
    # Which years have that day no pattern says.
    (
        (*KAFKA, "startFrom"),
        {"timestamp": "2026-02-29T00:00:00Z"},
        "spec.source.kafka.startFrom.timestamp",
        "a day that exists",
    ),
    *(
        (("spec", "source"), of_slot(debeziumOffsets=text), f"{_DATABASE}.startFrom.debeziumOffsets", why)
        for text, why in (
            ("{", "is no JSON"),
            ('{"a":' * 1000, "is no JSON"),
            ("[]", "no offset of a connector"),
            ('{"offsets":[]}', "0 offsets"),
            ('{"file":"binlog.000003","pos":4}', "it has file, pos, and no lsn"),
            ('{"lsn":5,"snapshot":"INITIAL","snapshot_completed":false}', "not completed"),
            ('{"lsn":5,"snapshot":true,"last_snapshot_record":true}', "startingPosition: Now"),
            ('{"lsn":5,"lsn_commit":-1}', "lsn_commit is no LSN"),
        )
    ),
    # CEL doesn't see what the API server doesn't know the shape of.
    (("spec", "spark"), {"template": {"containers": []}}, "spec.spark.template.containers", "has metadata and spec"),
    (("spec", "spark"), {"template": {"spec": {"x": "é" * 16_384}}}, "spec.spark.template", "at most 32768 bytes"),
    # The API server drops it before anybody looks, so that the operator never sees it.
    ((*KAFKA, "properties"), {"fetch.max.bytes": None}, 'spec.source.kafka.properties["fetch.max.bytes"]', "is null"),
]
"""Of WRONG: what neither schema nor CEL says, so that only the operator refuses it."""

WRONG: list[tuple[Steps, Any, str, str]] = [
    (SINK, {"name": "copy"}, "spec.sinks[0].kafka", "give exactly one of kafka, nats, postgresql and redis"),
    (SINK, {**sink("copy", "t"), **table()}, "spec.sinks[0].kafka", "stands beside postgresql"),
    *streams.WRONG,
    *redis.WRONG,
    (SINK, {**table(), "deliveryGuarantee": "AtLeastOnce"}, "spec.sinks[0].deliveryGuarantee", "never is"),
    (SINK, {**table(), "onRollback": "Stop"}, "spec.sinks[0].onRollback", "has no meaning for a postgresql sink"),
    (SINK, {**sink("copy", "t"), "onRollback": "Redeliver"}, "spec.sinks[0].onRollback", "for a kafka sink"),
    (SINK, table(select={"value": "id"}), "spec.sinks[0].transform.select.value", "use columns"),
    (SINK, table(select={"columns": {"x": "id"}}), "spec.sinks[0].transform.select.columns.x", "none of the table"),
    (SINK, table(select={"columns": {"id": " "}}), "spec.sinks[0].transform.select.columns.id", "is empty"),
    (SINK, table(select={"columns": {"": "id"}}), 'spec.sinks[0].transform.select.columns["…"]', "characters of ASCII"),
    (
        SINK,
        {**sink("copy", "t"), "transform": {"select": {"columns": {"id": "id"}}}},
        "spec.sinks[0].transform.select.columns",
        "has no meaning for a kafka sink",
    ),
    (SINK, table(servers="pg"), f"{_POSTGRESQL}.servers", '"pg-0:5432,pg-1:5432"'),
    (SINK, table(database=" x"), f"{_POSTGRESQL}.database", "without a blank"),
    (SINK, table(auth={}), f"{_POSTGRESQL}.auth.username", "is missing"),
    (SINK, table(progressSchema="public"), f"{_POSTGRESQL}.progressSchema", "the table's schema too"),
    (SINK, table(writeMode="Upsert"), f"{_POSTGRESQL}.table.primaryKey", "Upsert needs it"),
    (SINK, table(of_table={"primaryKey": ["id"]}), f"{_POSTGRESQL}.table.primaryKey", "for writeMode Append"),
    (SINK, table(deleteWhen="true"), f"{_POSTGRESQL}.deleteWhen", "set writeMode: Upsert"),
    (SINK, table(orderBy="id"), f"{_POSTGRESQL}.orderBy", "set writeMode: Upsert"),
    (
        SINK,
        table(writeMode="Upsert", of_table={"primaryKey": ["x"]}),
        f"{_POSTGRESQL}.table.primaryKey[0]",
        'names "x", which is not among columns',
    ),
    (
        SINK,
        table(writeMode="Upsert", of_table={"primaryKey": ["id", "id"]}),
        f"{_POSTGRESQL}.table.primaryKey[1]",
        'repeats "id"',
    ),
    (SINK, table(of_table={"columns": {}}), f"{_POSTGRESQL}.table.columns", "name the columns that are written"),
    *(
        (SINK, table(of_table={"columns": {"id": kind}}), f"{_POSTGRESQL}.table.columns.id", "is no type")
        for kind in ("bigint NOT NULL", "text); DROP TABLE x; --", "", "text DEFAULT 1")
    ),
    (
        SINK,
        table(of_table={"columns": {"x" * 64: "text"}}),
        f'{_POSTGRESQL}.table.columns["{"x" * 64}"]',
        "a name that a column can't have",
    ),
    (("spec", "sinks"), [table("a"), table("b")], "spec.sinks[1].postgresql.table.name", 'the table of sink "a" too'),
    (
        ("spec",),
        {**smallest()["spec"], "transform": {"select": {"value": "id"}}, "sinks": [table()]},
        "spec.transform.select",
        "is for kafka sinks",
    ),
    *MODEL_ONLY,
    # The envelope.
    (("apiVersion",), REMOVE, "apiVersion", "is missing"),
    (("apiVersion",), "sinkpipeline.io/v1", "apiVersion", "use sinkpipeline.io/v1alpha1"),
    (("kind",), "SinkPipline", "kind", "use SinkPipeline"),
    (("metadata",), REMOVE, "metadata", "is missing"),
    (("spec",), REMOVE, "spec", "is missing"),
    (("spec",), "x", "spec", "is text, not a mapping"),
    ((*KAFKA, "topicss"), None, "spec.source.kafka.topicss", "did you mean topics?"),
    ((*SINK, "kafka", "groupId"), None, "spec.sinks[0].kafka.groupId", "is an unknown field"),
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
    ((*KAFKA, "bootstrapServers"), "a:09092", "spec.source.kafka.bootstrapServers", "host:port"),
    ((*KAFKA, "bootstrapServers"), "ssl://a:9092", "spec.source.kafka.bootstrapServers", "host:port"),
    ((*KAFKA, "bootstrapServers"), "::1:9092", "spec.source.kafka.bootstrapServers", "host:port"),
    ((*KAFKA, "bootstrapServers"), ["a:1"], "spec.source.kafka.bootstrapServers", "is a list, not text"),
    ((*KAFKA, "bootstrapServers"), "a:1," * 1000, "spec.source.kafka.bootstrapServers", "at most 2048"),
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
    ((*KAFKA, "startFrom"), {}, "spec.source.kafka.startFrom", "exactly one of checkpoint, group and timestamp"),
    (
        (*KAFKA, "startFrom"),
        {"group": "g", "timestamp": "2026-01-01T00:00:00Z"},
        "spec.source.kafka.startFrom",
        "exactly one of checkpoint, group and timestamp",
    ),
    ((*KAFKA, "startFrom"), {"group": " "}, "spec.source.kafka.startFrom.group", "is empty"),
    ((*KAFKA, "startFrom"), {"group": "é" * 125}, "spec.source.kafka.startFrom.group", "249 bytes"),
    ((*KAFKA, "startFrom"), {"checkpoint": "s3://a/b"}, "spec.source.kafka.startFrom.checkpoint", "beginning with /"),
    *(
        ((*KAFKA, "startFrom"), {"timestamp": text}, "spec.source.kafka.startFrom.timestamp", "with its zone")
        for text in (
            "2026-01-01",
            "2026-01-01T00:00:00",
            "1969-12-31T23:59:59Z",
            "2026-13-01T00:00:00Z",
            "2026-02-30T00:00:00Z",
        )
    ),
    ((*KAFKA, "onDataLoss"), "skip", "spec.source.kafka.onDataLoss", "use Fail or Skip"),
    ((*KAFKA, "isolationLevel"), "x", "spec.source.kafka.isolationLevel", "read_committed or read_uncommitted"),
    ((*KAFKA, "groupIdPrefix"), "a b", "spec.source.kafka.groupIdPrefix", "1 to 249"),
    ((*KAFKA, "topic"), "orders", "spec.source.kafka.topic", "use topics, a list"),
    ((*KAFKA, "bootstrap_servers"), "a:1", "spec.source.kafka.bootstrap_servers", "did you mean bootstrapServers?"),
    # auth
    ((*KAFKA, "auth"), {}, "spec.source.kafka.auth", "give tls, sasl or both"),
    ((*KAFKA, "auth", "sasl"), {}, "spec.source.kafka.auth.sasl.mechanism", "is missing"),
    ((*KAFKA, "auth", "sasl"), {"mechanism": "PLAIN"}, "spec.source.kafka.auth.sasl.username", "is missing"),
    ((*KAFKA, "auth", "sasl"), {"mechanism": "OAUTHBEARER"}, OAUTHBEARER, "is missing"),
    (
        (*KAFKA, "auth", "sasl"),
        {
            **tokens(mechanism="SCRAM-SHA-256"),
            "username": "u",
            "passwordSecretRef": {"name": "s", "key": "k"},
        },
        OAUTHBEARER,
        "another mechanism",
    ),
    ((*KAFKA, "auth", "sasl"), tokens(username="u"), "spec.source.kafka.auth.sasl.username", "not for this mechanism"),
    *(
        ((*KAFKA, "auth"), {"tls": {}, "sasl": sasl}, f"spec.source.kafka.auth.sasl{at}", word)
        for sasl, at, word in (
            ({"mechanism": "AWS_MSK_IAM"}, ".awsMskIam", "is missing"),
            ({"mechanism": "AWS_MSK_IAM", "awsMskIam": {}}, ".awsMskIam.region", "is missing"),
            ({"mechanism": "AWS_MSK_IAM", "awsMskIam": {"region": "Frankfurt"}}, ".awsMskIam.region", "eu-central-1"),
            ({**_MSK, "username": "u"}, ".username", "not for this mechanism"),
            ({**_MSK, "oauthbearer": TOKENS}, ".oauthbearer", "not for this mechanism"),
            (tokens(**{**_MSK, "mechanism": "OAUTHBEARER"}), ".awsMskIam", "not for this mechanism"),
        )
    ),
    ((*KAFKA, "auth"), {"sasl": _MSK}, "spec.source.kafka.auth.tls", "over TLS only"),
    *(
        ((*KAFKA, "auth", "sasl"), tokens(oauthbearer={**TOKENS, field: value}), f"{OAUTHBEARER}.{where}", right)
        for field, value, where, right in (
            ("tokenEndpointUrl", "http://idp/token", "tokenEndpointUrl", "https://, a host"),
            ("tokenEndpointUrl", "https://idp:0/token", "tokenEndpointUrl", "https://, a host"),
            ("tokenEndpointUrl", "https://idp:99999/token", "tokenEndpointUrl", "https://, a host"),
            ("tokenEndpointUrl", "https://-/token", "tokenEndpointUrl", "https://, a host"),
            ("tokenEndpointUrl", "https://.../token", "tokenEndpointUrl", "https://, a host"),
            ("tokenEndpointUrl", "https://me:secret@idp/token", "tokenEndpointUrl", "without a user"),
            ("tokenEndpointUrl", 'https://idp/"', "tokenEndpointUrl", "https://, a host"),
            ("clientId", " ", "clientId", "visible ASCII"),
            ("clientId", "a:b", "clientId", "without a colon"),
            ("scope", 'a "b"', "scope", "without quotes"),
            ("scope", "a  b", "scope", "one blank"),
            ("extensions", {"auth": "x"}, "extensions.auth", "and not auth"),
            ("extensions", {"cluster": "a,b"}, "extensions.cluster", "use 1 to 249"),
            ("clientSecret", "x", "clientSecret", "did you mean clientSecretRef?"),
            ("caSecretRef", {"name": "ca"}, "caSecretRef.key", "is missing"),
        )
    ),
    (
        (*KAFKA, "auth", "sasl", "mechanism"),
        "GSSAPI",
        "spec.source.kafka.auth.sasl.mechanism",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM",
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
    (("spec", "decode"), {"format": "yaml"}, "spec.decode.format", "csv, text, raw, debezium or change"),
    (("spec", "decode"), {"format": "csv"}, "spec.decode.schema", "format csv needs it"),
    (("spec", "decode"), {"format": "text", "schema": "a INT"}, "spec.decode.schema", "no meaning for format text"),
    (("spec", "decode"), {"format": "csv", "schema": "a INT", "csv": {"delimiter": "||"}}, _DELIMITER, "has 2 char"),
    (("spec", "decode"), {"format": "csv", "schema": "a INT", "csv": {"delimiter": "a"}}, _DELIMITER, "one character"),
    (("spec", "decode"), {"format": "text", "csv": {}}, "spec.decode.csv", "no meaning for format text"),
    (("spec", "decode"), {"format": "debezium"}, "spec.decode.schema", "debezium needs it"),
    (
        ("spec", "decode"),
        {**AVRO, "format": "debezium", "schema": "a INT"},
        "spec.decode.schema",
        "beside schemaRegistry",
    ),
    (("spec", "decode"), {"format": "raw", "debezium": {}}, "spec.decode.debezium", "no meaning for format raw"),
    (("spec", "source"), {}, "spec.source.kafka", "exactly one of kafka, postgresql, mariadb and mysql"),
    (
        ("spec", "source"),
        {**of_database(), "kafka": {"bootstrapServers": "kafka:9092", "topics": ["a"]}},
        "spec.source.postgresql",
        "stands beside kafka",
    ),
    (("spec", "source"), of_database(startingPosition="Never"), f"{_DATABASE}.startingPosition", "Now"),
    (
        ("spec", "source"),
        of_database(startingPosition="Snapshot", slot={"create": False}),
        f"{_DATABASE}.slot.create",
        "startingPosition: Now",
    ),
    (
        ("spec", "source"),
        of_database(startingPosition=REMOVE),
        f"{_DATABASE}.startingPosition",
        "or give startFrom",
    ),
    (("spec", "source"), of_database(startFrom={"lsn": "0/1"}), f"{_DATABASE}.startFrom", "not both"),
    (
        ("spec", "source"),
        {**of_mariadb(), "kafka": {"bootstrapServers": "kafka:9092", "topics": ["a"]}},
        "spec.source.mariadb",
        "stands beside kafka",
    ),
    (("spec", "source"), {**of_mariadb(), **of_mysql()}, "spec.source.mysql", "stands beside mariadb"),
    (("spec", "source"), of_mysql(tables=["a.b", "a.b"]), "spec.source.mysql.tables[1]", "repeats"),
    (("spec", "source"), of_mysql(startingPosition=REMOVE), "spec.source.mysql.startingPosition", "or give startFrom"),
    (
        ("spec", "source"),
        of_mysql({"bootstrapServers": REMOVE}),
        "spec.source.mysql.changes.bootstrapServers",
        "name the brokers of the change topic",
    ),
    (
        ("spec", "source"),
        of_mysql({"progressTopic": {"name": "shop-changes"}}),
        "spec.source.mysql.changes.progressTopic.name",
        "different topics",
    ),
    (("spec", "source"), of_mariadb(server="a:1,b:2"), f"{_MARIADB}.server", "of one server"),
    (("spec", "source"), of_mariadb(server="a"), f"{_MARIADB}.server", "port"),
    (("spec", "source"), of_mariadb(tables=REMOVE), f"{_MARIADB}.tables", "is missing"),
    (("spec", "source"), of_mariadb(tables=[]), f"{_MARIADB}.tables", "is empty"),
    (("spec", "source"), of_mariadb(tables=["orders"]), f"{_MARIADB}.tables[0]", "database.table"),
    (("spec", "source"), of_mariadb(tables=["a.b", "a.b"]), f"{_MARIADB}.tables[1]", "repeats"),
    (("spec", "source"), of_mariadb(serverId=0), f"{_MARIADB}.serverId", "1"),
    (("spec", "source"), of_mariadb(startingPosition=REMOVE), f"{_MARIADB}.startingPosition", "or give startFrom"),
    (("spec", "source"), of_mariadb(startFrom={"binlog": "b.000001:4"}), f"{_MARIADB}.startFrom", "not both"),
    (("spec", "source"), of_binlog(), f"{_MARIADB}.startFrom", "exactly one of binlog and debeziumOffsets"),
    *(
        (("spec", "source"), of_binlog(binlog=text), f"{_MARIADB}.startFrom.binlog", "a place in it")
        for text in ("b.000001", "b:4", "000001:4", "b.1:4", "b.000001:", "b.000001:4 (1)", "/a.000001:4")
    ),
    (
        ("spec", "source"),
        of_mariadb({"bootstrapServers": REMOVE}),
        f"{_MARIADB}.changes.bootstrapServers",
        "name the brokers of the change topic",
    ),
    (
        ("spec", "source"),
        of_mariadb({"bootstrapServers": REMOVE, "auth": {"tls": {}}}),
        f"{_MARIADB}.changes.auth",
        "stands without bootstrapServers",
    ),
    (
        ("spec", "source"),
        of_mariadb({"progressTopic": {"name": "shop-changes"}}),
        f"{_MARIADB}.changes.progressTopic.name",
        "different topics",
    ),
    (
        ("spec", "source"),
        of_mariadb({"deadLetter": {"topic": {"name": "_sinkpipeline-progress"}}}),
        f"{_MARIADB}.changes.deadLetter.topic.name",
        "a topic of their own",
    ),
    (
        ("spec",),
        {**smallest()["spec"], "source": of_mariadb(), "decode": {"format": "csv", "schema": "a INT"}},
        "spec.decode.format",
        "a change topic holds JSON",
    ),
    (("spec", "source"), of_slot(), f"{_DATABASE}.startFrom", "exactly one of lsn and debeziumOffsets"),
    (
        ("spec", "source"),
        of_slot(lsn="0/1", debeziumOffsets='{"lsn_commit":1}'),
        f"{_DATABASE}.startFrom",
        "exactly one of lsn and debeziumOffsets",
    ),
    *(
        (("spec", "source"), of_slot(lsn=text), f"{_DATABASE}.startFrom.lsn", "write an LSN")
        for text in ("0", "0/", "0/G", "0/123456789", "0/1 439", "0/1 (-1)", "0/1 ()", "0/1(4)")
    ),
    (
        ("spec", "source"),
        of_slot(debeziumOffsets="x" * 8193),
        f"{_DATABASE}.startFrom.debeziumOffsets",
        "at most 8192 bytes",
    ),
    (
        ("spec", "source"),
        {"postgresql": {**of_slot(lsn="0/1")["postgresql"], "slot": {"name": "theirs"}}},
        f"{_DATABASE}.slot.create",
        "set it to false beside startFrom",
    ),
    (("spec", "source"), of_database(slot={"name": "Shop"}), f"{_DATABASE}.slot.name", "name of a slot"),
    (
        ("spec", "source"),
        of_database(limits={"maxRetained": "20GB"}),
        f"{_DATABASE}.limits.maxRetained",
        "such as 20Gi",
    ),
    (
        ("spec", "source"),
        of_database(publication={"name": "p", "create": False, "tables": ["a.b"]}),
        f"{_DATABASE}.publication.tables",
        "set create: true",
    ),
    (
        ("spec", "source"),
        of_database(publication={"name": "p", "tables": ["orders"]}),
        f"{_DATABASE}.publication.tables[0]",
        "schema.table",
    ),
    (
        ("spec", "source"),
        of_database({"bootstrapServers": REMOVE}),
        f"{_DATABASE}.changes.bootstrapServers",
        "name the brokers of the change topic",
    ),
    (
        ("spec", "source"),
        of_database({"bootstrapServers": REMOVE, "auth": {"tls": {}}}),
        f"{_DATABASE}.changes.auth",
        "stands without bootstrapServers",
    ),
    (
        ("spec", "source"),
        of_database({"progressTopic": {"name": "shop-changes"}}),
        f"{_DATABASE}.changes.progressTopic.name",
        "different topics",
    ),
    (
        ("spec", "source"),
        of_database({"deadLetter": {"topic": {"name": "_sinkpipeline-progress"}}}),
        f"{_DATABASE}.changes.deadLetter.topic.name",
        "a topic of their own",
    ),
    (
        ("spec",),
        {**smallest()["spec"], "source": of_database(), "decode": {"format": "csv", "schema": "a INT"}},
        "spec.decode.format",
        "a change topic holds JSON",
    ),
    (("spec", "decode"), {"format": "change"}, "spec.decode.schema", "format change needs it"),
    (("spec", "decode"), {"format": "raw", "change": {}}, "spec.decode.change", "no meaning for format raw"),
    (("spec", "decode"), {**AVRO, "format": "change"}, "spec.decode.schemaRegistry", "no meaning for format change"),
    (("spec", "decode"), of_tables(), "spec.decode.change.tables", "is empty"),
    (("spec", "decode"), of_tables("a.b", "a.b"), "spec.decode.change.tables[1]", "repeats"),
    (("spec", "decode"), of_tables("orders"), "spec.decode.change.tables[0]", "schema.table"),
    (("spec", "decode"), {**AVRO, "format": "csv"}, "spec.decode.schemaRegistry", "no meaning for format csv"),
    (("spec", "decode"), {"format": "json"}, "spec.decode.schema", "format json needs it"),
    (("spec", "decode"), {"format": "json", "schema": ""}, "spec.decode.schema", "is empty"),
    (("spec", "decode"), {"format": "json", "schema": "é" * 32769}, "spec.decode.schema", "65536 bytes"),
    (("spec", "decode"), {"format": "raw", "schema": "a INT"}, "spec.decode.schema", "no meaning for format raw"),
    (("spec", "decode"), {"format": "avro"}, "spec.decode.schema", "avro needs it"),
    (("spec", "decode"), {**AVRO, "schema": "{}"}, "spec.decode.schema", "stands beside schemaRegistry"),
    (("spec", "decode"), {"format": "protobuf"}, "spec.decode.schema", "protobuf needs it"),
    (
        ("spec", "decode"),
        {**AVRO, "format": "protobuf", "schema": PROTO},
        "spec.decode.schema",
        "stands beside schemaRegistry",
    ),
    (("spec", "decode"), {**AVRO, "message": "Order"}, "spec.decode.message", "no meaning for format avro"),
    (
        ("spec", "decode"),
        {"format": "protobuf", "schema": PROTO, "message": "1"},
        "spec.decode.message",
        "full name of a record",
    ),
    (
        ("spec", "decode"),
        registry({"format": "protobuf"}, reader={"schema": "{}"}),
        "spec.decode.schemaRegistry.reader.schema",
        "the format is protobuf",
    ),
    (("spec", "decode"), {**AVRO, "format": "raw"}, "spec.decode.schemaRegistry", "no meaning for format raw"),
    (("spec", "decode"), registry(url="kafka:9092"), "spec.decode.schemaRegistry.url", "write http or https"),
    (("spec", "decode"), registry(url="http://a:b@r:1"), "spec.decode.schemaRegistry.url", "no address of a registry"),
    (
        ("spec", "decode"),
        {"format": "avro", "schema": "id BIGINT"},
        "spec.decode.schema",
        "an Avro schema of a record as JSON",
    ),
    (
        ("spec", "decode"),
        registry(reader={"schema": '"long"'}),
        "spec.decode.schemaRegistry.reader.schema",
        "is no JSON object",
    ),
    (("spec", "decode"), registry(url="http://r:0"), "spec.decode.schemaRegistry.url", "write http or https"),
    (
        ("spec", "decode"),
        registry(auth={"tls": {}}),
        "spec.decode.schemaRegistry.auth.tls",
        "no meaning for http",
    ),
    (("spec", "decode"), registry(auth={}), "spec.decode.schemaRegistry.auth", "is empty"),
    (("spec", "decode"), registry(auth=_BOTH), "spec.decode.schemaRegistry.auth.bearer", "not both"),
    (("spec", "decode"), registry(reader={}), "spec.decode.schemaRegistry.reader", "is empty"),
    (("spec", "decode"), registry(reader={"version": 3}), "spec.decode.schemaRegistry.reader.version", "in quotes"),
    (
        ("spec", "decode"),
        registry(reader={"version": "3", "schema": "{}"}),
        "spec.decode.schemaRegistry.reader.schema",
        "stands beside version",
    ),
    (("spec", "decode"), registry(idFormat="Int16"), "spec.decode.schemaRegistry.idFormat", "Int32 or Int64"),
    (
        ("spec", "decode"),
        registry({"format": "json", "schema": "a INT"}, reader={"version": "1"}),
        "spec.decode.schemaRegistry.reader",
        "stands beside decode.schema",
    ),
    (
        ("spec", "decode"),
        registry({"format": "json", "schema": "a INT"}, subjectNameStrategy="TopicName"),
        "spec.decode.schemaRegistry.subjectNameStrategy",
        "stands beside decode.schema",
    ),
    (
        ("spec", "decode"),
        registry({"format": "json"}, reader={"schema": '{"type": "object"}'}),
        "spec.decode.schemaRegistry.reader.schema",
        "give decode.schema",
    ),
    (
        ("spec", "decode"),
        registry(subjectNameStrategy="RecordName"),
        "spec.decode.schemaRegistry.recordName",
        "is missing, and RecordName needs it",
    ),
    (
        ("spec", "decode"),
        registry(subject="orders", subjectNameStrategy="TopicName"),
        "spec.decode.schemaRegistry.subjectNameStrategy",
        "not both",
    ),
    (("spec", "decode"), registry(recordName="Order"), "spec.decode.schemaRegistry.recordName", "no meaning"),
    (
        ("spec", "decode"),
        registry(subjectNameStrategy="RecordName", recordName="a-b"),
        "spec.decode.schemaRegistry.recordName",
        "full name of a record",
    ),
    (SINK, encoded(select={}), "spec.sinks[0].kafka.encode.value", "has nothing to encode"),
    (SINK, encoded("key", select={"value": "id"}), "spec.sinks[0].kafka.encode.key", "has nothing to encode"),
    (SINK, encoded(auth={"tls": {}}), "spec.sinks[0].kafka.encode.value.schemaRegistry.auth.tls", "no meaning"),
    (SINK, encoded(auth=_BOTH), "spec.sinks[0].kafka.encode.value.schemaRegistry.auth.bearer", "not both"),
    (
        SINK,
        encoded("key", subject="a", subjectNameStrategy="TopicName"),
        "spec.sinks[0].kafka.encode.key.schemaRegistry.subjectNameStrategy",
        "not both",
    ),
    (
        SINK,
        encoded(subjectNameStrategy="TopicRecordName"),
        "spec.sinks[0].kafka.encode.value.schemaRegistry.recordName",
        "is missing",
    ),
    ((*SINK, "kafka", "encode"), {}, "spec.sinks[0].kafka.encode", "is empty"),
    (
        ("spec",),
        {
            **smallest()["spec"],
            "source": {"kafka": {"bootstrapServers": "k:1", "topicPattern": "a-.*"}},
            "decode": AVRO,
        },
        "spec.decode.schemaRegistry.subject",
        "name the subject",
    ),
    (("spec", "decode"), {"format": "raw", "onNull": "Drop"}, "spec.decode.onNull", "DeadLetter, PassThrough or Skip"),
    (
        ("spec", "decode"),
        {"format": "json", "schema": "a INT", "schemaConfigMapRef": _IN_CONFIG_MAP},
        "spec.decode.schemaConfigMapRef",
        "stands beside schema",
    ),
    (
        ("spec", "decode"),
        {**AVRO, "schemaConfigMapRef": _IN_CONFIG_MAP},
        "spec.decode.schemaConfigMapRef",
        "stands beside schemaRegistry",
    ),
    (
        ("spec", "decode"),
        {"format": "text", "schemaConfigMapRef": _IN_CONFIG_MAP},
        "spec.decode.schemaConfigMapRef",
        "no meaning for format text",
    ),
    (
        ("spec", "decode"),
        registry({"format": "json", "schemaConfigMapRef": _IN_CONFIG_MAP}, subject="a"),
        "spec.decode.schemaRegistry.subject",
        "stands beside decode.schema",
    ),
    # lookups
    *(
        ((*transform, "lookups"), [lookup(**fields)], f"{place}.lookups[0].{at}", word)
        for transform, place in (
            (("spec", "transform"), "spec.transform"),
            ((*SINK, "transform"), "spec.sinks[0].transform"),
        )
        for fields, at, word in (
            ({"equals": "é" * 8193}, "equals", "at most 16384 bytes"),
            ({"schema": "é" * 2049}, "schema", "at most 4096 bytes"),
            ({"source": {"inline": "é" * 8193}}, "from.inline", "at most 16384 bytes"),
            ({"format": "json", "csv": {}}, "csv", "no meaning for format json"),
        )
    ),
    (("spec", "transform", "lookups"), [lookup("1")], "spec.transform.lookups[0].name", "begin with a letter"),
    (("spec", "transform", "lookups"), [lookup(format="xml")], "spec.transform.lookups[0].format", "csv or json"),
    (("spec", "transform", "lookups"), [lookup(key="")], "spec.transform.lookups[0].key", "name of a column"),
    (("spec", "transform", "lookups"), [lookup(source={})], "spec.transform.lookups[0].from", "exactly one"),
    (
        ("spec", "transform", "lookups"),
        [lookup(source={"inline": "a", "file": "/a"})],
        "spec.transform.lookups[0].from",
        "exactly one",
    ),
    (
        ("spec", "transform", "lookups"),
        [lookup(source={"file": "a.csv"})],
        "spec.transform.lookups[0].from.file",
        "beginning with /",
    ),
    (
        ("spec", "transform", "lookups"),
        [lookup(source={"configMapRef": {"name": "A", "key": "k"}})],
        "spec.transform.lookups[0].from.configMapRef.name",
        "name of a ConfigMap",
    ),
    (
        ("spec", "transform", "lookups"),
        [lookup(source={"configMapRef": {"name": "a", "key": ".."}})],
        "spec.transform.lookups[0].from.configMapRef.key",
        "key of a ConfigMap",
    ),
    (("spec", "transform", "lookups"), [lookup(f"a{i}") for i in range(9)], "spec.transform.lookups", "at most 8"),
    (("spec", "transform", "lookups"), [lookup()] * 2, "spec.transform.lookups[1].name", "name of its own"),
    # transform
    (("spec", "transform"), {"where": " "}, "spec.transform.where", "is empty"),
    (("spec", "transform"), {"where": True}, "spec.transform.where", "put it in quotes"),
    (("spec", "transform"), {"where": "a" * 16385}, "spec.transform.where", "is too long"),
    (("spec", "transform"), {"select": {}}, "spec.transform.select", "is empty"),
    (("spec", "transform"), {"select": {"value": ""}}, "spec.transform.select.value", "is empty"),
    (("spec", "transform"), {"select": {"valeu": "a"}}, "spec.transform.select.valeu", "did you mean value?"),
    ((*SINK, "transform"), {}, "spec.sinks[0].transform", "is empty"),
    (("spec", "transform"), {"explode": {}}, "spec.transform.explode.array", "is missing"),
    (("spec", "transform"), {"explode": {"array": ""}}, "spec.transform.explode.array", "is empty"),
    (("spec", "transform"), {"explode": {"array": "é" * 8193}}, "spec.transform.explode.array", "16384 bytes"),
    (("spec", "transform"), {"explode": {"array": "a", "as": "a b"}}, "spec.transform.explode.as", "use letters"),
    (
        ("spec", "transform"),
        {"explode": {"array": "a", "maxRowsPerRecord": 0}},
        "spec.transform.explode.maxRowsPerRecord",
        "use 1 or more",
    ),
    (
        (*SINK, "transform"),
        {"explode": {"array": "a", "maxRowsPerRecord": 100_001}},
        "spec.sinks[0].transform.explode.maxRowsPerRecord",
        "use 100000 or less",
    ),
    ((*SINK, "transform"), {"where": "é" * 8193}, "spec.sinks[0].transform.where", "16384 bytes"),
    ((*SINK, "transform"), {"select": {}}, "spec.sinks[0].transform.select", "is empty"),
    ((*SINK, "transform"), {"select": {"value": " "}}, "spec.sinks[0].transform.select.value", "is empty"),
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
    (("spec", "sinks"), [], "spec.sinks", "only the changes of a database go somewhere without"),
    (
        ("spec",),
        {**smallest()["spec"], "source": of_database(), "sinks": [], "transform": {"where": "true"}},
        "spec.transform",
        "is for sinks, and there is none",
    ),
    (
        ("spec",),
        {**smallest()["spec"], "source": of_database({"bootstrapServers": REMOVE}), "sinks": []},
        "spec.source.postgresql.changes.bootstrapServers",
        "name the brokers of the change topic",
    ),
    (("spec", "sinks"), {}, "spec.sinks", "is a mapping, not a list"),
    (("spec", "sinks"), [sink(f"s{index}", f"t{index}") for index in range(33)], "spec.sinks", "at most 32"),
    (("spec", "sinks", 1), sink("copy", "other"), "spec.sinks[1].name", 'repeats "copy"'),
    ((*SINK, "name"), REMOVE, "spec.sinks[0].name", "is missing"),
    ((*SINK, "name"), "a.redrive", "spec.sinks[0].name", "DNS-1123"),
    ((*SINK, "name"), "a/b", "spec.sinks[0].name", "DNS-1123"),
    ((*SINK, "name"), "a" * 64, "spec.sinks[0].name", "has 64 characters"),
    ((*SINK, "deliveryGuarantee"), "AtMostOnce", "spec.sinks[0].deliveryGuarantee", "use ExactlyOnce or AtLeastOnce"),
    ((*SINK, "required"), False, "spec.sinks[0].required", "is for every sink"),
    ((*SINK, "required"), "no", "spec.sinks[0].required", "true or false"),
    ((*SINK, "onExistingData"), "Fail", "spec.sinks[0].onExistingData", "use Append or Refuse"),
    ((*SINK, "kafka"), REMOVE, "spec.sinks[0].kafka", "is missing"),
    ((*SINK, "kafak"), {}, "spec.sinks[0].kafak", "did you mean kafka?"),
    ((*SINK, "kafka", "bootstrapServers"), "b", "spec.sinks[0].kafka.bootstrapServers", "host:port"),
    ((*SINK, "kafka", "topic"), REMOVE, "spec.sinks[0].kafka.topic", "is missing"),
    ((*SINK, "kafka", "topics"), [{"name": "a"}], "spec.sinks[0].kafka.topic", "stands beside topics"),
    ((*SINK, "kafka"), {"topics": []}, "spec.sinks[0].kafka.topics", "give 1 or more"),
    (
        (*SINK, "kafka"),
        {"topics": [{"name": "a"}, {"name": "a"}]},
        "spec.sinks[0].kafka.topics[1].name",
        "name each topic once",
    ),
    ((*SINK, "kafka"), {"topics": [{"name": "a"}]}, "spec.sinks[0].transform.select.topic", "kafka.topics needs it"),
    (
        (*SINK, "transform"),
        {"select": {"topic": "'a'"}},
        "spec.sinks[0].transform.select.topic",
        "has a meaning for topics only",
    ),
    (SINK, topics_of("a", "_sinkpipeline-progress"), "spec.sinks[0].kafka.topics[1].name", "progress topic too"),
    (
        SINK,
        topics_of("a", "b", deadLetter={"topic": {"name": "b"}}),
        "spec.sinks[0].deadLetter.topic.name",
        "data topic too",
    ),
    (
        SINK,
        topics_of("a", "b", select={"topic": "a", "columns": {"a": "b"}}),
        "spec.sinks[0].transform.select.columns",
        "no meaning for a kafka sink",
    ),
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
        sink("copy", "x", progressTopic={"name": "orders"}),
        "spec.sinks[0].kafka.progressTopic.name",
        "is a source topic too",
    ),
    (SINK, sink("copy", "_sinkpipeline-progress"), "spec.sinks[0].kafka.topic.name", "is the progress topic too"),
    (SINK, dead(sink("copy", "out"), "orders"), "spec.sinks[0].deadLetter.topic.name", "is a source topic too"),
    (SINK, dead(sink("copy", "out"), "out"), "spec.sinks[0].deadLetter.topic.name", "is the sink's data topic too"),
    (
        SINK,
        dead(sink("copy", "out"), "_sinkpipeline-progress"),
        "spec.sinks[0].deadLetter.topic.name",
        "is the progress topic too",
    ),
    (
        ("spec", "sinks", 1),
        dead(sink("more", "out"), "orders-copy"),
        "spec.sinks[1].deadLetter.topic.name",
        'is the topic of sink "copy"',
    ),
    (
        ("spec", "sinks", 1),
        dead(sink("more", "out", progressTopic={"name": "other"}), "_sinkpipeline-progress"),
        "spec.sinks[1].deadLetter.topic.name",
        'is the progress topic of sink "copy"',
    ),
    (
        ("spec",),
        {
            "source": {"kafka": {"bootstrapServers": "a:1", "topicPattern": "dlq-.*"}},
            "sinks": [dead(sink("copy", "out"), "dlq-out")],
        },
        "spec.sinks[0].deadLetter.topic.name",
        "matches the source's topicPattern",
    ),
    ((*SINK, "deadLetter"), {}, "spec.sinks[0].deadLetter.topic", "is missing"),
    ((*SINK, "deadLetter"), {"topic": {"name": "a b"}}, "spec.sinks[0].deadLetter.topic.name", "Kafka topic name"),
    (
        (*SINK, "deadLetter"),
        {"topic": {"name": "dlq"}, "onFailure": "Drop"},
        "spec.sinks[0].deadLetter.onFailure",
        "use Stop or DropAndContinue",
    ),
    (
        (*SINK, "deadLetter"),
        {"topic": {"name": "dlq"}, "autoCreate": "no"},
        "spec.sinks[0].deadLetter.autoCreate",
        "without quotes",
    ),
    (
        (*SINK, "deadLetter"),
        {"topic": {"name": "dlq", "config": {"retention": "1"}}},
        "spec.sinks[0].deadLetter.topic.config.retention",
        "is not the name of a topic option",
    ),
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
    (("spec", "deletionPolicy"), "Orphan", "spec.deletionPolicy", "use Retain or Delete"),
    (("spec", "deletionPolicy"), "delete", "spec.deletionPolicy", "use Retain or Delete"),
    (("spec", "suspend"), "yes", "spec.suspend", "write true or false, without quotes"),
    (("spec", "suspend"), 1, "spec.suspend", "is a number, not true or false"),
    (("spec", "restartNonce"), "1", "spec.restartNonce", "write a whole number, without quotes"),
    (("spec", "restartNonce"), True, "spec.restartNonce", "is true or false, not a whole number"),
    (("spec", "restartNonce"), 1.5, "spec.restartNonce", "whole number"),
    (("spec", "spark"), {"driver": {"cores": 0}}, "spec.spark.driver.cores", "1 or more"),
    (("spec", "spark"), {"driver": {"memory": "1Gi"}}, "spec.spark.driver.memory", "512m or 2g"),
    (("spec", "spark"), {"driver": {"memory": "0g"}}, "spec.spark.driver.memory", "512m or 2g"),
    (("spec", "spark"), {"driver": {"memory": 1024}}, "spec.spark.driver.memory", "put it in quotes"),
    (("spec", "spark"), {"executor": {"instances": 0}}, "spec.spark.executor.instances", "1 or more"),
    (("spec", "spark"), {"executor": {"instance": 1}}, "spec.spark.executor.instance", "did you mean instances?"),
    (("spec", "spark"), {"template": []}, "spec.spark.template", "is a list, not a mapping"),
    (("spec", "spark"), {"conf": {f"spark.x{n}": "1" for n in range(101)}}, "spec.spark.conf", "has 101 entries"),
    (("spec", "spark"), {"conf": {"spark.x": "a" * 4097}}, 'spec.spark.conf["spark.x"]', "at most 4096 characters"),
    (("spec", "spark"), {"conf": {"spark.x": 1}}, 'spec.spark.conf["spark.x"]', "put it in quotes"),
    (("spec", "spark"), {"conf": {"sql.x": "1"}}, 'spec.spark.conf["sql.x"]', "begins with spark."),
    *(
        (
            ("spec", "spark"),
            {"functions": [{"name": "f", "className": "a.B", **wrong}]},
            f"spec.spark.functions{at}",
            word,
        )
        for wrong, at, word in (
            ({"name": "1f"}, "[0].name", "not beginning with a digit"),
            ({"className": "a.B-C"}, "[0].className", "com.example.MaskEmail"),
            ({"returns": " "}, "[0].returns", "is empty"),
            ({"jar": "a.jar"}, "[0].jar", "is an unknown field"),
        )
    ),
    (("spec", "spark"), {"functions": []}, "spec.spark.functions", "give 1 or more"),
    (
        ("spec", "spark"),
        {"functions": [{"name": "f", "className": "a.B"}, {"name": "f", "className": "a.C"}]},
        "spec.spark.functions[1].name",
        'repeats "f"',
    ),
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
            "spark.sql.caseSensitive": "in one way",
            "spark.sql.avro.datetimeRebaseModeInWrite": "in one way",
            "spark.sql.ansi.enabled": "wherever and whenever",
            "spark.sql.variable.substitute": "wherever and whenever",
            "spark.sql.legacy.timeParserPolicy": "wherever and whenever",
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
"""Where, a change to the smallest manifest, the path that is named, a word of the message."""

UNSERVED: list[tuple[Steps, Any]] = [
    ((*SINK, "delta"), {}),
    (("spec", "source", "mongodb"), {}),
    ((*SINK, "decode"), {"format": "raw"}),
    ((*SINK, "transform", "groupBy"), "a"),
    ((*SINK, "kafka", "key"), "id"),
    (("spec", "spark", "image"), "x"),
    (("spec", "spark", "version"), "4.1.1"),
    (("spec", "spark", "serviceAccount"), "x"),
    (("spec", "decode", "format"), "xml"),
    (("spec", "transform", "groupBy"), "a"),
]
"""Changes to the smallest manifest that a later version will take."""

PATTERNS = {
    "(": 'a "(" without its ")"',
    "a)|(b": 'a ")" without its "("',
    "(?=a)b": "a look-around",
    r"(a)\1": "a back-reference",
    "(?P<x>a)": "a named group",
    "a++": "possessive",
    r"orders-\pN": "a class of Unicode",
    "[[:digit:]]": "a set",
    "[z-a]": "the range",
    "(a){2}": "a counted repetition of a group",
    "(a)" * 101: "101 groups",
    "a{2}" * 11: "11 counted repetitions",
    "": "where 1 to 1024 are read",
    "a" * 1025: "where 1 to 1024 are read",
}
"""Values of topicPattern that are none, and a word of the message."""


def _identity(identity: str | None) -> dict[str, Any]:
    return smallest() if identity is None else changed(smallest(), (("spec", "identity"), identity))


_TWO = changed(smallest(), (("spec", "sinks", 1), sink("more", "orders-more")))

_TABLE = changed(smallest(), (SINK, table()))
_AT = (*SINK, "postgresql")
_STREAM = changed(smallest(), (SINK, streams.stream()))
_OF_STREAM = (*SINK, "nats")
_REDIS = changed(smallest(), (SINK, redis.stream()))

_CHANGES = changed(smallest(), (("spec", "source"), of_database()))
_OF_DATABASE = ("spec", "source", "postgresql")
_BINLOG = changed(smallest(), (("spec", "source"), of_mariadb()))
_OF_MARIADB = ("spec", "source", "mariadb")

TRANSITIONS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (_CHANGES, changed(_CHANGES, ((*_OF_DATABASE, "slot"), {"name": "other"})), "slot.name"),
    (changed(_CHANGES, ((*_OF_DATABASE, "slot"), {"name": "other"})), _CHANGES, "slot.name"),
    (_CHANGES, changed(_CHANGES, ((*_OF_DATABASE, "slot"), {"create": False})), ""),
    (_CHANGES, changed(_CHANGES, ((*_OF_DATABASE, "publication", "name"), "other")), "publication.name"),
    (_CHANGES, changed(_CHANGES, ((*_OF_DATABASE, "changes", "topic", "name"), "other")), "topic.name"),
    (_CHANGES, changed(_CHANGES, ((*_OF_DATABASE, "changes", "progressTopic"), {"name": "p"})), "progressTopic.name"),
    (_CHANGES, changed(_CHANGES, ((*_OF_DATABASE, "servers"), "other:1")), ""),
    (_BINLOG, changed(_BINLOG, ((*_OF_MARIADB, "changes", "topic", "name"), "other")), "topic.name"),
    (_BINLOG, changed(_BINLOG, ((*_OF_MARIADB, "changes", "progressTopic"), {"name": "p"})), "progressTopic.name"),
    (_BINLOG, changed(_BINLOG, ((*_OF_MARIADB, "server"), "other:1"), ((*_OF_MARIADB, "tables"), ["a.b"])), ""),
    (smallest(), _TABLE, "what a sink is"),
    (_TABLE, _STREAM, "what a sink is"),
    (_STREAM, changed(_STREAM, ((*_OF_STREAM, "stream", "name"), "OTHER")), "stream.name"),
    (_STREAM, changed(_STREAM, ((*_OF_STREAM, "progressSubject"), "other")), "progressSubject"),
    (_STREAM, changed(_STREAM, ((*_OF_STREAM, "progressSubject"), "_sinkpipeline")), ""),
    (_STREAM, changed(_STREAM, ((*_OF_STREAM, "servers"), "other:1"), ((*_OF_STREAM, "subject"), "b")), ""),
    (_REDIS, _STREAM, "what a sink is"),
    (_REDIS, changed(_REDIS, ((*SINK, "redis", "stream", "key"), "other")), "stream.key"),
    (_REDIS, changed(_REDIS, ((*SINK, "redis", "database"), 1)), "database"),
    (_REDIS, changed(_REDIS, ((*SINK, "redis", "database"), 0), ((*SINK, "redis", "servers"), "other:1")), ""),
    (_REDIS, changed(_REDIS, ((*SINK, "redis", "mode"), "Cluster"), ((*SINK, "redis", "servers"), "a:1,b:2")), ""),
    (_TABLE, smallest(), "what a sink is"),
    (_TABLE, changed(_TABLE, ((*_AT, "table", "name"), "other")), "table.name"),
    (_TABLE, changed(_TABLE, ((*_AT, "table", "schema"), "other")), "table.schema"),
    (_TABLE, changed(_TABLE, ((*_AT, "table", "schema"), "public")), ""),
    (_TABLE, changed(_TABLE, ((*_AT, "progressSchema"), "other")), "progressSchema"),
    (changed(_TABLE, ((*_AT, "progressSchema"), "other")), _TABLE, "progressSchema"),
    (_TABLE, changed(_TABLE, ((*_AT, "progressSchema"), "sinkpipeline"), ((*_AT, "servers"), "other:1")), ""),
    (_TABLE, changed(_TABLE, ((*_AT, "table", "columns"), {"id": "bigint"}), ((*_AT, "database"), "x")), ""),
    (_identity("a"), _identity("b"), "identity"),
    (_identity("a"), _identity(None), "identity"),
    (_identity(None), _identity("default.orders"), "identity"),
    (_identity("a"), _identity("a"), ""),
    (_identity(None), _identity(None), ""),
    (smallest(), changed(smallest(), ((*SINK, "kafka", "topic", "name"), "other")), "topic.name"),
    (smallest(), changed(smallest(), (SINK, topics_of("other", "third"))), "topic.name"),
    (smallest(), changed(smallest(), (SINK, topics_of("orders-copy", "third"))), ""),
    (changed(smallest(), (SINK, topics_of("a", "b"))), changed(smallest(), (SINK, topics_of("b", "c"))), ""),
    (
        smallest(),
        changed(smallest(), ((*SINK, "kafka", "progressTopic"), {"name": "other"})),
        "progressTopic.name",
    ),
    (
        changed(smallest(), ((*SINK, "kafka", "progressTopic"), {"name": "other"})),
        smallest(),
        "progressTopic.name",
    ),
    # What was left out is the default.
    (smallest(), changed(smallest(), ((*SINK, "kafka", "progressTopic"), {"name": "_sinkpipeline-progress"})), ""),
    # Told by name, not by place.
    (_TWO, changed(_TWO, (("spec", "sinks"), [_TWO["spec"]["sinks"][1], _TWO["spec"]["sinks"][0]])), ""),
    (_TWO, smallest(), ""),
    (smallest(), _TWO, ""),
    (smallest(), changed(smallest(), ((*SINK, "name"), "renamed"), ((*SINK, "kafka", "topic", "name"), "other")), ""),
    (smallest(), changed(smallest(), ((*KAFKA, "topics"), ["another"]), (("spec", "restartNonce"), 2)), ""),
]
"""Two manifests that are right, and what of the second never changes; empty where the change is right."""

_LONG_USER = {
    "sasl": {"mechanism": "PLAIN", "username": "é" * 200, "passwordSecretRef": {"name": "s", "key": "k"}},
}

MORE_WRONG: list[tuple[Steps, Any]] = [
    (SINK, topics_of("a", select={"topic": "é" * 9000})),
    (SINK, {**topics_of("a"), "kafka": {"topics": [{"name": "a", "config": {"?": "1"}}]}}),
    (SINK, table(**UPSERT, deleteWhen="é" * 9000)),
    (SINK, table(**UPSERT, orderBy="é" * 9000)),
    *(((*KAFKA, "properties"), {name: "?"}) for name in SOURCE),
    *(((*SINK, "kafka", "properties"), {name: "?"}) for name in SINK_PROPERTIES),
    *((("spec", "spark"), {"conf": {name: "1"}}) for name in ("spark.driver.cores", "spark.executor.instances")),
    *((("spec", "spark"), {"conf": {name: "1"}}) for name in ("spark.executor.memory", "SPARK.MASTER")),
    (("spec", "spark"), {"functions": [{"name": "f", "className": "a.B", "returns": "é" * 4000}]}),
    *((("spec", "transform"), {"select": {part: "é" * 9000}}) for part in ("key", "value", "headers", "timestamp")),
    (("spec", "transform"), {"select": {"partition": "é" * 9000}}),
    (("spec", "transform"), {"where": "é" * 9000}),
    (("spec", "transform"), {"explode": {"array": "é" * 9000}}),
    ((*KAFKA, "auth"), _LONG_USER),
    ((*SINK, "kafka", "auth"), _LONG_USER),
]
"""Changes to the smallest manifest that are wrong too: for each value of a table, and what is long only in bytes."""
