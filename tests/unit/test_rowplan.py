from __future__ import annotations

import pytest

from sinkpipeline.core.rowplan import RowPlan, RowSelect


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
