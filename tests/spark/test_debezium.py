"""Debezium's envelopes, as they were recorded: each change with the values that the server had, or refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from sinkpipeline.core.debezium import UNAVAILABLE
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.rowplan import RowColumn, RowPlan, RowSelect, TableRow
from sinkpipeline.kafka.registry import Found
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.decoding import record_columns, visible_columns
from sinkpipeline.spark.schemas import EnvelopeSchemas
from sinkpipeline.spark.transform import output_rows
from support.debezium import Recorded, Run, documented, frame, recorded
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

UTC = dt.timezone.utc
AT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
ITEMS, WHOLE = "shop.public.items", "shop.public.whole"
COLUMNS = (
    "id BIGINT NOT NULL, name STRING NOT NULL, small INT, flag BOOLEAN, ratio DOUBLE, price DECIMAL(10,2), "
    "amount DECIMAL(38,9), day DATE, at3 TIMESTAMP, at6 TIMESTAMP, at_zone TIMESTAMP, clock BIGINT, doc STRING, "
    "raw BINARY, uid STRING, tags ARRAY<STRING>, numbers ARRAY<BIGINT>, big STRING"
)
FULL = {
    "name": 'a "name" \\ ä',
    "small": -7,
    "flag": True,
    "ratio": 0.1,
    "price": Decimal("-12345678.90"),
    "amount": Decimal("123456789012345678.123456789"),
    "day": dt.date(2024, 2, 29),
    "at3": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
    "at6": "2024-02-29 12:34:56.789012",
    "at_zone": dt.datetime(2024, 2, 29, 10, 34, 56, 789_012, UTC),
    "clock": 45_296_789_012,
    "doc": '{"a": [1, null, "a value that is stored out of line "]}',
    "raw": bytearray(b"\x00\xff\x5c" * 30),
    "uid": "123e4567-e89b-12d3-a456-426614174000",
    "tags": ["t" * 60, None],
    "numbers": list(range(1, 41)),
    "big": "a value that is stored out of line " * 60,
}
"""What `dev/debezium/record.py` has put into the table."""


def frame_of(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    found = [
        (b"k", None if each is None else bytearray(each), "t", 0, offset, AT, 0, None)
        for offset, each in enumerate(values)
    ]
    return spark.createDataFrame(found, SOURCE).coalesce(1)


def errors(spark: SparkSession, plan: RowPlan, values: Sequence[bytes | None]) -> list[str | None]:
    return [each.error for each in output_rows(frame_of(spark, values), plan).collect()]


def seen(spark: SparkSession, plan: RowPlan, values: Sequence[bytes | None]) -> list[Row]:
    """What expressions see of each."""
    found = visible_columns(frame_of(spark, values), plan, record_columns(spark, plan))
    # Python has no year 0.
    as_text = {side: F.col(side).withField("at6", F.col(side)["at6"].cast("string")) for side in ("before", "after")}
    return found.withColumns(as_text).collect()


def as_utc(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        name: each.astimezone(UTC) if isinstance(each, dt.datetime) else each for name, each in row.asDict().items()
    }


def of_form(run: Run, form: str, columns: str = COLUMNS) -> RowPlan:
    if form == "avro":
        return RowPlan("debezium", run.schemas[0], on_null="Skip", known=run.known(), rowless=True)
    return RowPlan("debezium", columns, on_null="Skip", rowless=True)


def values_of(records: Sequence[Recorded], form: str) -> list[bytes | None]:
    return [getattr(each, form) for each in records]


@pytest.mark.parametrize("form", ["wrapped", "avro"])
def test_each_change_has_the_values_that_the_table_had(spark: SparkSession, form: str) -> None:
    run = recorded("postgresql")
    records = [each for each in run.of(WHOLE) if each.op is None or (each.payload["after"] or {"id": 0})["id"] > -1]
    plan = of_form(run, form)
    analyse(spark, plan)
    values = values_of(records, form)
    told = errors(spark, plan, values)
    # The one with infinite times is refused: a TIMESTAMP has none.
    assert [each and each.partition(":")[0] for each in told] == [
        "WrongType"
        if record.op == "u" and record.payload["after"]["day"] == -2147472691
        else "WrongType"
        if record.op == "u" and record.payload["before"]["day"] == -2147472691
        else None
        for record in records
        if record.op
    ]
    good = [value for value, error in zip([v for v in values if v], told, strict=True) if error is None]
    rows = seen(spark, plan, good)
    assert [each.op for each in rows] == ["r", "c", "u", "u", "d", "c", "c", "d"]
    assert [each.unavailable for each in rows] == [[]] * 8
    afters = [as_utc(each.after) for each in rows]
    expected = dict(FULL)
    if form == "avro":
        expected["amount"] = str(FULL["amount"])  # type: ignore[assignment]
    for index, key in ((0, 1), (1, 2)):
        assert {name: afters[index][name] for name in ("id", *FULL)} == {"id": key, **expected}  # type: ignore[index]
    assert afters[2]["name"] == "big is as it was"
    assert afters[2]["big"] == FULL["big"]
    before = as_utc(rows[4].before)
    assert (rows[4].after, before["id"], before["price"]) == (None, 1, FULL["price"])
    assert as_utc(rows[7].before)["price"] == 0
    assert rows[1].source.lsn < rows[2].source.lsn
    assert rows[1].ts_ms == records[1].payload["ts_ms"]


def good_and_bad(spark: SparkSession, plan: RowPlan, values: list[bytes | None]) -> tuple[list[Row], list[str]]:
    told = errors(spark, plan, values)
    rows = seen(spark, plan, [value for value, error in zip(values, told, strict=True) if error is None])
    return rows, [each for each in told if each is not None]


@pytest.mark.thorough("envelopes without a schema; the changes have one")
def test_without_a_schema_nothing_is_guessed(spark: SparkSession) -> None:
    """A number may be microseconds or seconds, a text digits or bytes in base64."""
    run = recorded("postgresql")
    values = values_of([each for each in run.of(WHOLE) if each.op == "c"][:1], "plain")
    for columns, refused in (
        ("price DECIMAL(10,2)", "WrongType: after.price is no decimal(10,2)"),
        ("at6 TIMESTAMP", "WrongType: after.at6 is no timestamp"),
        ("amount DECIMAL(38,9), day DATE, at_zone TIMESTAMP, price STRING, at6 BIGINT", None),
    ):
        (told,) = errors(spark, of_form(run, "plain", columns), values)
        assert (told and told.partition(" by ")[0]) == refused


@pytest.mark.thorough("the same with other settings of a connector")
def test_texts_need_no_schema(spark: SparkSession) -> None:
    """`time.precision.mode=isostring` and numbers for decimals; or decimals as texts, into a STRING."""
    run = recorded("postgresql-texts")
    columns = COLUMNS.replace("price DECIMAL(10,2), amount DECIMAL(38,9)", "price STRING, amount STRING")
    columns = columns.replace("clock BIGINT", "clock STRING")
    records = [each for each in run.of(WHOLE) if each.op == "c"]
    for form in ("plain", "wrapped"):
        rows, told = good_and_bad(spark, of_form(run, form, columns), values_of(records, form))
        assert told == []
        after = as_utc(rows[0].after)
        texts = {"price": "-12345678.90", "amount": "123456789012345678.123456789", "clock": "12:34:56.789012Z"}
        assert {name: after[name] for name in FULL} == {**FULL, **texts}  # type: ignore[index]


@pytest.mark.thorough("the same with other settings of a connector")
def test_times_of_connect_and_decimals_as_doubles(spark: SparkSession) -> None:
    run = recorded("postgresql-connect")
    records = [each for each in run.of(WHOLE) if each.op == "c"][:1]
    columns = "id BIGINT, price DECIMAL(10,2), day DATE, at3 TIMESTAMP, at6 TIMESTAMP"
    expected = {"id": 2, **{each: FULL[each] for each in ("day", "at3")}, "at6": "2024-02-29 12:34:56.789"}
    for form, price in (("wrapped", FULL["price"]), ("avro", float(str(FULL["price"])))):
        rows, told = good_and_bad(spark, of_form(run, form, columns), values_of(records, form))
        assert told == []
        after = as_utc(rows[0].after) or {}
        assert {name: after[name] for name in (*expected, "price")} == {**expected, "price": price}


@pytest.mark.thorough("the same of another server")
@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_binary_log(spark: SparkSession, kind: str) -> None:
    run = recorded(kind)
    columns = (
        "id BIGINT NOT NULL, name STRING, tiny INT, price DECIMAL(10,2), day DATE, at0 TIMESTAMP, at6 TIMESTAMP, "
        "stamp TIMESTAMP, clock BIGINT, year INT, doc STRING, raw BINARY, kind STRING, big STRING"
    )
    records = [each for each in run.records if each.op is not None]
    rows, told = good_and_bad(spark, of_form(run, "wrapped", columns), values_of(records, "wrapped"))
    assert told == []
    assert [each.op for each in rows] == ["r", "c", "u", "d", "c", "c", "d", "u", "t", "c"]
    after = as_utc(rows[1].after)
    at = dt.datetime(2024, 2, 29, 12, 34, 56, 789_012, UTC)
    assert (after["price"], after["day"], after["stamp"]) == (FULL["price"], FULL["day"], at)  # type: ignore[index]
    assert after["at0"] == dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)  # type: ignore[index]
    # Its column has microseconds by now, and each record says so itself.
    assert as_utc(rows[7].after)["at0"] == dt.datetime(2024, 2, 29, 12, 34, 56, 789_000, UTC)  # type: ignore[index]
    assert (rows[1].source.file, rows[1].source.pos) < (rows[2].source.file, rows[2].source.pos)


AT6 = dt.datetime(2024, 2, 29, 12, 34, 56, 789_012, UTC)
COMMON = {"id": 1, "name": "Ann ä", "day": dt.date(2024, 2, 29)}
BINLOG = "CAST(regexp_extract(source.file, '([0-9]+)$', 1) AS BIGINT) * 4294967296 + source.pos"


@pytest.mark.thorough("by documentation, not recorded; of servers that were run each change has its values above")
@pytest.mark.parametrize(
    ("connector", "columns", "expected", "order", "orders"),
    [
        (
            "mysql",
            "price DECIMAL(10,2), at0 TIMESTAMP, at6 TIMESTAMP, stamp TIMESTAMP, flag INT, year INT, doc STRING",
            {
                "price": FULL["price"],
                "at0": AT6.replace(microsecond=0),
                "at6": FULL["at6"],
                "stamp": AT6,
                "flag": 1,
                "year": 2024,
                "doc": '{"a": 1}',
            },
            BINLOG,
            [3 * 2**32 + 157, 3 * 2**32 + 484, 3 * 2**32 + 805, 4 * 2**32 + 154],
        ),
        (
            "sqlserver",
            "price DECIMAL(19,4), at3 TIMESTAMP, at6 TIMESTAMP, zone TIMESTAMP, flag BOOLEAN, uid STRING",
            {
                "price": Decimal("-12345678.9000"),
                "at3": AT6.replace(microsecond=789_000),
                "at6": FULL["at6"],
                "zone": AT6,
                "flag": True,
                "uid": "123E4567-E89B-12D3-A456-426614174000",
            },
            None,
            [],
        ),
    ],
    ids=["mysql", "sqlserver"],
)
def test_connectors_that_were_not_run(
    spark: SparkSession, connector: str, columns: str, expected: dict[str, Any], order: str | None, orders: list[int]
) -> None:
    values: list[bytes | None] = [*documented(connector)]
    columns = f"id BIGINT NOT NULL, name STRING NOT NULL, day DATE, {columns}"
    rows, told = good_and_bad(spark, RowPlan("debezium", columns, on_null="Skip"), values)
    assert told == []
    assert [each.op for each in rows] == ["r", "c", "u", "d"]
    first = as_utc(rows[0].after) or {}
    assert first == {**COMMON, **expected}
    assert [each.after and (each.after.id, each.after.name) for each in rows] == [
        *((1, "Ann ä"), (2, "Ann ä"), (1, "Lee")),
        None,
    ]
    assert (rows[3].before.id, rows[3].before.name) == (1, "Lee")
    assert [each.source.snapshot for each in rows] == ["last" if order else "true", "false", "false", "false"]
    if order is None:
        assert rows[0].source.change_lsn is None
        assert rows[1].source.change_lsn < rows[2].source.change_lsn < rows[3].source.change_lsn
    plan = RowPlan(
        "debezium",
        columns,
        on_null="Skip",
        table=TableRow(
            columns=(
                RowColumn("coalesce(after.id, before.id)", "spec.sinks[0].a.id"),
                RowColumn("after.name", "spec.sinks[0].a.name"),
            ),
            deletes=RowColumn("op = 'd'", "spec.sinks[0].a.deleteWhen"),
            order=None if order is None else RowColumn(order, "spec.sinks[0].a.orderBy"),
        ),
    )
    analyse(spark, plan)
    lines = [bytes(each.value).decode().split("\t") for each in output_rows(frame_of(spark, values), plan).collect()]
    assert [each[:3] for each in lines] == [
        *(["1", "Ann ä", "f"], ["2", "Ann ä", "f"], ["1", "Lee", "f"]),
        ["1", "\\N", "t"],
    ]
    assert [int(each[3]) for each in lines if order is not None] == orders


TABLE = TableRow(
    columns=(
        RowColumn("coalesce(after.id, before.id)", "spec.sinks[0].a.id"),
        RowColumn("after.big", "spec.sinks[0].a.big", may_stay=True),
        RowColumn("upper(after.name)", "spec.sinks[0].a.name", may_stay=True),
        RowColumn("after.`tags`[0]", "spec.sinks[0].a.tag", may_stay=True),
    ),
    deletes=RowColumn("op = 'd'", "spec.sinks[0].a.deleteWhen"),
    order=RowColumn("source.lsn", "spec.sinks[0].a.orderBy"),
    keeps=True,
)


@pytest.mark.thorough("each way to have no value; test_whatever_stands_for_a_value_is_none has one")
def test_what_debezium_did_not_have_is_no_value(spark: SparkSession) -> None:
    """It stays in a table; and is no value of any expression, whatever that makes of it."""
    run = recorded("postgresql")
    records = [each for each in run.of(ITEMS) if each.op in ("c", "u", "d")][:4]
    values = values_of(records, "wrapped")
    rows, told = good_and_bad(spark, of_form(run, "wrapped"), values)
    assert told == []
    lacking = ["big", "doc", "numbers", "raw", "tags"]
    assert [sorted(each.unavailable) for each in rows] == [[], lacking, ["numbers", "tags"], []]
    assert rows[1].after.asDict() == {
        **as_utc(rows[0].after),  # type: ignore[dict-item]
        **{name: rows[1].after[name] for name in ("at3", "at_zone")},
        "name": "big is as it was",
        **dict.fromkeys(lacking),
    }
    assert UNAVAILABLE not in str([each.after for each in rows])
    plan = RowPlan("debezium", COLUMNS, on_null="Skip", table=TABLE)
    analyse(spark, plan)
    found = output_rows(frame_of(spark, values), plan).collect()
    lsn = [each.payload["source"]["lsn"] for each in records]
    assert found[0].value.decode().split("\t")[3:] == ["t" * 60, "f", str(lsn[0]), "{}"]
    assert found[1].error == (
        "UnavailableValue: a.tag reads after.tags, which the server's log was without: "
        "set REPLICA IDENTITY FULL for the table there"
    )
    assert bytes(found[3].value).decode() == f"1\t\\N\t\\N\t\\N\tt\t{lsn[3]}\t{{}}"
    simple = RowPlan("debezium", COLUMNS, on_null="Skip", table=TableRow(TABLE.columns[:3], keeps=True))
    kept = output_rows(frame_of(spark, values[1:2]), simple).collect()
    assert bytes(kept[0].value).decode() == "2\t\\N\tBIG IS AS IT WAS\t{2}"
    for where, refused in (
        ("after.big IS NULL", "big"),
        ("after IS NOT NULL", None),
        ("to_json(after) != ''", "numbers"),
    ):
        told_of = errors(spark, RowPlan("debezium", COLUMNS, on_null="Skip", where=where), values[1:2])[0]
        assert (told_of or "").startswith("UnavailableValue") == (refused is not None)
        assert refused is None or f"after.{refused}" in told_of  # type: ignore[operator]


def test_what_is_no_change_of_a_row(spark: SparkSession) -> None:
    run = recorded("postgresql")
    truncated = next(each for each in run.records if each.op == "t")
    message = next(each for each in run.records if each.op == "m")
    created = json.loads(next(each.plain for each in run.records if each.op == "c"))  # type: ignore[arg-type]

    def changed(**fields: Any) -> bytes:
        return json.dumps({**created, **fields}).encode()

    values = [
        truncated.plain,
        message.wrapped,
        None,
        changed(after=None),
        changed(op="x"),
        changed(op=None),
        changed(after={"id": 1}),
        changed(after={"id": "one", "name": "x"}),
        b'{"schema": null, "payload": null}',
        b'{"id": 1}',
        b"[]",
        b"{",
        changed() + b"{}",
        b"\xff",
        changed(after={"id": 1, "name": "x"}),
    ]
    plan = RowPlan("debezium", "id BIGINT NOT NULL, name STRING NOT NULL", on_null="Skip")
    assert [each and each.partition(":")[0] for each in errors(spark, plan, values)] == [
        *("NoRow", "NoRow"),
        *("MissingField", "WrongType", "MissingField", "MissingField", "WrongType", "MissingField", "MissingField"),
        *("MalformedJson", "MalformedJson", "MalformedJson", "InvalidUtf8", None),
    ]


def test_a_writer_that_means_another_thing_by_a_number_is_none(spark: SparkSession) -> None:
    """A column of milliseconds that was altered to microseconds is a long in both schemas."""
    run = recorded("postgresql")
    values = values_of([each for each in run.of(ITEMS) if each.op in ("c", "u")], "avro")
    other = EnvelopeSchemas(spark).writer(frame(2), Found(run.schemas[2], "AVRO"), run.schemas[0])
    assert "before.at3 is long of microseconds" in (other.misfit or "")
    plan = RowPlan("debezium", run.schemas[0], on_null="Skip", known=run.known(other))
    told = errors(spark, plan, [each for each in values if each and each.startswith(frame(2))])
    assert told
    assert all(each is not None and each.startswith("IncompatibleSchema") for each in told)


@pytest.mark.parametrize("columns", ["a TIMESTAMP_NTZ", "a ARRAY<DATE>", "a STRUCT<b: DECIMAL(3,2)>", "a INT, A INT"])
def test_columns_that_nothing_is_converted_to_are_refused(spark: SparkSession, columns: str) -> None:
    with pytest.raises(SinkPipelineError, match=r"spec\.decode\.schema"):
        analyse(spark, RowPlan("debezium", columns))


@pytest.mark.thorough("the transform's own tests show select")
def test_select_sees_the_change(spark: SparkSession) -> None:
    plan = RowPlan(
        "debezium",
        "id BIGINT, name STRING",
        on_null="Skip",
        where="op != 'd'",
        select=RowSelect(key="CAST(after.id AS STRING)", value="concat(op, after.name, source.`table`)"),
    )
    analyse(spark, plan)
    values = values_of([each for each in recorded("postgresql").of(WHOLE) if each.op in ("c", "d")][:2], "plain")
    (row,) = output_rows(frame_of(spark, values), plan).collect()
    assert (bytes(row.key), bytes(row.value)) == (b"2", 'ca "name" \\ äwhole'.encode())


def envelope(after: str, kinds: dict[str, Any] | None = None) -> bytes:
    """Of a creation; with Connect's wrapper where `kinds` says what each column is."""
    payload = f'{{"before":null,"after":{after},"op":"c","source":{{"lsn":1}},"ts_ms":1}}'
    if kinds is None:
        return payload.encode()
    columns = [{"field": name, "optional": True, **each} for name, each in kinds.items()]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": columns}]}
    return f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode()


