"""Whether rows that are written to a table stay there, mean there what they should, and are found there again."""

from __future__ import annotations

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.postgresql.client import Work
from sinkpipeline.postgresql.settings import SinkSettings, Upsert
from sinkpipeline.postgresql.statements import joined, quoted

# The table, and its partitions at any depth. No lock is taken of any: a table may have thousands.
_TREE = (
    "WITH RECURSIVE tree (oid) AS (SELECT %s::oid UNION SELECT i.inhrelid FROM tree"
    " JOIN pg_inherits AS i ON i.inhparent = tree.oid JOIN pg_class AS c ON c.oid = i.inhrelid AND c.relispartition) "
)
# r and p are tables, u is emptied by a crash, and what is elsewhere commits elsewhere.
_UNSOUND = (
    _TREE + "SELECT c.oid::regclass::text, c.relkind IN ('r', 'p') FROM tree JOIN pg_class AS c USING (oid)"
    " WHERE c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p' ORDER BY 1 LIMIT 1"
)
# Of a column, or of what its domain is made of.
_BYTES = (
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod), m.type"
    " FROM unnest(%s::text[], %s::text[]) AS m (name, type) JOIN pg_attribute AS a"
    " ON a.attname = m.name AND a.attrelid = %s::oid AND NOT a.attisdropped"
    " JOIN pg_type AS t ON t.oid = a.atttypid"
    " WHERE (lower(m.type) = 'bytea') <> ('bytea'::regtype IN (t.oid, t.typbasetype)) ORDER BY 1 LIMIT 1"
)
# A trigger may give it a value, and so may a domain. A default is the one of the table that is written to, and what may
# not be null is so for each partition.
_NEEDED = (
    _TREE + "SELECT a.attrelid::regclass::text, o.attnotnull, a.attname FROM tree"
    " JOIN pg_class AS c ON c.oid = tree.oid AND c.relkind = 'r'"
    " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull"
    " JOIN pg_attribute AS o ON o.attrelid = %s::oid AND o.attname = a.attname AND NOT o.attisdropped"
    " AND NOT o.atthasdef AND o.attidentity = ''"
    " JOIN pg_type AS t ON t.oid = a.atttypid AND t.typdefault IS NULL"
    " WHERE a.attname <> ALL(%s::text[]) AND NOT EXISTS (SELECT FROM pg_trigger AS g"
    " WHERE g.tgrelid = a.attrelid AND g.tgtype & 7 = 7 AND g.tgenabled <> 'D') ORDER BY 1, a.attnum LIMIT 1"
)
# Whether there is a unique key of these columns, and the columns of which every unique key of a partitioned table is;
# null for an expression, of which none is.
_UNIQUE = (
    _TREE + "SELECT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = %s::oid AND i.indisunique AND i.indimmediate"
    " AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL AND %s::text[] = (SELECT"
    " array_agg(attname::text ORDER BY attname::text) FROM pg_attribute, generate_series(0, i.indnkeyatts - 1) AS n"
    " WHERE attrelid = i.indrelid AND attnum = i.indkey[n])), ARRAY(SELECT DISTINCT a.attname::text FROM tree"
    " JOIN pg_partitioned_table AS p ON p.partrelid = tree.oid CROSS JOIN unnest(p.partattrs::int2[]) AS n"
    " LEFT JOIN pg_attribute AS a ON a.attrelid = tree.oid AND a.attnum = n ORDER BY 1)"
)
# Of the unique keys that an upsert goes by: each column, the schema of its equality, and whether the column's own
# equality, as `=` of a statement has it, is that one.
_KEYS = (
    "WITH keys AS (SELECT i.indrelid, k.* FROM pg_index AS i, unnest(i.indkey::int2[], i.indclass::oid[],"
    " i.indcollation::oid[]) WITH ORDINALITY AS k (attnum, class, collation_, place)"
    " WHERE i.indrelid = %s::oid AND i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL"
    " AND place <= i.indnkeyatts AND %s::text[] = (SELECT array_agg(attname::text ORDER BY attname::text)"
    " FROM pg_attribute, generate_series(0, i.indnkeyatts - 1) AS n"
    " WHERE attrelid = i.indrelid AND attnum = i.indkey[n]))"
    " SELECT a.attname, pg_operator_is_visible(m.amopopr), n.nspname FROM keys AS k"
    " JOIN pg_attribute AS a ON a.attrelid = k.indrelid AND a.attnum = k.attnum"
    " JOIN pg_opclass AS c ON c.oid = k.class"
    " JOIN pg_amop AS m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3"
    " AND (m.amoplefttype, m.amoprighttype) = (c.opcintype, c.opcintype)"
    " JOIN pg_operator AS o ON o.oid = m.amopopr JOIN pg_namespace AS n ON n.oid = o.oprnamespace"
    " WHERE NOT pg_operator_is_visible(m.amopopr) OR k.collation_ <> a.attcollation ORDER BY 1 LIMIT 1"
)


