from __future__ import annotations

import pytest

from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.rowplan import RowExplode, RowPlan, RowSelect, rows_of, rows_of_all
from support.resource.manifests import SINK, changed, smallest


def test_expressions_are_named_by_their_path_in_the_manifest() -> None:
    plan = RowPlan("raw", where="w", select=RowSelect("k", "v", "h", "t", "p"))
    assert list(plan.expressions()) == [
        ("spec.transform.where", "w"),
        ("spec.transform.select.key", "k"),
        ("spec.transform.select.value", "v"),
        ("spec.transform.select.headers", "h"),
        ("spec.transform.select.timestamp", "t"),
        ("spec.transform.select.partition", "p"),
    ]


def test_an_empty_expression_is_not_an_absent_one() -> None:
    assert list(RowPlan("raw", select=RowSelect(key="")).expressions()) == [("spec.transform.select.key", "")]
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
    assert list(rows_of(rows, pipeline, pipeline.spec.sinks[0].name).expressions()) == expected
    assert rows_of_all(rows, parse_manifest(smallest())) == [rows]


def test_a_sink_that_explodes_another_array_does_not_explode_the_pipeline_s() -> None:
    own = {"explode": {"array": "b", "as": "each", "positionAs": "n", "maxRowsPerRecord": 5}}
    pipeline = parse_manifest(changed(smallest(), ((*SINK, "transform"), own)))
    rows = RowPlan("raw", where="a", explode=RowExplode("a", "item"))
    found = rows_of(rows, pipeline, pipeline.spec.sinks[0].name)
    assert found.explode == RowExplode("b", "each", "n", 5)
    assert (found.explode_at, found.where_at) == ("spec.sinks[0].transform", "spec.transform")
    assert rows_of(rows, parse_manifest(smallest()), pipeline.spec.sinks[0].name) == rows