NUMBERS = json.dumps(list(UNAVAILABLE.encode()), separators=(",", ":"))
STANDS_FOR = {
    "m": ("MAP<STRING, STRING>", f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}'),
    "s": ("STRUCT<a: STRING>", f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}'),
    "u": ("ARRAY<STRING>", '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]'),
    "b": ("BINARY", '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="'),
    "bs": ("ARRAY<BINARY>", '["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="]'),
    "d": ("ARRAY<DOUBLE>", NUMBERS),
    "f": ("ARRAY<FLOAT>", NUMBERS),
    "n": ("ARRAY<STRING>", NUMBERS),
    "l": ("ARRAY<BIGINT>", NUMBERS),
    "t1": ("STRING", f'["{UNAVAILABLE}"]'),
    "t2": ("STRING", NUMBERS),
    "t3": ("STRING", '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="'),
    "t4": ("STRING", f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}'),
    "p": ("DECIMAL(10,2)", f'"{UNAVAILABLE}"'),
    "v": ("VARIANT", f'["{UNAVAILABLE}"]'),
}
"""What Debezium 3.3.0 writes for hstore, uuid[], bytea, date[] and others (`UnchangedToastedPlaceholder`)."""


@pytest.mark.thorough("each word for it; the changes have one")
def test_whatever_stands_for_a_value_is_none(spark: SparkSession) -> None:
    plan = RowPlan("debezium", ", ".join(f"{name} {kind}" for name, (kind, _) in STANDS_FOR.items()), on_null="Skip")
    value = envelope(f"{{{', '.join(f'{json.dumps(name)}: {each}' for name, (_, each) in STANDS_FOR.items())}}}")
    good = envelope('{"m": {"k": "v"}, "s": {"a": "x"}, "bs": ["AAE="], "d": [95, null], "u": [null], "b": "AAE="}')
    assert errors(spark, plan, [value, good]) == [None, None]
    frame = visible_columns(frame_of(spark, [value, good]), plan, record_columns(spark, plan))
    nulls = f"array({', '.join(f'after.`{name}` IS NULL' for name in STANDS_FOR)}) AS nulls"
    shown = (f"after.{name}" for name in ("m", "s", "bs", "d", "u", "b"))
    lacking, has = frame.selectExpr("unavailable", nulls, *shown).collect()
    assert sorted(lacking.unavailable) == sorted(STANDS_FOR)
    assert all(lacking.nulls)
    assert (has.unavailable, has.m, has.s.asDict(), has.d, has.u) == ([], {"k": "v"}, {"a": "x"}, [95.0, None], [None])
    assert (bytes(has.bs[0]), bytes(has.b)) == (b"\0\1", b"\0\1")


