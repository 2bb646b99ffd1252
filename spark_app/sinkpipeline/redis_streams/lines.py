"""Connections to servers of Redis: how one is made, and what the errors on it mean to us."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, TypeAlias

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.exceptions import AskError, AuthenticationError, RedisError, ResponseError
from redis.retry import Retry

import redis
from sinkpipeline.authorities import system_authorities
from sinkpipeline.cells.secrets import secret
from sinkpipeline.core.tls import Tls
from sinkpipeline.redis_streams.addresses import host_and_port
from sinkpipeline.redis_streams.replies import Meaning, meaning

Line: TypeAlias = Connection
ERRORS = (RedisError, OSError)
"""What a connection raises."""
REFUSED = ResponseError
"""What a server says of a command that it does not do, behind which others are answered."""
_BAD_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
_WRONG_NAME = ("Hostname mismatch", "IP address mismatch")
_ASKED_FOR_CERTIFICATE = ("ALERT_CERTIFICATE_", "ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA")
"""What servers say of a certificate of ours, or of none."""
_ENDED = ("EOF occurred in violation of protocol", "Connection reset by peer", "Broken pipe")
"""Of TLS 1.3, where a client has finished before a server looks at its certificate."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """As whom a connection is made, to which database, and how long each step may take."""

    user: str | None = None
    password_file: str | None = None
    tls: Tls | None = None
    database: int = 0
    connect_s: float
    answer_s: float


@dataclass(frozen=True, kw_only=True)
class Told:
    """What an error says. `is_reply`: whether the server itself has said it, instead of doing what it was asked for."""

    code: str
    text: str
    means: Meaning
    is_reply: bool
    silent: bool
    """Whether no answer came in time."""
    owner: str = ""
    """host:port of the server which has the slot, where a node of a cluster has named it; the host may be missing."""


def connected(address: str, access: Access) -> Line:
    """Raises what is in ERRORS."""
    host, port = host_and_port(address)
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "db": access.database,
        "username": access.user,
        "password": None if access.password_file is None else secret(access.password_file),
        "socket_connect_timeout": access.connect_s,
        "socket_timeout": access.answer_s,
        "socket_keepalive": True,
        # A commit that is sent twice would be told as one of somebody else.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    line: Line
    if access.tls is None:
        line = Connection(**options)
    else:
        line = SSLConnection(
            **options,
            ssl_cert_reqs="required",
            ssl_check_hostname=True,
            ssl_ca_certs=access.tls.ca_file or system_authorities(),
            ssl_certfile=access.tls.certificate_file,
            ssl_keyfile=access.tls.key_file,
        )
    line.connect()
    return line


def answer(line: Line, *words: str | bytes | int) -> Any:
    """Raises what is in ERRORS."""
    line.send_packed_command(line.pack_command(*words))
    return line.read_response()


def ended(line: Line) -> None:
    with contextlib.suppress(*ERRORS):
        line.disconnect()


def told(error: Exception) -> Told:
    is_reply = isinstance(error, ResponseError) or (
        isinstance(error, redis.ConnectionError) and getattr(error, "status_code", None) is not None
    )
    code, text = _code(error), " ".join(str(error).split())
    return Told(
        code=code,
        text=text,
        means=meaning(code, text) if is_reply else _of_connecting(error, text),
        is_reply=is_reply,
        silent=isinstance(error, redis.TimeoutError | TimeoutError),
        owner="{}:{}".format(*error.node_addr) if isinstance(error, AskError) else "",
    )


def certificate_remedy(text: str) -> str | None:
    """What to do where the text of an error tells of a certificate; None where it does not."""
    if _BAD_CERTIFICATE in text:
        if any(each in text for each in _WRONG_NAME):
            return "name the server as its certificate does"
        return "name the authority of the server's certificate: auth.tls.caSecretRef of the sink"
    if any(each in text for each in _ASKED_FOR_CERTIFICATE):
        return "give a certificate that the server trusts: auth.tls.certSecretRef of the sink"
    return None


def may_ask_for_certificate(text: str) -> str:
    """What a remedy says beside, where a connection with TLS just ended: the server's word may be lost."""
    ended = any(each in text for each in _ENDED)
    return "; if it asks for certificates, give one that it trusts: auth.tls.certSecretRef of the sink" if ended else ""


def _code(error: Exception) -> str:
    found = getattr(error, "status_code", None)
    return str(found) if found else str(error).partition(" ")[0]


def _of_connecting(error: Exception, text: str) -> Meaning:
    if isinstance(error, AuthenticationError) or certificate_remedy(text) is not None:
        return Meaning.CREDENTIALS
    return Meaning.OUTAGE
