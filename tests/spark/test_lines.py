"""Text, and CSV: what is one line of fields, and what isn't."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.transform import output_rows
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

AT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.timezone.utc)
COLUMNS = "id BIGINT NOT NULL, note STRING, at TIMESTAMP"
OF_ALL = RowSelect(value="concat_ws('|', id, coalesce(note, 'null'), unix_seconds(at))")


def rows(spark: SparkSession, plan: RowPlan, values: list[bytes | None]) -> list[Row]:
    found = [
        (b"k", None if each is None else bytearray(each), "t", 0, offset, AT, 0, None)
        for offset, each in enumerate(values)
    ]
    analyse(spark, plan)
    return output_rows(spark.createDataFrame(found, SOURCE).coalesce(1), plan).collect()


def word(row: Row) -> str | None:
    return None if row.error is None else row.error.partition(":")[0]


GOOD: list[tuple[bytes, bytes]] = [
    (b"1,a,1970-01-01T00:00:05Z", b"1|a|5"),
    (b"2,,", b"2|null"),
    (b'3,"a,b",\n', b"3|a,b"),
    (b'4,"say ""x""",\r\n', b'4|say "x"'),
    ("5,ü,".encode(), "5|ü".encode()),
]
BAD: list[tuple[bytes | None, str]] = [
    (b"", "MalformedCsv"),
    (b"1", "MalformedCsv"),
    (b"1,a", "MalformedCsv"),
    (b"1,a,,", "MalformedCsv"),
    (b"x,a,", "MalformedCsv"),
    (b"1,a,yesterday", "MalformedCsv"),
    (b"9223372036854775808,a,", "MalformedCsv"),
    (b"1,a,\n2,b,", "MalformedCsv"),
    (b"1,a,\n\n", "MalformedCsv"),
    (b"1,a,\n\r", "MalformedCsv"),
    ("1,a,\n\u2028".encode(), "MalformedCsv"),
    (b"1,\xff,", "InvalidUtf8"),
    (b",a,", "MissingField"),
    (None, "NullValue"),
]


def test_one_line_of_fields(spark: SparkSession) -> None:
    plan = RowPlan("csv", COLUMNS, select=OF_ALL)
    found = rows(spark, plan, [each[0] for each in (*GOOD, *BAD)])
    assert [(word(each), bytes(each.value)) for each in found[: len(GOOD)]] == [(None, value) for _, value in GOOD]
    assert [word(each) for each in found[len(GOOD) :]] == [each[1] for each in BAD]
    assert [None if each.value is None else bytes(each.value) for each in found[len(GOOD) :]] == [b[0] for b in BAD]


def test_fields_are_read_as_they_are_written(spark: SparkSession) -> None:
    plan = RowPlan(
        "csv",
        "a INT, p DECIMAL(10,2), at TIMESTAMP, day DATE, x DOUBLE, s STRING",
        delimiter=";",
        select=RowSelect(value="concat_ws('|', p, unix_seconds(at), day, x, coalesce(s, 'null'))"),
    )
    good = [
        (b"1;12.50;1970-01-01T00:00:05Z;2024-05-06;1.5;", b"12.50|5|2024-05-06|1.5|null"),
        (b'1;-3;;;Inf;""', b"-3.00|Infinity|"),
        (b'1;;;;;5" pipe', b'5" pipe'),
        (b'1;;;;;"x;""";', None),
        (b'1;;;;;"x;"""', b'x;"'),
    ]
    bad = [
        *(b"1;12,50;;;;", b"1;1.005;;;;", b"1;;07:08:09;;;", b"1;;1714979289;;;", b"1;;;202405;;", b"1;;;20240506;;"),
        *(b"1;;;;1e400;", b'1;;;;;"abc', b'"1;;;;;', b'"";;;;;', b";" * 20_480),
    ]
    found = rows(spark, plan, [value for value, _ in good] + bad)
    assert [each.error or bytes(each.value) for each in found[: len(good)]] == [
        value or "MalformedCsv: the value is not one line whose fields fit the schema" for _, value in good
    ]
    assert [each.error is not None for each in found[len(good) :]] == [True] * len(bad)


def test_a_schema_that_ends_with_a_comment(spark: SparkSession) -> None:
    plan = RowPlan("csv", "a INT, -- the a\nb STRING -- the b", select=RowSelect(value="b"))
    good, bad = rows(spark, plan, [b"1,x", b"x,y"])
    assert (bytes(good.value), word(bad)) == (b"x", "MalformedCsv")


def test_another_delimiter(spark: SparkSession) -> None:
    plan = RowPlan("csv", "a INT, b STRING", delimiter=";", select=RowSelect(value="b"))
    (row,) = rows(spark, plan, [b"1;x,y"])
    assert bytes(row.value) == b"x,y"


@pytest.mark.parametrize("columns", ["a ARRAY<INT>", "a INT, A INT", "kafka INT", "a"])
def test_a_schema_that_no_line_can_have_is_refused(spark: SparkSession, columns: str) -> None:
    with pytest.raises(SinkPipelineError, match=r"spec\.decode\.schema") as caught:
        analyse(spark, RowPlan("csv", columns))
    assert caught.value.reason is Reason.EXPRESSION_INVALID


def test_text(spark: SparkSession) -> None:
    plan = RowPlan("text", where="value != 'no'", select=RowSelect(value="upper(value)"))
    found = rows(spark, plan, ["ü".encode(), b"", b"no", b"\xff", None])
    assert [(word(each), each.value if each.value is None else bytes(each.value)) for each in found] == [
        (None, "Ü".encode()),
        (None, b""),
        ("InvalidUtf8", b"\xff"),
        ("NullValue", None),
    ]
