"""What a change looks like in the topic: its key, and its value as JSON.

    key    {"table":"public.orders","key":{"id":7}}                key: null where nothing tells rows apart
    value  {"op":"u","table":"public.orders","pos":["0/325D0F70",467],"xid":739,"committedAt":1763856000123,
            "before":null,"after":{"id":7,"total":"9.90"},"unchanged":["document"]}

`op`: r(ead by a snapshot, without an xid), c(reated), u(pdated), d(eleted), t(runcated). A column in `unchanged` is not
in `after`: its value is large, was not touched, and is not in the database's log.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Final, NamedTuple

from sinkpipeline.core.changes.pgoutput import (
    UNCHANGED,
    Begin,
    Column,
    Delete,
    Insert,
    NotUnderstood,
    Relation,
    Truncate,
    Update,
    Values,
)
from sinkpipeline.core.changes.positions import Position, from_record, lsn_text
from sinkpipeline.core.changes.spelling import spelling
from sinkpipeline.core.records import Headers

POSITION_HEADER: Final = "sinkpipeline.source.position"

_TEXT = encode_basestring


Key = Callable[[Relation], tuple[str, ...]]
"""The columns by which a table's rows are told apart where its replica identity doesn't say; none: nothing does."""


class Partial(NamedTuple):
    """A row of which a change does not tell all."""

    names: tuple[str, ...]
    """Of the columns."""
    values: Values
    is_by_index: bool = False
    """Whether changes go by another key than the primary one, which may have changed with it."""


class Change(NamedTuple):
    """One change, or one half of an update that changed the key: both halves have the same position."""

    commit: int
    """Of its position."""
    nth: int
    """Its index in the transaction."""
    place: str
    """The position as JSON, as value and header have it; with a third number, 0 and 1, of the two halves."""
    op: str
    table: str
    key: bytes
    value: bytes
    committed_at: int
    """Unix milliseconds, by the server's clock."""
    partial: Partial | None = None
    """The row behind it, where it has a large value that was not touched, which the value is without."""
    record: tuple[bytes, int] | None = None
    """As `LogPosition.record`, of a source that has it."""

    @property
    def at(self) -> Position:
        return from_record(json.loads(self.place)[:2])

    @property
    def headers(self) -> Headers:
        return [(POSITION_HEADER, self.place.encode())]


class _Field(NamedTuple):
    name: str
    label: str
    """The name as JSON, with its colon."""
    spell: Callable[[str], str]


class _Table:
    """How the changes of a table are written, as it is now."""

    def __init__(self, relation: Relation, key: tuple[str, ...], *, large_as_text: bool) -> None:
        self.name = f"{relation.schema}.{relation.name}"
        self.label = _TEXT(self.name)
        self._fields = [_field(each, large_as_text=large_as_text) for each in relation.columns]
        self.names = tuple(each.name for each in relation.columns)
        self.is_by_index = relation.identity == "i"
        self._all = list(range(len(relation.columns)))
        self._identity = [at for at, each in enumerate(relation.columns) if each.is_key]
        places = {each.name: at for at, each in enumerate(relation.columns)}
        # A part of a key is no key: it names other rows too.
        self._key = [places[name] for name in key] if places.keys() >= set(key) else []
        self._head = f'{{"table":{self.label},"key":'
        self.no_key = f"{self._head}null}}".encode()

    def check(self, values: Values) -> None:
        if len(values) != len(self._fields):
            raise NotUnderstood(f"a row of {self.name} has {len(values)} columns, and the table {len(self._fields)}")

    def row(self, values: Values) -> str:
        """All columns that have a value."""
        return self._object(values, self._all)

    def identity(self, values: Values) -> str:
        """The columns of the replica identity."""
        return self._object(values, self._identity)

    def keyed(self, values: Values) -> str:
        """The columns of the key."""
        return self._object(values, self._key) if self._key else "null"

    def key(self, values: Values) -> bytes:
        return f"{self._head}{self._object(values, self._key)}}}".encode() if self._key else self.no_key

    def _object(self, values: Values, places: list[int]) -> str:
        fields, parts = self._fields, []
        for at in places:
            value = values[at]
            _, label, spell = fields[at]
            if value is None:
                parts.append(f"{label}null")
            elif value is not UNCHANGED:
                parts.append(label + spell(value))
        return f"{{{','.join(parts)}}}"

    def unchanged(self, values: Values) -> str:
        names = [self._fields[at].name for at, value in enumerate(values) if value is UNCHANGED]
        return json.dumps(names, separators=(",", ":"), ensure_ascii=False) if names else "[]"


