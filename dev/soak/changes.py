"""Changes of a table, each as SQL that makes it and as what Debezium writes of it: pure, and the same for one seed.

The envelopes are those of a PostgreSQL source with the default replica identity, as `tests/data/debezium` has them:
before a change only its key is told, a value out of line that did not change is unavailable, and another key is a
deletion, a tombstone and a creation.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

UNAVAILABLE: Final = "__debezium_unavailable_value"
COLUMNS: Final = {
    "id": "bigint PRIMARY KEY",
    "name": "text NOT NULL",
    "price": "numeric(10,2)",
    "at": "timestamp(3) with time zone",
    "day": "date",
    "big": "text",
}
_EPOCH: Final = dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc)
_FIRST_DAY: Final = dt.date(1970, 1, 1)
_NULL: Final = 0.05
_LONG: Final = 66
"""Of 32 letters each: more than a row's value may take up in its page."""
_BEGINNING_MS: Final = 1_795_462_624_000
_HOT: Final = 12
"""Keys that are changed often, so that several changes of one are in a commit."""
_OFTEN: Final = 0.1
"""Of all changes, those of these."""
_DELETED: Final = 0.15
"""Of the changes of a row that is there."""
_RENAMED: Final = 0.2
"""Likewise: get another key, where that is free."""
_OUT_OF_LINE: Final = 0.3


@dataclass(frozen=True)
class Row:
    id: int
    name: str
    price: Decimal | None
    at: dt.datetime | None
    day: dt.date | None
    big: str | None

    @property
    def is_big_out_of_line(self) -> bool:
        return self.big is not None and len(self.big) >= 32 * _LONG

    def told(self, *, big_changed: bool = True) -> dict[str, Any]:
        """As Debezium writes it, with Kafka Connect's types."""
        return {
            "id": self.id,
            "name": self.name,
            "price": None if self.price is None else price_of(self.price),
            "at": None if self.at is None else time_of(self.at),
            "day": None if self.day is None else (self.day - _FIRST_DAY).days,
            "big": UNAVAILABLE if self.is_big_out_of_line and not big_changed else self.big,
        }


@dataclass(frozen=True)
class Message:
    """A record of the source topic."""

    key: int
    payload: str | None
    """None: a tombstone."""

    def wrapped(self, schema: str) -> bytes | None:
        return None if self.payload is None else f'{{"schema":{schema},"payload":{self.payload}}}'.encode()


@dataclass(frozen=True)
class Change:
    """One statement, and all that Debezium writes of it."""

    op: str
    """insert, update, delete or key."""
    sql: str
    """Of the table `{table}`."""
    values: tuple[Any, ...]
    messages: tuple[Message, ...]


