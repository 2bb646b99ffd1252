"""Avro, decoded by Spark: columns, bad values, frames and the schemas they name."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.redrive import Letter, LetterId
from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.core.schemas import HEADER, MAX_WRITERS, Known, Writer, pending
from sinkpipeline.kafka.registry import Answers, Found
from sinkpipeline.kafka.settings import RegistrySettings
from sinkpipeline.spark import schemas as schemas_module
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.avro import misfit, whole_schema
from sinkpipeline.spark.redrive import LetterTransform
from sinkpipeline.spark.schemas import Schemas
from sinkpipeline.spark.transform import output_rows
from support import avro
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

AT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.timezone.utc)
ORDER = avro.record(("id", "long"), ("note", ["null", "string"]))
NULLABLE = avro.record(("note", ["null", "string"]), ("more", ["null", "long"]))
JSON_OF_ALL = RowSelect(value="to_json(struct(id, note))")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas_module, "_SECOND_LOOKS_S", ())


def source(spark: SparkSession, values: list[bytes | None], headers: list[Any] | None = None) -> DataFrame:
    each_headers = headers or [None] * len(values)
    rows = [
        (b"k", None if value is None else bytearray(value), "orders", 0, offset, AT, 0, of_row)
        for offset, (value, of_row) in enumerate(zip(values, each_headers, strict=True))
    ]
    return spark.createDataFrame(rows, SOURCE).coalesce(1)


def rows(spark: SparkSession, plan: RowPlan, values: list[bytes | None], headers: list[Any] | None = None) -> list[Row]:
    analyse(spark, plan)
    output: Any = output_rows(source(spark, values, headers), plan)
    # Each of Spark's operators that calls Python for rows has it in its name.
    assert "Python" not in output._jdf.queryExecution().executedPlan().toString()
    found: list[Row] = output.collect()
    return found


def word(row: Row) -> str | None:
    return None if row.error is None else row.error.partition(":")[0]


def test_one_schema_for_all_values(spark: SparkSession) -> None:
    good = avro.body(ORDER, {"id": 1, "note": "a"})
    null_note = avro.body(ORDER, {"id": 2, "note": None})
    values = [good, null_note, good[:-1], b"", None]
    plan = RowPlan("avro", avro.text(ORDER), select=JSON_OF_ALL, where="id < 10")
    found = rows(spark, plan, values)
    assert [word(each) for each in found] == [None, None, "MalformedAvro", "MalformedAvro", "NullValue"]
    assert [bytes(each.value) for each in found[:3]] == [b'{"id":1,"note":"a"}', b'{"id":2}', good[:-1]]


def test_a_value_is_all_that_its_schema_describes(spark: SparkSession) -> None:
    """Spark decodes the beginning of a value that is longer: of a frame, say, that the manifest does not name."""
    order = {"id": 1, "note": "a"}
    values = [avro.framed(7, ORDER, order), avro.body(ORDER, order) + b"\0", avro.body(ORDER, order) * 2]
    alone = RowPlan("avro", avro.text(ORDER), select=JSON_OF_ALL)
    assert [word(each) for each in rows(spark, alone, values)] == ["MalformedAvro"] * 3
    known = Known(writers=(Writer(avro.frame(1), avro.text(ORDER)),))
    framed = RowPlan("avro", avro.text(ORDER), select=JSON_OF_ALL, known=known)
    values = [avro.framed(1, ORDER, order), *(avro.frame(1) + each for each in values)]
    assert [word(each) for each in rows(spark, framed, values)] == [None, *["MalformedAvro"] * 3]


def test_texts_are_valid_utf8(spark: SparkSession) -> None:
    """Those of other languages' libraries may be any bytes; `to_json` would replace them."""
    schema = avro.record(("note", ["null", "string"]), ("tags", {"type": "map", "values": "string"}))
    plan = RowPlan("avro", avro.text(schema), select=RowSelect(value="note"))
    good = avro.body(schema, {"note": "ab", "tags": {"k": "vv"}})
    values = [good, good.replace(b"ab", b"\xffA"), good.replace(b"vv", b"\xff\xfe"), good.replace(b"k", b"\xff")]
    assert [word(each) for each in rows(spark, plan, values)] == [None, *["InvalidUtf8"] * 3]