def _field(column: Column, *, large_as_text: bool) -> _Field:
    return _Field(column.name, f"{_TEXT(column.name)}:", spelling(column.type, large_as_text=large_as_text))


class Writer:
    """Makes changes of the messages of a stream; one for each connection, as the server says there what tables are."""

    def __init__(self, key_of: Key, *, large_as_text: bool = True, place_text: Callable[[int], str] = lsn_text) -> None:
        """Makes one.

        Args:
            key_of: asked of a table whose replica identity is no key.
            large_as_text: whether a whole number beyond 2^53 is a text.
            place_text: spells the `commit` of a position.
        """
        self._key_of = key_of
        self._large_as_text = large_as_text
        self._place_text = place_text
        self._tables: dict[int, _Table] = {}
        self.record: tuple[bytes, int] | None = None
        """Of the message that comes next, as changes have it."""
        self._commit: int | None = None
        self._committed_at = 0
        self._index = 0
        self._place = self._tail = ""

    def begin(self, begin: Begin) -> None:
        self.enter(begin.lsn, begin.committed_at, str(begin.xid or "null"))

    def enter(self, commit: int, committed_at: int, xid: str, index: int = 0) -> None:
        """A transaction begins, or what stands in its place.

        Args:
            commit: of its position.
            committed_at: Unix milliseconds.
            xid: its name there, as JSON.
            index: of its first change.
        """
        self._commit, self._committed_at, self._index = commit, committed_at, index
        self._place = _TEXT(self._place_text(commit))
        self._tail = f'"xid":{xid},"committedAt":{committed_at},'

    def end(self) -> None:
        self._commit = None

    def pass_to(self, index: int) -> None:
        """The change that comes next has this index."""
        self._index = index

    def relation(self, relation: Relation) -> None:
        """The table is like this from here on."""
        key = tuple(each.name for each in relation.columns if each.is_key)
        if relation.identity == "f" or not key:
            key = self._key_of(relation)
        self._tables[relation.oid] = _Table(relation, key, large_as_text=self._large_as_text)

    def skip(self, change: Insert | Update | Delete | Truncate) -> None:
        """Passes over a change that is in the topic already."""
        self._index += len(change.relations) if isinstance(change, Truncate) else 1

    @property
    def place(self) -> tuple[int, int]:
        """`commit` and index of the change that comes next."""
        return (self._begun(), self._index)

    def changes(self, change: Insert | Update | Delete | Truncate) -> list[Change]:
        """One, or two for an update of the key, or one for each table that was emptied.

        Raises:
            NotUnderstood
        """
        made: list[Change] = []
        match change:
            case Insert(relation, new):
                table = self._table(relation, new)
                made = [self._made("c", table, table.key(new), after=new)]
                self._index += 1
            case Update():
                made = self._updated(change)
                self._index += 1
            case Delete(relation, old, is_whole):
                table = self._table(relation, old)
                made = [self._made("d", table, table.key(old), before=_before(table, old, is_whole=is_whole))]
                self._index += 1
            case Truncate(relations):
                for each in relations:
                    table = self._table(each)
                    made.append(self._made("t", table, table.no_key))
                    self._index += 1
        return made

    def key(self, relation: int, row: Values) -> bytes:
        """As the topic has it, of a row.

        Raises:
            NotUnderstood
        """
        return self._table(relation, row).key(row)

    def read(self, relation: int, row: Values, key: bytes | None = None) -> Change:
        """A row that a snapshot has read: `begin` was told where it stands, with no transaction's number.

        Args:
            relation: its table, as `relation` has told it.
            row: its values.
            key: what `key` has said of it, if it was asked.

        Raises:
            NotUnderstood
        """
        table = self._table(relation, row)
        made = self._made("r", table, table.key(row) if key is None else key, after=row)
        self._index += 1
        return made

    def _updated(self, change: Update) -> list[Change]:
        new, old = change.new, change.old
        table = self._table(change.relation, new)
        if old is None:
            return [self._made("u", table, table.key(new), after=new)]
        table.check(old)
        # A partition's log may have the key alone of an old row, where its partitioned table says that it is whole. A
        # value that was not touched is large, so it was not null.
        is_known = all(before is not None for value, before in zip(new, old, strict=True) if value is UNCHANGED)
        if change.is_whole and is_known:
            new = [before if value is UNCHANGED else value for value, before in zip(new, old, strict=True)]
        before = _before(table, old, is_whole=change.is_whole) if is_known or not change.is_whole else table.keyed(old)
        key, key_before = table.key(_known(new, old)), table.key(old)
        if key == key_before:
            return [self._made("u", table, key, before=before, after=new)]
        return [
            self._made("d", table, key_before, before=before, half=0),
            self._made("c", table, key, after=new, half=1),
        ]

    def _made(
        self,
        op: str,
        table: _Table,
        key: bytes,
        *,
        before: str = "null",
        after: Values | None = None,
        half: int | None = None,
    ) -> Change:
        commit, index = self._begun(), self._index
        row = "null" if after is None else table.row(after)
        unchanged, partial = "[]", None
        if after is not None and UNCHANGED in after:
            unchanged, partial = table.unchanged(after), Partial(table.names, after, table.is_by_index)
        place = f"[{self._place},{index}]" if half is None else f"[{self._place},{index},{half}]"
        value = (
            f'{{"op":"{op}","table":{table.label},"pos":{place},{self._tail}'
            f'"before":{before},"after":{row},"unchanged":{unchanged}}}'
        )
        at, data = self._committed_at, value.encode()
        return Change(commit, index, place, op, table.name, key, data, at, partial, self.record)

    def _begun(self) -> int:
        if self._commit is None:
            raise NotUnderstood("a change outside of a transaction")
        return self._commit

    def _table(self, oid: int, values: Values | None = None) -> _Table:
        table = self._tables.get(oid)
        if table is None:
            raise NotUnderstood(f"a change of a table with oid {oid}, of which nothing was said")
        if values is not None:
            table.check(values)
        return table


