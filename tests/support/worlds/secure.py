"""A broker that asks who we are and what we may do, behind one listener for each way of asking.

The listener CLIENT stays plain, and whoever comes through it is a super user: the tests' own door.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from typing_extensions import override

from servers.java import FAST_START
from servers.local_kafka import LocalKafka
from servers.local_process import HOST, free_ports
from servers.token_endpoint import TokenEndpoint
from support.kafka.topics import DEADLINE_S, unique
from support.waiting import result_of, wait_until

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

PLAIN_USER = "app"
PLAIN_PASSWORD = "pass$word ${directory:/etc:hostname} {of} 'mine', =2C"
_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
_ITERATIONS = 4096
RIGHTS = Path(__file__).parents[3] / "docs" / "rights.md"


class Door(enum.Enum):
    """A listener, by its name."""

    SASL = "SASL_PLAINTEXT"
    SASL_TLS = "SASL_SSL"
    TLS = "SSL"
    MUTUAL = "MUTUAL"
    EXPIRED = "EXPIRED"
    ELSEWHERE = "ELSEWHERE"
    TOKENS = "TOKENS"

    @property
    def protocol(self) -> str:
        if self is Door.TOKENS:
            return "SASL_SSL"
        return self.value if self in (Door.SASL, Door.SASL_TLS) else "SSL"


class Certificates:
    """An authority, and what it has signed, as PEM files with keys of PKCS #8 as both clients read them."""

    def __init__(self, directory: Path, host: str) -> None:
        self._directory = directory
        self._authority = trustme.CA()
        self._other = trustme.CA()
        directory.mkdir(parents=True, exist_ok=True)
        self.ca = self._write("ca.crt", self._authority.cert_pem.bytes())
        self.wrong_ca = self._write("wrong-ca.crt", self._other.cert_pem.bytes())
        self.broker = self._keystore("broker", self._authority.issue_cert(host))
        self.token_endpoint = self._keystore("token-endpoint", self._authority.issue_cert(host))
        self.expired = self._keystore("expired", self._authority.issue_cert(host, not_after=_yesterday()))
        self.elsewhere = self._keystore("elsewhere", self._authority.issue_cert("elsewhere.example"))

    def client(self, name: str, *, trusted: bool = True, expired: bool = False) -> tuple[bytes, bytes]:
        """A certificate for a client of that common name, and its key."""
        authority = self._authority if trusted else self._other
        issued = authority.issue_cert(
            f"{name}@example.org", common_name=name, not_after=_yesterday() if expired else None
        )
        return _chain(issued), pkcs8(issued.private_key_pem.bytes())

    def _keystore(self, name: str, issued: trustme.LeafCert) -> Path:
        return self._write(f"{name}.pem", pkcs8(issued.private_key_pem.bytes()) + _chain(issued))

    def _write(self, name: str, pem: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(pem)
        return path


def _yesterday() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=1)


def _chain(issued: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in issued.cert_chain_pems)


def pkcs8(key: bytes, *, password: bytes | None = None) -> bytes:
    loaded: PrivateKeyTypes = load_pem_private_key(key, None)
    how: KeySerializationEncryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)


def traditional(key: bytes, *, password: bytes | None = None) -> bytes:
    """The key as OpenSSL wrote it once, and as cert-manager does unless it is told otherwise."""
    loaded: PrivateKeyTypes = load_pem_private_key(key, None)
    how: KeySerializationEncryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, how)


@dataclass(frozen=True)
class Right:
    """What somebody may do: an allowing ACL without its principal."""

    resource: ResourceType
    name: str
    operation: AclOperation
    pattern: ResourcePatternType = ResourcePatternType.LITERAL

    def binding(self, principal: str) -> AclBinding:
        return AclBinding(
            self.resource, self.name, self.pattern, principal, "*", self.operation, AclPermissionType.ALLOW
        )

    def filter(self, principal: str) -> AclBindingFilter:
        return AclBindingFilter(
            self.resource, self.name, self.pattern, principal, "*", self.operation, AclPermissionType.ALLOW
        )