def test_only_bytes_are_bytes(spark: SparkSession) -> None:
    """Hexadecimal digits look like base64, and so does any text of four letters."""
    plan = RowPlan("debezium", "raw BINARY, raws ARRAY<BINARY>", on_null="Skip")
    bits = {"type": "bytes", "name": "io.debezium.data.Bits"}
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}
    values: list[bytes | None] = [
        envelope('{"raw": "deadbeef"}', {"raw": {"type": "string"}}),
        envelope('{"raw": "deadbeef"}', {"raw": {"type": "string", "name": "io.debezium.data.Json"}}),
        envelope('{"raw": "AAE="}', {"raw": decimal}),
        envelope('{"raws": ["deadbeef"]}', {"raws": {"type": "array", "items": {"type": "string"}}}),
        envelope('{"raw": "?"}', {"raw": {"type": "bytes"}}),
        envelope('{"raw": 1234}'),
        envelope('{"raw": "AAE="}', {"raw": {"type": "bytes"}}),
        envelope('{"raw": "AAE="}', {"raw": bits}),
        envelope('{"raw": "AAE="}'),
        envelope('{"raws": ["AAE="]}', {"raws": {"type": "array", "items": {"type": "bytes"}}}),
    ]
    refused = "WrongType: after.raw is no binary by what the record says of it"
    of_array = "WrongType: after.raws is no array<binary> by what the record says of it"
    assert errors(spark, plan, values) == [refused] * 3 + [of_array] + [refused] * 2 + [None] * 4


