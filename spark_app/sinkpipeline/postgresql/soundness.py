"""Whether rows that are written to a table stay there, mean there what they should, and are found there again."""

from __future__ import annotations

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.postgresql.client import Work
from sinkpipeline.postgresql.settings import SinkSettings, Upsert
from sinkpipeline.postgresql.statements import quoted

# Of a table and its partitions: r and p are tables, u is emptied by a crash, and what is elsewhere commits elsewhere.
_UNSOUND = (
    "SELECT c.oid::regclass::text, c.relkind IN ('r', 'p') FROM pg_class AS c"
    " WHERE (c.oid = %s::oid OR c.oid IN (SELECT relid FROM pg_partition_tree(%s::oid::regclass)))"
    " AND (c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p') ORDER BY 1 LIMIT 1"
)
# Of a column, or of what its domain is made of.
_BYTES = (
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod), m.type"
    " FROM unnest(%s::text[], %s::text[]) AS m (name, type) JOIN pg_attribute AS a"
    " ON a.attname = m.name AND a.attrelid = %s::oid AND NOT a.attisdropped"
    " JOIN pg_type AS t ON t.oid = a.atttypid"
    " WHERE (lower(m.type) = 'bytea') <> ('bytea'::regtype IN (t.oid, t.typbasetype)) ORDER BY 1 LIMIT 1"
)
# A trigger may give it a value, and so may a domain.
_NEEDED = (
    "SELECT a.attname FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid AND t.typdefault IS NULL"
    " WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND NOT a.atthasdef"
    " AND a.attidentity = '' AND a.attname <> ALL(%s::text[]) AND NOT EXISTS (SELECT FROM pg_trigger AS g"
    " WHERE g.tgrelid = a.attrelid AND g.tgtype & 7 = 7 AND g.tgenabled <> 'D') ORDER BY a.attnum LIMIT 1"
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
    for found, is_table in work.rows(_UNSOUND, (oid, oid)):
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
    for (name,) in work.rows(_NEEDED, (oid, [each.name for each in settings.table.columns])):
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f'table {settings.table.label} has column "{name}", which may not be null, has no default, and is none of '
            "table.columns: every row would be refused",
            f"name it in table.columns, or give it a default: ALTER TABLE {quoted(settings.table.schema)}."
            f"{quoted(settings.table.name)} ALTER COLUMN {quoted(name)} SET DEFAULT ...",
        )


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
