"""What libpq is given to reach a server: of a sink's client, and of a stage that reads changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from sinkpipeline.authorities import system_authorities
from sinkpipeline.cells.secrets import secret
from sinkpipeline.postgresql.files import private_copy
from sinkpipeline.postgresql.settings import Connection

CONNECT_TIMEOUT_S = 10


@contextlib.contextmanager
def parameters(connection: Connection, silence_s: int, **changes: Any) -> Iterator[dict[str, Any]]:
    """Libpq's parameters, for as long as a connection is made by them.

    Args:
        connection: the server, and as whom.
        silence_s: after so long without any sign of the other end a connection is given up.
        changes: replace some of them.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    found = {**_parameters(connection, silence_s), **changes}
    with contextlib.ExitStack() as files:
        if "sslkey" in found:
            found["sslkey"] = files.enter_context(private_copy(found["sslkey"]))
        yield found


def _parameters(connection: Connection, silence_s: int) -> dict[str, Any]:
    hosts, ports = zip(*(each.rsplit(":", 1) for each in connection.servers.split(",")), strict=True)
    found: dict[str, Any] = {
        # An IPv6 address stands in brackets before a port.
        "host": ",".join(host.strip("[]") for host in hosts),
        "port": ",".join(ports),
        "dbname": connection.database,
        "user": connection.user,
        "application_name": "sinkpipeline",
        "client_encoding": "UTF8",
        # Of one server each transaction asks: a pooler tells what it has heard from the server at some time.
        "target_session_attrs": "read-write" if len(hosts) > 1 else "any",
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": silence_s // 3,
        "keepalives_interval": silence_s // 3,
        "keepalives_count": 2,
        "tcp_user_timeout": silence_s * 1000,
        "sslmode": "disable" if connection.tls is None else "verify-full",
        # Neither is asked for by anything that we say.
        "gssencmode": "disable",
        # No file: libpq warns of one that is none.
        "passfile": "/dev/null/none",
    }
    if connection.password_file is not None:
        found["password"] = secret(connection.password_file)
    if connection.tls is not None:
        files = {
            # `system` is a file of the distribution that built libpq's wheel, which no image has.
            "sslrootcert": connection.tls.ca_file or system_authorities() or "system",
            "sslcert": connection.tls.certificate_file,
            "sslkey": connection.tls.key_file,
        }
        found |= {name: path for name, path in files.items() if path is not None}
    return found
