"""As whom a client connects, and how it is encrypted."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import override

from sinkpipeline.authorities import system_authorities
from sinkpipeline.cells.secrets import secret
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.tls import Tls
from sinkpipeline.nats.credentials import credentials_of, seed_of
from sinkpipeline.nats.settings import Connection

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0
PING_S = 10
"""After two of them without an answer a connection is given up."""


class Unencrypted(Exception):
    """The server asks for no encryption, and nothing was sent to it that is secret."""


class Context(ssl.SSLContext):
    """One connection's. The client encrypts only if the server asks for it: this knows whether it did."""

    is_used = False

    @override
    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """How asyncio begins to encrypt."""
        self.is_used = True
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def check(self) -> None:
        """Raises Unencrypted."""
        if not self.is_used:
            raise Unencrypted("the server does not encrypt connections, and the sink has auth.tls")


def options_of(connection: Connection) -> tuple[dict[str, Any], Context | None]:
    """The client's, for one connection, and by what that is encrypted.

    It never makes a connection again by itself: what was read on one means nothing on another.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid.
    """
    context = None if connection.tls is None else _context(connection.tls)

    def told(text: T) -> Callable[[], T]:
        """What is secret, once it is known that nobody else reads it."""

        def tell() -> T:
            if context is not None:
                context.check()
            return text

        return tell

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
        found["password"] = told(secret(connection.password_file))
    if connection.token_file is not None:
        found["token"] = told(secret(connection.token_file, "token", "tokenSecretRef"))
    if connection.nkey_file is not None:
        found["nkeys_seed_str"] = seed_of(connection.nkey_file)
    if connection.creds_file is not None:
        jwt, sign = credentials_of(connection.creds_file)
        found |= {"user_jwt_cb": told(jwt.encode()), "signature_cb": sign}
    if context is not None:
        found["tls"] = context
    return found, context


def _context(tls: Tls) -> Context:
    try:
        context = Context(ssl.PROTOCOL_TLS_CLIENT)
        authorities = tls.ca_file or system_authorities()
        if authorities is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile=authorities)
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file)
    except OSError as error:
        raise SinkPipelineError(
            Reason.SECRET_INVALID, f"a file of auth.tls can't be used: {error}", "check caSecretRef and certSecretRef"
        ) from error
    return context
