"""Brokers that ask who we are: every way in, and what everything that bars it is called, within seconds."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ScramMechanism
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from servers.local_process import HOST
from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.progress import progress
from sinkpipeline.cli.run import run
from sinkpipeline.cli.validate import validate
from sinkpipeline.core.errors import ExitCode, Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.tls import Tls
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection, Sasl
from sinkpipeline.kafka.diagnosis import connect
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.refused import check_not_refused
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.spark.source import security_options
from support.app.command import manifest
from support.kafka import topics
from support.kafka.asking import trouble
from support.waiting import wait_until
from support.worlds.secure import PLAIN_PASSWORD, PLAIN_USER, Certificates, Door, SecureKafka, pkcs8, traditional

pytestmark = pytest.mark.kafka

DEADLINE_S = 30.0
"""What bars us is told within two seconds; the rest is for a machine that is busy."""

PASSWORD = "correct-horse"


@dataclass(frozen=True, kw_only=True)
class Entrance:
    """How somebody tries to come in: through which listener, saying what."""

    door: Door | None
    tls: bool = False
    ca: str | None = "ca"
    client: str | None = None
    mechanism: str | None = None
    user: str = "orders"
    password: str = PASSWORD

    def auth(self) -> dict[str, Any]:
        auth: dict[str, Any] = {}
        if self.tls:
            auth["tls"] = {} if self.ca is None else {"caSecretRef": {"name": "tls", "key": self.ca}}
            if self.client is not None:
                auth["tls"]["certSecretRef"] = {"name": self.client, "certKey": "tls.crt", "keyKey": "tls.key"}
        if self.mechanism is not None:
            reference = {"name": "user", "key": "password"}
            auth["sasl"] = {"mechanism": self.mechanism, "username": self.user, "passwordSecretRef": reference}
        return auth


@dataclass(frozen=True)
class House:
    """The broker with its Secrets, and manifests that name them."""

    kafka: SecureKafka
    directory: Path
    secrets: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "secrets", self.directory / "secrets")
        certificates = self.kafka.certificates
        self.put("tls", "ca", certificates.ca.read_bytes())
        self.put("tls", "wrong-ca", certificates.wrong_ca.read_bytes())
        for name, (chain, key) in {
            "client": certificates.client("client"),
            "stranger": certificates.client("stranger", trusted=False),
            "expired": certificates.client("expired", expired=True),
        }.items():
            self.put(name, "tls.crt", chain)
            self.put(name, "tls.key", key)
        self.kafka.add_user("orders", PASSWORD)
        self.kafka.add_user("orders", PASSWORD, ScramMechanism.SCRAM_SHA_256)

    def put(self, secret: str, key: str, content: bytes) -> None:
        path = self.secrets / secret / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def manifest(self, entrance: Entrance) -> Path:
        servers = self.kafka.bootstrap_servers if entrance.door is None else self.kafka.servers(entrance.door)
        self.put("user", "password", entrance.password.encode())
        document = manifest(servers, "barred", ["nothing"])
        if entrance.auth():
            document["spec"]["source"]["kafka"]["auth"] = entrance.auth()
        path = self.directory / "sinkpipeline.json"
        path.write_text(json.dumps(document))
        return path

    def connection(self, entrance: Entrance) -> Connection:
        [sink] = resolve_sinks(read_manifest(self.manifest(entrance)), self.secrets)
        return sink.connection


@pytest.fixture
def house(secure_kafka: SecureKafka, tmp_path: Path) -> House:
    return House(secure_kafka, tmp_path)


SCRAM = "SCRAM-SHA-512"


@pytest.mark.parametrize(
    "entrance",
    [
        Entrance(door=Door.SASL, mechanism=SCRAM),
        Entrance(door=Door.SASL_TLS, tls=True, mechanism=SCRAM),
        Entrance(door=Door.SASL_TLS, tls=True, mechanism="SCRAM-SHA-256"),
        Entrance(door=Door.SASL_TLS, tls=True, mechanism="PLAIN", user=PLAIN_USER, password=PLAIN_PASSWORD),
        Entrance(door=Door.TLS, tls=True),
        Entrance(door=Door.MUTUAL, tls=True, client="client"),
        Entrance(door=Door.TLS, tls=True, client="client"),
    ],
    ids=lambda entrance: f"{entrance.door.name} {entrance.mechanism} {entrance.client}",
)
def test_a_way_in(entrance: Entrance, house: House) -> None:
    assert Admin(house.connection(entrance)).brokers() == 1


BARRED = {
    "wrong password": (
        Entrance(door=Door.SASL_TLS, tls=True, mechanism=SCRAM, password="nonsense"),
        "refused our credentials",
        "auth.sasl",
    ),
    "unknown user": (
        Entrance(door=Door.SASL, mechanism=SCRAM, user="nobody"),
        "refused our credentials",
        "auth.sasl",
    ),
    "mechanism that is not offered": (
        Entrance(door=Door.SASL, mechanism="PLAIN"),
        "doesn't offer PLAIN",
        "auth.sasl.mechanism to SCRAM-SHA-512",
    ),
    "no log-in where one is asked for": (
        Entrance(door=Door.SASL),
        "asks for a log-in",
        "auth.sasl with a mechanism of SCRAM-SHA-512",
    ),
    "TLS without log-in": (Entrance(door=Door.SASL_TLS, tls=True), "asks for a log-in", "give auth.sasl"),
    "log-in where none is known": (
        Entrance(door=None, mechanism=SCRAM),
        "knows no log-in",
        "leave auth.sasl out",
    ),
    "plain to TLS": (Entrance(door=Door.TLS), "speaks TLS, and the manifest has no auth.tls", "give auth.tls"),
    "plain log-in to TLS": (
        Entrance(door=Door.SASL_TLS, mechanism=SCRAM),
        "speaks TLS, and the manifest has no auth.tls",
        "give auth.tls",
    ),
    "plain to mutual TLS": (Entrance(door=Door.MUTUAL), "speaks TLS", "give auth.tls"),
    "TLS to plain": (Entrance(door=None, tls=True), "speaks no TLS", "leave auth.tls out"),
    "TLS to a plain log-in": (
        Entrance(door=Door.SASL, tls=True, mechanism=SCRAM),
        "speaks no TLS",
        "leave auth.tls out",
    ),
    "wrong CA": (
        Entrance(door=Door.TLS, tls=True, ca="wrong-ca"),
        "certificate that can't be trusted: unable to get local issuer certificate",
        "auth.tls.caSecretRef",
    ),
    "no CA": (Entrance(door=Door.TLS, tls=True, ca=None), "can't be trusted", "auth.tls.caSecretRef"),
    "expired certificate": (
        Entrance(door=Door.EXPIRED, tls=True),
        "can't be trusted: certificate has expired",
        "renew the brokers' certificate",
    ),
    "certificate of another host": (
        Entrance(door=Door.ELSEWHERE, tls=True),
        "certificate is not valid for '127.0.0.1'",
        "name the brokers in bootstrapServers as their certificate does",
    ),
    "no client certificate": (
        Entrance(door=Door.MUTUAL, tls=True),
        "asks for a client's certificate",
        "give auth.tls.certSecretRef",
    ),
    "client certificate of a stranger": (
        Entrance(door=Door.MUTUAL, tls=True, client="stranger"),
        "refused our certificate",
        "auth.tls.certSecretRef",
    ),
    "expired client certificate": (
        Entrance(door=Door.MUTUAL, tls=True, client="expired"),
        "refused our certificate",
        "has not expired",
    ),
}


@pytest.mark.parametrize(
    ("command", "what"),
    [
        *(("validate", what) for what in BARRED),
        *(("run", what) for what in ("wrong password", "plain to TLS", "wrong CA")),
    ],
)
@pytest.mark.usefixtures("expressions_unchecked")
@pytest.mark.thorough("each obstacle on each way in", after=6)
@pytest.mark.long("each thing that is wrong", after=5)
def test_what_bars_the_way(what: str, command: str, house: House, capsys: pytest.CaptureFixture[str]) -> None:
    entrance, message, remedy = BARRED[what]
    path = house.manifest(entrance)
    status, log = house.directory / "status.json", house.directory / "log"
    commands = {
        "validate": lambda: validate(path, house.secrets, "text", offline=False),
        "run": lambda: run(path, house.secrets, status, "local[1]", log, until_idle=True),
    }
    began = time.monotonic()

    with pytest.raises(SinkPipelineError) as refused:
        commands[command]()

    assert time.monotonic() - began < DEADLINE_S
    assert refused.value.reason is Reason.AUTHENTICATION_FAILED
    assert refused.value.reason.exit_code is ExitCode.REFUSED
    assert message in refused.value.message
    assert remedy in refused.value.remedy
    shown = capsys.readouterr()
    written = "".join(file.read_text() for file in (status, log) if file.exists())
    assert entrance.password not in f"{refused.value}{shown.out}{shown.err}{written}"
    assert "PRIVATE KEY" not in f"{refused.value}{shown.out}{shown.err}{written}"


def secrets_that_are_wrong(certificates: Certificates) -> dict[str, tuple[str, str, bytes, str]]:
    """By what is wrong with it: a Secret, its key, the content, and what is told."""
    chain, key = certificates.client("client")
    _, other = certificates.client("other")
    edwards = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {
        "a CA that is no PEM": ("tls", "ca", b"nonsense", "holds no certificate"),
        "a CA that is damaged": ("tls", "ca", certificates.ca.read_bytes()[:200], "is no certificate"),
        "a CA that is empty": ("tls", "ca", b"", "holds no certificate"),
        "a certificate that is a key": ("client", "tls.crt", key, "holds no certificate"),
        "a key that is a certificate": ("client", "tls.key", chain, "is no private key of PKCS #8"),
        "a key of another certificate": ("client", "tls.key", other, "can't be used together"),
        "a key that is encrypted": ("client", "tls.key", pkcs8(key, password=b"p"), "is an encrypted private key"),
        "a key encrypted as it was once": (
            "client",
            "tls.key",
            traditional(key, password=b"p"),
            "is an encrypted private key",
        ),
        "a key as cert-manager writes it": ("client", "tls.key", traditional(key), "is no private key of PKCS #8"),
        "a key of Ed25519": ("client", "tls.key", edwards, "is a key of Ed25519"),
        "a password that is empty": ("user", "password", b"", "is empty"),
        "a password that is no text": ("user", "password", b"\xff\xfe", "is not UTF-8 text"),
        "a password with a line break": ("user", "password", b"secret\n", "holds a line break"),
    }


def test_secrets_that_are_wrong(house: House) -> None:
    """Told before anything is connected: a client would say nonsense, or ask for a password on the terminal."""
    entrance = Entrance(door=Door.MUTUAL, tls=True, client="client", mechanism="PLAIN")
    pipeline = read_manifest(house.manifest(entrance))
    resolve_sinks(pipeline, house.secrets)

    for what, (secret, key, content, told) in secrets_that_are_wrong(house.kafka.certificates).items():
        path = house.secrets / secret / key
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(SinkPipelineError) as refused:
            resolve_sinks(pipeline, house.secrets)
        path.write_bytes(before)

        assert refused.value.reason is Reason.SECRET_INVALID, what
        assert told in refused.value.message, what
        assert f"key {key} of Secret {secret}" in refused.value.message, what


@pytest.mark.usefixtures("expressions_unchecked")
@pytest.mark.parametrize(("secret", "key"), [("tls", "ca"), ("client", "tls.crt"), ("client", "tls.key")])
@pytest.mark.parametrize("command", [progress, validate])
@pytest.mark.thorough("each Secret", after=2)
def test_a_secret_that_is_missing(secret: str, key: str, command: Any, house: House) -> None:
    path = house.manifest(Entrance(door=Door.MUTUAL, tls=True, client="client"))
    (house.secrets / secret / key).unlink()

    with pytest.raises(SinkPipelineError) as refused:
        command(
            path,
            house.secrets,
            *(["json"] if command is progress else ["text"]),
            **{"offline": False} if command is validate else {},
        )

    assert refused.value.reason is Reason.SECRET_NOT_FOUND
    assert f"key {key} of Secret {secret}" in refused.value.message


def test_a_directory_that_the_java_client_could_not_name(house: House) -> None:
    pipeline = read_manifest(house.manifest(Entrance(door=Door.SASL, mechanism=SCRAM)))
    odd = house.directory / "with:colon"
    house.secrets.rename(odd)

    with pytest.raises(SinkPipelineError, match="holds a colon") as refused:
        resolve_sinks(pipeline, odd)

    assert refused.value.reason.exit_code is ExitCode.MANIFEST


def test_a_relative_directory_is_the_same_for_every_process(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house.directory)
    pipeline = read_manifest(house.manifest(Entrance(door=Door.SASL, mechanism=SCRAM)))

    [sink] = resolve_sinks(pipeline, Path("secrets"))

    assert sink.connection.sasl is not None
    assert sink.connection.sasl.password_file == str(house.secrets / "user" / "password")


def test_no_secret_is_in_the_options_of_spark(house: House) -> None:
    """They stand in the plan and in the user interface."""
    entrance = Entrance(door=Door.MUTUAL, tls=True, client="client", mechanism=SCRAM, user='a "$user"\n')
    options = security_options(house.connection(entrance))

    shown = json.dumps(options)
    assert PASSWORD not in shown
    assert "PRIVATE KEY" not in shown
    assert "$user" not in shown, "it would be taken for the beginning of a reference"


@contextmanager
def cut_off_at_the_second_request(port: int) -> Iterator[int]:
    """A port before the broker's, which closes every connection where the log-in begins: after ApiVersions."""

    def frame(stream: socket.socket) -> bytes:
        head = stream.recv(4, socket.MSG_WAITALL)
        return head + stream.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, socket.create_connection((HOST, port)) as broker, suppress(OSError):
                client.settimeout(5)
                broker.sendall(frame(client))
                client.sendall(frame(broker))
                frame(client)

    with socket.create_server((HOST, 0)) as listener, ThreadPoolExecutor(1) as pool:
        pool.submit(serve)
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def test_a_broker_that_goes_away_in_the_middle_of_a_log_in_has_refused_nobody(house: House) -> None:
    """The client calls it a refusal, which nobody would try again."""
    connection = house.connection(Entrance(door=Door.SASL, mechanism=SCRAM))
    with cut_off_at_the_second_request(int(connection.bootstrap_servers.rpartition(":")[2])) as port:
        admin = Admin(replace(connection, bootstrap_servers=f"{HOST}:{port}"))
        with pytest.raises(SinkPipelineError) as refused:
            admin.brokers(2.0)

    assert refused.value.reason is Reason.BROKER_UNREACHABLE


