"""Encrypted connections to a real server, by the files of Secrets as pods have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from servers.binlog_server import BinlogServer
from sinkpipeline.changes.binlog.wire import Wire
from sinkpipeline.changes.settings import BinlogConnection
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.tls import Tls
from support.changes.binlog import SERVERS

PASSWORD = r"a 'b\\c\" é"
CA = trustme.CA()


@pytest.fixture(scope="module")
def server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BinlogServer]:
    """It has a certificate for its address, and none for its name."""
    directory = tmp_path_factory.mktemp("tls")
    issued = CA.issue_cert("127.0.0.1")
    files = {
        "cert": b"".join(each.bytes() for each in issued.cert_chain_pems),
        "key": issued.private_key_pem.bytes(),
        "ca": CA.cert_pem.bytes(),
    }
    for name, content in files.items():
        (directory / name).write_bytes(content)
    settings = {f"ssl-{name}": str(directory / name) for name in files}
    with SERVERS[kind](settings=settings) as found, found.connected() as session, session.cursor() as cursor:
        cursor.execute("CREATE USER asked IDENTIFIED BY %s REQUIRE SSL", (PASSWORD,))
        cursor.execute("CREATE USER certified REQUIRE X509")
        yield found


Connect = Callable[..., Wire]


@pytest.fixture
def connect(server: BinlogServer, tmp_path: Path) -> Connect:
    issued = CA.issue_cert(common_name="certified")
    files = {
        "ca": CA.cert_pem.bytes(),
        "other": trustme.CA().cert_pem.bytes(),
        "cert": b"".join(each.bytes() for each in issued.cert_chain_pems),
        "key": issued.private_key_pem.bytes(),
        "password": PASSWORD.encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    def made(user: str, ca: str | None, *, host: str = "127.0.0.1", certificate: bool = False) -> Wire:
        tls = Tls(
            ca_file=str(tmp_path / (ca or "ca")),
            certificate_file=str(tmp_path / "cert") if certificate else None,
            key_file=str(tmp_path / "key") if certificate else None,
        )
        connection = BinlogConnection(
            server=f"{host}:{server.port}",
            user=user,
            password_file=str(tmp_path / "password") if user == "asked" else None,
            tls=None if ca is None else tls,
        )
        return Wire(connection, "here")

    return made


def test_it_is_encrypted_and_logs_in_by_a_password_or_a_certificate(connect: Connect) -> None:
    for wire in (connect("asked", "ca"), connect("certified", "ca", certificate=True)):
        with closing(wire):
            [(_, cipher)] = wire.rows("SHOW STATUS LIKE 'Ssl_cipher'")
            assert cipher


@pytest.mark.parametrize(
    ("user", "ca", "how"),
    [
        ("asked", "other", {}),
        ("asked", "ca", {"host": "localhost"}),
        ("asked", None, {}),
        ("certified", "ca", {}),
    ],
)
def test_who_is_not_trusted(connect: Connect, user: str, ca: str | None, how: dict[str, str]) -> None:
    with pytest.raises(SinkPipelineError) as caught:
        connect(user, ca, **how)
    assert caught.value.reason is Reason.AUTHENTICATION_FAILED
    assert PASSWORD not in str(caught.value)


WITHOUT: Mapping[str, Mapping[str, str]] = {"mariadb": {"skip-ssl": "1"}, "mysql": {"tls-version": ""}}


@pytest.mark.thorough("a server that has no certificate")
def test_nothing_is_sent_to_a_server_without_tls(kind: str, tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(CA.cert_pem.bytes())
    with SERVERS[kind](settings=WITHOUT[kind]) as server:
        connection = BinlogConnection(server=server.address, user="root", tls=Tls(ca_file=str(tmp_path / "ca")))
        with pytest.raises(SinkPipelineError) as caught:
            Wire(connection, "here")
    assert caught.value.reason is Reason.AUTHENTICATION_FAILED