class Changes:
    """Of a table that is empty at first."""

    def __init__(self, seed: int, keys: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - it is to be repeated
        self._keys = keys
        self._lsn = 22_192_056
        self._made = 0
        self.rows: dict[int, Row] = {}
        """As they are now."""
        self.counts = Counter[str]()
        """Of changes by `op`, and of values that were unavailable."""

    def next(self, count: int) -> Iterator[Change]:
        for _ in range(count):
            change = self._next()
            self.counts[change.op] += 1
            yield change

    def _next(self) -> Change:
        self._made += 1
        self._lsn += self._chance.randrange(8, 400, 8)
        key = self._chance.randrange(_HOT if self._chance.random() < _OFTEN else self._keys)
        before = self.rows.get(key)
        if before is None:
            return self._insert(key)
        chance = self._chance.random()
        if chance < _DELETED:
            return self._delete(before)
        if chance < _DELETED + _RENAMED:
            other = self._chance.randrange(self._keys)
            if other not in self.rows:
                return self._rekey(before, other)
        return self._update(before)

    def _insert(self, key: int) -> Change:
        row = self.rows[key] = self._row(key)
        values = (row.id, row.name, row.price, row.at, row.day, row.big)
        sql = "INSERT INTO {table} (id, name, price, at, day, big) VALUES (%s, %s, %s, %s, %s, %s)"
        return Change("insert", sql, values, (self._message(key, "c", None, row.told()),))

    def _delete(self, before: Row) -> Change:
        del self.rows[before.id]
        sql = "DELETE FROM {table} WHERE id = %s"
        return Change("delete", sql, (before.id,), tuple(self._gone(before)))

    def _rekey(self, before: Row, key: int) -> Change:
        """With all values: of a key that changes, what is out of line is not told, and would be a dead letter."""
        del self.rows[before.id]
        row = self.rows[key] = self._row(key)
        values = (row.id, row.name, row.price, row.at, row.day, row.big, before.id)
        sql = "UPDATE {table} SET id = %s, name = %s, price = %s, at = %s, day = %s, big = %s WHERE id = %s"
        return Change("key", sql, values, (*self._gone(before), self._message(key, "c", None, row.told())))

    def _update(self, before: Row) -> Change:
        new = self._row(before.id)
        some = self._chance.sample(("name", "price", "at", "day", "big"), 2)
        values = {each: getattr(new, each) for each in some}
        row = self.rows[before.id] = replace(before, **values)
        told = row.told(big_changed=row.big != before.big)
        self.counts["unavailable"] += told["big"] == UNAVAILABLE
        sql = f"UPDATE {{table}} SET {', '.join(f'{each} = %s' for each in some)} WHERE id = %s"  # noqa: S608 - ours
        message = self._message(row.id, "u", None, told)
        return Change("update", sql, (*values.values(), row.id), (message,))

    def _gone(self, before: Row) -> Iterator[Message]:
        """Without more than the key, what may not be null has a value that says nothing."""
        only_key = {"id": before.id, "name": "", "price": None, "at": None, "day": None, "big": None}
        yield self._message(before.id, "d", only_key, None)
        yield Message(before.id, None)

    def _row(self, key: int) -> Row:
        chance = self._chance

        def or_null(value: Any) -> Any:
            return None if chance.random() < _NULL else value

        at = self._made
        letters = f"{chance.getrandbits(128):032x}"
        return Row(
            id=key,
            name=f"name {at} \\ 'ü'\t\"{chance.randrange(10)}\"",
            price=or_null(Decimal(chance.randrange(-(10**10) + 1, 10**10)) / 100),
            at=or_null(_EPOCH + dt.timedelta(milliseconds=chance.randrange(10**9))),
            day=or_null(_FIRST_DAY + dt.timedelta(days=chance.randrange(-30_000, 30_000))),
            big=or_null(letters * _LONG if chance.random() < _OUT_OF_LINE else f"short {at}"),
        )

    def _message(self, key: int, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Message:
        ms = _BEGINNING_MS + self._made
        source = {
            "version": "3.3.0.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": ms,
            "snapshot": "false",
            "db": "postgres",
            "sequence": json.dumps([str(self._lsn), str(self._lsn)], separators=(",", ":")),
            "ts_us": ms * 1_000,
            "ts_ns": ms * 1_000_000,
            "schema": "public",
            "table": "orders",
            "txId": 700 + self._made,
            "lsn": self._lsn,
            "xmin": None,
        }
        envelope = {"before": before, "after": after, "source": source, "transaction": None, "op": op}
        seen = {"ts_ms": ms + 5, "ts_us": ms * 1_000 + 5_000, "ts_ns": ms * 1_000_000 + 5_000_000}
        return Message(key, json.dumps({**envelope, **seen}, separators=(",", ":"), ensure_ascii=False))


def price_of(price: Decimal) -> str:
    """Kafka Connect's Decimal: the digits as a number, as few bytes as it takes, in base64."""
    digits = int(price.scaleb(2))
    size = (digits if digits >= 0 else ~digits).bit_length() // 8 + 1
    return base64.b64encode(digits.to_bytes(size, "big", signed=True)).decode()


def time_of(at: dt.datetime) -> str:
    """Of a `timestamptz(3)`."""
    return f"{at.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
