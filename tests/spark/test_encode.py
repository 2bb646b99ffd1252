"""What a STRUCT is written to with a schema of a registry, by Spark; read again by other libraries."""

from __future__ import annotations

import datetime as dt
import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Verdict
from sinkpipeline.core.encoding import Encoding, frame_of
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.redrive import Letter, LetterId
from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.kafka.registry import Found, FoundReader
from sinkpipeline.kafka.settings import EncodingSettings, RegistrySettings
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.encoder import Encoder, EncodingRefused
from sinkpipeline.spark.redrive import LetterTransform
from sinkpipeline.spark.transform import output_rows
from support import avro
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, note STRING, at TIMESTAMP, tags ARRAY<STRING>, amount DECIMAL(9,2), part STRUCT<raw: BINARY>"
ALL = "struct(coalesce(id, 0) AS id, note, at, tags, amount, part)"
FULL = b'{"id":1,"note":"x","at":"2024-05-06T07:08:09Z","tags":["a",null],"amount":1.5,"part":{"raw":"AQI="}}'


@dataclass
class Registry:
    """In memory: asked like `kafka.registry.Registry`."""

    latest: Any = None
    has: int | None = None
    registered: list[tuple[str, str, Any]] = field(default_factory=list)
    compared: int = 0
    refuses: set[str] = field(default_factory=set)
    """Subjects."""

    def reader(self, subject: str, _version: str) -> FoundReader:
        return FoundReader(Found(avro.text(self.latest), "AVRO"), subject, 3, 30)

    def id_of(self, *_schema: str) -> int | None:
        return self.has

    def register(self, subject: str, kind: str, text: str) -> int:
        self.registered.append((subject, kind, json.loads(text)))
        return 7

    def check_fits(self, subject: str, *_schema: str) -> None:
        self.compared += 1
        if subject in self.refuses:
            raise SinkPipelineError(Reason.SCHEMA_REFUSED, "it is not compatible", "change it")


def plan(kind: Any, value: str = ALL, **more: Any) -> RowPlan:
    encoding = Encoding("value", kind, "com.example.Order", "spec.sinks[0].kafka.encode.value")
    return RowPlan("json", COLUMNS, select=RowSelect(value=value), encodings=(encoding,), **more)


def encoder(spark: SparkSession, registry: Registry, *, auto: bool = True, registers: bool = True) -> Encoder:
    settings = EncodingSettings(
        part="value", registry=RegistrySettings(url="", subject="orders-value"), auto_register=auto
    )
    return Encoder(spark, [settings], registers=registers, ask=lambda _: registry)


def rows(spark: SparkSession, plan: RowPlan, values: list[bytes | None]) -> list[Row]:
    at = dt.datetime(2024, 5, 6, tzinfo=dt.timezone.utc)
    found = [
        (b"k", value and bytearray(value), "orders", 0, offset, at, 0, None) for offset, value in enumerate(values)
    ]
    return output_rows(spark.createDataFrame(found, SOURCE).coalesce(1), plan).collect()


