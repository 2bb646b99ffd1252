"""What a Kafka source and a Kafka sink have in common: where the cluster is, and who we are there.

Credentials are only ever references to Secrets of the same namespace. Refused: addresses without a port, an `auth` that
says nothing, a log-in that lacks what its mechanism needs.
"""

import enum
import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, WithJsonSchema, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Bounds, Part, StringMap
from sinkpipeline.core.manifest.names import (
    ADDRESS_PATTERN,
    BLANKS,
    AwsRegion,
    ClientId,
    Scope,
    SecretKey,
    SecretName,
    TokenEndpointUrl,
    UserName,
)
from sinkpipeline.core.manifest.problems import Fault, fault_error, refuse

_BLANK = r"[ \t\n\f\r]*"
_SERVERS = rf"^{_BLANK}{ADDRESS_PATTERN}{_BLANK}(,{_BLANK}{ADDRESS_PATTERN}{_BLANK})*$"
_MAX_HOST = 253
_MAX_BOOTSTRAP = 2048


def _bootstrap_servers(text: str) -> str:
    return checked_servers(text, "kafka-0:9092,kafka-1:9092")


def checked_server(text: str, example: str) -> str:
    """`host:port` of one server."""
    if not _is_address(text):
        several = "names several" if "," in text else "is not host:port"
        refuse(f'write host:port of one server, such as "{example}"', several)
    return text


def checked_servers(text: str, example: str) -> str:
    """`host:port,host:port`, without blanks."""
    if len(text) > _MAX_BOOTSTRAP:
        refuse(f"use at most {_MAX_BOOTSTRAP} characters", f"has {len(text)} characters")
    servers = [server.strip(BLANKS) for server in text.split(",")]
    for number, server in enumerate(servers, start=1):
        if not _is_address(server):
            # Not shown: people paste URLs with a password in them.
            where = f"entry {number} of {len(servers)}" if len(servers) > 1 else "it"
            refuse(
                f'write host:port, several separated by commas, such as "{example}"',
                f"{where} is not host:port",
            )
    return ",".join(servers)


def _is_address(server: str) -> bool:
    return len(server.rpartition(":")[0]) <= _MAX_HOST and bool(re.fullmatch(ADDRESS_PATTERN, server))


SERVERS_SCHEMA = WithJsonSchema({"type": "string", "minLength": 3, "maxLength": _MAX_BOOTSTRAP, "pattern": _SERVERS})
SERVER_SCHEMA = WithJsonSchema(
    {"type": "string", "minLength": 3, "maxLength": _MAX_HOST + 8, "pattern": f"^{ADDRESS_PATTERN}$"}
)
"""Of one."""
BootstrapServers = Annotated[str, AfterValidator(_bootstrap_servers), SERVERS_SCHEMA]
"""`host:port,host:port`, without blanks."""


