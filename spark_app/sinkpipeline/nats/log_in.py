"""As whom a client connects, and how it is encrypted."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from sinkpipeline.authorities import system_authorities
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.nats.settings import Connection

CONNECT_TIMEOUT_S = 10.0
PING_S = 10
"""After two of them without an answer a connection is given up."""


def options_of(connection: Connection) -> dict[str, Any]:
    """The client's. It never makes a connection again by itself: what was read on one means nothing on another.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid.
    """
    found: dict[str, Any] = {
        "name": "sinkpipeline",
        "allow_reconnect": False,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "ping_interval": PING_S,
        "max_outstanding_pings": 2,
        "no_echo": True,
    }
    if connection.user is not None:
        found["user"] = connection.user
    if connection.password_file is not None:
        found["password"] = _secret(connection.password_file, "passwordSecretRef")
    if connection.token_file is not None:
        found["token"] = _secret(connection.token_file, "tokenSecretRef")
    if connection.nkey_file is not None:
        found["nkeys_seed_str"] = _secret(connection.nkey_file, "nkeySecretRef")
    if connection.creds_file is not None:
        _secret(connection.creds_file, "credsSecretRef")
        found["user_credentials"] = connection.creds_file
    if connection.tls is not None:
        found["tls"] = _tls(connection)
    return found


def _tls(connection: Connection) -> ssl.SSLContext:
    tls = connection.tls
    if tls is None:
        raise ValueError("the connection is not encrypted")
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or system_authorities())
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file)
    except OSError as error:
        raise SinkPipelineError(
            Reason.SECRET_INVALID, f"a file of auth.tls can't be used: {error}", "check caSecretRef and certSecretRef"
        ) from error
    return context


def _secret(path: str, name: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SinkPipelineError(Reason.SECRET_NOT_FOUND, f"{path} can't be read: {error}", f"check {name}") from error
