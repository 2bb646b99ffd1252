"""Encrypted connections to real servers, by the files of Secrets as pods have them; to sentinels and a cluster, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from servers.local_process import HOST, free_ports
from servers.redis import LocalRedis, program
from servers.redis_groups import LocalSentinel, run
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.redis_streams.look import check_reached
from sinkpipeline.redis_streams.settings import SinkSettings
from support.resource.manifests import SINK, changed, smallest
from support.resource.redis import stream
from support.sink.redis_sink import RedisSink
from support.sink.starts import refusal
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(program("debian") is None, reason="no Redis server with TLS: make redis-old")
CA = trustme.CA()


@dataclass(frozen=True)
class Files:
    directory: Path

    @property
    def settings(self) -> dict[str, str]:
        """Of a server with a certificate for its address, and none for its name; it asks nobody for one."""
        names = {"tls-cert-file": "server.crt", "tls-key-file": "server.key", "tls-ca-cert-file": "ca.crt"}
        return {**{name: str(self.directory / file) for name, file in names.items()}, "tls-auth-clients": "no"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("tls")
    issued = CA.issue_cert(HOST)
    (directory / "server.crt").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    (directory / "server.key").write_bytes(issued.private_key_pem.bytes())
    (directory / "ca.crt").write_bytes(CA.cert_pem.bytes())
    return Files(directory)


class Encrypted:
    """A server at a port with TLS; `server` has one without, where it is counted."""

    def __init__(self, files: Files, **settings: str) -> None:
        [self.port] = free_ports(1)
        options = {name.replace("_", "-"): value for name, value in settings.items()}
        self.server = LocalRedis("debian", settings={**files.settings, "tls-port": str(self.port), **options})

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@pytest.fixture(scope="module")
def encrypted(files: Files) -> Iterator[Encrypted]:
    found = Encrypted(files)
    with found.server:
        yield found


Resolve = Callable[..., SinkSettings]


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    client, strange = CA.issue_cert(common_name="orders"), trustme.CA().issue_cert(common_name="orders")
    secrets = {"ca/ca.crt": CA.cert_pem.bytes(), "other/ca.crt": trustme.CA().cert_pem.bytes()}
    for name, issued in (("client", client), ("strange", strange)):
        secrets[f"{name}/tls.crt"] = b"".join(each.bytes() for each in issued.cert_chain_pems)
        secrets[f"{name}/tls.key"] = _pkcs8(issued.private_key_pem.bytes())
    for path, content in secrets.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)

    def resolved(servers: str, tls: dict[str, Any] | None, **more: Any) -> SinkSettings:
        auth = {} if tls is None else {"auth": {"tls": tls}}
        sink = stream(key=more.pop("key", "orders"), servers=servers, **auth, **more)
        [found] = resolve_sinks(parse_manifest(changed(smallest(), (SINK, sink))), tmp_path)
        assert isinstance(found, SinkSettings)
        return found

    return resolved


def _pkcs8(key: bytes) -> bytes:
    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


TRUSTED = {"caSecretRef": {"name": "ca", "key": "ca.crt"}}
STRANGE = {"caSecretRef": {"name": "other", "key": "ca.crt"}}


def certified(name: str) -> dict[str, Any]:
    return {**TRUSTED, "certSecretRef": {"name": name, "certKey": "tls.crt", "keyKey": "tls.key"}}


def delivers(server: LocalRedis, resolve: Resolve, servers: str, tls: dict[str, Any], **more: Any) -> None:
    """A whole sink, counted on the connection of somebody else, without TLS."""
    sink = RedisSink(server.address)
    sink.changes = {"connection": resolve(servers, tls, key=sink.name, **more).connection}
    sink.driver().drain()
    assert sink.delivered() == sink.once
    sink.close()


def test_rows_over_tls_and_with_the_certificate_of_a_client(
    encrypted: Encrypted, resolve: Resolve, files: Files
) -> None:
    delivers(encrypted.server, resolve, encrypted.address, TRUSTED)
    asks = Encrypted(files, tls_auth_clients="yes")
    with asks.server:
        delivers(asks.server, resolve, asks.address, certified("client"))
        for refused in (TRUSTED, certified("strange")):
            with pytest.raises(SinkPipelineError) as caught:
                check_reached(resolve(asks.address, refused))
            # In TLS 1.3 the server's word may be lost when it ends the connection.
            assert caught.value.reason in (Reason.AUTHENTICATION_FAILED, Reason.SINK_UNREACHABLE)
            assert "auth.tls.certSecretRef" in caught.value.remedy


@pytest.mark.thorough("what bars the way")
def test_what_bars_the_way(encrypted: Encrypted, resolve: Resolve) -> None:
    other = resolve(encrypted.address, STRANGE)
    assert "caSecretRef" in refusal(lambda: check_reached(other), Reason.AUTHENTICATION_FAILED).remedy
    nameless = resolve(f"localhost:{encrypted.port}", TRUSTED)
    assert "as its certificate does" in refusal(lambda: check_reached(nameless), Reason.AUTHENTICATION_FAILED).remedy
    refusal(lambda: check_reached(resolve(encrypted.address, None)), Reason.SINK_UNREACHABLE)
    refusal(lambda: check_reached(resolve(encrypted.server.address, TRUSTED)), Reason.SINK_UNREACHABLE)


@pytest.mark.thorough("other authorities")
def test_the_authorities_of_the_image(
    encrypted: Encrypted, resolve: Resolve, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    refusal(lambda: check_reached(resolve(encrypted.address, {})), Reason.AUTHENTICATION_FAILED)
    monkeypatch.setattr(
        "sinkpipeline.authorities.ssl.get_default_verify_paths",
        lambda: SimpleNamespace(cafile=files.directory / "ca.crt"),
    )
    check_reached(resolve(encrypted.address, {}))


@pytest.mark.thorough("sentinels with TLS")
def test_sentinels_are_asked_over_tls_too(encrypted: Encrypted, resolve: Resolve, files: Files) -> None:
    [port] = free_ports(1)
    lines = tuple(f"{name} {value}" for name, value in files.settings.items())
    more = (*lines, f"tls-port {port}", "tls-replication yes")
    asked = {"mode": "Sentinel", "sentinel": {"masterName": "shop"}}
    with LocalSentinel("debian", "shop", encrypted.port, 1, more):
        delivers(encrypted.server, resolve, f"{HOST}:{port}", TRUSTED, **asked)
        other = resolve(f"{HOST}:{port}", STRANGE, **asked)
        assert "caSecretRef" in refusal(lambda: check_reached(other), Reason.AUTHENTICATION_FAILED).remedy


@pytest.mark.thorough("a cluster with TLS")
def test_nodes_of_a_cluster_name_their_ports_with_tls(resolve: Resolve, files: Files) -> None:
    """The only node does not know its own host either."""
    [bus] = free_ports(1)
    node = Encrypted(files, cluster_enabled="yes", cluster_port=str(bus), tls_cluster="yes")
    with node.server as server:
        run(server.address, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in run(server.address, "CLUSTER", "INFO"), "the cluster is up")
        delivers(server, resolve, node.address, TRUSTED, mode="Cluster")