def test_a_driver_that_runs_takes_nothing_at_a_broker_s_address_for_a_refusal(house: House) -> None:
    """While a cluster is down anything may answer there. Who waits for a connection is told what it is."""
    connection = house.connection(Entrance(door=Door.SASL))
    with pytest.raises(SinkPipelineError) as outage:
        Admin(connection).cluster(2.0)
    with pytest.raises(SinkPipelineError) as refused:
        connect(Admin(connection), 2.0)
    check_not_refused(connection)

    assert outage.value.reason is Reason.BROKER_UNREACHABLE
    assert refused.value.reason is Reason.AUTHENTICATION_FAILED
    assert "asks for a log-in" in refused.value.message


@pytest.mark.thorough("waits until a log-in is tried again")
def test_a_log_in_that_was_refused_once_is_forgotten_when_it_succeeds(house: House) -> None:
    user = topics.unique("late")
    admin = Admin(house.connection(Entrance(door=Door.SASL, mechanism=SCRAM, user=user)))
    with pytest.raises(SinkPipelineError) as refused:
        admin.brokers()
    assert refused.value.reason is Reason.AUTHENTICATION_FAILED
    house.kafka.add_user(user, PASSWORD)
    assert admin.brokers() == 1

    house.kafka.pause_broker(1)
    try:
        found = wait_until(partial(trouble, admin), "a broker that is paused answers no more")
    finally:
        house.kafka.resume_broker(1)

    assert found is not None
    assert found.reason is Reason.BROKER_UNREACHABLE


