"""From the manifest to the settings of a PostgreSQL sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sinkpipeline.core import manifest
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.tls import Tls
from sinkpipeline.postgresql.settings import Column, Connection, SinkSettings, Table, Upsert

ORDER_TYPE = "bigint"
"""Of what orders the changes of a key: a number, or the microseconds of a time."""

SecretFile = Callable[[manifest.SecretRef], str]
"""The path of a key of a Secret, which is there and can be read."""


def resolve_sink(  # noqa: PLR0913 - from several places, as they are
    sink: manifest.Sink,
    of: manifest.PostgresqlSink,
    *,
    id: SinkId,  # noqa: A002 - as the settings call it
    owner: Owner,
    source: Any,
    group_id: str,
    tls: Tls | None,
    secret_file: SecretFile,
    dead_letter: Any,
    follows: bool = False,
) -> SinkSettings:
    """The settings of one sink.

    Args:
        sink: the manifest's.
        of: what of it is PostgreSQL's.
        id: of the sink.
        owner: of its progress.
        source: the source's own settings.
        group_id: as which the source is read.
        tls: its files, which are right.
        secret_file: finds a Secret.
        dead_letter: where its dead letters go.
        follows: whether records are changes of Debezium's, which may be without values that did not change.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    password = of.auth.password_secret_ref
    return SinkSettings(
        id=id,
        owner=owner,
        source=source,
        group_id=group_id,
        connection=Connection(
            servers=of.servers,
            database=of.database,
            user=of.auth.username,
            password_file=None if password is None else secret_file(password),
            tls=tls,
        ),
        table=_table(of, follows=follows),
        progress_schema=of.progress_schema,
        refuse_existing_data=sink.on_existing_data is manifest.OnExistingData.REFUSE,
        dead_letter=dead_letter,
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