@pytest.mark.parametrize("kind", ["bytes", "string", {"type": "array", "items": "null"}])
@pytest.mark.thorough("each place of a length", after=1)
def test_a_length_that_no_record_has_is_no_reason_to_make_room_for_it(spark: SparkSession, kind: Any) -> None:
    schema = avro.record(("x", kind))
    claimed = avro.body(avro.record(("x", "long")), {"x": 2**31 - 100})
    plan = RowPlan("avro", avro.text(schema), select=RowSelect(value="'x'"))
    (row,) = rows(spark, plan, [claimed])
    assert word(row) == "MalformedAvro"


def test_a_record_of_nulls_is_no_malformed_one(spark: SparkSession) -> None:
    nulls = avro.body(NULLABLE, {"note": None, "more": None})
    plan = RowPlan("avro", avro.text(NULLABLE), select=RowSelect(value="to_json(struct(note, more))"))
    good, bad = rows(spark, plan, [nulls, b"\x02"])
    assert (good.error, bytes(good.value)) == (None, b"{}")
    assert word(bad) == "MalformedAvro"


@pytest.mark.thorough("test_transform has tombstones, which no format sees")
def test_a_tombstone_passes_where_the_manifest_says_so(spark: SparkSession) -> None:
    plan = RowPlan("avro", avro.text(ORDER), "PassThrough", where="id > 10", select=JSON_OF_ALL)
    (row,) = rows(spark, plan, [None])
    assert (row.error, row.value) == (None, None)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "the schema can't be read"),
        ('"long"', "is bigint, and no record"),
        (avro.text(avro.record(("next", ["null", "Order"]))), "Spark can't read the schema"),
    ],
)
def test_a_schema_that_has_no_columns_is_refused(spark: SparkSession, schema: str, words: str) -> None:
    with pytest.raises(SinkPipelineError, match=words) as caught:
        analyse(spark, RowPlan("avro", schema))
    # It stands in the manifest.
    assert caught.value.reason is Reason.EXPRESSION_INVALID
    assert str(caught.value).startswith("ExpressionInvalid: spec.decode.schema: ")
    assert "\n" not in str(caught.value)


def test_names_of_columns_are_looked_at(spark: SparkSession) -> None:
    with pytest.raises(SinkPipelineError, match="kafka is the source record"):
        analyse(spark, RowPlan("avro", avro.text(avro.record(("Kafka", "long")))))


# With a registry.

V1 = avro.record(("id", "long"))
V2 = avro.record(("id", "long"), {"name": "note", "type": "string", "default": "none"})
ALIEN = avro.record(("other", "string"))
GUID = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
GUID_FRAME = b"\x01" + GUID.bytes


def known(spark: SparkSession, reader: Any, **more: Any) -> Known:
    schemas = {avro.frame(1): V1, avro.frame(2): V2, avro.frame(3): ALIEN, GUID_FRAME: V1}
    writers = tuple(
        Writer(frame, avro.text(schema), misfit(spark, avro.text(reader), avro.text(schema)))
        for frame, schema in schemas.items()
    )
    return Known(writers=writers, **more)


def test_each_value_is_read_by_the_schema_that_it_names(spark: SparkSession) -> None:
    one, two = {"id": 1}, {"id": 2, "note": "b"}
    cases: list[tuple[bytes | None, Any, str | None]] = [
        (avro.framed(1, V1, one), None, None),
        (avro.framed(2, V2, two), None, None),
        (GUID_FRAME + avro.body(V1, one), None, None),
        (avro.body(V1, one), [(HEADER, GUID_FRAME)], None),
        (avro.body(V2, two), [("x", b"y"), (HEADER, avro.frame(2))], None),
        (avro.framed(3, ALIEN, {"other": "x"}), None, "IncompatibleSchema"),
        (avro.framed(2, V2, two)[:-1], None, "MalformedAvro"),
        (avro.frame(1), None, "MalformedAvro"),
        (avro.frame(8) + b"x", None, "IncompatibleSchema"),
        (avro.frame(9) + b"x", None, "UnknownSchema"),
        (avro.frame(7) + b"x", None, "PendingSchema"),
        (b"", None, "ShortFrame"),
        (b"\0\0\0", None, "ShortFrame"),
        (GUID_FRAME[:-1], None, "ShortFrame"),
        (b"x", [(HEADER, b"\0")], "ShortFrame"),
        (b'{"id": 1}', None, "WrongMagicByte"),
        (None, None, "NullValue"),
    ]
    protobuf = Writer(avro.frame(8), "", "it is PROTOBUF, and not Avro")
    more = known(spark, V2, unusable=(protobuf,), missing=(avro.frame(9),))
    plan = RowPlan("avro", avro.text(V2), select=JSON_OF_ALL, known=more)
    found = rows(spark, plan, [each[0] for each in cases], [each[1] for each in cases])
    assert [word(each) for each in found] == [each[2] for each in cases]
    assert [json.loads(bytes(each.value)) for each in found[:5]] == [
        {"id": 1, "note": "none"},
        two,
        {"id": 1, "note": "none"},
        {"id": 1, "note": "none"},
        two,
    ]
    assert [each.value if each.value is None else bytes(each.value) for each in found[5:]] == [c[0] for c in cases[5:]]
    assert pending(found[10].error) == avro.frame(7)
    assert "id 3" in found[5].error


