"""Avro and JSON with a registry: a schema comes while it runs, all is killed, and each record has one end."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.schema_registry import LocalRegistry
from sinkpipeline.core.deadletter import parse
from sinkpipeline.core.schemas import MAX_WRITERS
from support import avro, protobuf
from support.app.command import BY_TASKS, App, manifest, sink
from support.kafka import topics

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(600)]

SEED = 20261123
PARTITIONS = 4
BAD = 0.01
VERSIONS = 5
SELECT = {"key": "CAST(id AS STRING)", "value": "CONCAT(id, ' ', COALESCE(note, 'none'))"}


def version(number: int, name: str) -> Any:
    """Each has a field more; from the second on there is a note."""
    notes = [{"name": "note", "type": "string", "default": "none"}] if number > 1 else []
    more = [{"name": f"more{each}", "type": ["null", "long"], "default": None} for each in range(3, number + 1)]
    return avro.record(("id", "long"), *notes, *more, name=name)


class InAvro:
    """Records of Avro, and one of another schema than any of theirs."""

    kind = "AVRO"
    own_bad = "MalformedAvro"

    def more(self, _subject: str) -> dict[str, str]:
        """Of `decode`."""
        return {}

    def schema(self, number: int, name: str) -> Any:
        return version(number, name)

    def alien(self, name: str) -> Any:
        return avro.record(("other", "string"), name=name)

    def value(self, number: int, schema: Any, fields: dict[str, Any]) -> bytes:
        return avro.framed(number, schema, fields)

    def of_alien(self, number: int, schema: Any) -> bytes:
        return avro.framed(number, schema, {"other": "x"})


class InJson:
    """Records of JSON, and one of a schema that is none of JSON."""

    kind = "JSON"
    own_bad = "MalformedJson"

    def more(self, _subject: str) -> dict[str, str]:
        return {}

    def schema(self, number: int, name: str) -> Any:
        more = {f"more{each}": {"type": ["integer", "null"]} for each in range(3, number + 1)}
        notes = {"note": {"type": "string"}} if number > 1 else {}
        return {
            "type": "object",
            "title": name,
            "properties": {"id": {"type": "integer"}, **notes, **more},
            "required": ["id"],
        }

    def alien(self, name: str) -> Any:
        return avro.record(("other", "string"), name=name)

    def value(self, number: int, schema: Any, fields: dict[str, Any]) -> bytes:
        known = {name: each for name, each in fields.items() if name in schema["properties"]}
        return avro.frame(number) + json.dumps(known).encode()

    def of_alien(self, number: int, _schema: Any) -> bytes:
        return avro.frame(number) + b'{"id": 1}'


class InProtobuf:
    """Records of Protobuf, of a message that is the second one of its file; and one of another schema."""

    kind = "PROTOBUF"
    own_bad = "MalformedProtobuf"

    def more(self, subject: str) -> dict[str, str]:
        return {"message": f"p.{subject.replace('-', '_')}"}

    def schema(self, number: int, name: str) -> Any:
        more = [f"optional int64 more{each} = {each};" for each in range(3, number + 1)]
        note = ["optional string note = 2;"] if number > 1 else []
        fields = " ".join(["int64 id = 1;", *note, *more])
        return f'syntax = "proto3"; package p; message Other {{ string other = 1; }} message {name} {{ {fields} }}'

    def alien(self, _name: str) -> Any:
        return avro.record(("other", "string"), name="alien")

    def value(self, number: int, schema: Any, fields: dict[str, Any]) -> bytes:
        name = schema.rpartition("message ")[2].partition(" ")[0]
        known = {each: value for each, value in fields.items() if f" {each} = " in schema}
        return avro.frame(number) + protobuf.path(1) + protobuf.body(schema, known, f"p.{name}")

    def of_alien(self, number: int, _schema: Any) -> bytes:
        return avro.frame(number) + protobuf.path(1)


Form = InAvro | InJson | InProtobuf


@dataclass
class World:
    """What is in the source, and what has to become of it."""

    registry: LocalRegistry
    subject: str
    chance: random.Random
    form: Form
    schemas: dict[int, tuple[int, Any]] = field(default_factory=dict)
    """By version: id and schema."""
    good: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By source partition, in order."""
    bad: dict[tuple[int, int], tuple[str, bytes]] = field(default_factory=dict)
    """The error class of each bad record, and its value, by partition and offset."""
    sizes: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.alien = self.form.alien(self.subject.replace("-", "_"))
        self.alien_id = self.registry.register(f"{self.subject}-alien", self.alien)
        for number in range(1, VERSIONS + 1):
            self.register(number)

    def register(self, number: int) -> None:
        schema = self.form.schema(number, self.subject.replace("-", "_"))
        schema_id = self.registry.register(self.subject, schema, kind=self.form.kind)
        self.schemas[number] = schema_id, avro.parsed(schema) if self.form.kind == "AVRO" else schema

    @property
    def rows(self) -> int:
        """That are to be delivered."""
        return sum(map(len, self.good.values()))

    def feed(self, servers: str, topic: str, numbers: range) -> None:
        values: dict[int, list[bytes | None]] = defaultdict(list)
        for number in numbers:
            at = self.chance.randrange(PARTITIONS)
            values[at].append(self._bad(at) if self.chance.random() < BAD else self._good(at, number))
            self.sizes[at] += 1
        for at, found in values.items():
            # Of now: the data topic deletes what is a week old.
            now = int(time.time() * 1000)
            topics.produce_whole(servers, topic, [(each, b"k", [], now) for each in found], partition=at)

    def _good(self, at: int, number: int) -> bytes:
        which = self.chance.choice(sorted(self.schemas))
        note = "none" if which == 1 else f"n{number}"
        self.good[at].append(f"{number} {note}")
        return self._value(which, number)

    def _value(self, which: int, number: int) -> bytes:
        schema_id, schema = self.schemas[which]
        more = {f"more{each}": number for each in range(3, which + 1)}
        return self.form.value(schema_id, schema, {"id": number, "note": f"n{number}", **more})

    def _bad(self, at: int) -> bytes:
        kinds: dict[str, Callable[[], bytes]] = {
            "ShortFrame": lambda: bytes(self.chance.randrange(5)),
            "WrongMagicByte": lambda: b'{"id": 1}',
            "UnknownSchema": lambda: avro.frame(900_000_000 + self.chance.randrange(3)) + b"x",
            self.form.own_bad: lambda: self._value(5, 7)[:-1],
            "IncompatibleSchema": lambda: self.form.of_alien(self.alien_id, self.alien),
        }
        kind = self.chance.choice(sorted(kinds))
        value = kinds[kind]()
        self.bad[at, self.sizes[at]] = kind, value
        return value


