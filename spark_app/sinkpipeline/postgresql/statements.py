"""The SQL of a sink, as text: pure, so that what is checked at a start is what a commit runs.

Those of the cells have parameters, so a `%` in a name is doubled there.

    commit   compare and set the cell ─► COPY into the table                                            Append
             compare and set the cell ─► COPY into our own temporary table ─► delete, insert or update  Upsert
                                                        └─► the order table says which change wins      with an order
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import NamedTuple

from sinkpipeline.postgresql.settings import Table, Upsert

NUMBER, DELETED, ORDER, WON = "sinkpipeline_n", "sinkpipeline_deleted", "sinkpipeline_order", "sinkpipeline_won"
KEPT, WAVE = "sinkpipeline_kept", "sinkpipeline_wave"
"""Columns of the temporary table, behind those of the target."""
OF = "of"
"""With which the comment of a table that orders changes begins: then comes whose they are."""

OLD_XIDS = 50_000_000
IDLE_SESSION = "1h"
"""A temporary table that stays keeps the whole database from forgetting old transactions: nobody else can vacuum it. So
one is made anew after so many, and the session of one that is not used ends. A server stops at two thousand million."""

STAGED = (
    "SELECT to_regclass(%s) IS NOT NULL, EXISTS (SELECT FROM pg_attribute AS s"
    " LEFT JOIN pg_attribute AS t ON t.attrelid = %s::oid AND t.attname = s.attname AND NOT t.attisdropped"
    " WHERE s.attrelid = to_regclass(%s) AND s.attnum > 0 AND s.attname NOT LIKE 'sinkpipeline\\_%%'"
    " AND (t.atttypid, t.atttypmod, t.attcollation) IS DISTINCT FROM (s.atttypid, s.atttypmod, s.attcollation))"
    " OR (SELECT age(relfrozenxid) > %s FROM pg_class WHERE oid = to_regclass(%s))"
)
"""Whether a temporary table is there, and whether it is old, or has other columns than the target by now."""
_MAY_BE_NAN = re.compile(r"\s*(real|float|double|numeric|decimal)", re.IGNORECASE)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(table: str, name: str) -> str:
    return f"{table}.{quoted(name)}::text"


def joined(names: tuple[str, ...] | list[str], prefix: str = "") -> str:
    return ", ".join(prefix + quoted(name) for name in names)


class Keep(NamedTuple):
    """The statements for rows of which columns stay as they are in the target; None of them makes a row."""

    lock: str
    """Locks those of the target."""
    missing: str
    """Answers the place of one that is not in the target, and its columns that are to stay."""
    put: str


class Merge(NamedTuple):
    """The statements of an `Upsert`, in the order in which they are run; None where the sink has no such step."""

    mark: str
    """Which changes win; as many as it is about."""
    doomed: str | None
    """Answers how many of them delete, and how many rows of the target that is about, which it locks."""
    delete: str | None
    put: str
    there: str
    """Answers how many of what was put is in the target as it should be, by `put` or before: then that may be about
    less, as `suppress_redundant_updates_trigger` leaves out what changes nothing."""
    keep: Keep | None = None


@dataclass(frozen=True)
class CellStatements:
    """Of the table of cells."""

    schema: str

    @property
    def table(self) -> str:
        return self.name.replace("%", "%%")

    @property
    def name(self) -> str:
        return f"{quoted(self.schema)}.progress"

    @property
    def create(self) -> tuple[str, ...]:
        # Rows are written again and again: some room on each page keeps them there.
        return (
            f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}",
            (
                f"CREATE TABLE {self.name} (key text PRIMARY KEY, value json NOT NULL, version bigint NOT NULL) "
                "WITH (fillfactor = 50)"
            ),
        )

    @property
    def read(self) -> str:
        return f"SELECT key, value::text, version FROM {self.table} WHERE key = ANY(%s::text[])"

    @property
    def insert(self) -> str:
        """Only where there is none. In the order of keys: so two that write the same wait, and don't deadlock."""
        return (
            f"INSERT INTO {self.table} (key, value, version) SELECT * FROM unnest(%s::text[], %s::json[], %s::bigint[])"
            " AS new (key, value, version) ORDER BY key ON CONFLICT (key) DO NOTHING RETURNING key"
        )

    @property
    def update(self) -> str:
        return (
            f"UPDATE {self.table} AS cell SET value = new.value, version = new.version"
            " FROM unnest(%s::text[], %s::json[], %s::bigint[], %s::bigint[]) AS new (key, value, version, was)"
            " WHERE cell.key = new.key AND cell.version = new.was RETURNING cell.key"
        )

    @property
    def remove(self) -> str:
        return (
            f"DELETE FROM {self.table} AS cell USING unnest(%s::text[], %s::bigint[]) AS old (key, was)"
            " WHERE cell.key = old.key AND cell.version = old.was RETURNING cell.key"
        )

    @property
    def find(self) -> str:
        return f"SELECT key, version FROM {self.table} WHERE starts_with(key, %s) LIMIT %s"

    @property
    def metas(self) -> str:
        """Of all sinks; it has no parameters."""
        return f"SELECT key, value::text, version FROM {self.name} WHERE key LIKE '%/meta'"

    @property
    def checks(self) -> tuple[str, ...]:
        """Fail as a commit would where a right is missing; and do nothing."""
        return (
            f"EXPLAIN INSERT INTO {self.name} SELECT * FROM {self.name} WHERE false",
            f"EXPLAIN UPDATE {self.name} SET version = 0 WHERE false",
        )

    @property
    def redrive_check(self) -> str:
        """Likewise, what only the commit of a redrive does."""
        return f"EXPLAIN DELETE FROM {self.name} WHERE false"


