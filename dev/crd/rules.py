"""The CEL rules of the resource: what the manifest's types refuse and a schema can't say, and what may never change.

A rule stands at the place that its message is about. Its costs are estimated by the API server from the bounds of
everything it walks; a rule over pairs of sinks is the dearest. The types in `sinkpipeline.core.manifest` remain the
judge: what no rule says here is refused by the operator.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core.manifest import DEFAULT_PROGRESS_TOPIC
from sinkpipeline.core.manifest.kafka import EXTENSION_NAME, EXTENSION_VALUE
from sinkpipeline.core.manifest.names import (
    AVRO_OF_A_RECORD,
    COLUMN_NAME,
    MAX_EXPRESSION,
    MAX_INLINE_TABLE,
    MAX_RESOURCE_NAME,
    MAX_SCHEMA_BYTES,
    MAX_SQL_TYPE,
    MAX_TABLE_SCHEMA,
)
from sinkpipeline.core.manifest.nats import DEFAULT_PROGRESS_SUBJECT
from sinkpipeline.core.manifest.operation import OWNED, SPARK_OPTION
from sinkpipeline.core.manifest.postgresql import DEFAULT_PROGRESS_SCHEMA, DEFAULT_SCHEMA
from sinkpipeline.core.manifest.properties import SINK, SOURCE, Values
from sinkpipeline.core.manifest.redis import RedisMode
from sinkpipeline.core.manifest.sinks import KINDS, ROLL_BACK, SELECTED, TOPIC_OPTION, listed
from sinkpipeline.core.topic_pattern import DIALECT, FEW_COUNTED, FEW_GROUPS, MAX_COUNTED, MAX_GROUPS


@dataclass(frozen=True)
class Rule:
    """One entry of `x-kubernetes-validations`."""

    rule: str
    message: str
    field_path: str = ""

    def to_dict(self) -> dict[str, Any]:
        place = {"fieldPath": self.field_path} if self.field_path else {}
        return {"rule": self.rule, "message": self.message, **place}


def _text(value: str) -> str:
    """A CEL string literal: JSON's escapes are among CEL's."""
    return json.dumps(value)


def _whole(pattern: str) -> str:
    return _text(f"^({pattern})$")


def _bytes(most: int) -> tuple[Rule, ...]:
    return (Rule(f"size(bytes(self)) <= {most}", f"use at most {most} bytes"),)


_LONGEST = Rule("duration(self) <= duration('8760h')", "use a duration of at most 8760h, a year")
_POSITIVE = (_LONGEST, Rule("duration(self) > duration('0s')", "use a duration longer than 0s"))


def _properties(allowed: Mapping[str, Values]) -> tuple[Rule, ...]:
    names: dict[Values, list[str]] = {}
    for name, values in allowed.items():
        names.setdefault(values, []).append(name)
    return (
        Rule(f"self.all(k, k in {json.dumps(sorted(allowed))})", f"allowed are {', '.join(sorted(allowed))}"),
        *(
            Rule(
                f"self.all(k, !(k in {json.dumps(of_these)}) || self[k].matches({_whole(values.pattern)}))",
                f"{', '.join(of_these)}: {values.right}",
            )
            for values, of_these in names.items()
        ),
    )


def _spark_conf() -> Iterable[Rule]:
    yield Rule(f"self.all(k, k.matches({_whole(SPARK_OPTION)}))", "use keys that begin with spark.")
    for pattern, right in OWNED:
        # Of the pattern, because the message can't name the key that was found.
        shown = pattern.replace("\\", "").replace("[.]", ".")
        yield Rule(f"self.all(k, !k.matches({_text(f'(?i)^({pattern})$')}))", f"{shown}: {right}")


# As far as text can tell: one cluster may also be named by different brokers, which the operator looks at.
# The dead letters of a sink that is no topic go to the source's.
_ON_SOURCE = (
    "(!has({0}.kafka) || !has({0}.kafka.bootstrapServers) || "
    "has(self.source.kafka) && {0}.kafka.bootstrapServers == self.source.kafka.bootstrapServers)"
)
_CLUSTER = (
    "(has({0}.kafka) && has({0}.kafka.bootstrapServers) ? {0}.kafka.bootstrapServers : "
    "has(self.source.kafka) ? self.source.kafka.bootstrapServers : '')"
)
_ONE_CLUSTER = f"{_CLUSTER.format('a')} == {_CLUSTER.format('b')}"


def _no_pair(which: str) -> str:
    return f"self.sinks.all(a, !self.sinks.exists(b, a.name != b.name && {which} && {_ONE_CLUSTER}))"


def _progress_topic(kafka: str) -> str:
    """The name that a sink's `kafka` has or means: below a list, the definition stores no default."""
    given = f"has({kafka}.progressTopic) && has({kafka}.progressTopic.name)"
    return f"({given} ? {kafka}.progressTopic.name : {_text(DEFAULT_PROGRESS_TOPIC)})"