def test_without_a_known_schema_every_frame_is_asked_for(spark: SparkSession) -> None:
    plan = RowPlan("avro", avro.text(V2), select=JSON_OF_ALL, where="id > 5", known=Known())
    (row,) = rows(spark, plan, [avro.framed(1, V1, {"id": 1})])
    assert pending(row.error) == avro.frame(1)


def test_ids_of_eight_bytes(spark: SparkSession) -> None:
    frame = avro.frame(1, size=8)
    fake = avro.Registry({frame: Found(avro.text(V1), "AVRO")}, latest=V1)
    schemas = Schemas(spark, fake, RegistrySettings(url="", reader=avro.text(V1), id_bytes=8))
    schemas.learn([frame])
    plan = schemas.plan(RowPlan("avro", known=Known(), where="id = 1"))
    assert plan.known is not None
    assert plan.known.id_bytes == 8
    good, short = rows(spark, plan, [avro.framed(1, V1, {"id": 1}, size=8), avro.frame(1)])
    assert (good.error, word(short)) == (None, "ShortFrame")


def test_a_number_that_meant_something_else_is_not_decoded(spark: SparkSession) -> None:
    """Avro's rules let it through, and so does a registry: 123.45 would be 1.2345."""
    of_scale = (
        avro.record(("price", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": scale}))
        for scale in (4, 2)
    )
    reader, writer = of_scale
    assert misfit(spark, avro.text(reader), avro.text(writer)) is None
    fake = avro.Registry({avro.frame(1): Found(avro.text(writer), "AVRO")}, latest=reader)
    schemas = Schemas(spark, fake, RegistrySettings(url="", subject="s", version="1"))
    schemas.learn([avro.frame(1)])
    plan = schemas.plan(RowPlan("avro", known=Known(), select=RowSelect(value="CAST(price AS STRING)")))
    (row,) = rows(spark, plan, [avro.framed(1, writer, {"price": Decimal("123.45")})])
    assert word(row) == "IncompatibleSchema"
    assert "field price is a decimal of scale 2 in the writer's schema" in row.error


@pytest.mark.thorough("another pair of schemas")
def test_a_writer_that_fits_in_part_is_read_where_it_fits(spark: SparkSession) -> None:
    reader, writer = avro.record(("id", "long")), avro.record(("id", ["null", "long"]))
    why = misfit(spark, avro.text(reader), avro.text(writer))
    assert why is not None
    plan = RowPlan("avro", avro.text(reader), known=Known(writers=(Writer(avro.frame(1), avro.text(writer), why),)))
    values: list[bytes | None] = [avro.framed(1, writer, {"id": 5}), avro.framed(1, writer, {"id": None})]
    assert [word(each) for each in rows(spark, plan, values)] == [None, "IncompatibleSchema"]


def test_a_schema_is_made_whole_by_those_that_it_refers_to(spark: SparkSession) -> None:
    item = avro.record(("sku", "string"), name="Item")
    whole = whole_schema(spark, avro.text(avro.record(("item", "Item"))), [avro.text(item)])
    plan = RowPlan("avro", whole, select=RowSelect(value="item.sku"))
    (row,) = rows(spark, plan, [avro.body(json.loads(whole), {"item": {"sku": "x"}})])
    assert bytes(row.value) == b"x"
    with pytest.raises(SinkPipelineError, match="the schema can't be read") as caught:
        whole_schema(spark, avro.text(avro.record(("item", "Item"))))
    assert caught.value.reason is Reason.SCHEMA_UNSUPPORTED


@pytest.mark.thorough("test_json_with_the_columns_of_a_registry strips the same frame")
def test_json_behind_a_frame(spark: SparkSession) -> None:
    plan = RowPlan("json", "id BIGINT NOT NULL", select=RowSelect(value="CAST(id AS STRING)"), known=Known(asked=False))
    values = [avro.frame(77) + b'{"id": 5}', b'{"id": 5}', avro.frame(77) + b"[]", avro.frame(1) + b"{}", None]
    found = rows(spark, plan, values)
    words = [None, "WrongMagicByte", "MalformedJson", "MissingField", "NullValue"]
    assert [word(each) for each in found] == words
    assert bytes(found[0].value) == b"5"


JSON_SCHEMA = """{"type": "object", "required": ["id"], "properties": {
    "id": {"type": "integer"}, "note": {"type": ["string", "null"]}, "part": {"$ref": "#/definitions/part"}},
    "definitions": {"part": {"type": "object", "required": ["n"], "properties": {"n": {"type": "number"}}}}}"""
OF_JSON = RegistrySettings(url="", subject="orders-value", version="7", decode_format="json")


def test_json_with_the_columns_of_a_registry(spark: SparkSession) -> None:
    found = {avro.frame(1): Found(JSON_SCHEMA, "JSON"), avro.frame(2): Found(avro.text(V1), "AVRO")}
    fake = avro.Registry(found, latest=None, reader_found=Found(JSON_SCHEMA, "JSON"))
    schemas = Schemas(spark, fake, OF_JSON)
    plan = RowPlan("json", select=RowSelect(value="concat(id, coalesce(note, '-'), part.n)"), known=Known())
    analyse(spark, schemas.plan(plan))
    cases = [
        (avro.frame(1) + b'{"id": 5, "note": null, "part": {"n": 1.5}, "more": 1}', None),
        (avro.frame(1) + b'{"id": "x"}', "WrongType"),
        (avro.frame(1) + b'{"id": 1, "part": {}}', "MissingField"),
        (avro.frame(1) + b"[]", "MalformedJson"),
        (avro.frame(2) + b'{"id": 5}', "IncompatibleSchema"),
        (avro.frame(3) + b'{"id": 5}', "UnknownSchema"),
        (b'{"id": 5}', "WrongMagicByte"),
        (b"\0\0", "ShortFrame"),
    ]
    values: list[bytes | None] = [value for value, _ in cases]
    before = output_rows(source(spark, values), schemas.plan(plan)).collect()
    assert [pending(each.error) for each in before[:6]] == [avro.frame(n) for n in (1, 1, 1, 1, 2, 3)]
    schemas.learn([frame for each in before if (frame := pending(each.error))])
    rows = output_rows(source(spark, values), schemas.plan(plan)).collect()
    assert [word(each) for each in rows] == [kind for _, kind in cases]
    assert bytes(rows[0].value) == b"5-1.5"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Found('{"type": "object"}', "JSON"), "not of one object"),
        (Found(avro.text(V1), "AVRO"), "it is AVRO, and no JSON Schema"),
    ],
)
def test_a_schema_of_json_without_columns_is_refused(spark: SparkSession, found: Found, words: str) -> None:
    with pytest.raises(SinkPipelineError, match=words) as caught:
        Schemas(spark, avro.Registry({}, latest=None, reader_found=found), OF_JSON)
    assert caught.value.reason is Reason.SCHEMA_UNSUPPORTED