@dataclass(frozen=True)
class TableStatements:
    """Of the table of rows."""

    table: Table
    progress_schema: str
    oid: str = "0"
    """Of the table: another table of the same name has an order of its own."""

    @property
    def name(self) -> str:
        return f"{quoted(self.table.schema)}.{quoted(self.table.name)}"

    @property
    def create(self) -> str:
        columns = [f"{quoted(each.name)} {each.type}" for each in self.table.columns]
        if self.table.upsert is not None:
            columns.append(f"PRIMARY KEY ({joined(self.table.upsert.key)})")
        return f"CREATE TABLE {self.name} ({', '.join(columns)})"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.table.columns)

    @property
    def append(self) -> str:
        return f"COPY {self.name} ({joined(self.columns)}) FROM STDIN"

    # Upsert

    @property
    def lock(self) -> str:
        """What a merge takes anyway."""
        return f"LOCK TABLE ONLY {self.name} IN ROW EXCLUSIVE MODE"

    @property
    def staging(self) -> str:
        """A table of the session's own."""
        return f"pg_temp.{quoted(self.staging_name)}"

    @property
    def staging_name(self) -> str:
        """By all that makes it: a session may have others, which merge into the same table in another way."""
        definition = repr((self.table, self.progress_schema))
        return f"sinkpipeline_{self.oid}_{hashlib.sha256(definition.encode()).hexdigest()[:16]}"

    @property
    def order_table(self) -> str:
        return f'{quoted(self.progress_schema)}."order_{self.oid}"'

    @property
    def is_ordered(self) -> bool:
        return self.table.upsert is not None and self.table.upsert.order_type is not None

    def create_order(self, upsert: Upsert, target: str) -> str:
        """By key, what ordered the newest change, also of a row that is deleted by now. `target`: the table's id."""
        # Keys that are equal in the table must be so here.
        key = joined(upsert.key)
        return (
            f"CREATE TABLE {self.order_table} AS SELECT {key}, NULL::{upsert.order_type} AS {quoted(ORDER)}"
            f" FROM {self.name} WITH NO DATA; ALTER TABLE {self.order_table} ADD PRIMARY KEY ({key}),"
            f" ALTER COLUMN {quoted(ORDER)} SET NOT NULL; {self.called(target, upsert.order_key)}"
        )

    def called(self, target: str, *order_by: str) -> str:
        """Says in the table that orders changes whose they are, and by what: expressions that order alike, one a line.

        Itself it is one line, as a person is told to type it.
        """
        lines = [f"{OF} {self.table.label} {target}", *order_by]
        text = "\\n".join(each.replace("\\", "\\\\").replace("'", "''") for each in lines)
        return f"COMMENT ON TABLE {self.order_table} IS E'{text}'"

    def stage(self, upsert: Upsert) -> tuple[str, ...]:
        """Makes the temporary table, with the columns as they are; once in a session."""
        extra = [f"0::bigint AS {NUMBER}"]
        source = f"{self.name} AS t"
        if upsert.deletes:
            extra.append(f"false AS {DELETED}")
        if upsert.order_type is not None:
            extra.append(f"o.{ORDER}")
            source += f", {self.order_table} AS o"
        if upsert.keeps:
            extra += [f"'{{}}'::smallint[] AS {KEPT}", f"0::bigint AS {WAVE}"]
        extra.append(f"false AS {WON}")
        # A deletion has a key, and nothing else that counts: only these may not be missing.
        needed = [*upsert.key, *([ORDER] if upsert.order_type is not None else [])]
        constraints = ", ".join(f"ALTER COLUMN {quoted(name)} SET NOT NULL" for name in needed)
        if upsert.order_type is not None and _MAY_BE_NAN.match(upsert.order_type):
            # It is greater than every number, so nothing would ever be newer.
            constraints += f", ADD CONSTRAINT {ORDER} CHECK ({ORDER} <> 'NaN')"
        if upsert.keeps:
            constraints += f", ALTER COLUMN {WAVE} SET DEFAULT 0"
        columns = ", ".join([joined(self.columns, "t."), *extra])
        return (
            (
                f"CREATE TEMPORARY TABLE {self.staging} ON COMMIT DELETE ROWS AS SELECT {columns} FROM {source} "
                "WITH NO DATA"
            ),
            f"ALTER TABLE {self.staging} {constraints}, ALTER COLUMN {WON} SET DEFAULT false",
            # Servers before 14 have no such setting.
            (
                f"SELECT set_config('idle_session_timeout', '{IDLE_SESSION}', false)"
                " WHERE current_setting('idle_session_timeout', true) = '0'"
            ),
        )

    def fill(self, upsert: Upsert) -> str:
        columns = [NUMBER, *self.columns, *([DELETED] if upsert.deletes else [])]
        if upsert.order_type is not None:
            columns.append(ORDER)
        if upsert.keeps:
            columns.append(KEPT)
        return f"COPY {self.staging} ({joined(columns)}) FROM STDIN"

    @property
    def any_keeps(self) -> str:
        """Whether a row says that columns stay as they are."""
        return f"SELECT EXISTS (SELECT FROM {self.staging} WHERE {KEPT} <> '{{}}')"

    def part(self, upsert: Upsert) -> str:
        """Numbers the changes of each key by how many of them keep columns: such a one needs what was before it.

        So each wave of all keys can be merged at once, after the one before it.
        """
        over = f"OVER (PARTITION BY {joined(upsert.key)} ORDER BY {NUMBER})"
        waves = f"SELECT {NUMBER}, count(*) FILTER (WHERE {KEPT} <> '{{}}') {over} AS wave FROM {self.staging}"
        return (
            f"UPDATE {self.staging} AS b SET {WAVE} = w.wave FROM ({waves}) AS w"
            f" WHERE w.{NUMBER} = b.{NUMBER} AND w.wave > 0"
        )

    @property
    def last_wave(self) -> str:
        return f"SELECT max({WAVE}) FROM {self.staging}"

    def merge(self, upsert: Upsert, wave: int | None = None) -> Merge:
        """Of several changes of a key the last one counts, or the newest by their order; of a wave, or of all."""
        of_wave = "" if wave is None else f" AND {WAVE} = {wave}"
        key = joined(upsert.key)
        newest = f"{ORDER} DESC, {NUMBER} DESC" if upsert.order_type is not None else f"{NUMBER} DESC"
        last = f"SELECT DISTINCT ON ({key}) {NUMBER}, {key}" + (f", {ORDER}" if upsert.order_type is not None else "")
        last += f" FROM {self.staging} WHERE true{of_wave} ORDER BY {key}, {newest}"
        if upsert.order_type is None:
            mark = f"UPDATE {self.staging} AS b SET {WON} = true FROM ({last}) AS l WHERE b.{NUMBER} = l.{NUMBER}"
        else:
            # Its rows are locked from here on: no other partition changes one of these keys before we end.
            won = (
                f"INSERT INTO {self.order_table} AS o ({key}, {ORDER}) SELECT {key}, {ORDER} FROM ({last}) AS l "
                f"ON CONFLICT ({key}) DO UPDATE SET {ORDER} = EXCLUDED.{ORDER} WHERE o.{ORDER} <= EXCLUDED.{ORDER} "
                f"RETURNING {key}"
            )
            same = " AND ".join(f"w.{quoted(name)} = l.{quoted(name)}" for name in upsert.key)
            mark = (
                f"WITH l AS ({last}), w AS ({won}) UPDATE {self.staging} AS b SET {WON} = true "
                f"FROM l JOIN w ON {same} WHERE b.{NUMBER} = l.{NUMBER}"
            )
        same = " AND ".join(f"t.{quoted(name)} = b.{quoted(name)}" for name in upsert.key)
        doomed = delete = None
        kept = f"FROM {self.staging} AS b WHERE {WON}{of_wave}"
        if upsert.deletes:
            going = f"{same} AND b.{WON} AND b.{DELETED}{of_wave}"
            locked = f"SELECT FROM {self.name} AS t, {self.staging} AS b WHERE {going} FOR UPDATE OF t"
            doomed = f"SELECT (SELECT count(*) {kept} AND {DELETED}), count(*) FROM ({locked}) AS l"
            delete = f"DELETE FROM {self.name} AS t USING {self.staging} AS b WHERE {going}"
            kept += f" AND NOT {DELETED}"
        # As texts: not every type has an equality.
        equal = [
            same,
            *(self._as_it_should_be(upsert, name) for name in self._others(upsert)),
        ]
        there = f"SELECT count(*) {kept} AND EXISTS (SELECT FROM {self.name} AS t WHERE {' AND '.join(equal)})"
        if not upsert.keeps:
            return Merge(mark, doomed, delete, self.upsert(upsert, kept), there)
        put = self.upsert(upsert, f"{kept} AND {KEPT} = '{{}}'")
        return Merge(mark, doomed, delete, put, there, self._keep(upsert, f"{kept} AND {KEPT} <> '{{}}'", same))

    def _keep(self, upsert: Upsert, rows: str, same: str) -> Keep:
        """`rows`: those of which columns stay, as `FROM ... WHERE ...`."""
        changes = ", ".join(
            f"{quoted(name)} = CASE WHEN {place} = ANY(b.{KEPT}) THEN t.{quoted(name)} ELSE b.{quoted(name)} END"
            for place, name in enumerate(self.columns, 1)
            if name not in upsert.key
        )
        of_these = rows.removeprefix("FROM ").replace(" WHERE ", f" WHERE {same} AND ", 1)
        return Keep(
            lock=f"SELECT FROM {self.name} AS t, {of_these} FOR UPDATE OF t",
            missing=(
                f"SELECT {NUMBER}, {KEPT} {rows} AND NOT EXISTS (SELECT FROM {self.name} AS t WHERE {same})"
                f" ORDER BY {NUMBER} LIMIT 1"
            ),
            put=f"UPDATE {self.name} AS t SET {changes} FROM {of_these}",
        )

    def _as_it_should_be(self, upsert: Upsert, name: str) -> str:
        equal = f"{_text('t', name)} IS NOT DISTINCT FROM {_text('b', name)}"
        return f"({self.columns.index(name) + 1} = ANY(b.{KEPT}) OR {equal})" if upsert.keeps else equal

    def _others(self, upsert: Upsert) -> list[str]:
        """Columns that are not the key's."""
        return [name for name in self.columns if name not in upsert.key]

    def upsert(self, upsert: Upsert, rows: str) -> str:
        key = joined(upsert.key)
        changes = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in self._others(upsert))
        # A row that is all key is locked where it is there already: nobody deletes it before we end.
        same = f"{quoted(upsert.key[0])} = EXCLUDED.{quoted(upsert.key[0])} WHERE false"
        columns = joined(self.columns)
        rows = f"SELECT {columns} {rows} ORDER BY {key}"
        return f"INSERT INTO {self.name} ({columns}) {rows} ON CONFLICT ({key}) DO UPDATE SET {changes or same}"

    @property
    def any_row(self) -> str:
        """Whether there is one."""
        return f"SELECT EXISTS (SELECT FROM {self.name})"

    @property
    def checks(self) -> tuple[str, ...]:
        """Fail as a commit would where a table, a column, a unique key or a right is missing; and do nothing."""
        if self.table.upsert is None:
            nothing = ", ".join(["NULL"] * len(self.table.columns))
            return (f"EXPLAIN INSERT INTO {self.name} ({joined(self.columns)}) SELECT {nothing} WHERE false",)
        found = [self.upsert(self.table.upsert, f"FROM {self.name} WHERE false")]
        if self.table.upsert.deletes:
            found.append(f"DELETE FROM {self.name} WHERE false")
        return tuple(f"EXPLAIN {each}" for each in found)
