"""What can be seen of a PostgreSQL sink before it starts, leaving nothing behind."""

from __future__ import annotations

from contextlib import closing

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.topics import Topic
from sinkpipeline.postgresql.client import Client, Work
from sinkpipeline.postgresql.kind import PostgresqlPorts
from sinkpipeline.postgresql.settings import SinkSettings
from sinkpipeline.postgresql.soundness import check_table
from sinkpipeline.postgresql.statements import CellStatements, TableStatements, quoted
from sinkpipeline.postgresql.target import oid_of, unsafe_settings

_SCHEMA = (
    "SELECT n.oid IS NOT NULL, coalesce(has_schema_privilege(n.oid, 'USAGE'), false),"
    " coalesce(has_schema_privilege(n.oid, 'CREATE'), false),"
    " has_database_privilege(current_database(), 'CREATE')"
    " FROM (SELECT 1) AS one LEFT JOIN pg_namespace AS n ON n.nspname = %s"
)


def check_reached(sink: SinkSettings) -> None:
    """Connects, within seconds.

    Raises:
        SinkPipelineError: SinkUnreachable, AuthenticationFailed, SinkRefused.
    """
    with closing(Client(sink.connection)) as client, client.reading() as work:
        work.rows("SELECT 1")


def look(ports: PostgresqlPorts) -> tuple[Topic | None, Topic | None, Progress]:
    """The table, the table of the progress, and what is in it.

    Raises:
        SinkPipelineError: SinkUnreachable, SinkRefused, ...
    """
    data, ledger = ports.target.describe({}), ports.ledger
    place = ledger.place()
    return data, place, Progress() if place is None else ledger.decide(place)


def check_names(ports: PostgresqlPorts) -> None:
    """And that what is in the schemas can be seen.

    Raises:
        SinkPipelineError: ManifestInvalid, SinkRefused, SinkUnreachable, ...
    """
    ports.target.check_names()
    settings = ports.settings
    with ports.client.reading() as work:
        for schema in (settings.table.schema, settings.progress_schema):
            [(there, may_use_it, *_)] = work.rows(_SCHEMA, (schema,))
            if there and not may_use_it:
                user = settings.connection.user
                raise SinkPipelineError(
                    Reason.SINK_REFUSED,
                    f"role {user} may not use schema {schema} of database {settings.connection.database}",
                    f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {quoted(user)}",
                )


def fears(ports: PostgresqlPorts) -> tuple[str, ...]:
    """What is to be feared for rows that the server has acknowledged."""
    with ports.client.reading() as work:
        off = unsafe_settings(work)
    if not off:
        return ()
    settings = " and ".join(f"{name}=off" for name in off)
    fear = "where its machine fails, rows that it has acknowledged are lost, and the progress may be damaged"
    return (f"the server has {settings}: {fear}; set {settings.replace('=off', '=on')}",)


def check_rights(ports: PostgresqlPorts, data: Topic | None, place: Topic | None) -> None:
    """That a start and its commits may do all that they do.

    Raises:
        SinkPipelineError: SinkRefused, and as `look`.
    """
    settings = ports.settings
    with ports.client.reading() as work:
        if data is None:
            _check_schema(work, settings, settings.table.schema, makes_it=False)
        if place is None:
            _check_schema(work, settings, settings.progress_schema, makes_it=True)
    # Each as a commit runs it: the server says what is missing.
    with ports.client.reading() as work:
        if data is not None:
            check_table(work, settings, oid_of(data.id))
            for statement in TableStatements(settings.table, settings.progress_schema, oid_of(data.id)).checks:
                work.rows(statement)
        if place is not None:
            for statement in CellStatements(settings.progress_schema).checks:
                work.rows(statement)


def _check_schema(work: Work, settings: SinkSettings, schema: str, *, makes_it: bool) -> None:
    [(there, _, may_create_in_it, may_create_schemas)] = work.rows(_SCHEMA, (schema,))
    user, database = settings.connection.user, settings.connection.database
    if there and not may_create_in_it:
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f"role {user} may create no table in schema {schema} of database {database}",
            f"GRANT CREATE ON SCHEMA {quoted(schema)} TO {quoted(user)}, or create the table yourself",
        )
    if not there and not (makes_it and may_create_schemas):
        what = f"and role {user} may create none" if makes_it else "and a start creates none for a table"
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f"database {database} has no schema {schema}, {what}",
            f"CREATE SCHEMA {quoted(schema)} AUTHORIZATION {quoted(user)}",
        )
