"""Encrypted connections to a real server, by the files of Secrets as pods have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from servers.postgresql import DATABASE, LocalPostgresql
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.postgresql.client import Client
from sinkpipeline.postgresql.kind import PostgresqlPorts
from sinkpipeline.postgresql.look import check_reached, fears
from sinkpipeline.postgresql.settings import SinkSettings
from support.cells import MemorySource
from support.resource.manifests import SINK, changed, smallest, table
from support.sink.sql_sink import SqlSink

PASSWORD = r"a 'b\\c\" é"
HBA = """
hostssl all certified 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32 scram-sha-256
"""
CA = trustme.CA()


@pytest.fixture(scope="module")
def server() -> Iterator[LocalPostgresql]:
    """It has a certificate for its address, and none for its name."""
    issued = CA.issue_cert("127.0.0.1")
    files = {
        "server.crt": b"".join(each.bytes() for each in issued.cert_chain_pems),
        "server.key": issued.private_key_pem.bytes(),
        "ca.crt": CA.cert_pem.bytes(),
    }
    settings = {
        "ssl": "on",
        "ssl_cert_file": "server.crt",
        "ssl_key_file": "server.key",
        "ssl_ca_file": "ca.crt",
        # The loopback's name is looked for there, too.
        "listen_addresses": "localhost",
        "fsync": "off",
    }
    with LocalPostgresql(settings=settings, hba=HBA, files=files) as found:
        sql = SqlSink(found.address).sql
        quoted = PASSWORD.replace("'", "''")
        sql(f"CREATE ROLE asked LOGIN PASSWORD '{quoted}'")
        sql("CREATE ROLE certified LOGIN")
        yield found


Resolve = Callable[..., SinkSettings]


@pytest.fixture
def resolve(server: LocalPostgresql, tmp_path: Path) -> Resolve:
    client = CA.issue_cert(common_name="certified")
    secrets = {
        "ca/ca.crt": CA.cert_pem.bytes(),
        "other/ca.crt": trustme.CA().cert_pem.bytes(),
        "client/tls.crt": b"".join(each.bytes() for each in client.cert_chain_pems),
        "client/tls.key": _pkcs8(client.private_key_pem.bytes()),
        "user/password": PASSWORD.encode(),
        "user/wrong": b"wrong",
    }
    for name, content in secrets.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        # As a Secret's volume has them.
        path.chmod(0o644)

    def resolved(user: str, *, host: str = "127.0.0.1", **auth: Any) -> SinkSettings:
        sink = table(servers=f"{host}:{server.port}", database=DATABASE, auth={"username": user, **auth})
        [found] = resolve_sinks(parse_manifest(changed(smallest(), (SINK, sink))), tmp_path)
        assert isinstance(found, SinkSettings)
        return found

    return resolved


def _pkcs8(key: bytes) -> bytes:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - trustme brings it
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def ref(name: str, key: str) -> dict[str, str]:
    return {"name": name, "key": key}


ASKED = {"passwordSecretRef": ref("user", "password")}
TRUSTED = {"caSecretRef": ref("ca", "ca.crt")}


def test_who_is_trusted_and_has_the_password_comes_in(resolve: Resolve) -> None:
    check_reached(resolve("asked", **ASKED, tls=TRUSTED))


def test_the_authorities_of_the_image(resolve: Resolve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those that Python's own client trusts. libpq has a list of its own, by a path that is there nowhere."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setattr(
        "sinkpipeline.authorities.ssl.get_default_verify_paths", lambda: SimpleNamespace(cafile=tmp_path / "ca/ca.crt")
    )
    check_reached(resolve("asked", **ASKED, tls={}))


def test_a_server_that_syncs_nothing_is_told(resolve: Resolve) -> None:
    settings = resolve("asked", **ASKED, tls=TRUSTED)
    ports = PostgresqlPorts(settings, MemorySource({}), lambda _: {}, Client(settings.connection))
    with closing(ports.client):
        [fear] = fears(ports)
        assert ports.target.durability() is Durability.AT_RISK
    assert fear.startswith("the server has fsync=off:")
    assert fear.endswith("set fsync=on")


def test_a_certificate_in_place_of_a_password(resolve: Resolve) -> None:
    """Its key may be read by everybody in the pod, which libpq refuses."""
    certificate = {"name": "client", "certKey": "tls.crt", "keyKey": "tls.key"}
    check_reached(resolve("certified", tls={**TRUSTED, "certSecretRef": certificate}))
    with pytest.raises(SinkPipelineError) as told:
        check_reached(resolve("certified", tls=TRUSTED))
    assert told.value.reason is Reason.AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("auth", "host"),
    [
        (ASKED, "127.0.0.1"),
        ({**ASKED, "tls": {"caSecretRef": ref("other", "ca.crt")}}, "127.0.0.1"),
        ({**ASKED, "tls": {}}, "127.0.0.1"),
        ({**ASKED, "tls": TRUSTED}, "localhost"),
        ({"passwordSecretRef": ref("user", "wrong"), "tls": TRUSTED}, "127.0.0.1"),
        ({"tls": TRUSTED}, "127.0.0.1"),
    ],
    ids=["no TLS", "another authority", "the image's authorities", "another name", "another password", "none"],
)
def test_everybody_else_is_told_why(resolve: Resolve, auth: dict[str, Any], host: str) -> None:
    with pytest.raises(SinkPipelineError) as told:
        check_reached(resolve("asked", host=host, **auth))
    assert told.value.reason is Reason.AUTHENTICATION_FAILED, told.value
    assert "wrong" not in str(told.value).replace("wrong password", "")
    assert ("caSecretRef" in told.value.remedy) == ("verify failed" in told.value.message)
