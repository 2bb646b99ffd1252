"""What a Kafka source and a Kafka sink have in common: where the cluster is, and who we are there.

Credentials are only ever references to Secrets of the same namespace. Refused: addresses without a port, an `auth` that
says nothing.
"""

import enum
import re
from typing import Annotated

from pydantic import AfterValidator, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.names import SecretKey, SecretName, UserName
from sinkpipeline.core.manifest.problems import refuse

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]{2,45}\]")
_MAX_HOST = 253
_MAX_PORT = 65535
_MAX_BOOTSTRAP = 8192


def _bootstrap_servers(text: str) -> str:
    if len(text) > _MAX_BOOTSTRAP:
        refuse(f"use at most {_MAX_BOOTSTRAP} characters", f"has {len(text)} characters")
    servers = [server.strip() for server in text.split(",")]
    for number, server in enumerate(servers, start=1):
        if not _is_address(server):
            # Not shown: people paste URLs with a password in them.
            where = f"entry {number} of {len(servers)}" if len(servers) > 1 else "it"
            refuse(
                'write host:port, several separated by commas, such as "kafka-0:9092,kafka-1:9092"',
                f"{where} is not host:port",
            )
    return ",".join(servers)


def _is_address(server: str) -> bool:
    host, _, port = server.rpartition(":")
    return (
        len(host) <= _MAX_HOST
        and bool(_HOST.fullmatch(host) or _IPV6.fullmatch(host))
        and bool(re.fullmatch(r"[0-9]{1,5}", port))
        and 1 <= int(port) <= _MAX_PORT
    )


BootstrapServers = Annotated[str, AfterValidator(_bootstrap_servers)]
"""`host:port,host:port`, without blanks."""


class SaslMechanism(str, enum.Enum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class SecretRef(Part):
    """One key of a Secret."""

    name: SecretName
    key: SecretKey


class CertificateRef(Part):
    """A client certificate and its private key, two keys of one Secret."""

    name: SecretName
    cert_key: SecretKey
    key_key: SecretKey


class Tls(Part):
    """TLS; without `ca_secret_ref` the certificate authorities of the image are trusted."""

    ca_secret_ref: SecretRef | None = None
    cert_secret_ref: CertificateRef | None = None


class Sasl(Part):
    mechanism: SaslMechanism
    username: UserName
    password_secret_ref: SecretRef


class Auth(Part):
    """How we authenticate; without `tls` the connection is not encrypted."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.tls is None and self.sasl is None:
            refuse("give tls, sasl or both, or leave auth out", "is empty")
        return self


class KafkaConnection(Part):
    """One cluster with one set of credentials, after defaults."""

    bootstrap_servers: BootstrapServers
    auth: Auth | None = None

    def shares_a_broker_with(self, other: "KafkaConnection") -> bool:
        """True means the same cluster; False means nothing: one cluster can be named by different brokers."""
        return not _brokers(self).isdisjoint(_brokers(other))


def _brokers(connection: KafkaConnection) -> frozenset[str]:
    return frozenset(connection.bootstrap_servers.lower().split(","))