def _not_read(path: str, message: str, *, name: str = "", absent: str = "") -> Iterable[Rule]:
    """`path` within a sink; `name`: of the topic there; `absent` holds of a sink without it."""
    on_source, topic = _ON_SOURCE.format("s"), path.removeprefix("kafka.")
    name = name or f"s.{path}.name"
    yield Rule(
        "!has(self.source.kafka) || !has(self.source.kafka.topics) || "
        f"self.sinks.all(s, {absent}!({name} in self.source.kafka.topics) || !{on_source})",
        f"{message}: {topic}.name is a source topic too",
        ".sinks",
    )
    yield Rule(
        "!has(self.source.kafka) || !has(self.source.kafka.topicPattern) || "
        f"self.sinks.all(s, {absent}!{on_source} || "
        f"!{name}.matches('^(?:' + self.source.kafka.topicPattern + ')$'))",
        f"{message}: {topic}.name matches the source's topicPattern",
        ".sinks",
    )


_OBJECT = "^[ \t\r\n]*[{]"
"""How JSON of an object begins; whether it is JSON, the operator says."""
_NEVER = "never changes"
_APART = "give dead letters a topic of their own"

_HAS_SCHEMA = "(has(self.schema) || has(self.schemaConfigMapRef))"
_ALL_PARTS = ("key", "value", "headers", "timestamp", "partition")
_PARTS = (*_ALL_PARTS, "topic")
_SELECTS = "(has(self.transform) && has(self.transform.select))"
_TOPICS = "has(a.kafka) && has(b.kafka)"
_ONE = "has({0}.kafka.topic)"
"""Of several topics too many pairs would have to be compared: the operator does that."""
_UPSERTS = "(has(self.writeMode) && self.writeMode == 'Upsert')"


def _selects() -> Iterable[Rule]:
    every = (*_PARTS, "topic", "subject", "columns")
    for kind, used in SELECTED.items():
        others = [each for each in every if each not in used]
        yield Rule(
            f"!has(self.{kind}) || !{_SELECTS} || !("
            + " || ".join(f"has(self.transform.select.{each})" for each in others)
            + ")",
            f"{', '.join(others)} have no meaning for a {kind} sink: use {listed(used)}",
            ".transform.select",
        )


def _progress_subject(nats: str) -> str:
    return f"(has({nats}.progressSubject) ? {nats}.progressSubject : {_text(DEFAULT_PROGRESS_SUBJECT)})"


def _database(redis: str) -> str:
    return f"(has({redis}.database) ? {redis}.database : 0)"


def _mode(redis: str) -> str:
    return f"(has({redis}.mode) ? {redis}.mode : {_text(RedisMode.STANDALONE.value)})"


def _master(redis: str) -> str:
    return f"(has({redis}.sentinel) ? {redis}.sentinel.masterName : '')"


def _schema(postgresql: str) -> str:
    """As of a progress topic: what is not given."""
    table = f"{postgresql}.table"
    return f"(has({table}.schema) ? {table}.schema : {_text(DEFAULT_SCHEMA)})"


def _progress_schema(postgresql: str) -> str:
    return f"(has({postgresql}.progressSchema) ? {postgresql}.progressSchema : {_text(DEFAULT_PROGRESS_SCHEMA)})"


_COLUMN_NAMES = (Rule(f"self.all(k, k.matches({_whole(COLUMN_NAME)}))", "use names of 1 to 63 characters of ASCII"),)
_TOPIC_CONFIG = (
    Rule(f"self.all(k, k.matches({_whole(TOPIC_OPTION)}))", "use names of Kafka topic options, such as retention.ms"),
)

_SEEN = "has(self.status) && has(self.status.observedGeneration) && self.status.observedGeneration >= 0"
NAME = Rule(
    f"({_SEEN}) || (size(self.metadata.name) <= {MAX_RESOURCE_NAME} && "
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
    f"metadata.name: use 1 to {MAX_RESOURCE_NAME} of a-z, 0-9 and -, beginning with a letter and not ending "
    "with - (DNS-1035)",
)
"""Of every kind: names of other objects are made of it.

Only of a new one, which no operator has seen: a name never changes, and one that an older CRD let in would bar every
change, that of the status and of the finalizers too. Nobody can create an object with a status."""


def stays(path: str, *, optional: bool) -> str:
    """That a field is what it was; an optional one is neither set nor removed later."""
    same = f"self.{path} == oldSelf.{path}"
    return f"has(self.{path}) == has(oldSelf.{path}) && (!has(self.{path}) || {same})" if optional else same


