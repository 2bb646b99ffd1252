from __future__ import annotations

from typing import Any

import pytest

from sinkpipeline.core.encoding import evolvable
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.rowplan import RowExplode, RowPlan, RowSelect, row_plan, rows_of, rows_of_all
from sinkpipeline.kinds import kind_of
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.postgresql.kind import POSTGRESQL
from sinkpipeline.postgresql.settings import SinkSettings, Upsert
from support.resource.manifests import SINK, changed, encoded, smallest, table


def told(plan: RowPlan) -> list[tuple[str, str]]:
    """Paths and texts."""
    return [(path, text) for path, text, _ in plan.expressions()]


def test_what_a_sink_encodes_is_a_struct_there() -> None:
    pipeline = parse_manifest(changed(smallest(), (SINK, encoded("key", recordName="a.B"))))
    rows = rows_of(row_plan(pipeline), pipeline, "copy")
    assert [purpose for *_, purpose in rows.expressions()] == ["encoded"]
    [encoding] = rows.encodings
    assert (encoding.part, encoding.format, encoding.record) == ("key", "avro", "a.B")
    assert encoding.path == "spec.sinks[0].kafka.encode.key"
    assert encoding.settled("{}", 258).frame == b"\0\0\0\1\2"


def test_fields_that_may_be_null_are_so_by_default() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": ["long", "null"]}]}
    kinds = [{"type": "array", "items": [inner, "null"]}, {"type": "map", "values": inner}, "long", "null"]
    of = {"type": "record", "name": "O", "fields": [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]}
    null_first = {"name": "x", "type": ["null", "long"], "default": None}
    array, mapped, *plain = (each for each in evolvable(of)["fields"])
    assert array["type"]["items"] == ["null", {**inner, "fields": [null_first]}]
    assert mapped["type"]["values"]["fields"] == [null_first]
    assert plain == of["fields"][2:]


def test_expressions_are_named_by_their_path_in_the_manifest() -> None:
    plan = RowPlan("raw", where="w", select=RowSelect("k", "v", "h", "t", "p"))
    assert told(plan) == [
        ("spec.transform.where", "w"),
        ("spec.transform.select.key", "k"),
        ("spec.transform.select.value", "v"),
        ("spec.transform.select.headers", "h"),
        ("spec.transform.select.timestamp", "t"),
        ("spec.transform.select.partition", "p"),
    ]


def test_an_empty_expression_is_not_an_absent_one() -> None:
    assert told(RowPlan("raw", select=RowSelect(key=""))) == [("spec.transform.select.key", "")]
    assert told(RowPlan("raw")) == []


def test_json_needs_a_schema_and_raw_has_none() -> None:
    with pytest.raises(ValueError, match="json needs a schema"):
        RowPlan("json")
    with pytest.raises(ValueError, match="raw has no schema"):
        RowPlan("raw", schema="id INT")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"where": "b"}, [("spec.sinks[0].transform.where", "b"), ("spec.transform.select.key", "k")]),
        (
            {"select": {"value": "v"}},
            [("spec.transform.where", "a"), ("spec.sinks[0].transform.select.value", "v")],
        ),
    ],
    ids=["where", "select"],
)
def test_what_a_sink_transforms_itself_stands_in_place_of_what_the_pipeline_does(
    own: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    pipeline = parse_manifest(changed(smallest(), ((*SINK, "transform"), own)))
    rows = RowPlan("raw", where="a", select=RowSelect(key="k"))
    assert told(rows_of(rows, pipeline, pipeline.spec.sinks[0].name)) == expected
    assert rows_of_all(rows, parse_manifest(smallest())) == [rows]


def test_the_row_of_a_table_has_a_column_for_each_and_none_of_what_a_topic_has() -> None:
    sink = table(
        select={"columns": {"note": "n"}},
        writeMode="Upsert",
        deleteWhen="d",
        orderBy="o",
        of_table={"columns": {"a`b": "text", "note": "text", "id": "int"}, "primaryKey": ["id"]},
    )
    pipeline = parse_manifest(changed(smallest(), (SINK, sink)))
    rows = rows_of(RowPlan("raw", where="w", select=RowSelect(key="k")), pipeline, "copy")
    assert list(rows.expressions()) == [
        ("spec.transform.where", "w", "where"),
        ("spec.sinks[0].postgresql.table.columns.id", "`id`", "column of integers"),
        ("spec.sinks[0].postgresql.table.columns.a`b", "`a``b`", "column"),
        ("spec.sinks[0].transform.select.columns.note", "n", "column"),
        ("spec.sinks[0].postgresql.deleteWhen", "d", "deleteWhen"),
        ("spec.sinks[0].postgresql.orderBy", "o", "orderBy"),
    ]
    [settings] = resolve_sinks(pipeline, None)
    assert isinstance(settings, SinkSettings)
    assert [each.name for each in settings.table.columns] == ["id", "a`b", "note"], "in the order of the row's columns"
    assert settings.table.upsert == Upsert(key=("id",), deletes=True, order_type="bigint", order_by="o")
    assert kind_of(settings) is POSTGRESQL


@pytest.mark.parametrize("form", ["debezium", "change"])
def test_a_table_that_follows_a_table_has_the_columns_of_the_row(form: str) -> None:
    columns = {"columns": {"a`b": "text", "id": "int", "note": "text"}, "primaryKey": ["id"]}
    sink = table(select={"columns": {"note": "n"}}, writeMode="Upsert", of_table=columns)
    decode = (("spec", "decode"), {"format": form, "schema": "id INT"})
    pipeline = parse_manifest(changed(smallest(), (SINK, sink), decode))
    row = rows_of(row_plan(pipeline), pipeline, "copy").table
    assert row is not None
    assert [(each.expression, each.may_stay) for each in row.columns] == [
        ("coalesce(after.`id`, before.`id`)", False),
        ("after.`a``b`", True),
        ("n", True),
    ]
    [settings] = resolve_sinks(pipeline, None)
    assert isinstance(settings, SinkSettings)
    assert row.keeps
    assert settings.table.upsert == Upsert(key=("id",), keeps=True)


def test_a_plan_of_changes_knows_its_tables() -> None:
    decode: dict[str, Any] = {"format": "change", "schema": "id INT"}
    plan = row_plan(parse_manifest(changed(smallest(), (("spec", "decode"), decode))))
    assert (plan.lacking, plan.rowless, plan.tables) == ("unchanged", False, ())
    decode["change"] = {"tables": ["public.a"], "withoutRow": "PassThrough"}
    plan = row_plan(parse_manifest(changed(smallest(), (("spec", "decode"), decode))))
    assert (plan.rowless, plan.tables) == (True, ("public.a",))
    assert RowPlan("json", "a INT").lacking is None


def test_a_sink_that_explodes_another_array_does_not_explode_the_pipeline_s() -> None:
    own = {"explode": {"array": "b", "as": "each", "positionAs": "n", "maxRowsPerRecord": 5}}
    pipeline = parse_manifest(changed(smallest(), ((*SINK, "transform"), own)))
    rows = RowPlan("raw", where="a", explode=RowExplode("a", "item"))
    found = rows_of(rows, pipeline, pipeline.spec.sinks[0].name)
    assert found.explode == RowExplode("b", "each", "n", 5)
    assert (found.explode_at, found.where_at) == ("spec.sinks[0].transform", "spec.transform")
    assert rows_of(rows, parse_manifest(smallest()), pipeline.spec.sinks[0].name) == rows
