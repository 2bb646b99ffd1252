"""From the manifest to the settings of a NATS sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sinkpipeline.core import manifest
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.tls import Tls
from sinkpipeline.nats.settings import Connection, SinkSettings, Stream

SecretFile = Callable[[manifest.SecretRef], str]
"""The path of a key of a Secret, which is there and can be read."""


def resolve_sink(  # noqa: PLR0913 - from several places, as they are
    sink: manifest.Sink,
    of: manifest.NatsSink,
    *,
    id: SinkId,  # noqa: A002 - as the settings call it
    owner: Owner,
    source: Any,
    group_id: str,
    tls: Tls | None,
    secret_file: SecretFile,
    dead_letter: Any,
) -> SinkSettings:
    """The settings of one sink.

    Args:
        sink: the manifest's.
        of: what of it is NATS's.
        id: of the sink.
        owner: of its progress.
        source: the source's own settings.
        group_id: as which the source is read.
        tls: its files, which are right.
        secret_file: finds a Secret.
        dead_letter: where its dead letters go.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    stream = of.stream
    return SinkSettings(
        id=id,
        owner=owner,
        source=source,
        group_id=group_id,
        connection=_connection(of, tls, secret_file),
        stream=Stream(
            name=stream.name,
            subjects=of.row_subjects,
            replicas=stream.replicas,
            max_age_ns=None if stream.max_age is None else stream.max_age.milliseconds * 1_000_000,
            max_bytes=stream.max_bytes,
        ),
        subject=of.subject,
        progress_subject=of.progress_subject,
        refuse_existing_data=sink.on_existing_data is manifest.OnExistingData.REFUSE,
        dead_letter=dead_letter,
    )


def _connection(of: manifest.NatsSink, tls: Tls | None, secret_file: SecretFile) -> Connection:
    auth = of.auth or manifest.NatsAuth()

    def path(ref: manifest.SecretRef | None) -> str | None:
        return None if ref is None else secret_file(ref)

    return Connection(
        servers=of.servers,
        user=auth.username,
        password_file=path(auth.password_secret_ref),
        token_file=path(auth.token_secret_ref),
        nkey_file=path(auth.nkey_secret_ref),
        creds_file=path(auth.creds_secret_ref),
        tls=tls,
    )
