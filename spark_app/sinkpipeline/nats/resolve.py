"""From the manifest to the settings of a NATS sink."""

from __future__ import annotations

from sinkpipeline.cells.given import Given
from sinkpipeline.core import manifest
from sinkpipeline.nats.settings import Connection, SinkSettings, Stream


def resolve_sink(of: manifest.NatsSink, given: Given) -> SinkSettings:
    """The settings of one sink.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    stream, auth = of.stream, of.auth or manifest.NatsAuth()
    return SinkSettings(
        **given.of_every_kind,
        connection=Connection(
            servers=of.servers,
            user=auth.username,
            password_file=given.secret(auth.password_secret_ref),
            token_file=given.secret(auth.token_secret_ref),
            nkey_file=given.secret(auth.nkey_secret_ref),
            creds_file=given.secret(auth.creds_secret_ref),
            tls=given.tls,
        ),
        stream=Stream(
            name=stream.name,
            subjects=of.row_subjects,
            replicas=stream.replicas,
            max_age_ns=_ns(stream.max_age),
            max_bytes=stream.max_bytes,
            duplicate_window_ns=_ns(stream.duplicate_window),
        ),
        subject=of.subject,
        progress_subject=of.progress_subject,
    )


def _ns(duration: manifest.Duration | None) -> int | None:
    return None if duration is None else duration.milliseconds * 1_000_000
