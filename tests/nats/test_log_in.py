"""As whom a client connects to a real server, by the files of Secrets as pods have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import nkeys
import pytest
import trustme

from servers.nats import LocalNats
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.nats.client import Client
from sinkpipeline.nats.kind import NatsPorts
from sinkpipeline.nats.look import check_reached
from sinkpipeline.nats.settings import SinkSettings
from sinkpipeline.sinks.removal import SinkRemoval
from support.cells import TOPIC, MemorySource
from support.resource.manifests import SINK, changed, smallest
from support.resource.streams import stream
from support.sink.cell_driver import Driver
from support.sink.cell_sink import ENDS
from support.sink.nats_sink import of_offsets
from support.sink.starts import refusal
from support.worlds.nats_jwt import Trust
from support.worlds.secure import pkcs8

pytestmark = pytest.mark.timeout(60)
SEED = b"SUAMK2FG4MI6UE3ACF3FK3OIQBCEIEZV7NSWFFEW63UXMRLFM2XLAXK4GY"
CA = trustme.CA()


def settings_of(server: LocalNats, secrets: Path, auth: dict[str, Any], **files: bytes) -> SinkSettings:
    (secrets / "s").mkdir(exist_ok=True)
    for name, content in files.items():
        (secrets / "s" / name).write_bytes(content)
    document = changed(smallest(), (SINK, stream(servers=server.address, auth=auth)))
    [found] = resolve_sinks(parse_manifest(document), secrets)
    assert isinstance(found, SinkSettings)
    return found


def ref(key: str) -> dict[str, str]:
    return {"name": "s", "key": key}


@contextmanager
def server_of(**settings: Any) -> Iterator[LocalNats]:
    with LocalNats(settings=settings) as found:
        yield found


def asked_who_we_are(settings: SinkSettings) -> int:
    with closing(Client(settings.connection)) as client:
        level: int = client.api("INFO")["api"]["level"]
        return level


WAYS: list[Any] = [
    pytest.param(
        {"authorization": {"users": [{"user": "u", "password": "p w"}]}},
        {"username": "u", "passwordSecretRef": ref("password")},
        {"password": b"p w\n"},
        id="password",
    ),
    pytest.param(
        {"authorization": {"token": "t0ken"}}, {"tokenSecretRef": ref("token")}, {"token": b"t0ken"}, id="token"
    ),
    pytest.param(
        {"authorization": {"users": [{"nkey": nkeys.from_seed(bytearray(SEED)).public_key.decode()}]}},
        {"nkeySecretRef": ref("nkey")},
        {"nkey": SEED},
        id="nkey",
    ),
]


@pytest.mark.parametrize(("server", "auth", "files"), WAYS)
def test_a_log_in_and_a_wrong_one(
    tmp_path: Path, server: dict[str, Any], auth: dict[str, Any], files: dict[str, bytes]
) -> None:
    with server_of(**server) as running:
        right = settings_of(running, tmp_path, auth, **files)
        assert asked_who_we_are(right) >= 2
        wrong = settings_of(running, tmp_path, {"tokenSecretRef": ref("other")}, other=b"no")
        error = refusal(lambda: check_reached(wrong), Reason.AUTHENTICATION_FAILED)
        assert "auth of the sink" in error.remedy
        assert "no" not in error.message.split()


def test_a_user_of_an_account_by_the_file_of_its_credentials(tmp_path: Path) -> None:
    """As `nsc` writes it: the server knows nobody, but by whom they are signed. So a stream is made and filled."""
    trust = Trust()
    auth = {"credsSecretRef": ref("user.creds")}
    with server_of(**trust.settings) as running:
        found = settings_of(running, tmp_path, auth, **{"user.creds": trust.credentials()})
        with closing(Client(found.connection)) as client:
            ports = NatsPorts(found, MemorySource(ENDS), lambda topics: dict.fromkeys(topics, f"{TOPIC}-id"), client)
            driver = Driver(ports, ENDS, make=of_offsets)
            driver.drain()
            driver.delivery.close()
            state = client.api(f"STREAM.INFO.{found.stream.name}", subjects_filter="orders.all")["state"]
            assert sum(state["subjects"].values()) == sum(ENDS.values())
        for worker in driver.worker._shared.values():
            worker.close()


def without(mark: str, credentials: bytes) -> bytes:
    """Without the line below a mark."""
    lines = credentials.decode().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if mark in line)
    return "".join(lines[: at + 1]).encode()


LET_IN: list[Any] = [
    pytest.param(lambda found: found.replace(b"\n", b"\r\n"), id="lines as on Windows"),
    pytest.param(lambda found: found.partition(b"\n------END USER")[0], id="cut behind the seed"),
]
LET_NOBODY_IN: list[Any] = [
    pytest.param({}, lambda _: Trust().credentials(), Reason.AUTHENTICATION_FAILED, "auth of the sink", id="others"),
    pytest.param({"exp": 1}, lambda found: found, Reason.AUTHENTICATION_FAILED, "auth of the sink", id="expired"),
    pytest.param({}, lambda _: b"none", Reason.SECRET_INVALID, "credsSecretRef", id="none"),
    pytest.param({}, lambda found: found[found.index(b"\n\n") :], Reason.SECRET_INVALID, "credsSecretRef", id="no JWT"),
    pytest.param({}, partial(without, "NKEY SEED"), Reason.SECRET_INVALID, "credsSecretRef", id="no seed"),
    pytest.param({}, lambda found: found.replace(b"\nSU", b"\nUS"), Reason.SECRET_INVALID, "nsc", id="a wrong seed"),
]


@pytest.mark.parametrize("written", LET_IN)
def test_credentials_are_read_as_they_were_written(tmp_path: Path, written: Callable[[bytes], bytes]) -> None:
    trust = Trust()
    with server_of(**trust.settings) as running:
        user = written(trust.credentials())
        found = settings_of(running, tmp_path, {"credsSecretRef": ref("user.creds")}, **{"user.creds": user})
        assert asked_who_we_are(found) >= 2


@pytest.mark.parametrize(("claims", "written", "reason", "remedy"), LET_NOBODY_IN)
def test_credentials_that_let_nobody_in(
    tmp_path: Path, claims: dict[str, int], written: Callable[[bytes], bytes], reason: Reason, remedy: str
) -> None:
    trust = Trust()
    with server_of(**trust.settings) as running:
        user = written(trust.credentials(**claims))
        wrong = settings_of(running, tmp_path, {"credsSecretRef": ref("user.creds")}, **{"user.creds": user})
        assert remedy in refusal(lambda: check_reached(wrong), reason).remedy


def test_a_seed_that_is_none(tmp_path: Path) -> None:
    with server_of(authorization={"token": "t0ken"}) as running:
        wrong = settings_of(running, tmp_path, {"nkeySecretRef": ref("nkey")}, nkey=b"SUNONE")
        assert "nkeySecretRef" in refusal(lambda: check_reached(wrong), Reason.SECRET_INVALID).remedy


def test_a_right_that_the_credentials_do_not_give_is_named(tmp_path: Path) -> None:
    trust = Trust()
    user = trust.credentials(publish=["$JS.API.>", "_sinkpipeline.>"])
    with server_of(**trust.settings) as running:
        found = settings_of(running, tmp_path, {"credsSecretRef": ref("user.creds")}, **{"user.creds": user})
        with closing(Client(found.connection)) as client:
            ports = NatsPorts(found, MemorySource(ENDS), lambda topics: dict.fromkeys(topics, "id"), client)
            error = refusal(lambda: Driver(ports, ENDS), Reason.SINK_REFUSED)
        assert 'publish to "orders.all"' in error.message.lower()


def test_encrypted_and_by_a_certificate(tmp_path: Path) -> None:
    issued = CA.issue_cert("127.0.0.1")
    (tmp_path / "crt").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    (tmp_path / "key").write_bytes(issued.private_key_pem.bytes())
    (tmp_path / "ca").write_bytes(CA.cert_pem.bytes())
    names = {"cert_file": "crt", "key_file": "key", "ca_file": "ca"}
    tls = {name: str(tmp_path / file) for name, file in names.items()}
    ours = CA.issue_cert("client")
    files = {
        "ca": CA.cert_pem.bytes(),
        "crt": ours.cert_chain_pems[0].bytes(),
        "key": pkcs8(ours.private_key_pem.bytes()),
        "other": trustme.CA().cert_pem.bytes(),
    }
    certificate = {"name": "s", "certKey": "crt", "keyKey": "key"}
    with server_of(tls={**tls, "verify": True}) as running:
        right = {"tls": {"caSecretRef": ref("ca"), "certSecretRef": certificate}}
        assert asked_who_we_are(settings_of(running, tmp_path, right, **files)) >= 2
        other = settings_of(running, tmp_path, {"tls": {"caSecretRef": ref("other"), "certSecretRef": certificate}})
        error = refusal(lambda: check_reached(other), Reason.AUTHENTICATION_FAILED)
        assert "caSecretRef" in error.remedy
        plain = settings_of(running, tmp_path, {})
        refusal(lambda: check_reached(plain), Reason.AUTHENTICATION_FAILED)


@pytest.mark.parametrize("auth", [{"tokenSecretRef": ref("token")}, {}], ids=["token", "nobody"])
def test_a_server_that_does_not_encrypt_gets_no_secret(tmp_path: Path, auth: dict[str, Any]) -> None:
    """The client itself encrypts only where the server asks for it."""
    ca = CA.cert_pem.bytes()
    with server_of(**({"authorization": {"token": "t0ken"}} if auth else {}), trace=True, debug=True) as running:
        found = settings_of(running, tmp_path, {**auth, "tls": {"caSecretRef": ref("ca")}}, ca=ca, token=b"t0ken")
        error = refusal(lambda: check_reached(found), Reason.AUTHENTICATION_FAILED)
        assert "does not encrypt" in error.message
        assert not auth or "<<- [CONNECT" not in (running.directory / "log").read_text()


def test_a_right_that_is_missing_is_named(tmp_path: Path) -> None:
    """Before anything is delivered, and not as a time-out."""
    may = {"publish": ["$JS.API.>", "_sinkpipeline.>"], "subscribe": ["_INBOX.>"]}
    users = [
        {"user": "u", "password": "p", "permissions": may},
        {"user": "boss", "password": "p"},
    ]
    with server_of(authorization={"users": users}) as running:
        found = settings_of(running, tmp_path, {"username": "u", "passwordSecretRef": ref("password")}, password=b"p")
        with closing(Client(found.connection)) as client:
            ports = NatsPorts(found, MemorySource(ENDS), lambda topics: dict.fromkeys(topics, "id"), client)
            error = refusal(lambda: Driver(ports, ENDS), Reason.SINK_REFUSED)
        assert 'publish to "orders.all"' in error.message.lower()
        assert "docs/nats.md" in error.remedy


def rights() -> list[str]:
    """What docs/nats.md says."""
    page = (Path(__file__).parents[2] / "docs" / "nats.md").read_text()
    table = page.partition("| publish to | for |\n| --- | --- |\n")[2].partition("\n\n")[0]
    return [each for line in table.splitlines() for each in re.findall(r"`([$_][^`]+)`", line.split("|")[1])]


@pytest.mark.parametrize("left_out", ["", "$JS.API.STREAM.PURGE.ORDERS"])
def test_the_rights_of_the_page_are_enough(tmp_path: Path, left_out: str) -> None:
    """To create a stream, to deliver, and to remove both; without the right to tidy up too."""
    named = [each.replace("<identity>.<sink>", "default%2Eorders.copy") for each in rights()]
    assert len(named) == 8, "the page names them all"
    may = {"publish": ["orders.all", *(each for each in named if each != left_out)], "subscribe": ["_INBOX.>"]}
    users = [{"user": "u", "password": "p", "permissions": may}]
    with server_of(authorization={"users": users}) as running:
        found = settings_of(running, tmp_path, {"username": "u", "passwordSecretRef": ref("password")}, password=b"p")
        with closing(Client(found.connection)) as client:
            ports = NatsPorts(found, MemorySource(ENDS), lambda topics: dict.fromkeys(topics, f"{TOPIC}-id"), client)
            driver = Driver(ports, ENDS, make=of_offsets)
            driver.drain()
            assert ports.target.describe({}) is not None
            driver.delivery.close()
            assert list(ports.ledger.metas()) == [found.id.meta_key]
            hold = ports.ledger.hold(source_topics=1)
            progress = hold.read(lambda seen: seen, lambda _meta: None)
            hold.write(progress)
            hold.fence(progress.partitions)
            hold.remove(progress)
            assert ports.ledger.observe().meta is None
            kept = SinkRemoval(ports=ports).carry_out()
            assert kept is not None
            assert "it has no progress" in kept.why
        for worker in driver.worker._shared.values():
            worker.close()
