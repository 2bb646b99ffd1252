from __future__ import annotations

import pytest

from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.rowplan import RowPlan, RowSelect, rows_of, rows_of_all
from sinkpipeline.kinds import kind_of
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.postgresql.kind import POSTGRESQL
from sinkpipeline.postgresql.settings import SinkSettings, Upsert
from support.resource.manifests import SINK, changed, smallest, table


def test_expressions_are_named_by_their_path_in_the_manifest() -> None:
    plan = RowPlan("raw", where="w", select=RowSelect("k", "v", "h", "t", "p"))
    assert list(plan.expressions()) == [
        ("spec.transform.where", "w", "where"),
        ("spec.transform.select.key", "k", "key"),
        ("spec.transform.select.value", "v", "value"),
        ("spec.transform.select.headers", "h", "headers"),
        ("spec.transform.select.timestamp", "t", "timestamp"),
        ("spec.transform.select.partition", "p", "partition"),
    ]


def test_an_empty_expression_is_not_an_absent_one() -> None:
    assert list(RowPlan("raw", select=RowSelect(key="")).expressions()) == [("spec.transform.select.key", "", "key")]
    assert list(RowPlan("raw").expressions()) == []


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
    found = rows_of(rows, pipeline, pipeline.spec.sinks[0].name).expressions()
    assert [(path, text) for path, text, _ in found] == expected
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
        ("spec.sinks[0].postgresql.table.columns.id", "`id`", "column"),
        ("spec.sinks[0].postgresql.table.columns.a`b", "`a``b`", "column"),
        ("spec.sinks[0].transform.select.columns.note", "n", "column"),
        ("spec.sinks[0].postgresql.deleteWhen", "d", "deleteWhen"),
        ("spec.sinks[0].postgresql.orderBy", "o", "orderBy"),
    ]
    [settings] = resolve_sinks(pipeline, None)
    assert isinstance(settings, SinkSettings)
    assert [each.name for each in settings.table.columns] == ["id", "a`b", "note"], "in the order of the row's columns"
    assert settings.table.upsert == Upsert(key=("id",), deletes=True, order_type="bigint")
    assert kind_of(settings) is POSTGRESQL
