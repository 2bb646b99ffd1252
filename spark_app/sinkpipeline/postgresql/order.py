"""The table that orders the changes of another one: made, and found to be the right one.

It is named by the number that a server has given the other table. A restored table has another number, and what comes
with it may have that of a stranger: so its comment says whose changes it orders, and by what.

    first line  of SCHEMA.TABLE ID
    each other  an expression of orderBy; several order alike
"""

from __future__ import annotations

import contextlib

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.postgresql.client import AlreadyThere, Client, Work
from sinkpipeline.postgresql.settings import SinkSettings, Upsert
from sinkpipeline.postgresql.soundness import check_kept
from sinkpipeline.postgresql.statements import OF, ORDER, TableStatements, quoted

_ORDER_DIFFERS = (
    "SELECT o.attname, format_type(o.atttypid, o.atttypmod) FROM pg_attribute AS o"
    " LEFT JOIN pg_attribute AS t ON t.attrelid = %s::oid AND t.attname = o.attname AND NOT t.attisdropped"
    " WHERE o.attrelid = to_regclass(%s) AND o.attnum > 0 AND NOT o.attisdropped AND CASE WHEN o.attname = %s"
    " THEN o.atttypid IS DISTINCT FROM to_regtype(%s)::oid"
    " ELSE o.attname <> ALL(%s::text[])"
    " OR (t.atttypid, t.atttypmod, t.attcollation) IS DISTINCT FROM (o.atttypid, o.atttypmod, o.attcollation) END"
)
_COMMENT = "SELECT to_regclass(%s)::oid::text, coalesce(obj_description(to_regclass(%s), 'pg_class'), '')"
# The newest of those that say so; of none, nothing.
_OF_THE_SAME_NAME = (
    "SELECT c.relname, d FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " CROSS JOIN obj_description(c.oid, 'pg_class') AS d WHERE n.nspname = %s AND c.relkind = 'r'"
    " AND c.relname ~ '^order_[0-9]+$' AND starts_with(d, %s) ORDER BY c.oid DESC LIMIT 1"
)


def take_order(client: Client, settings: SinkSettings, statements: TableStatements, target: str) -> None:
    """Makes it, or finds that it is of this table, and of this order.

    Raises:
        SinkPipelineError: SinkRefused, SinkUnreachable.
    """
    upsert = settings.table.upsert
    if upsert is None or not statements.is_ordered:
        return
    with contextlib.suppress(AlreadyThere), client.reading() as work:
        [(there,)] = work.rows("SELECT to_regclass(%s) IS NOT NULL", (statements.order_table,))
        if not there:
            _check_alone(work, settings, statements, target)
            work.create(statements.create_order(upsert, target))
    with client.reading() as work:
        [(oid, comment)] = work.rows(_COMMENT, (statements.order_table, statements.order_table))
        check_kept(work, f"the order of {settings.table.label}", oid)
        of, *orders = comment.split("\n")
        _check_whose(settings, statements, of, statements.called(target, *orders), target)
        _check_columns(work, settings, statements, upsert)
        if upsert.order_key not in orders:
            known = f"is of orderBy {', '.join(orders)}" if orders else "does not say of which orderBy it is"
            raise SinkPipelineError(
                Reason.SINK_REFUSED,
                f"{statements.order_table}, by which older changes of {settings.table.label} are told from "
                f"newer ones, {known}, and the manifest says {upsert.order_key}",
                f"if all that comes from now on is newer: DROP TABLE {statements.order_table}; if the two order "
                f"alike, with the same numbers: {statements.called(target, upsert.order_key)}",
            )


def _check_alone(work: Work, settings: SinkSettings, statements: TableStatements, target: str) -> None:
    """A table with rows may have been restored, or have taken another one as its partition: its order is known then."""
    label = settings.table.label
    for name, comment in work.rows(_OF_THE_SAME_NAME, (settings.progress_schema, f"{OF} {label} ")):
        if work.rows(statements.any_row) != [(True,)]:
            return
        of, *orders = comment.split("\n")
        found = f"{quoted(settings.progress_schema)}.{quoted(name)}"
        ours = statements.order_table.rpartition(".")[2]
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f"{found}, by which older changes are told from newer ones, is {of}, and table {label} is another one "
            f"by now: {target}",
            f"if that table was restored, or its rows are in this one: ALTER TABLE {found} RENAME TO {ours}; "
            f"{statements.called(target, *orders)}; if older changes are to be written again: DROP TABLE {found}",
        )


def _check_whose(settings: SinkSettings, statements: TableStatements, of: str, ours: str, target: str) -> None:
    """Numbers are given again by another server: this one may have come with the table of another sink.

    `ours`: says that it is of this table.
    """
    said = of.startswith(f"{OF} ")
    if said and of.rpartition(" ")[2] == target:
        return
    table, label = statements.order_table, settings.table.label
    raise SinkPipelineError(
        Reason.SINK_REFUSED,
        f"{table}, by which older changes are told from newer ones, "
        f"{f'is {of}' if said else 'does not say of which table it is'}; {label} is {target}",
        f"if it was restored with {label}: {ours}; if it is of another table, start the sink of that one first, which "
        f"says what it is to be called; if it is of none any more: DROP TABLE {table}",
    )


def _check_columns(work: Work, settings: SinkSettings, statements: TableStatements, upsert: Upsert) -> None:
    # The length of a text, and the like, makes no other order.
    plain = (upsert.order_type or "").partition("(")[0]
    asked = (statements.oid, statements.order_table, ORDER, plain, list(upsert.key))
    for name, is_there in work.rows(_ORDER_DIFFERS, asked):
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f"{statements.order_table}, by which older changes of {settings.table.label} are told from "
            f'newer ones, has column "{name}" {is_there}, and the table or the manifest says otherwise',
            "alter that column too; or, if no older change can come any more, drop that table: it is made anew",
        )