def test_avro_is_framed_and_has_the_schema_of_the_struct(spark: SparkSession) -> None:
    registry = Registry()
    analyse(spark, plan("avro"))
    of_sink = encoder(spark, registry)
    settled = of_sink.plan(plan("avro"))
    assert of_sink.plan(plan("avro")) == settled

    [(subject, kind, schema)] = registry.registered
    assert (subject, kind, schema["namespace"], schema["name"]) == ("orders-value", "AVRO", "com.example", "Order")
    fields = {each["name"]: each for each in schema["fields"]}
    assert fields["id"] == {"name": "id", "type": "long"}
    assert fields["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    full, empty, malformed, null = rows(spark, settled, [FULL, b"{}", b"{", None])
    assert bytes(full.value[:5]) == frame_of(7) == b"\0\0\0\0\7"
    whole, nothing = (fastavro.schemaless_reader(io.BytesIO(each.value[5:]), schema, None) for each in (full, empty))
    assert (whole["id"], whole["tags"], str(whole["amount"]), whole["part"]) == (
        1,
        ["a", None],
        "1.50",
        {"raw": b"\1\2"},
    )
    assert whole["at"] == dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.timezone.utc)
    assert nothing == {"id": 0, "note": None, "at": None, "tags": None, "amount": None, "part": None}
    assert [each.error and each.error.partition(":")[0] for each in (malformed, null)] == ["MalformedJson", "NullValue"]
    assert bytes(malformed.value) == b"{"


def test_json_is_framed_and_has_the_schema_of_the_struct(spark: SparkSession) -> None:
    registry = Registry()
    analyse(spark, plan("json"))
    full, empty = rows(spark, encoder(spark, registry).plan(plan("json")), [FULL, b"{}"])
    [(_, kind, schema)] = registry.registered
    assert (kind, schema["title"], schema["required"]) == ("JSON", "com.example.Order", ["id"])
    assert schema["additionalProperties"] is False
    assert schema["properties"]["tags"]["items"] == {"oneOf": [{"type": "null"}, {"type": "string"}]}
    assert bytes(full.value[:5]) == frame_of(7)
    assert json.loads(bytes(full.value[5:]))["at"] == "2024-05-06T07:08:09.000000Z"
    assert json.loads(bytes(empty.value[5:])) == {"id": 0}


def test_a_null_struct_is_a_tombstone_and_so_is_one_that_passes(spark: SparkSession) -> None:
    of_null = plan("avro", value="CASE WHEN id > 0 THEN struct(id) END", on_null="PassThrough")
    settled = encoder(spark, Registry()).plan(of_null)
    found = rows(spark, settled, [b'{"id": 0}', None, b'{"id": 1}'])
    assert [(each.error, each.value is None) for each in found] == [(None, True), (None, True), (None, False)]


@pytest.mark.thorough("another cause of the same dead letter")
def test_a_value_that_the_latest_version_takes_no_null_for_is_a_dead_letter(spark: SparkSession) -> None:
    registry = Registry(latest=avro.record(("id", "long"), ("note", "string"), ("more", ["null", "long"])))
    settled = encoder(spark, registry, auto=False).plan(plan("avro", value="struct(id, note)"))
    good, bad = rows(spark, settled, [b'{"id": 1, "note": "x"}', b'{"id": 1}'])
    assert registry.registered == []
    assert bytes(good.value[:5]) == frame_of(30)
    read = fastavro.schemaless_reader(io.BytesIO(good.value[5:]), fastavro.parse_schema(registry.latest), None)
    assert read == {"id": 1, "note": "x", "more": None}
    assert (bad.error.partition(":")[0], bytes(bad.value)) == ("EncodingFailed", b'{"id": 1}')


TIMES = {"type": "long", "logicalType": "timestamp-millis"}
IDS = {"type": "array", "items": avro.record(("id", "long"), name="Each")}


@pytest.mark.parametrize(
    ("value", "latest", "words"),
    [
        ("struct(id)", [("id", "long"), ("note", "string")], "field note takes no null there"),
        ("struct(id, note, at)", [("id", "long"), ("note", "string")], "field at is not there"),
        ("struct(1L AS id, 2L AS ID)", [("id", "long")], "fields id and ID have the same name"),
        ("struct(array(struct(1L AS id, 2L AS ID)) AS ids)", [("ids", IDS)], "fields ids.id and ids.ID have the same"),
        ("struct(1L AS ID)", [("id", "long")], "field ID is not there"),
        ("struct(at)", [("at", TIMES)], "field at is long timestamp-micros, and long timestamp-millis there"),
        (
            "struct(array(struct(at AS id)) AS ids)",
            [("ids", IDS)],
            r"ids\[\]\.id is long timestamp-micros, and long there",
        ),
        (
            "struct(note AS member0, id AS member1)",
            None,
            "it is a union of several types there",
        ),
    ],
)
@pytest.mark.thorough("each way in which it does not fit", after=1)
def test_a_struct_that_the_latest_version_has_no_room_for_is_refused(
    spark: SparkSession, value: str, latest: Any, words: str
) -> None:
    registry = Registry(latest=["string", "long"] if latest is None else avro.record(*latest))
    with pytest.raises(
        SinkPipelineError, match=r"spec\.sinks\[0\].*version 3 of subject orders-value.*" + words
    ) as caught:
        encoder(spark, registry, auto=False).plan(plan("avro", value=value))
    assert caught.value.reason is Reason.SCHEMA_REFUSED


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("json", "CAST('NaN' AS DOUBLE)"),
        ("avro", "named_struct('of', array('a', CAST(X'ff41' AS STRING)))"),
        ("json", "array(CAST('-Infinity' AS FLOAT))"),
        ("json", "DATE'9999-12-31' + CAST(id AS INT)"),
        ("json", "array(struct(map('k', TIMESTAMP'0001-01-01 00:00:00Z' - CAST(id AS INT) * INTERVAL '1' DAY) AS m))"),
        ("json", "CAST(X'ff41' AS STRING)"),
        ("json", "map(CAST(X'ff41' AS STRING), 1)"),
    ],
)
@pytest.mark.thorough("further values", after=2)
def test_a_value_that_would_be_written_as_another_one_is_a_dead_letter(
    spark: SparkSession, kind: str, bad: str
) -> None:
    of_some = plan(kind, value=f"struct(IF(id > 0, {bad}, NULL) AS each, 1D AS one, 'ä' AS text)")
    good, refused = rows(spark, encoder(spark, Registry()).plan(of_some), [b'{"id": 0}', b'{"id": 1}'])
    assert good.error is None
    assert (refused.error.partition(":")[0], bytes(refused.value)) == ("EncodingFailed", b'{"id": 1}')


@pytest.mark.thorough("settings of a session; test_json_is_framed has what is written")
def test_json_is_written_alike_in_each_session(spark: SparkSession) -> None:
    times = "TIMESTAMP'2024-05-06 07:08:09.000001Z' AS at, TIMESTAMP_NTZ'2024-05-06 07:08:09.12' AS local"
    of_nulls = plan("json", value=f"struct(note, {times}, DATE'2024-05-06' AS day)")
    name = "spark.sql.jsonGenerator.ignoreNullFields"
    spark.conf.set(name, "false")
    try:
        [row] = rows(spark, encoder(spark, Registry()).plan(of_nulls), [b"{}"])
    finally:
        spark.conf.unset(name)
    assert json.loads(bytes(row.value[5:])) == {
        "at": "2024-05-06T07:08:09.000001Z",
        "local": "2024-05-06T07:08:09.120000",
        "day": "2024-05-06",
    }