def _log_in(auth: str) -> dict[str, tuple[Rule, ...]]:
    sasl = f"{auth}.sasl"
    tokens, iam = "self.mechanism == 'OAUTHBEARER'", "self.mechanism == 'AWS_MSK_IAM'"
    return {
        auth: (
            Rule(
                "has(self.tls) || !has(self.sasl) || self.sasl.mechanism != 'AWS_MSK_IAM'",
                "mechanism AWS_MSK_IAM needs tls: Amazon MSK takes IAM over TLS only",
            ),
        ),
        sasl: (
            Rule(f"has(self.oauthbearer) == ({tokens})", "oauthbearer is for mechanism OAUTHBEARER, which needs it"),
            Rule(f"has(self.awsMskIam) == ({iam})", "awsMskIam is for mechanism AWS_MSK_IAM, which needs it"),
            *(
                Rule(
                    f"has(self.{name}) != ({tokens} || {iam})",
                    f"{name} is for the other mechanisms than OAUTHBEARER and AWS_MSK_IAM, which need it",
                )
                for name in ("username", "passwordSecretRef")
            ),
        ),
        f"{sasl}.username": _bytes(256),
        f"{sasl}.oauthbearer.extensions": (
            Rule(f"self.all(k, k.matches({_whole(EXTENSION_NAME)}) && k != 'auth')", "use names of letters, not auth"),
            Rule(f"self.all(k, self[k].matches({_whole(EXTENSION_VALUE)}))", f"use values of {EXTENSION_VALUE}"),
        ),
    }


_OF_RECORD = "has(self.subjectNameStrategy) && self.subjectNameStrategy != 'TopicName'"


def _registry(registry: str, *more: Rule) -> dict[str, tuple[Rule, ...]]:
    return {
        registry: (
            Rule(
                "self.url.startsWith('https://') || !has(self.auth) || !has(self.auth.tls)",
                "tls has no meaning for http: write https in url",
                ".auth.tls",
            ),
            Rule(
                "!has(self.subject) || !has(self.subjectNameStrategy)",
                "give subject or subjectNameStrategy, not both",
                ".subjectNameStrategy",
            ),
            Rule(
                f"has(self.recordName) || !({_OF_RECORD})",
                "subjectNameStrategy RecordName and TopicRecordName need recordName",
                ".recordName",
            ),
            *more,
        ),
        f"{registry}.auth": (
            Rule("!has(self.basic) || !has(self.bearer)", "give basic or bearer, not both", ".bearer"),
        ),
        f"{registry}.auth.basic.username": _bytes(256),
    }


def _encoded(part: str) -> Rule:
    selects = f"has({{0}}) && has({{0}}.select) ? has({{0}}.select.{part}) : "
    own, all_sinks = (
        selects.format("s.transform"),
        f"has(self.transform) && has(self.transform.select) && has(self.transform.select.{part})",
    )
    absent = f"!has(s.kafka) || !has(s.kafka.encode) || !has(s.kafka.encode.{part})"
    return Rule(
        f"self.sinks.all(s, {absent} || ({own}{all_sinks}))",
        f"kafka.encode.{part} has nothing to encode: give the STRUCT in select.{part}",
        ".sinks",
    )


_LOOKUPS: Mapping[str, tuple[Rule, ...]] = {
    "[]": (Rule("self.format == 'csv' || !has(self.csv)", "csv has a meaning for format csv only", ".csv"),),
    "[].schema": _bytes(MAX_TABLE_SCHEMA),
    "[].from.inline": _bytes(MAX_INLINE_TABLE),
}
"""Of `lookups` of a transform."""


def _change_topic(changes: str) -> dict[str, tuple[Rule, ...]]:
    """Where a stage writes."""
    return {
        changes: (
            Rule("!has(self.auth) || has(self.bootstrapServers)", "auth stands without bootstrapServers", ".auth"),
            Rule(
                f"self.topic.name != {_progress_topic('self')}",
                "keep changes and progress in different topics",
                ".progressTopic",
            ),
            Rule(
                "!has(self.deadLetter) || "
                f"!(self.deadLetter.topic.name in [self.topic.name, {_progress_topic('self')}])",
                _APART,
                ".deadLetter",
            ),
        ),
        f"{changes}.topic.config": _TOPIC_CONFIG,
        f"{changes}.deadLetter.topic.config": _TOPIC_CONFIG,
        **_log_in(f"{changes}.auth"),
    }


_NO_BROKERS = "name the brokers of the change topic: no kafka sink has bootstrapServers"
_BEGINS_SOMEWHERE = (
    Rule(
        "has(self.startingPosition) || has(self.startFrom)",
        "give startingPosition or startFrom",
        ".startingPosition",
    ),
    Rule(
        "!has(self.startingPosition) || !has(self.startFrom)",
        "give startingPosition or startFrom, not both",
        ".startFrom",
    ),
)
_SAME_TOPICS = (
    Rule(
        stays("changes.topic.name", optional=False),
        f"changes.topic.name {_NEVER}: progress is of this topic",
        ".changes",
    ),
    Rule(
        f"{_progress_topic('self.changes')} == {_progress_topic('oldSelf.changes')}",
        f"changes.progressTopic.name {_NEVER}: it holds the stage's progress",
        ".changes",
    ),
)


