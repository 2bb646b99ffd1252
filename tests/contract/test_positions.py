"""Positions of a source are compared and reckoned with in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = ROOT / "spark_app" / "sinkpipeline"

OF_KAFKA = {CODE / "core" / each for each in ("order.py", "source_marks.py", "redrive.py")}
"""Where offsets of Kafka are compared as such, beside `kafka/`: the order itself, and its marks and letters."""
ITS_OWN = (CODE / "kafka", CODE / "changes", CODE / "core" / "changes")
"""A source's: Kafka's, and a stage's, which counts the changes that it writes."""
MAPPINGS = {"beginnings", "ends", "high_watermarks"}
LISTS = {"offsets"}
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def is_position(node: ast.expr) -> bool:
    """As far as names tell: `state.next`, `view.ends[partition]`, `batch.offsets[-1]`."""
    match node:
        case ast.Attribute(attr="next"):
            return True
        case ast.Subscript(value=ast.Attribute(attr=name) | ast.Name(id=name), slice=key):
            return name in MAPPINGS or (name in LISTS and not isinstance(key, ast.Slice))
    return False


def compared(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others) if any(isinstance(op, ORDERS) for op in ops):
                used = [left, *others]
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                used = [left, right]
            case ast.Call(func=ast.Name(id="min" | "max"), args=args):
                used = args
            case _:
                continue
        if any(map(is_position, used)):
            yield getattr(node, "lineno", 0)


def test_what_is_looked_for_is_found() -> None:
    code = "a.next < b\nends[x] - 1\nmax(0, view.beginnings[p])\nbatch.offsets[-1] + 1\na.next == b\noffsets[a:b] + [1]"
    assert list(compared(ast.parse(code))) == [1, 2, 3, 4]


def test_nobody_but_the_source_compares_positions() -> None:
    files = [each for each in CODE.rglob("*.py") if each not in OF_KAFKA and not set(ITS_OWN) & set(each.parents)]
    found = {f"{each.relative_to(CODE)}:{line}" for each in files for line in compared(ast.parse(each.read_text()))}
    assert found == set(), "core/order.py has what is to be asked instead"
