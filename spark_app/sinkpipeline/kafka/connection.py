"""How clients reach a cluster: addresses and credentials, and the settings that every client of ours shares.

Credentials stay in files (mounted Secrets): a connection carries their paths, so that it can travel to an executor or
into a log without carrying a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError

LOGGER = logging.getLogger("sinkpipeline.kafka")

REQUEST_TIMEOUT_S = 10.0
"""The deadline of one admin request; a dead broker must not hold the cores that other sinks need."""

SOCKET_TIMEOUT_MS = 20_000


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Paths of PEM files."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sasl:
    mechanism: str
    username: str
    password_file: str


@dataclass(frozen=True, kw_only=True)
class Connection:
    """One cluster with one set of credentials."""

    bootstrap_servers: str
    tls: Tls | None = None
    sasl: Sasl | None = None

    @property
    def security_protocol(self) -> str:
        if self.sasl is not None:
            return "SASL_SSL" if self.tls is not None else "SASL_PLAINTEXT"
        return "SSL" if self.tls is not None else "PLAINTEXT"

    def client_config(self, properties: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Librdkafka's configuration of any client; `properties` are the manifest's, which never overrule ours.

        Raises:
            SinkPipelineError: SecretNotFound where a credentials file can't be read.
        """
        config: dict[str, Any] = {
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "socket.connection.setup.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 2_000,
            **(properties or {}),
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            # A deleted topic would come back with the broker's defaults, and look as if it had never been deleted.
            "allow.auto.create.topics": False,
            "logger": LOGGER,
        }
        if self.tls is not None:
            files = {
                "ssl.ca.location": self.tls.ca_file,
                "ssl.certificate.location": self.tls.certificate_file,
                "ssl.key.location": self.tls.key_file,
            }
            config |= {name: path for name, path in files.items() if path is not None}
        if self.sasl is not None:
            config |= {
                "sasl.mechanism": self.sasl.mechanism,
                "sasl.username": self.sasl.username,
                "sasl.password": read_secret(Path(self.sasl.password_file)),
            }
        return config


def secret_file(secrets_dir: Path | None, secret: str, key: str) -> str:
    """The path of one key of a Secret.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    if secrets_dir is None:
        raise SinkPipelineError(
            Reason.SECRET_NOT_FOUND,
            f"the manifest refers to key {key} of Secret {secret}, and no directory of Secrets was given",
            f"give --secrets-dir DIR, where DIR/{secret}/{key} holds it",
        )
    path = secrets_dir / secret / key
    read_secret(path)
    return str(path)


def password_file(secrets_dir: Path | None, secret: str, key: str) -> str:
    """The path of a password that both clients can use.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid.
    """
    path = secret_file(secrets_dir, secret, key)
    if set(read_secret(Path(path))) & set('"\\\r\n'):
        raise SinkPipelineError(
            Reason.SECRET_INVALID,
            f"key {key} of Secret {secret} holds a line break, a double quote or a backslash, which the Java client "
            "can't take from a file into its login configuration",
            "write the password without a line break at its end (printf, not echo), or choose another one",
        )
    return path


def read_secret(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SinkPipelineError(
            Reason.SECRET_NOT_FOUND,
            f"key {path.name} of Secret {path.parent.name} can't be read from {path.parent.parent}",
            "create the Secret with that key",
        ) from error
