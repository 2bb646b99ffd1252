"""How clients reach a cluster: addresses and credentials, and the settings that every client of ours shares.

Credentials stay in files (mounted Secrets): a connection carries their paths, so that it can travel to an executor or
into a log without carrying a secret.
"""

from __future__ import annotations

import base64
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from sinkpipeline.authorities import system_authorities
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.tls import Tls
from sinkpipeline.kafka.msk import token_callback

LOGGER = logging.getLogger("sinkpipeline.kafka")

REQUEST_TIMEOUT_S = 10.0
"""The deadline of one admin request; a dead broker must not hold the cores that other sinks need."""

SOCKET_TIMEOUT_MS = 20_000

_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_PKCS8_KEY = "-----BEGIN PRIVATE KEY-----"
_EDWARDS_CURVE = b"\x06\x03\x2b\x65"
"""The beginning of its object identifier, as the key's algorithm."""


@dataclass(frozen=True, kw_only=True)
class Sasl:
    mechanism: str
    username: str
    password_file: str

    def client_config(self) -> dict[str, Any]:
        return {
            "sasl.username": self.username,
            "sasl.password": read_secret(Path(self.password_file)),
        }


@dataclass(frozen=True, kw_only=True)
class Oauthbearer:
    """Tokens of an OpenID Connect provider; both clients get and renew them by themselves."""

    token_endpoint_url: str
    client_id: str
    client_secret_file: str
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None

    @property
    def mechanism(self) -> str:
        return "OAUTHBEARER"

    def client_config(self) -> dict[str, Any]:
        config = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.token_endpoint_url,
            "sasl.oauthbearer.client.id": self.client_id,
            "sasl.oauthbearer.client.secret": read_secret(Path(self.client_secret_file)),
        }
        if self.scope is not None:
            # librdkafka puts it into the form as it is.
            config["sasl.oauthbearer.scope"] = quote_plus(self.scope)
        if self.extensions:
            config["sasl.oauthbearer.extensions"] = ",".join(map("=".join, self.extensions))
        # The curl in the client's wheel looks where the distribution that built it keeps authorities, and nowhere else.
        authorities = self.ca_file or system_authorities()
        if authorities is not None:
            config["https.ca.location"] = authorities
        return config


@dataclass(frozen=True, kw_only=True)
class MskIam:
    """Amazon MSK by IAM, with the credentials that this process finds in its environment."""

    region: str

    @property
    def mechanism(self) -> str:
        """Of librdkafka; Java's client has one of its own."""
        return "OAUTHBEARER"

    def client_config(self) -> dict[str, Any]:
        return {"oauth_cb": token_callback(self.region)}


SaslLogIn = Sasl | Oauthbearer | MskIam


