"""The changes of `make soak KIND=debezium` are said as Debezium said those that were recorded."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections import defaultdict
from decimal import Decimal
from typing import Any

from soak.changes import UNAVAILABLE, Changes, price_of, time_of
from support.debezium import recorded

COUNT = 3_000


def shape(document: Any) -> Any:
    """Names in their order, and what of JSON stands under each."""
    if isinstance(document, dict):
        return tuple((name, shape(value)) for name, value in document.items())
    return type(document).__name__


def test_they_have_the_shape_of_recorded_ones() -> None:
    """Of each kind all shapes: which of the columns are null is of the row."""
    real: dict[str, set[Any]] = defaultdict(set)
    for each in recorded("postgresql-orders").records:
        if each.op is not None:
            real[each.op].add(shape(without_row(each.payload)))
    for change in Changes(1, 50).next(COUNT):
        for message in change.messages:
            if message.payload is not None:
                payload = json.loads(message.payload)
                assert shape(without_row(payload)) in real[payload["op"]]
    columns = [shape(each.payload["after"]) for each in recorded("postgresql-orders").records if each.payload]
    whole = next(each for each in columns if isinstance(each, tuple) and "NoneType" not in str(each))
    ours = [shape(row.told()) for row in changed().rows.values()]
    assert whole in ours


def without_row(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "after": None if payload["after"] is None else {}}


def changed() -> Changes:
    found = Changes(1, 50)
    assert len([*found.next(COUNT)]) == COUNT
    return found


def test_each_kind_of_change_is_among_them() -> None:
    found = changed()
    assert found.counts.keys() == {"insert", "update", "delete", "key", "unavailable"}
    assert min(found.counts.values()) > COUNT / 100


def test_who_takes_them_one_after_the_other_has_the_rows() -> None:
    changes = Changes(2, 50)
    table: dict[int, dict[str, Any]] = {}
    for change in changes.next(COUNT):
        for message in change.messages:
            payload = {} if message.payload is None else json.loads(message.payload)
            if payload.get("op") == "d":
                del table[payload["before"]["id"]]
            elif payload:
                after = payload["after"]
                kept = {"big": table[after["id"]]["big"]} if after["big"] == UNAVAILABLE else {}
                table[after["id"]] = {**after, **kept}
    assert table == {key: row.told() for key, row in changes.rows.items()}


def test_values_are_written_as_recorded_ones() -> None:
    for each in recorded("postgresql-orders").records:
        after = each.payload.get("after") or {}
        if after.get("price") is not None:
            digits = int.from_bytes(base64.b64decode(after["price"]), "big", signed=True)
            assert price_of(Decimal(digits) / 100) == after["price"]
        if after.get("at") is not None:
            assert time_of(dt.datetime.fromisoformat(after["at"])) == after["at"]