def check_kept(work: Work, name: str, oid: str) -> None:
    """That what is committed there stays, and is committed with the rest."""
    for found, is_table in work.rows(_UNSOUND, (oid,)):
        fact = "is UNLOGGED: a server that crashes empties it" if is_table else "is no table of this server"
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f"{name}: {found} {fact}",
            f"make it a table that keeps what it has: ALTER TABLE {found} SET LOGGED"
            if is_table
            else "name a table, of which no partition is a foreign one",
        )


def check_table(work: Work, settings: SinkSettings, oid: str) -> None:
    """Raises SinkPipelineError: SinkRefused."""
    check_kept(work, settings.table.label, oid)
    _check_bytes(work, settings, oid)
    _check_needed(work, settings, oid)
    if settings.table.upsert is not None:
        _check_unique(work, settings, settings.table.upsert, oid)
        _check_equality(work, settings, settings.table.upsert, oid)


def _check_bytes(work: Work, settings: SinkSettings, oid: str) -> None:
    """What is a text here and bytes there is read as something else, and not refused."""
    columns = settings.table.columns
    asked = ([each.name for each in columns], [each.type for each in columns], oid)
    for name, is_there, said in work.rows(_BYTES, asked):
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f'table {settings.table.label} has column "{name}" {is_there}, and the manifest says {said}: '
            "bytes would be read as a text, or a text as bytes",
            f"give table.columns.{name} the type of the column, and let its expression be of that type",
        )


def _check_needed(work: Work, settings: SinkSettings, oid: str) -> None:
    """Each record would be refused, and be a dead letter where there are some."""
    table = f"{quoted(settings.table.schema)}.{quoted(settings.table.name)}"
    for part, is_table, name in work.rows(_NEEDED, (oid, oid, [each.name for each in settings.table.columns])):
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f"{f'table {settings.table.label}' if is_table else f'partition {part} of {settings.table.label}'} has "
            f'column "{name}", which may not be null, has no default, and is none of table.columns: every row would be '
            "refused" + ("" if is_table else " there, as a default of a partition does not count"),
            f"name it in table.columns, or give it a default: ALTER TABLE {table} ALTER COLUMN {quoted(name)} "
            "SET DEFAULT ...",
        )


def _check_unique(work: Work, settings: SinkSettings, upsert: Upsert, oid: str) -> None:
    """The server itself would say no more than that there is none."""
    [(is_there, parted_by)] = work.rows(_UNIQUE, (oid, oid, sorted(upsert.key)))
    if is_there:
        return
    fact = f"table {settings.table.label} has no valid unique key of table.primaryKey ({', '.join(upsert.key)})"
    lacking = [name for name in parted_by if name is not None and name not in upsert.key]
    if None in parted_by:
        fact += ", and can have none, as it is partitioned by an expression"
        remedy = "partition it by columns of the key, or use writeMode: Append"
    elif lacking:
        columns = ", ".join(lacking)
        fact += f", and can have none, as it is partitioned by {columns}"
        remedy = f"name {columns} in table.primaryKey too, and make a unique key of all of these columns"
    else:
        remedy = (
            f"ALTER TABLE {quoted(settings.table.schema)}.{quoted(settings.table.name)} ADD UNIQUE "
            f"({joined(upsert.key)})"
        )
    raise SinkPipelineError(Reason.SINK_REFUSED, fact, remedy)


def _check_equality(work: Work, settings: SinkSettings, upsert: Upsert, oid: str) -> None:
    """A merge finds rows by `=`, and an upsert by the unique key: where the two differ, a deletion finds nothing."""
    for name, is_found, schema in work.rows(_KEYS, (oid, sorted(upsert.key))):
        role, database = settings.connection.user, settings.connection.database
        fact = f'the unique key of table {settings.table.label} tells values of column "{name}" apart '
        if is_found:
            fact += "by another collation than the column's own"
            remedy = "give the unique key the collation of the column"
        else:
            fact += f"by an operator of schema {schema}, which role {role} does not search: another one would be taken"
            remedy = (
                f"ALTER ROLE {quoted(role)} IN DATABASE {quoted(database)} SET search_path = "
                f'"$user", public, {quoted(schema)}'
            )
        raise SinkPipelineError(Reason.SINK_REFUSED, fact, remedy)