ALIKE = pytest.mark.long("another format; tests/spark has its rows, and [tasks] what becomes of records")
SMALL = pytest.mark.long("the driver's own batches; tests/kafka/test_unknown_schemas and test_small_batches have them")


@pytest.mark.parametrize(
    ("form", "by_tasks", "count"),
    [
        (InAvro(), True, 100_000),
        pytest.param(InAvro(), False, 4000, marks=SMALL),
        pytest.param(InJson(), True, 100_000, marks=ALIKE),
        pytest.param(InProtobuf(), True, 40_000, marks=ALIKE),
        pytest.param(InProtobuf(), False, 4000, marks=SMALL),
    ],
    ids=["tasks", "small batches", "json", "protobuf", "protobuf in small batches"],
)
@pytest.mark.long("three starts of Spark; the next one decodes by the command, tests/spark has the records")
def test_every_record_has_one_end_whatever_schema_it_names(
    kafka: LocalKafka, registry: LocalRegistry, tmp_path: Path, form: Form, by_tasks: bool, count: int
) -> None:
    name, servers = topics.unique("avro"), kafka.bootstrap_servers
    source, data, dead = f"{name}-in", f"{name}-out", f"{name}-dead"
    world = World(registry, f"{source}-value", random.Random(SEED), form)
    topics.create_topic(servers, source, partitions=PARTITIONS)
    world.feed(servers, source, range(count // 2))
    letters = {"topic": {"name": dead, "partitions": 1, "replicationFactor": 1}}
    document = manifest(
        servers,
        name,
        [source],
        decode={"format": form.kind.lower(), "schemaRegistry": {"url": registry.url}, **form.more(f"{source}-value")},
        transform={"where": "id >= 0", "select": SELECT},
        trigger={"interval": "0s", "maxOffsetsPerTrigger": max(500, count // 20)},
        sinks=[{**sink(name), "deadLetter": letters}],
        **({"spark": BY_TASKS} if by_tasks else {}),
    )
    app = App(tmp_path, document)

    with app.start() as run:
        run.until_rows(world.rows // 3)
        run.kill()

    with app.start() as run:
        run.until_rows(world.rows)
        [jvm] = run.jvm()
        told = app.status()["readerSchema"]
        assert (told["subject"], told["version"], told["id"]) == (world.subject, VERSIONS, world.schemas[VERSIONS][0])

        world.register(VERSIONS + 1)
        world.feed(servers, source, range(count // 2, count * 3 // 4))
        run.until_rows(world.rows)
        assert run.jvm() == [jvm], "only the query is started again"
        assert app.status()["readerSchema"] == told, "the reader's schema is that of the start"
        assert app.sink_status()["state"] == "Running"

        world.feed(servers, source, range(count * 3 // 4, count))
        if by_tasks:
            [worker, *_] = run.workers()
            worker.kill()
        run.until_rows(world.rows * 7 // 8)
        run.kill()
    app.run_until_idle()

    assert app.status()["readerSchema"]["version"] == VERSIONS + 1
    delivered = Counter(each.text for each in topics.read_committed(servers, data))
    assert delivered == Counter(each for found in world.good.values() for each in found)
    found = [parse(each.value, each.key, list(each.headers)) for each in topics.read_committed(servers, dead)]
    places = {(each.record.partition.partition, each.record.offset): each for each in found}
    assert len(places) == len(found)
    assert {at: (each.verdict.error_class.value, each.record.value) for at, each in places.items()} == world.bad
    assert {kind for kind, _ in world.bad.values()} >= {"ShortFrame", "UnknownSchema", "IncompatibleSchema"}
    classes = Counter(each.verdict.error_class.value for each in found)
    assert {each["class"]: each["count"] for each in app.sink_status()["deadLetters"]} == classes


@pytest.mark.thorough("a start of Spark and two of a registry")
def test_without_the_registry_known_schemas_go_on_and_another_waits(kafka: LocalKafka, tmp_path: Path) -> None:
    name, servers = topics.unique("avro"), kafka.bootstrap_servers
    source = f"{name}-in"
    topics.create_topic(servers, source, partitions=2)
    schema, newer = version(1, "Order"), version(2, "Order")
    with LocalRegistry() as registry:
        first = registry.register(f"{source}-value", schema)
        document = manifest(
            servers,
            name,
            [source],
            decode={"format": "avro", "schemaRegistry": {"url": registry.url}},
            transform={"select": {"value": "CAST(id AS STRING)"}},
        )
        app = App(tmp_path, document)
        topics.produce(servers, source, [avro.framed(first, schema, {"id": 1})], partition=0)
        with app.start() as run:
            run.until_rows(1)
            second = registry.register(f"{source}-value", newer)
            registry.stop()
            unknown = avro.framed(second, newer, {"id": 3, "note": "x"})
            topics.produce(servers, source, [avro.framed(first, schema, {"id": 2}), unknown], partition=0)

            def waits() -> bool:
                return bool(app.sink_status().get("error", {}).get("reason") == "SchemaRegistryUnreachable")

            run.eventually(waits, "the sink waits for the registry")
            run.until_rows(2)
            topics.produce(servers, source, [avro.framed(first, schema, {"id": 4})], partition=1)
            run.until_rows(3)
            assert sorted(json.loads(each.text) for each in topics.read_committed(servers, f"{name}-out")) == [1, 2, 4]
            registry.go_on()
            run.until_rows(4)
            run.until_state("Running")
            assert run.terminate() == 0
    assert sorted(json.loads(each.text) for each in topics.read_committed(servers, f"{name}-out")) == [1, 2, 3, 4]


@pytest.mark.long("three starts of Spark and a redrive; tests/spark/test_avro shows it without the command")
def test_letters_of_more_schemas_than_a_plan_takes_are_redriven(
    kafka: LocalKafka, registry: LocalRegistry, tmp_path: Path
) -> None:
    """Two runs of a pipeline have met more than one may; the redrive meets all of them at once."""
    name, servers, count = topics.unique("avro"), kafka.bootstrap_servers, MAX_WRITERS + 6
    source, record = f"{name}-in", name.replace("-", "_")
    topics.create_topic(servers, source)
    of_each = [avro.record(("id", "long"), (f"of{number}", "int"), name=record) for number in range(count)]
    first = avro.record(("id", "long"), name=record)
    registry.register(f"{source}-value", first)
    ids = [registry.register(f"{source}-others", schema) for schema in of_each]

    def document(value: str) -> dict[str, Any]:
        letters = {"topic": {"name": f"{name}-dead", "partitions": 1, "replicationFactor": 1}}
        return manifest(
            servers,
            name,
            [source],
            decode={"format": "avro", "schemaRegistry": {"url": registry.url}},
            transform={"select": {"value": value}},
            sinks=[{**sink(name), "deadLetter": letters}],
        )

    app = App(tmp_path, document("CAST(CAST(CONCAT('x', id) AS INT) AS STRING)"))
    for half in (range(count // 2), range(count // 2, count)):
        values = [avro.framed(ids[each], of_each[each], {"id": each, f"of{each}": 7}) for each in half]
        topics.produce(servers, source, values)
        app.run_until_idle()
    assert len(topics.read_committed(servers, f"{name}-dead")) == count

    app.write(document("CAST(id AS STRING)"))
    done = app.call("dlq", "redrive", "-f", str(app.manifest), "--log-file", str(app.log_file), "-o", "json")
    assert done.returncode == 0, f"{done.stderr}\n{app.log_tail()}"
    assert json.loads(done.stdout)["delivered"] == count
    assert sorted(int(each.text) for each in topics.read_committed(servers, f"{name}-out")) == [*range(count)]