class SecureKafka(LocalKafka):
    """One broker with a listener for each `Door`; nobody but the tests may do anything without an ACL."""

    def __init__(self, directory: Path, *, host: str = HOST) -> None:
        self.certificates = Certificates(directory / "certificates", host)
        self.tokens = TokenEndpoint(self.certificates.token_endpoint, host=host)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.tokens.keys_url}"
        super().__init__(client_config={}, host=host, jvm_options=(*FAST_START, allowed))
        ours = {port for ports in self._nodes.values() for port in vars(ports).values()}
        free = [port for port in free_ports(len(Door) + len(ours), host) if port not in ours]
        self._doors = dict(zip(Door, free, strict=False))
        self._admin: AdminClient | None = None

    @override
    def start(self) -> None:
        self.tokens.start()
        super().start()

    @override
    def stop(self) -> None:
        super().stop()
        self.tokens.stop()

    def servers(self, door: Door) -> str:
        return f"{self._host}:{self._doors[door]}"

    @override
    def _server_properties(self, node: int) -> dict[str, str]:
        base = super()._server_properties(node)
        doors = {door.name.lower().replace("_", ""): (door, port) for door, port in self._doors.items()}
        listeners = "".join(f",{name.upper()}://{self._host}:{port}" for name, (_, port) in doors.items())
        protocols = "".join(f",{name.upper()}:{door.protocol}" for name, (door, _) in doors.items())
        certificates = self.certificates
        stores = {Door.EXPIRED: certificates.expired, Door.ELSEWHERE: certificates.elsewhere}
        module = "org.apache.kafka.common.security"
        secured: dict[str, str] = {}
        for name, (door, _) in doors.items():
            prefix = f"listener.name.{name}"
            if door is Door.TOKENS:
                secured |= self._by_tokens(prefix)
            elif "SASL" in door.protocol:
                secured |= {
                    f"{prefix}.sasl.enabled.mechanisms": "SCRAM-SHA-512" if door is Door.SASL else _MECHANISMS,
                    f"{prefix}.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule"
                    f' required user_{PLAIN_USER}="{PLAIN_PASSWORD}";',
                    f"{prefix}.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
                    f"{prefix}.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
                }
            if "SSL" in door.protocol:
                secured |= {
                    f"{prefix}.ssl.keystore.type": "PEM",
                    f"{prefix}.ssl.keystore.location": str(stores.get(door, certificates.broker)),
                    f"{prefix}.ssl.truststore.type": "PEM",
                    f"{prefix}.ssl.truststore.location": str(certificates.ca),
                    f"{prefix}.ssl.client.auth": "required" if door is Door.MUTUAL else "none",
                }
        return {
            **base,
            "listeners": base["listeners"] + listeners,
            "listener.security.protocol.map": base["listener.security.protocol.map"] + protocols,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            # A client of the listener MUTUAL is who its certificate says.
            "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/",
            "allow.everyone.if.no.acl.found": "false",
            **secured,
        }

    def _by_tokens(self, prefix: str) -> dict[str, str]:
        """The broker's own validator; a connection ends with its token, unless it is authenticated again."""
        # The broker takes a token of its own too, if only an unsigned one that it shows nobody.
        trusted = (
            'unsecuredLoginStringClaim_sub="broker" ssl.truststore.type="PEM" '
            f'ssl.truststore.location="{self.certificates.ca}"'
        )
        package = "org.apache.kafka.common.security.oauthbearer"
        handler = f"{package}.OAuthBearerValidatorCallbackHandler"
        return {
            f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required {trusted};",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": handler,
            f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.tokens.keys_url,
            f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience": self.tokens.audience,
            f"{prefix}.oauthbearer.sasl.oauthbearer.clock.skew.seconds": "1",
            f"{prefix}.oauthbearer.connections.max.reauth.ms": "3600000",
        }

    @property
    def admin(self) -> AdminClient:
        """The tests' own; kept, as a client that is collected cancels its requests."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        return self._admin

    def add_user(self, name: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512) -> None:
        credential = ScramCredentialInfo(mechanism, _ITERATIONS)
        change = UserScramCredentialUpsertion(name, credential, password.encode())
        for future in self.admin.alter_user_scram_credentials([change]).values():
            result_of(future, DEADLINE_S)

    def grant(self, principal: str, rights: Collection[Right]) -> None:
        """Grants, and waits until the broker has heard of it."""
        # The last one it hears of: it says that all before it have come too.
        last = Right(ResourceType.TOPIC, unique("last"), AclOperation.READ)
        for future in self.admin.create_acls([right.binding(principal) for right in [*rights, last]]).values():
            result_of(future, DEADLINE_S)
        wait_until(lambda: self._granted(principal, last), f"{principal} has its rights")

    def revoke(self, principal: str, right: Right) -> None:
        for future in self.admin.delete_acls([right.filter(principal)]).values():
            assert result_of(future, DEADLINE_S), f"{principal} never had {right}"
        wait_until(lambda: not self._granted(principal, right), f"{principal} has lost {right}")

    def _granted(self, principal: str, right: Right) -> bool:
        return bool(result_of(self.admin.describe_acls(right.filter(principal)), DEADLINE_S))


@dataclass(frozen=True)
class Need:
    """A row of the table in docs/rights.md."""

    cluster: str
    resource: ResourceType
    name: str
    pattern: ResourcePatternType
    operation: AclOperation
    commands: frozenset[str]

    def right(self, names: Mapping[str, str]) -> Right:
        """The right for resources with real names, by what the table calls them."""
        name = re.sub("<([a-z -]+)>", lambda found: names[found[1]], self.name)
        return Right(self.resource, name, self.operation, self.pattern)


def documented() -> list[Need]:
    """The table of docs/rights.md."""
    lines = [line for line in RIGHTS.read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    commands = [cell.strip("`") for cell in rows[0][5:]]
    return [
        Need(
            cluster=row[0],
            resource=ResourceType[constant(row[1])],
            name=re.findall("`(.*)`", row[2])[0],
            pattern=ResourcePatternType.PREFIXED if "(prefixed)" in row[2] else ResourcePatternType.LITERAL,
            operation=AclOperation[constant(row[3])],
            commands=frozenset(command for command, cell in zip(commands, row[5:], strict=True) if cell == "yes"),
        )
        for row in rows[2:]
    ]


def constant(word: str) -> str:
    """As the client spells Kafka's words: DescribeConfigs is DESCRIBE_CONFIGS."""
    return re.sub("(?<!^)(?=[A-Z])", "_", word).upper()