# What a driver learns.


@pytest.fixture
def fake() -> avro.Registry:
    schemas = {1: (V1, "AVRO"), 2: (V2, "AVRO"), 3: (ALIEN, "AVRO")}
    found = {avro.frame(number): Found(avro.text(schema), kind) for number, (schema, kind) in schemas.items()}
    more = {avro.frame(8): Found("syntax", "PROTOBUF"), avro.frame(9): Found("{", "AVRO")}
    return avro.Registry({**found, **more}, latest=V2)


def test_a_schema_is_asked_for_once(spark: SparkSession, fake: avro.Registry) -> None:
    schemas = Schemas(spark, fake, RegistrySettings(url="", subject="orders-value", version="7"))
    plan = RowPlan("avro", known=Known())
    assert schemas.plan(plan) == replace(plan, schema=schemas.reader.schema)
    assert (schemas.reader.info.subject, schemas.reader.info.version, schemas.reader.info.id) == ("orders-value", 2, 7)

    frames = [avro.frame(number) for number in (1, 2, 3, 8, 9, 10)]
    schemas.learn(frames[:3])
    schemas.learn(frames)
    schemas.learn(frames)

    assert fake.asked == [frozenset(frames[:3]), frozenset(frames[3:])]
    known = schemas.plan(plan).known
    assert known is not None
    assert [(each.frame, each.misfit is None) for each in known.writers] == [
        (frames[0], True),
        (frames[1], True),
        (frames[2], False),
    ]
    assert {each.frame: (each.misfit or "")[:20] for each in known.unusable} == {
        frames[3]: "it is PROTOBUF, and ",
        frames[4]: "the schema can't be ",
    }
    assert known.missing == (frames[5],)