_READ: Final = b'{"op":"r",'
_ROW: Final = b',"before":null,"after":'
_END: Final = b',"unchanged":[]}'


def is_read(value: bytes) -> bool:
    """Whether a record of a change topic is a row that a snapshot has read."""
    return value.startswith(_READ)


def taken_back(key: bytes, value: bytes, at: Position) -> Change:
    """The deletion of a row that a snapshot has read, with the whole row before it.

    Args:
        key: of the record.
        value: of the record, as `Writer.read` has made it.
        at: where the deletion stands.

    Raises:
        NotUnderstood
    """
    # In the texts before it a quotation mark is escaped, so the first one is the right one.
    head, found, row = value.partition(_ROW)
    if not is_read(value) or not found or not row.endswith(_END):
        raise NotUnderstood("a record of a snapshot that this program has not written")
    told = json.loads(head + b"}")
    place = f"[{_TEXT(at.place)},{at.index}]"
    start = f'{{"op":"d","table":{_TEXT(told["table"])},"pos":{place},"xid":null,"committedAt":{told["committedAt"]}'
    whole = b"".join([start.encode(), b',"before":', row.removesuffix(_END), b',"after":null', _END])
    return Change(at.commit, at.index, place, "d", told["table"], key, whole, told["committedAt"])


def _before(table: _Table, old: Values, *, is_whole: bool) -> str:
    return table.row(old) if is_whole else table.identity(old)


def _known(new: Values, old: Values) -> Values:
    """For the key: what the update has not touched is as before."""
    return [before if value is UNCHANGED else value for value, before in zip(new, old, strict=True)]