@pytest.mark.thorough("each kind of number")
def test_digits_are_exact_or_refused(spark: SparkSession) -> None:
    plan = RowPlan("debezium", "fine DECIMAL(38,20), large DECIMAL(38,0)", on_null="Skip")
    double = {"type": "double"}
    kinds = {"fine": double, "large": double}
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}
    cases = [
        ("fine", "1.0E-20", "1E-20"),
        ("fine", "-1.25E-18", "-1.25E-18"),
        ("fine", "1.0E-21", None),
        ("fine", "1.5E3", "1500"),
        ("large", "1.0E20", "1E20"),
        ("large", "-1.25E37", "-1.25E37"),
        ("large", "1.0E38", None),
        ("large", "1.5E0", None),
        ("large", "0.0E0", "0"),
    ]
    values = [envelope(f'{{"{name}": {text}}}', of) for name, text, _ in cases for of in (None, kinds)]
    told = errors(spark, plan, values)
    expected = [value for _, _, value in cases for _ in range(2)]
    assert [each is None for each in told] == [each is not None for each in expected]
    good = [value for value, error in zip(values, told, strict=True) if error is None]
    frame = visible_columns(frame_of(spark, good), plan, record_columns(spark, plan))
    found = [a if a is not None else b for a, b in frame.select("after.fine", "after.large").collect()]
    assert found == [Decimal(each) for each in expected if each is not None]
    # Connect's `decimal.format=NUMERIC`: 1234 is base64 too.
    (told_of,) = errors(spark, plan, [envelope('{"large": 1234}', {"large": decimal})])
    assert told_of == "WrongType: after.large is no decimal(38,0) by what the record says of it"


def test_a_tinyint_does_not_wrap(spark: SparkSession) -> None:
    """Spark's parser takes 200 for a byte without a sign, and makes -56 of it."""
    plan = RowPlan("debezium", "a TINYINT, b ARRAY<TINYINT>", on_null="Skip")
    values: list[bytes | None] = [
        *(envelope(f'{{"a": {each}}}') for each in (127, -128, 128, 200, 255, 256)),
        envelope('{"b": [200]}', {"b": {"type": "array", "items": {"type": "int16"}}}),
        envelope('{"b": [-1, null]}'),
    ]
    wrong = "WrongType: after.a is not tinyint"
    of_array = "WrongType: after.b is not array<tinyint>"
    assert errors(spark, plan, values) == [None, None, *[wrong] * 4, of_array, None]