@dataclass(frozen=True, kw_only=True)
class Connection:
    """One cluster with one set of credentials."""

    bootstrap_servers: str
    tls: Tls | None = None
    sasl: SaslLogIn | None = None

    @property
    def security_protocol(self) -> str:
        if self.sasl is not None:
            return "SASL_SSL" if self.tls is not None else "SASL_PLAINTEXT"
        return "SSL" if self.tls is not None else "PLAINTEXT"

    def client_config(self, properties: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Librdkafka's configuration of any client; `properties` are the manifest's, which never overrule ours.

        Raises:
            SinkPipelineError: SecretNotFound where a credentials file can't be read; as `token_callback`.
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
            config |= {"sasl.mechanism": self.sasl.mechanism, **self.sasl.client_config()}
        return config


def secret_file(secrets_dir: Path | None, secret: str, key: str) -> str:
    """The path of one key of a Secret, as both clients can take it.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    if secrets_dir is None:
        raise SinkPipelineError(
            Reason.SECRET_NOT_FOUND,
            f"the manifest refers to key {key} of Secret {secret}, and no directory of Secrets was given",
            f"give --secrets-dir DIR, where DIR/{secret}/{key} holds it",
        )
    path = secrets_dir.absolute() / secret / key
    if set(str(path)) & set(":}"):
        raise SinkPipelineError(
            Reason.USAGE_INVALID,
            f"the path of the directory of Secrets, {secrets_dir}, holds a colon or a closing brace, which the Java "
            "client can't take in a reference to a file",
            "give --secrets-dir another path",
        )
    read_secret(path)
    return str(path)


def password_file(secrets_dir: Path | None, secret: str, key: str) -> str:
    """The path of a password that both clients can use.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    path = secret_file(secrets_dir, secret, key)
    password = read_secret(Path(path))
    if not password:
        raise _invalid(Path(path), "is empty", "write the password into it")
    if set(password) & set('"\\\r\n'):
        raise _invalid(
            Path(path),
            "holds a line break, a double quote or a backslash, which the Java client can't take from a file into its "
            "login configuration",
            "write the password without a line break at its end (printf, not echo), or choose another one",
        )
    return path


def read_token(path: Path) -> str:
    """A token as it stands in a header of HTTP, without the line break that an editor leaves at its end.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid.
    """
    fact = "holds a blank, a line break or another character that a token can't have"
    return _read_for_http(path, "token", fact, lambda each: "!" <= each <= "~")


def read_password(path: Path) -> str:
    """A password for HTTP, likewise.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid.
    """
    fact = "holds a line break or another control character, which a password of HTTP can't have"
    return _read_for_http(path, "password", fact, lambda each: each >= " " and each != "\x7f")


def _read_for_http(path: Path, what: str, fact: str, may_stand: Callable[[str], bool]) -> str:
    text = read_secret(path).rstrip("\r\n")
    if not text:
        raise _invalid(path, "is empty", f"write the {what} into it")
    if not all(map(may_stand, text)):
        raise _invalid(path, fact, f"write the {what} alone into it")
    return text


def check_tls(tls: Tls) -> Tls:
    """Refuses files that one of the two clients could not use, before either is asked to.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid.
    """
    if tls.ca_file is not None:
        check_authority(tls.ca_file)
    if tls.certificate_file is not None and tls.key_file is not None:
        _check_pair(Path(tls.certificate_file), Path(tls.key_file))
    return tls


def check_authority(ca_file: str) -> str:
    """The path of certificates to trust that both clients can use.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid.
    """
    path = Path(ca_file)
    try:
        if _CERTIFICATE not in read_secret(path):
            raise _invalid(path, "holds no certificate", "write the CA's certificate into it, as PEM")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
    except ssl.SSLError as error:
        raise _invalid(path, f"is no certificate: {error.reason}", "write the CA's certificate as PEM") from error
    return ca_file


def _check_pair(certificate: Path, key: Path) -> None:
    if _CERTIFICATE not in read_secret(certificate):
        raise _invalid(certificate, "holds no certificate", "write the client's certificate chain into it, as PEM")
    pem = read_secret(key)
    if "ENCRYPTED" in pem:
        # The client would ask for the password on the terminal, and wait.
        raise _invalid(
            key, "is an encrypted private key", "decrypt it: openssl pkcs8 -topk8 -nocrypt -in tls.key -out plain.key"
        )
    if _PKCS8_KEY not in pem:
        raise _invalid(
            key,
            "is no private key of PKCS #8 (BEGIN PRIVATE KEY), the only kind that the Java client reads",
            "convert it: openssl pkcs8 -topk8 -nocrypt -in tls.key -out new.key; "
            "with cert-manager: privateKey.encoding: PKCS8",
        )
    body = pem.partition(_PKCS8_KEY)[2].partition("-----")[0]
    if _EDWARDS_CURVE in base64.b64decode(body)[:32]:
        raise _invalid(key, "is a key of Ed25519 or Ed448, which the Java client can't read", "use one of RSA or EC")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise _invalid(
            key,
            f"and the certificate in {certificate.name} can't be used together: {error.reason}",
            "write a certificate and its own private key into the Secret, both as PEM",
        ) from error


def _invalid(path: Path, what: str, remedy: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.SECRET_INVALID, f"key {path.name} of Secret {path.parent.name} {what}", remedy)


def read_secret(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _invalid(path, "is not UTF-8 text", "write it as text") from error
    except OSError as error:
        raise SinkPipelineError(
            Reason.SECRET_NOT_FOUND,
            f"key {path.name} of Secret {path.parent.name} can't be read from {path.parent.parent}: {error.strerror}",
            "create the Secret with that key",
        ) from error
