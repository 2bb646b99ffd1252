"""A registry with a log-in of its own: what a manifest's Secrets open, and what is told where they don't."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kafka.registry import Registry
from sinkpipeline.kafka.resolve import resolve_encodings, resolve_registry
from support import avro
from support.app.command import manifest, sink
from support.kafka.topics import unique
from support.worlds.guarded_registry import READS, WRITES, GuardedRegistry, behind_certificates

pytestmark = [pytest.mark.kafka, pytest.mark.thorough("a registry of its own; test_registry has each answer by a stub")]

PASSWORD = "to\u00fcp $ecret"
READ, WRITE = "decode.schemaRegistry", "sinks[0].kafka.encode.value.schemaRegistry"
CA = {"caSecretRef": {"name": "registry", "key": "ca"}}
BASIC = {"basic": {"username": "writer", "passwordSecretRef": {"name": "registry", "key": "password"}}}
BEARER = {"bearer": {"tokenSecretRef": {"name": "registry", "key": "token"}}}
CERTIFICATE = {"certSecretRef": {"name": "registry", "certKey": "certificate", "keyKey": "key"}}
AUTHS: dict[str, dict[str, Any]] = {
    "basic": {**BASIC, "tls": CA},
    "bearer": {**BEARER, "tls": CA},
    "mTLS": {**BEARER, "tls": {**CA, **CERTIFICATE}},
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedRegistry]:
    with GuardedRegistry(tmp_path_factory.mktemp("guarded")) as registry:
        registry.user("writer", PASSWORD, WRITES)
        registry.user("reader", PASSWORD, READS)
        registry.user("nobody", PASSWORD, ())
        yield registry


class Secret:
    """The Secret `registry`, as a directory."""

    def __init__(self, directory: Path, guarded: GuardedRegistry) -> None:
        self.directory, self._guarded = directory, guarded
        (directory / "registry").mkdir()
        chain, key = guarded.certificates.client("orders")
        token = guarded.tokens.token("writer").encode()
        ca = guarded.certificates.ca.read_bytes()
        self.put(ca=ca, password=PASSWORD.encode(), token=token, certificate=chain, key=key)

    def put(self, **contents: bytes) -> None:
        for name, content in contents.items():
            (self.directory / "registry" / name).write_bytes(content)

    def registries(self, url: str, subject: str, auth: dict[str, Any]) -> tuple[Registry, Registry]:
        """To read with, and to write with."""
        asks = {"url": url, "auth": auth, "subject": subject}
        pipeline = parse_manifest(
            manifest(
                "127.0.0.1:9",
                "orders",
                ["orders-in"],
                decode={"format": "avro", "schemaRegistry": asks},
                transform={"select": {"value": "struct(id)"}},
                sinks=[sink("orders", encode={"value": {"format": "avro", "schemaRegistry": asks}})],
            )
        )
        of_source = resolve_registry(pipeline, self.directory)
        of_sink = pipeline.spec.sinks[0].kafka
        assert of_source is not None
        assert of_sink is not None
        [encoding] = resolve_encodings(of_sink, "sinks[0]", self.directory)
        return Registry(of_source), Registry(encoding.registry)


@pytest.fixture
def secret(tmp_path: Path, guarded: GuardedRegistry) -> Secret:
    return Secret(tmp_path, guarded)


def refused(ask: Any) -> SinkPipelineError:
    with pytest.raises(SinkPipelineError) as caught:
        ask()
    error: SinkPipelineError = caught.value
    return error


@pytest.mark.parametrize("kind", AUTHS)
def test_the_secrets_of_a_manifest_open_it_to_be_read_and_written(
    guarded: GuardedRegistry, secret: Secret, kind: str
) -> None:
    subject, schema = unique("orders"), avro.record(("id", "long"), name=unique("Order").replace("-", "_"))
    number, text = guarded.register(subject, schema), avro.text(schema)
    with behind_certificates(guarded, guarded.certificates) as of_certificates:
        url = of_certificates if kind == "mTLS" else guarded.url
        reads, writes = secret.registries(url, subject, AUTHS[kind])

        assert reads.reader(subject, "latest").id == number
        assert reads.writers([avro.frame(number)]).error is None
        writes.check_fits(subject, "AVRO", text)
        assert writes.register(subject, "AVRO", text) == writes.id_of(subject, "AVRO", text) == number
        assert writes.register(f"{subject}-new", "AVRO", text), "for the first time"


@pytest.mark.parametrize("kind", AUTHS)
def test_wrong_secrets_are_told_and_read_again(guarded: GuardedRegistry, secret: Secret, kind: str) -> None:
    subject = unique("orders")
    guarded.register(subject, avro.record(("id", "long"), name=unique("Order").replace("-", "_")))
    strange, strange_key = guarded.certificates.client("orders", trusted=False)
    old, old_key = guarded.certificates.client("orders", expired=True)
    check = "check {path}.auth, and the Secrets it names"
    ours = "give {path}.auth.tls.certSecretRef a certificate that it trusts and that has not expired"
    wrong: dict[str, list[tuple[dict[str, bytes], str]]] = {
        "basic": [({"password": b"another"}, check)],
        "bearer": [({"token": b"eyJhbGciOi.x.y"}, check), ({"token": expired_token(guarded)}, check)],
        "mTLS": [
            ({"certificate": strange, "key": strange_key}, ours),
            ({"certificate": old, "key": old_key}, ours),
            ({"token": b"eyJhbGciOi.x.y"}, check),
        ],
    }
    right = {path.name: path.read_bytes() for path in (secret.directory / "registry").iterdir()}
    with behind_certificates(guarded, guarded.certificates) as of_certificates:
        url = of_certificates if kind == "mTLS" else guarded.url
        reads, writes = secret.registries(url, subject, AUTHS[kind])
        for contents, remedy in wrong[kind]:
            secret.put(**contents)
            for registry, path in ((reads, READ), (writes, WRITE)):
                error = refused(lambda registry=registry: registry.reader(subject, "latest"))
                assert (error.reason, error.remedy) == (Reason.AUTHENTICATION_FAILED, remedy.format(path=path))
            told = reads.writers([avro.frame(1)]).error
            assert told is not None
            assert told.reason is Reason.AUTHENTICATION_FAILED
            secret.put(**right)
            assert reads.reader(subject, "latest").version == 1, "Secrets are read again"


def expired_token(guarded: GuardedRegistry) -> bytes:
    guarded.tokens.lifetime_s = -3600.0
    try:
        return guarded.tokens.token("writer").encode()
    finally:
        guarded.tokens.lifetime_s = 3600.0


def test_a_certificate_that_is_not_given_and_an_authority_that_is_not_the_right_one_are_told(
    guarded: GuardedRegistry, secret: Secret
) -> None:
    with behind_certificates(guarded, guarded.certificates) as url:
        reads, _ = secret.registries(url, "orders", AUTHS["bearer"])
        error = refused(lambda: reads.reader("orders", "latest"))
        assert (error.reason, error.remedy) == (
            Reason.AUTHENTICATION_FAILED,
            f"give {READ}.auth.tls.certSecretRef",
        )
    secret.put(ca=guarded.certificates.wrong_ca.read_bytes())
    reads, _ = secret.registries(guarded.url, "orders", AUTHS["basic"])
    error = refused(lambda: reads.reader("orders", "latest"))
    assert error.reason is Reason.AUTHENTICATION_FAILED
    assert error.remedy.startswith(f"give {READ}.auth.tls.caSecretRef the authority that signed it")


def test_what_a_user_may_not_do_is_told_with_what_to_grant(guarded: GuardedRegistry, secret: Secret) -> None:
    subject, schema = unique("orders"), avro.record(("id", "long"), name=unique("Order").replace("-", "_"))
    number, text = guarded.register(subject, schema), avro.text(schema)
    reads, writes = secret.registries(guarded.url, subject, AUTHS["bearer"])

    secret.put(token=guarded.tokens.token("reader").encode())
    assert reads.reader(subject, "latest").id == number
    error = refused(lambda: writes.register(f"{subject}-new", "AVRO", text))
    assert (error.reason, error.remedy) == (
        Reason.AUTHORIZATION_FAILED,
        f"grant the user of {WRITE}.auth to register schemas, or set autoRegister: false",
    )

    secret.put(token=guarded.tokens.token("nobody").encode())
    error = refused(lambda: reads.reader(subject, "latest"))
    assert (error.reason, error.remedy) == (
        Reason.AUTHORIZATION_FAILED,
        f"grant the user of {READ}.auth to read subjects and schemas",
    )