@pytest.mark.thorough("each client; one is in test_what_bars_the_way")
def test_every_client_that_waits_learns_that_it_is_refused(house: House) -> None:
    """As after a password was changed while a pipeline runs: its old connections still work, new ones don't."""
    barred = house.connection(Entrance(door=Door.SASL, mechanism=SCRAM, password="of yesterday"))

    def produce() -> None:
        producer = PlainProducer(barred)
        producer.produce_rows("nothing", [(b"value", None, 0, 0, None)])
        producer.flush()

    def read() -> None:
        with ProgressLog(barred, "nothing", "group") as log:
            log.observe(SinkId("identity", "sink"))

    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(work) for work in (lambda: TransactionalProducer(barred, "id"), produce, read)]
        errors = [future.exception() for future in waiting]

    assert time.monotonic() - began < DEADLINE_S
    assert [error.reason for error in errors if isinstance(error, SinkPipelineError)] == [
        Reason.AUTHENTICATION_FAILED
    ] * 3


@pytest.mark.usefixtures("expressions_unchecked")
@pytest.mark.parametrize("command", ["validate", "run"])
def test_properties_that_the_client_refuses(command: str, house: House) -> None:
    path = house.manifest(Entrance(door=None))
    document = json.loads(path.read_text())
    document["spec"]["sinks"][0]["kafka"]["properties"] = {"linger.ms": "999999"}
    path.write_text(json.dumps(document))
    commands = {
        "validate": lambda: validate(path, None, "text", offline=False),
        "run": lambda: run(path, None, None, "local[1]", house.directory / "log", until_idle=True),
    }

    with pytest.raises(SinkPipelineError, match="value 999999 is outside") as refused:
        commands[command]()

    assert refused.value.reason is Reason.MANIFEST_INVALID


@pytest.mark.parametrize(
    "connection",
    [
        Connection(bootstrap_servers="127.0.0.1:1", tls=Tls(ca_file="/dev/null")),
        Connection(
            bootstrap_servers="127.0.0.1:1", sasl=Sasl(mechanism="PLAIN", username="u", password_file="/dev/null")
        ),
    ],
    ids=["tls", "sasl"],
)
def test_a_secret_that_became_invalid_after_the_start(connection: Connection) -> None:
    for client in (Admin, PlainProducer, lambda each: TransactionalProducer(each, "id")):
        with pytest.raises(SinkPipelineError) as refused:
            client(connection)
        assert refused.value.reason is Reason.SECRET_INVALID