def test_a_registry_that_is_away_is_asked_again(spark: SparkSession, fake: avro.Registry) -> None:
    schemas = Schemas(spark, fake, RegistrySettings(url="", reader=avro.text(V2)))
    assert schemas.reader.info.subject is None
    fake.away = True
    with pytest.raises(SinkPipelineError, match="away"):
        schemas.learn([avro.frame(1)])
    fake.away = False
    schemas.learn([avro.frame(1)])
    assert len(fake.asked) == 2


@pytest.mark.thorough("a plan of 64 branches; the others have a few")
class LateRegistry(avro.Registry):
    """Of several nodes, of which the one that answers has the schema only when it is asked again."""

    def writers(self, frames: Sequence[bytes]) -> Answers:
        answers = super().writers(frames)
        return Answers({frame: found if len(self.asked) > 1 else None for frame, found in answers.found.items()})


def test_a_registry_that_learns_of_a_schema_late_is_asked_once_more(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each record of the new schema would be a dead letter, until the next driver."""
    monkeypatch.setattr(schemas_module, "_SECOND_LOOKS_S", (0.01,))
    new, garbage = avro.frame(3), avro.frame(0x7B226964)
    late = LateRegistry({new: Found(avro.text(V1), "AVRO")}, latest=V1)
    schemas = Schemas(spark, late, RegistrySettings(url="", subject="s", version="1"))
    schemas.learn([new, garbage])
    assert late.asked == [{new, garbage}, {new}]
    known = schemas.plan(RowPlan("avro", known=Known())).known
    assert known is not None
    assert ([each.frame for each in known.writers], known.missing) == ([new], (garbage,))


def test_a_registry_that_goes_away_at_the_second_look_has_said_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas_module, "_SECOND_LOOKS_S", (0.01,))
    fake = avro.Registry({}, latest=V1)
    schemas = Schemas(spark, fake, RegistrySettings(url="", subject="s", version="1"))
    asked = fake.writers

    def writers(frames: Sequence[bytes]) -> Answers:
        answers, fake.away = asked(frames), True
        return answers

    monkeypatch.setattr(fake, "writers", writers)
    with pytest.raises(SinkPipelineError) as caught:
        schemas.learn([avro.frame(3)])
    assert caught.value.reason is Reason.SCHEMA_REGISTRY_UNREACHABLE
    known = schemas.plan(RowPlan("avro", known=Known())).known
    assert known is not None
    assert known.missing == ()


def test_ids_that_nobody_gave_are_not_waited_for_again_and_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas_module, "_SECOND_LOOKS_S", (0.01, 0.01))
    fake = avro.Registry({}, latest=V1)
    schemas = Schemas(spark, fake, RegistrySettings(url="", subject="s", version="1"))
    schemas.learn([avro.frame(3)])
    assert len(fake.asked) == 3
    schemas.learn([avro.frame(4)])
    assert len(fake.asked) == 4


def test_as_many_schemas_as_a_plan_takes_and_one_more(spark: SparkSession) -> None:
    """What the 64 before it were written with is decoded, that one is not skipped, and what else is broken is told."""
    of_each = {number: avro.record(("id", "long"), (f"of{number}", "int")) for number in range(1, MAX_WRITERS + 2)}
    registry = avro.Registry(
        {avro.frame(number): Found(avro.text(schema), "AVRO") for number, schema in of_each.items()}, latest=V1
    )
    schemas = Schemas(spark, registry, RegistrySettings(url="", subject="orders-value", version="7"))
    plan = RowPlan("avro", known=Known(), select=RowSelect(value="CAST(id AS STRING)"))
    values: list[bytes | None] = [
        avro.framed(number, schema, {"id": number, f"of{number}": 7}) for number, schema in of_each.items()
    ]
    frames, none = [avro.frame(number) for number in of_each], avro.frame(999)

    schemas.learn(frames)
    for more in ([frames[-1]], [none, frames[-1]]):
        with pytest.raises(SinkPipelineError, match="with 65 schemas, and a plan takes 64") as caught:
            schemas.learn(more)
        assert caught.value.reason is Reason.TOO_MANY_SCHEMAS

    *good, beyond, missing = rows(spark, schemas.plan(plan), [*values, none + b"x"])
    assert [(each.error, bytes(each.value)) for each in good] == [
        (None, b"%d" % number) for number in range(1, MAX_WRITERS + 1)
    ]
    assert pending(beyond.error) == frames[-1]
    assert word(missing) == "UnknownSchema"


def letter(offset: int, value: bytes) -> Letter:
    record = SourceRecord(
        partition=SourcePartition("orders", 0), offset=offset, key=None, value=value, headers=None, timestamp=0
    )
    verdict = Verdict(ErrorClass.UNKNOWN_SCHEMA, "it was not there")
    return Letter(LetterId(0, offset), 0, DeadLetter(sink=SinkId("shop.orders", "out"), verdict=verdict, record=record))


@pytest.mark.thorough("letters of many schemas; test_letters_are_read_by_schemas_that_come_meanwhile has one")
def test_letters_end_however_many_schemas_they_name(
    spark: SparkSession, fake: avro.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinkpipeline.core.schemas.MAX_MISSING", 2)
    schemas = Schemas(spark, fake, RegistrySettings(url="", reader=avro.text(V2)))
    transform = LetterTransform(spark, RowPlan("avro", known=Known(), select=JSON_OF_ALL), schemas)
    values = [avro.framed(1, V1, {"id": 1}), *(avro.frame(each) for each in (99, 98, 97, 96))]
    found = transform([letter(offset, value) for offset, value in enumerate(values)])
    assert found is not None
    assert found.errors is not None
    assert [each and each.partition(":")[0] for each in found.errors] == [None, *["UnknownSchema"] * 4]
    assert len(fake.asked) == 3


@pytest.mark.thorough("letters of many schemas; test_letters_are_read_by_schemas_that_come_meanwhile has one")
def test_letters_of_more_schemas_than_a_plan_takes_are_all_decoded(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting again would help nobody: a chunk of letters is delivered whole."""
    monkeypatch.setattr("sinkpipeline.core.schemas.MAX_WRITERS", 3)
    of_each = {number: avro.record(("id", "long"), (f"of{number}", "int")) for number in range(1, 9)}
    registry = avro.Registry(
        {avro.frame(number): Found(avro.text(schema), "AVRO") for number, schema in of_each.items()}, latest=V1
    )
    schemas = Schemas(spark, registry, RegistrySettings(url="", subject="orders-value", version="7"))
    rows_of = RowPlan("avro", known=Known(), select=RowSelect(value="CAST(id AS STRING)"))
    transform = LetterTransform(spark, rows_of, schemas)
    named = [*of_each, *reversed(of_each)]
    values = [avro.framed(number, of_each[number], {"id": number, f"of{number}": 7}) for number in named]

    for _ in range(2):
        found = transform([letter(offset, value) for offset, value in enumerate(values)])
        assert found is not None
        assert (found.errors, found.values) == (None, [b"%d" % number for number in named])


def test_letters_are_read_by_schemas_that_come_meanwhile(spark: SparkSession, fake: avro.Registry) -> None:
    schemas = Schemas(spark, fake, RegistrySettings(url="", reader=avro.text(V2)))
    transform = LetterTransform(spark, RowPlan("avro", known=Known(), select=JSON_OF_ALL), schemas)
    found = transform([letter(5, avro.framed(1, V1, {"id": 1}))])
    assert found is not None
    assert (found.errors, found.values) == (None, [b'{"id":1,"note":"none"}'])
