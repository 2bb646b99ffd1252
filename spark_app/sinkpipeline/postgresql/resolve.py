"""From the manifest to the settings of a PostgreSQL sink."""

from __future__ import annotations

from sinkpipeline.cells.given import Given
from sinkpipeline.core import manifest
from sinkpipeline.postgresql.settings import Column, Connection, SinkSettings, Table, Upsert

ORDER_TYPE = "bigint"
"""Of what orders the changes of a key: a number, or the microseconds of a time."""


def resolve_sink(of: manifest.PostgresqlSink, given: Given, *, follows: bool) -> SinkSettings:
    """The settings of one sink.

    Args:
        of: the sink's part of the manifest.
        given: what is not its kind's own.
        follows: whether records are changes of rows, which may be without values that did not change.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    return SinkSettings(
        **given.of_every_kind,
        connection=Connection(
            servers=of.servers,
            database=of.database,
            user=of.auth.username,
            password_file=given.secret(of.auth.password_secret_ref),
            tls=given.tls,
        ),
        table=_table(of, follows=follows),
        progress_schema=of.progress_schema,
    )


def _table(of: manifest.PostgresqlSink, *, follows: bool) -> Table:
    table = of.table
    upsert = Upsert(
        key=table.primary_key,
        deletes=of.delete_when is not None,
        order_type=None if of.order_by is None else ORDER_TYPE,
        order_by=" ".join((of.order_by or "").split()),
        keeps=follows,
    )
    return Table(
        schema=table.schema_name,
        name=table.name,
        columns=tuple(Column(name=name, type=table.columns[name]) for name in table.in_order),
        upsert=upsert if of.write_mode is manifest.WriteMode.UPSERT else None,
    )