RULES: Mapping[str, tuple[Rule, ...]] = {
    "": (NAME,),
    "spec": (
        Rule(
            stays("identity", optional=True),
            f"identity {_NEVER}, and is neither set nor removed later: progress belongs to it",
            ".identity",
        ),
        Rule(
            "!has(self.decode) || !has(self.decode.schemaRegistry) || "
            "!(self.decode.format in ['avro', 'protobuf', 'debezium']) && "
            "(self.decode.format != 'json' || has(self.decode.schema) || has(self.decode.schemaConfigMapRef)) || "
            "has(self.decode.schemaRegistry.subject) || "
            "has(self.decode.schemaRegistry.subjectNameStrategy) && "
            "self.decode.schemaRegistry.subjectNameStrategy == 'RecordName' || "
            "has(self.decode.schemaRegistry.reader) && has(self.decode.schemaRegistry.reader.schema) || "
            "!has(self.source.kafka) || has(self.source.kafka.topics) && size(self.source.kafka.topics) == 1",
            "name the subject of the reader's schema: the source does not name exactly one topic",
            ".decode.schemaRegistry.subject",
        ),
        Rule(
            "has(self.source.kafka) || !has(self.decode) || self.decode.format in ['change', 'json', 'text', 'raw']",
            "a change topic holds JSON: use format change; or json, text or raw for the records as they are",
            ".decode.format",
        ),
        Rule(
            "!has(self.source.postgresql) || has(self.source.postgresql.changes.bootstrapServers) || "
            "self.sinks.exists(s, has(s.kafka) && has(s.kafka.bootstrapServers))",
            _NO_BROKERS,
            ".source.postgresql.changes",
        ),
        Rule(
            "!has(self.source.mariadb) || has(self.source.mariadb.changes.bootstrapServers) || "
            "self.sinks.exists(s, has(s.kafka) && has(s.kafka.bootstrapServers))",
            _NO_BROKERS,
            ".source.mariadb.changes",
        ),
        Rule(
            "!has(self.source.mysql) || has(self.source.mysql.changes.bootstrapServers) || "
            "self.sinks.exists(s, has(s.kafka) && has(s.kafka.bootstrapServers))",
            _NO_BROKERS,
            ".source.mysql.changes",
        ),
        _encoded("key"),
        _encoded("value"),
        *_not_read(
            "kafka.topic",
            "write to a topic that is not read: this would never end",
            absent="!has(s.kafka) || !has(s.kafka.topic) || ",
        ),
        *_not_read(
            "kafka.progressTopic",
            "keep progress in a topic that is not read",
            name=_progress_topic("s.kafka"),
            absent="!has(s.kafka) || ",
        ),
        *_not_read("deadLetter.topic", _APART, absent="!has(s.deadLetter) || "),
        Rule(
            _no_pair(
                f"{_TOPICS} && {_ONE.format('a')} && {_ONE.format('b')} && a.kafka.topic.name == b.kafka.topic.name"
            ),
            "give each sink its own topic: two of them have the same topic.name",
            ".sinks",
        ),
        Rule(
            _no_pair(f"{_TOPICS} && {_ONE.format('a')} && a.kafka.topic.name == {_progress_topic('b.kafka')}"),
            "keep rows and progress in different topics: topic.name of one sink is progressTopic.name of another",
            ".sinks",
        ),
        Rule(
            _no_pair(
                "has(a.deadLetter) && has(b.kafka) && (has(b.kafka.topic) && "
                "a.deadLetter.topic.name == b.kafka.topic.name || "
                f"a.deadLetter.topic.name == {_progress_topic('b.kafka')})"
            ),
            f"{_APART}: deadLetter.topic.name of one sink is a topic of another",
            ".sinks",
        ),
        Rule(
            "self.sinks.all(a, !has(a.postgresql) || !self.sinks.exists(b, a.name != b.name && has(b.postgresql) && "
            "a.postgresql.table.name == b.postgresql.table.name && "
            f"{_schema('a.postgresql')} == {_schema('b.postgresql')} && "
            "a.postgresql.database == b.postgresql.database && a.postgresql.servers == b.postgresql.servers))",
            "give each sink its own table: two of them have the same table",
            ".sinks",
        ),
        Rule(
            "self.sinks.all(a, !has(a.nats) || !self.sinks.exists(b, a.name != b.name && has(b.nats) && "
            "a.nats.stream.name == b.nats.stream.name && a.nats.servers == b.nats.servers))",
            "give each sink its own stream: two of them have the same stream",
            ".sinks",
        ),
        Rule(
            "self.sinks.all(a, !has(a.redis) || !self.sinks.exists(b, a.name != b.name && has(b.redis) && "
            f"a.redis.stream.key == b.redis.stream.key && {_database('a.redis')} == {_database('b.redis')} && "
            f"a.redis.servers == b.redis.servers && {_master('a.redis')} == {_master('b.redis')}))",
            "give each sink its own stream: two of them have the same stream",
            ".sinks",
        ),
        Rule(
            "size(self.sinks) == 0 || self.sinks.exists(s, !has(s.required) || s.required)",
            "required is false for every sink: leave it out of at least one sink, or set it to true",
            ".sinks",
        ),
        Rule(
            "!has(self.source.kafka) || size(self.sinks) > 0",
            "give at least one sink: only the changes of a database go somewhere without",
            ".sinks",
        ),
        Rule(
            "size(self.sinks) > 0 || !has(self.transform) || "
            "!(has(self.transform.where) || has(self.transform.select) || has(self.transform.explode) || "
            "has(self.transform.lookups))",
            "leave transform out, or give a sink: it is for sinks, and there is none",
            ".transform",
        ),
        Rule(
            "!has(self.transform) || !has(self.transform.select) || size(self.sinks) == 0 || "
            "self.sinks.exists(s, has(s.kafka))",
            "transform.select is for kafka sinks, and there is none: give each sink transform.select.columns",
            ".transform.select",
        ),
    ),
    "spec.source": (
        Rule(
            "[has(self.kafka), has(self.postgresql), has(self.mariadb), has(self.mysql)].exists_one(given, given)",
            "give exactly one of kafka, postgresql, mariadb and mysql",
            ".kafka",
        ),
    ),
    "spec.source.postgresql": (
        *_BEGINS_SOMEWHERE,
        Rule(
            "!has(self.startingPosition) || self.startingPosition != 'Snapshot' || !has(self.slot) || "
            "!has(self.slot.create) || self.slot.create",
            "slot.create is false beside Snapshot, and a slot that is there has no snapshot of the tables any more",
            ".slot",
        ),
        Rule(
            "!has(self.startFrom) || has(self.slot) && has(self.slot.create) && !self.slot.create",
            "slot.create is not false beside startFrom, and a slot that is created now has nothing of what was before",
            ".slot",
        ),
        Rule(
            "(has(self.slot) && has(self.slot.name) ? self.slot.name : '') == "
            "(has(oldSelf.slot) && has(oldSelf.slot.name) ? oldSelf.slot.name : '')",
            f"slot.name {_NEVER}, and is neither set nor removed later: it holds what was not read yet",
            ".slot",
        ),
        Rule(
            stays("publication.name", optional=False),
            f"publication.name {_NEVER}: positions are of its changes",
            ".publication",
        ),
        *_SAME_TOPICS,
    ),
    "spec.source.postgresql.publication": (
        Rule(
            "!has(self.tables) || !has(self.create) || self.create",
            "tables stands beside create: false, and a publication that is there is not altered",
            ".tables",
        ),
    ),
    **_change_topic("spec.source.postgresql.changes"),
    "spec.source.mariadb": (*_BEGINS_SOMEWHERE, *_SAME_TOPICS),
    **_change_topic("spec.source.mariadb.changes"),
    "spec.source.mysql": (*_BEGINS_SOMEWHERE, *_SAME_TOPICS),
    **_change_topic("spec.source.mysql.changes"),
    "spec.source.kafka": (
        Rule("has(self.topics) != has(self.topicPattern)", "give topics or topicPattern, and not both", ".topics"),
    ),
    "spec.source.kafka.topicPattern": (
        Rule(
            f"self.matches({_text(DIALECT)})",
            "write a regular expression of characters of topic names, sets of them, groups, |, repetitions (counted "
            "ones of one character, up to 99), ^ and $: no look-around, back-references, named groups or other escapes",
        ),
        Rule("''.matches(self) in [true, false]", "write a regular expression: a group or a range is not right"),
        Rule(f"self.matches({_text(FEW_GROUPS)})", f"use at most {MAX_GROUPS} groups"),
        Rule(f"self.matches({_text(FEW_COUNTED)})", f"use at most {MAX_COUNTED} counted repetitions"),
    ),
    "spec.source.kafka.startFrom.group": _bytes(249),
    "spec.source.kafka.properties": _properties(SOURCE),
    **_log_in("spec.source.kafka.auth"),
    "spec.decode": (
        Rule(
            "!has(self.schema) || !has(self.schemaConfigMapRef)",
            "give schema or schemaConfigMapRef, not both",
            ".schemaConfigMapRef",
        ),
        Rule(
            f"!(self.format in ['json', 'csv', 'change']) || {_HAS_SCHEMA} || "
            "self.format == 'json' && has(self.schemaRegistry)",
            'formats json, csv and change need a Spark DDL schema such as "id BIGINT NOT NULL, amount DOUBLE"; json '
            "may have schemaRegistry instead",
            ".schema",
        ),
        Rule(
            f"self.format != 'avro' || {_HAS_SCHEMA} != has(self.schemaRegistry)",
            "format avro needs an Avro schema as JSON, or schemaRegistry, and not both",
            ".schema",
        ),
        Rule(
            f"self.format != 'debezium' || {_HAS_SCHEMA} != has(self.schemaRegistry)",
            "format debezium needs the columns of the row as DDL for JSON, or schemaRegistry for Avro, and not both",
            ".schema",
        ),
        Rule(
            f"self.format != 'avro' || !has(self.schema) || self.schema.matches({_text(_OBJECT)})",
            AVRO_OF_A_RECORD,
            ".schema",
        ),
        Rule(
            f"self.format != 'protobuf' || {_HAS_SCHEMA} != has(self.schemaRegistry)",
            "format protobuf needs the text of a .proto file, or schemaRegistry, and not both",
            ".schema",
        ),
        Rule("self.format == 'protobuf' || !has(self.message)", "message has a meaning for protobuf only", ".message"),
        Rule(
            "self.format != 'protobuf' || !has(self.schemaRegistry) || !has(self.schemaRegistry.reader) || "
            "!has(self.schemaRegistry.reader.schema)",
            "for format protobuf give a version of the subject, and no Avro schema",
            ".schemaRegistry.reader.schema",
        ),
        Rule(
            f"!(self.format in ['text', 'raw']) || !{_HAS_SCHEMA}",
            "a schema has no meaning for formats text and raw",
            ".schema",
        ),
        Rule(
            "self.format in ['json', 'avro', 'protobuf', 'debezium'] || !has(self.schemaRegistry)",
            "schemaRegistry has no meaning for formats csv, text, raw and change",
            ".schemaRegistry",
        ),
        Rule("self.format == 'csv' || !has(self.csv)", "csv has a meaning for format csv only", ".csv"),
        Rule(
            "self.format == 'debezium' || !has(self.debezium)",
            "debezium has a meaning for format debezium only",
            ".debezium",
        ),
        Rule("self.format == 'change' || !has(self.change)", "change has a meaning for format change only", ".change"),
        Rule(
            f"self.format != 'json' || !has(self.schemaRegistry) || !{_HAS_SCHEMA} || "
            "!has(self.schemaRegistry.reader) && !has(self.schemaRegistry.subject) && "
            "!has(self.schemaRegistry.subjectNameStrategy)",
            "reader and subject have no meaning for format json beside schema, which has the columns",
            ".schemaRegistry",
        ),
        Rule(
            "self.format != 'json' || !has(self.schemaRegistry) || !has(self.schemaRegistry.reader) || "
            "!has(self.schemaRegistry.reader.schema)",
            "for format json give decode.schema, a Spark DDL schema, and no Avro schema",
            ".schemaRegistry.reader.schema",
        ),
    ),
    **_registry(
        "spec.decode.schemaRegistry",
        Rule(
            f"!has(self.recordName) || {_OF_RECORD}",
            "recordName has a meaning for subjectNameStrategy RecordName and TopicRecordName only",
            ".recordName",
        ),
    ),
    **_registry("spec.sinks[].kafka.encode.key.schemaRegistry"),
    **_registry("spec.sinks[].kafka.encode.value.schemaRegistry"),
    "spec.decode.schemaRegistry.reader.schema": (
        *_bytes(MAX_SCHEMA_BYTES),
        Rule(f"self.matches({_text(_OBJECT)})", AVRO_OF_A_RECORD),
    ),
    "spec.decode.schema": _bytes(MAX_SCHEMA_BYTES),
    **{
        f"{transform}.{part}": _bytes(MAX_EXPRESSION)
        for transform in ("spec.transform", "spec.sinks[].transform")
        for part in ("explode.array", "where", "lookups[].equals", *(f"select.{each}" for each in _ALL_PARTS))
    },
    "spec.sinks[].transform.select.topic": _bytes(MAX_EXPRESSION),
    **{
        f"{transform}.lookups{place}": rules
        for transform in ("spec.transform", "spec.sinks[].transform")
        for place, rules in _LOOKUPS.items()
    },
    "spec.trigger.interval": (_LONGEST,),
    "spec.sinks[]": (
        Rule(
            f"[{', '.join(f'has(self.{kind})' for kind in KINDS)}].filter(each, each).size() == 1",
            f"give exactly one of {', '.join(KINDS[:-1])} and {KINDS[-1]}",
            ".kafka",
        ),
        Rule(
            " && ".join(f"has(self.{kind}) == has(oldSelf.{kind})" for kind in KINDS),
            f"what a sink is {_NEVER}: another kind is another sink",
            ".kafka",
        ),
        Rule(
            "!has(self.postgresql) || !has(self.deliveryGuarantee) || self.deliveryGuarantee == 'ExactlyOnce'",
            "a postgresql sink is ExactlyOnce: rows and progress are in one transaction",
            ".deliveryGuarantee",
        ),
        Rule(
            f"!has(self.onRollback) || {' || '.join(f'has(self.{kind})' for kind in ROLL_BACK)}",
            f"only {' and '.join(ROLL_BACK)} tell that rows and progress went back together",
            ".onRollback",
        ),
        *_selects(),
        Rule(
            f"!has(self.nats) || has(self.nats.subject) || {_SELECTS} && has(self.transform.select.subject)",
            "give nats.subject, or transform.select.subject",
            ".nats.subject",
        ),
        Rule(
            f"!has(self.postgresql) || !{_SELECTS} || !has(self.transform.select.columns) || "
            "self.transform.select.columns.all(k, k in self.postgresql.table.columns)",
            "name columns of the table: add each to postgresql.table.columns",
            ".transform.select.columns",
        ),
        Rule(
            "!has(self.deadLetter) || !has(self.kafka) || !has(self.kafka.topic) || "
            "self.deadLetter.topic.name != self.kafka.topic.name",
            f"{_APART}: deadLetter.topic.name is topic.name too",
            ".deadLetter.topic.name",
        ),
        Rule(
            "!has(self.deadLetter) || !has(self.kafka) || !has(self.kafka.topics) || "
            "self.kafka.topics.all(t, t.name != self.deadLetter.topic.name)",
            f"{_APART}: deadLetter.topic.name is one of topics too",
            ".deadLetter.topic.name",
        ),
        Rule(
            f"!has(self.kafka) || has(self.kafka.topics) == ({_SELECTS} && has(self.transform.select.topic))",
            "topics need transform.select.topic, which says for each row which one; topic has no use for it",
            ".kafka",
        ),
        Rule(
            "!has(self.deadLetter) || !has(self.kafka) || "
            f"self.deadLetter.topic.name != {_progress_topic('self.kafka')}",
            f"{_APART}: deadLetter.topic.name is progressTopic.name too",
            ".deadLetter.topic.name",
        ),
    ),
    "spec.sinks[].kafka": (
        Rule("has(self.topic) != has(self.topics)", "give exactly one of topic and topics", ".topic"),
        Rule(
            f"!has(self.topics) || self.topics.all(t, t.name != {_progress_topic('self')})",
            "keep rows and progress in different topics: progressTopic.name is one of topics too",
            ".topics",
        ),
        Rule(
            f"!has(self.topic) || self.topic.name != {_progress_topic('self')}",
            "keep rows and progress in different topics: topic.name is progressTopic.name too",
            ".topic.name",
        ),
        Rule(
            "!has(self.topic) || !has(oldSelf.topic) || self.topic.name == oldSelf.topic.name",
            f"topic.name {_NEVER}: another topic is another sink",
            ".topic.name",
        ),
        Rule(
            "!has(self.topics) || !has(oldSelf.topic) || self.topics.exists(t, t.name == oldSelf.topic.name)",
            "topic.name never changes: name it among topics",
            ".topics",
        ),
        Rule(
            f"{_progress_topic('self')} == {_progress_topic('oldSelf')}",
            f"progressTopic.name {_NEVER}: the sink's progress is there",
            ".progressTopic.name",
        ),
    ),
    "spec.sinks[].nats": (
        Rule(
            stays("stream.name", optional=False),
            f"stream.name {_NEVER}: another stream is another sink",
            ".stream.name",
        ),
        Rule(
            f"{_progress_subject('self')} == {_progress_subject('oldSelf')}",
            f"progressSubject {_NEVER}: the sink's progress is there",
            ".progressSubject",
        ),
        Rule(
            "has(self.subject) || has(self.stream.subjects) && size(self.stream.subjects) > 0",
            "give subject, or stream.subjects",
            ".subject",
        ),
        Rule(
            f"!has(self.subject) || !(self.subject + '.').startsWith({_progress_subject('self')} + '.')",
            "use another subject, or another progressSubject: subject is one of the progress",
            ".subject",
        ),
    ),
    "spec.sinks[].nats.auth": (
        Rule(
            "[has(self.username), has(self.tokenSecretRef), has(self.nkeySecretRef), has(self.credsSecretRef)]"
            ".filter(each, each).size() <= 1",
            "give one of username, tokenSecretRef, nkeySecretRef and credsSecretRef",
        ),
        Rule(
            "has(self.username) == has(self.passwordSecretRef)",
            "give username and passwordSecretRef together",
            ".username",
        ),
    ),
    "spec.sinks[].nats.auth.username": _bytes(256),
    "spec.sinks[].nats.stream": (
        Rule(
            "!has(self.duplicateWindow) || !has(self.maxAge)"
            " || duration(self.duplicateWindow) <= duration(self.maxAge)",
            "use at most maxAge",
            ".duplicateWindow",
        ),
    ),
    "spec.sinks[].nats.stream.duplicateWindow": _POSITIVE,
    "spec.sinks[].nats.stream.maxAge": _POSITIVE,
    "spec.sinks[].redis": (
        Rule(
            stays("stream.key", optional=False), f"stream.key {_NEVER}: another stream is another sink", ".stream.key"
        ),
        Rule(
            f"{_database('self')} == {_database('oldSelf')}",
            f"database {_NEVER}: the sink's progress is there",
            ".database",
        ),
        Rule(
            f"{_mode('self')} != 'Standalone' || !self.servers.contains(',')",
            "name the one server that takes writes, or give mode: Sentinel, or mode: Cluster",
            ".servers",
        ),
        Rule(
            f"({_mode('self')} == 'Sentinel') == has(self.sentinel)",
            "give sentinel with mode: Sentinel, and with no other mode",
            ".sentinel",
        ),
        Rule(
            f"{_mode('self')} != 'Cluster' || {_database('self')} == 0",
            "remove database: a cluster has only database 0",
            ".database",
        ),
    ),
    "spec.sinks[].redis.auth": (
        Rule("!has(self.username) || has(self.passwordSecretRef)", "give passwordSecretRef too", ".username"),
    ),
    "spec.sinks[].redis.auth.username": _bytes(256),
    "spec.sinks[].redis.sentinel.auth.username": _bytes(256),
    "spec.sinks[].transform.select.subject": _bytes(MAX_EXPRESSION),
    "spec.sinks[].postgresql": (
        Rule(
            stays("table.name", optional=False),
            f"table.name {_NEVER}: another table is another sink",
            ".table.name",
        ),
        Rule(
            f"{_schema('self')} == {_schema('oldSelf')}",
            f"table.schema {_NEVER}: another table is another sink",
            ".table.schema",
        ),
        Rule(
            f"{_progress_schema('self')} == {_progress_schema('oldSelf')}",
            f"progressSchema {_NEVER}: the sink's progress is there",
            ".progressSchema",
        ),
        Rule(
            f"{_schema('self')} != {_progress_schema('self')}",
            "keep the progress in a schema of its own: progressSchema is table.schema too",
            ".progressSchema",
        ),
        Rule(
            f"!({_UPSERTS}) || has(self.table.primaryKey) && size(self.table.primaryKey) > 0",
            "writeMode Upsert needs table.primaryKey",
            ".table.primaryKey",
        ),
        Rule(
            f"{_UPSERTS} || !has(self.deleteWhen) && !has(self.orderBy) && "
            "(!has(self.table.primaryKey) || size(self.table.primaryKey) == 0)",
            "primaryKey, deleteWhen and orderBy have no meaning for writeMode Append",
            ".writeMode",
        ),
    ),
    "spec.sinks[].postgresql.table": (
        Rule(
            "!has(self.primaryKey) || self.primaryKey.all(k, k in self.columns)",
            "primaryKey: name columns of the table",
            ".primaryKey",
        ),
        Rule("size(self.columns) > 0", "name the columns that are written, each with its type", ".columns"),
    ),
    "spec.sinks[].postgresql.table.columns": _COLUMN_NAMES,
    "spec.sinks[].transform.select.columns": _COLUMN_NAMES,
    "spec.sinks[].postgresql.deleteWhen": _bytes(MAX_EXPRESSION),
    "spec.sinks[].postgresql.orderBy": _bytes(MAX_EXPRESSION),
    "spec.sinks[].kafka.topic.config": _TOPIC_CONFIG,
    "spec.sinks[].kafka.topics[].config": _TOPIC_CONFIG,
    "spec.sinks[].deadLetter.topic.config": _TOPIC_CONFIG,
    "spec.sinks[].kafka.properties": _properties(SINK),
    **_log_in("spec.sinks[].kafka.auth"),
    "spec.failurePolicy.backoff": (
        Rule(
            "duration(self.initial) <= duration(self.max)",
            "use an initial backoff of at most the longest one, max",
            ".initial",
        ),
    ),
    "spec.failurePolicy.backoff.initial": _POSITIVE,
    "spec.failurePolicy.backoff.max": _POSITIVE,
    "spec.failurePolicy.resetAfter": _POSITIVE,
    "spec.spark.conf": tuple(_spark_conf()),
    "spec.spark.functions[].returns": _bytes(MAX_SQL_TYPE),
}
"""By place; `[]` is each entry of a list."""