class SaslMechanism(str, enum.Enum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    AWS_MSK_IAM = "AWS_MSK_IAM"


class SecretRef(Part):
    """One key of a Secret."""

    name: SecretName
    """The Secret, in the namespace of the SinkPipeline."""
    key: SecretKey
    """The key of the Secret whose value is used."""


class CertificateRef(Part):
    """A client certificate and its private key, two keys of one Secret."""

    name: SecretName
    """The Secret, in the namespace of the SinkPipeline."""
    cert_key: SecretKey
    """The key of the Secret that holds the certificate chain, PEM."""
    key_key: SecretKey
    """The key of the Secret that holds the private key: PEM, PKCS #8, not encrypted."""


class Tls(Part):
    """TLS; `{}` is TLS with the certificate authorities that the image trusts."""

    ca_secret_ref: SecretRef | None = None
    """The certificate authorities to trust, PEM; without it, those of the image."""
    cert_secret_ref: CertificateRef | None = None
    """The client's certificate and private key, for mutual TLS."""


EXTENSION_NAME = "[A-Za-z]{1,64}"
EXTENSION_VALUE = "[A-Za-z0-9._~:/@+-]{1,249}"
"""What neither client has to quote."""


def _extensions(extensions: StringMap) -> StringMap:
    faults = []
    for name, value in extensions.items():
        if not re.fullmatch(EXTENSION_NAME, name) or name == "auth":
            faults.append(Fault("use names of 1 to 64 letters, and not auth", "has a name that can't be one", (name,)))
        elif not re.fullmatch(EXTENSION_VALUE, value):
            right = "use 1 to 249 of a-z, A-Z, 0-9, ., _, ~, :, /, @, + and -"
            faults.append(Fault(right, "has a value that it can't have", (name,)))
    if faults:
        raise fault_error(faults)
    return extensions


class Oauthbearer(Part):
    """Tokens of an OpenID Connect provider, by the grant of client credentials."""

    token_endpoint_url: TokenEndpointUrl
    """The URL that gives tokens, such as https://idp.example.org/realms/shop/protocol/openid-connect/token."""
    client_id: ClientId
    """The client."""
    client_secret_ref: SecretRef
    """The key of a Secret that holds the client's secret."""
    scope: Scope | None = None
    """The scope to ask for; without it, the provider's default."""
    extensions: Annotated[StringMap, Bounds(16, 249), AfterValidator(_extensions)] = StringMap()
    """SASL extensions that the brokers ask for, such as logicalCluster."""
    ca_secret_ref: SecretRef | None = None
    """The certificate authorities to trust at the token endpoint, PEM; without it, those of the image."""


class AwsMskIam(Part):
    """IAM of Amazon MSK. The credentials are those that the pods have: of their service account, or of variables."""

    region: AwsRegion
    """The region of the cluster, such as eu-central-1."""


_NEEDED = {SaslMechanism.OAUTHBEARER: ("oauthbearer",), SaslMechanism.AWS_MSK_IAM: ("awsMskIam",)}
"""Fields by mechanism; the others have user names and passwords."""


class Sasl(Part):
    """SASL: with a user name and a password; for OAUTHBEARER with tokens, for AWS_MSK_IAM with credentials of AWS."""

    mechanism: SaslMechanism
    """The SASL mechanism of the listener."""
    username: UserName | None = None
    """The user; at most 256 bytes. Not for OAUTHBEARER and AWS_MSK_IAM."""
    password_secret_ref: SecretRef | None = None
    """The key of a Secret that holds the password. Not for OAUTHBEARER and AWS_MSK_IAM."""
    oauthbearer: Oauthbearer | None = None
    """Where tokens come from; for OAUTHBEARER only."""
    aws_msk_iam: AwsMskIam | None = None
    """Which clusters of Amazon MSK; for AWS_MSK_IAM only."""

    @model_validator(mode="after")
    def _fits_the_mechanism(self) -> Self:
        fields = {
            "username": self.username,
            "passwordSecretRef": self.password_secret_ref,
            "oauthbearer": self.oauthbearer,
            "awsMskIam": self.aws_msk_iam,
        }
        needed = _NEEDED.get(self.mechanism, ("username", "passwordSecretRef"))
        others = {name: value for name, value in fields.items() if name not in needed}
        faults = [Fault("add it", "is missing", (name,)) for name in needed if fields[name] is None]
        faults += [
            Fault("leave it out, or set another mechanism", "is not for this mechanism", (name,))
            for name, value in others.items()
            if value is not None
        ]
        if faults:
            raise fault_error(faults)
        return self


class Auth(Part):
    """How we authenticate; without `tls` the connection is not encrypted."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    tls: Tls | None = None
    """Encrypts the connection; `{}` trusts the certificate authorities of the image."""
    sasl: Sasl | None = None
    """Authenticates with a user name and a password, or with tokens."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.tls is None and self.sasl is None:
            refuse("give tls, sasl or both, or leave auth out", "is empty")
        if self.tls is None and self.sasl is not None and self.sasl.mechanism is SaslMechanism.AWS_MSK_IAM:
            refuse("add it: tls: {}", "is missing, and Amazon MSK takes IAM over TLS only", ("tls",))
        return self


class KafkaConnection(Part):
    """One cluster with one set of credentials, after defaults."""

    bootstrap_servers: BootstrapServers
    auth: Auth | None = None

    @property
    def token_endpoint_url(self) -> str | None:
        """Who gives the tokens to log in with; None where it takes none."""
        tokens = self.auth and self.auth.sasl and self.auth.sasl.oauthbearer
        return tokens.token_endpoint_url if tokens else None

    @property
    def logs_in_as_its_pod(self) -> bool:
        """Whether the credentials are those of who connects, and stand in no Secret."""
        sasl = None if self.auth is None else self.auth.sasl
        return sasl is not None and sasl.mechanism is SaslMechanism.AWS_MSK_IAM

    def shares_a_broker_with(self, other: "KafkaConnection") -> bool:
        """True means the same cluster; False means nothing: one cluster can be named by different brokers."""
        return not _brokers(self).isdisjoint(_brokers(other))


def _brokers(connection: KafkaConnection) -> frozenset[str]:
    return frozenset(connection.bootstrap_servers.lower().split(","))