@pytest.mark.parametrize(("has", "compared", "words"), [(None, 1, "a run registers it"), (5, 0, "id 5 of subject")])
@pytest.mark.thorough("the other command", after=1)
def test_who_writes_nothing_registers_nothing(spark: SparkSession, has: int | None, compared: int, words: str) -> None:
    registry = Registry(has=has)
    of_preview = encoder(spark, registry, registers=False)
    [row] = rows(spark, of_preview.plan(plan("json")), [b"{}"])
    assert (registry.registered, registry.compared) == ([], compared)
    assert bytes(row.value[:5]) == frame_of(has or 0)
    assert words in of_preview.told[0]


@pytest.mark.thorough("a refusal in another order")
def test_no_schema_is_registered_beside_one_that_is_refused(spark: SparkSession) -> None:
    """Nobody takes a version of a subject back."""
    parts = ("key", "value")
    settings = [
        EncodingSettings(part=each, registry=RegistrySettings(url="", subject=f"orders-{each}"), auto_register=True)
        for each in parts
    ]
    encodings = tuple(
        Encoding(each, "avro", "com.example.Order", f"spec.sinks[0].kafka.encode.{each}") for each in parts
    )
    both = RowPlan("json", COLUMNS, select=RowSelect(key="struct(id)", value="struct(id, note)"), encodings=encodings)
    analyse(spark, both)
    for refused in ({"orders-value"}, {"orders-key"}, set[str]()):
        registry = Registry(refuses=refused)
        of_sink = Encoder(spark, settings, registers=True, ask=lambda _, registry=registry: registry)  # type: ignore[misc]
        if not refused:
            of_sink.plan(both)
            assert [each[0] for each in registry.registered] == ["orders-key", "orders-value"]
            continue
        with pytest.raises(EncodingRefused) as caught:
            of_sink.plan(both)
        assert (caught.value.reason, registry.registered) == (Reason.SCHEMA_REFUSED, [])
        assert caught.value.path == f"spec.sinks[0].kafka.encode.{refused.pop().removeprefix('orders-')}"


def test_a_latest_version_that_can_not_be_read_is_told_of_the_sink(spark: SparkSession) -> None:
    registry = Registry(latest=avro.record(("id", "nothing")))
    with pytest.raises(
        SinkPipelineError, match=r"spec\.sinks\[0\].*version 3 of subject orders-value.*nothing"
    ) as caught:
        encoder(spark, registry, auto=False).plan(plan("avro", value="struct(id)"))
    assert caught.value.reason is Reason.SCHEMA_REFUSED
    assert "decode" not in str(caught.value)


def test_json_that_is_only_looked_up_has_to_be_there(spark: SparkSession) -> None:
    with pytest.raises(SinkPipelineError, match=r"SchemaNotFound.*orders-value.*additionalProperties"):
        encoder(spark, Registry(), auto=False).plan(plan("json"))


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("avro", "CAST(id AS STRING)", "must be a STRUCT, as the sink encodes it, is STRING"),
        ("avro", "struct(id AS `an id`)", "Avro has no schema for it"),
        ("avro", "struct(id AS a, note AS A)", "fields a and A have the same name"),
        ("json", "struct(struct(id AS a, note AS a) AS of)", "fields of.a and of.a have the same name"),
        ("json", "struct(INTERVAL '1' DAY AS each)", "field each: JSON Schema has nothing for interval day"),
    ],
)
@pytest.mark.thorough("each type without a schema", after=1)
def test_what_has_no_schema_is_told_with_its_path(spark: SparkSession, kind: str, value: str, words: str) -> None:
    with pytest.raises(SinkPipelineError, match=f"ExpressionInvalid: spec.transform.select.value: {words}"):
        analyse(spark, plan(kind, value=value))


def test_a_struct_that_nobody_encodes_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SinkPipelineError, match=r"must be STRING or BINARY.*kafka.encode"):
        analyse(spark, plan("avro"), RowPlan("json", COLUMNS, select=RowSelect(value=ALL)))


@pytest.mark.thorough("redriven letters take the path of rows")
def test_letters_are_encoded_as_rows_are(spark: SparkSession) -> None:
    record = SourceRecord(
        partition=SourcePartition("orders", 0), offset=5, key=None, value=FULL, headers=None, timestamp=0
    )
    verdict = Verdict(ErrorClass.ENCODING_FAILED, "it did not fit")
    letter = DeadLetter(sink=SinkId("shop.orders", "out"), verdict=verdict, record=record)
    found = LetterTransform(spark, encoder(spark, Registry()).plan(plan("json")))([Letter(LetterId(0, 9), 0, letter)])
    assert found is not None
    [value] = found.values
    assert value is not None
    assert value[:5] == frame_of(7)
    assert json.loads(value[5:])["id"] == 1
