"""The registry as we ask it: Apicurio's, and answers that no registry should give."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from servers.local_process import HOST, free_ports
from servers.schema_registry import LocalRegistry
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.kafka.connection import Tls
from sinkpipeline.kafka.registry import Found, Registry
from sinkpipeline.kafka.settings import RegistrySettings
from support import avro
from support.kafka.topics import unique

pytestmark = pytest.mark.kafka

PROTOBUF = 'syntax = "proto3"; message A { int64 id = 1; }'


def registry_at(server: LocalRegistry) -> Registry:
    return Registry(RegistrySettings(url=server.url))


def order(*fields: Any) -> Any:
    """A schema of its own."""
    return avro.record(("id", "long"), *fields, name=unique("Order").replace("-", "_"))


def test_schemas_are_found_by_version_and_by_frame(registry: LocalRegistry) -> None:
    subject, first = unique("orders"), order()
    second = {**first, "fields": [*first["fields"], {"name": "note", "type": "string", "default": ""}]}
    ids = [registry.register(subject, each) for each in (first, second)]

    found = [registry_at(registry).reader(subject, version) for version in ("1", "latest")]
    writers = registry_at(registry).writers([avro.frame(ids[0]), avro.frame(ids[1]), avro.frame(999_999_999)])

    assert [(each.subject, each.version, each.id) for each in found] == [(subject, 1, ids[0]), (subject, 2, ids[1])]
    assert [json.loads(each.schema.text) for each in found] == [first, second]
    assert writers[avro.frame(999_999_999)] is None
    assert [writers[avro.frame(each)] for each in ids] == [each.schema for each in found]


def test_a_schema_of_another_kind_is_told(registry: LocalRegistry) -> None:
    frame = avro.frame(registry.register(unique("orders"), PROTOBUF, kind="PROTOBUF"))
    found = registry_at(registry).writers([frame])[frame]
    assert found is not None
    assert found.kind == "PROTOBUF"


def test_what_a_schema_refers_to_comes_with_it(registry: LocalRegistry) -> None:
    part, item, whole = unique("part"), unique("item"), unique("whole")
    names = {each: each.replace("-", "_") for each in (part, item, whole)}
    parts = avro.record(("n", "int"), name=names[part])
    items = avro.record(("part", names[part]), name=names[item])
    of_part, of_item = ({"name": names[each], "subject": each, "version": 1} for each in (part, item))
    registry.register(part, parts)
    registry.register(item, items, references=[of_part])
    registry.register(whole, avro.record(("item", names[item]), name=names[whole]), references=[of_item])

    found = registry_at(registry).reader(whole, "latest").schema

    assert [json.loads(each)["name"] for each in found.references] == [names[part], names[item]]


@pytest.mark.parametrize("version", ["latest", "7"])
def test_a_reader_that_is_not_there_is_told(registry: LocalRegistry, version: str) -> None:
    with pytest.raises(SinkPipelineError, match=f"version {version}") as caught:
        registry_at(registry).reader(unique("none"), version)
    assert caught.value.reason is Reason.SCHEMA_NOT_FOUND


Answer = tuple[int, str]
Asked = tuple[str, str | None]
"""A path, and by whom."""
Serve = Callable[..., tuple[str, list[Asked]]]


@pytest.fixture
def served() -> Iterator[Serve]:
    """Makes a server that answers everything alike; what it was asked."""
    servers = []

    def serve(answer: Answer, context: ssl.SSLContext | None = None) -> tuple[str, list[Asked]]:
        asked: list[Asked] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers["Authorization"]))
                self.send_response(answer[0])
                self.end_headers()
                self.wfile.write(answer[1].encode())

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer((HOST, 0), Handler)
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http{'s' if context else ''}://{HOST}:{server.server_port}", asked

    yield serve
    for each in servers:
        each.shutdown()
        each.server_close()


ERROR = '{"error_code": %d, "message": "no"}'


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, "<html>no such page</html>"), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((404, ERROR % 404), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((200, "<html>welcome</html>"), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((500, ERROR % 50001), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((503, ""), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((401, ERROR % 40101), Reason.AUTHENTICATION_FAILED),
        ((403, ERROR % 40301), Reason.AUTHORIZATION_FAILED),
    ],
)
def test_what_is_no_answer_of_a_registry_says_of_no_schema_that_it_is_not_there(
    served: Serve, answer: Answer, reason: Reason
) -> None:
    url, _ = served(answer)
    with pytest.raises(SinkPipelineError) as caught:
        Registry(RegistrySettings(url=url)).writers([avro.frame(1)])
    assert caught.value.reason is reason


def test_only_its_own_word_is_believed(served: Serve) -> None:
    url, _ = served((404, ERROR % 40403))
    assert Registry(RegistrySettings(url=url)).writers([avro.frame(1)]) == {avro.frame(1): None}


def test_a_guid_is_asked_for_as_confluent_documents_it(served: Serve) -> None:
    url, asked = served((200, '{"schema": "\\"long\\""}'))
    guid = uuid.uuid4()
    frame = b"\1" + guid.bytes
    assert Registry(RegistrySettings(url=url)).writers([frame]) == {frame: Found('"long"', "AVRO")}
    assert [path.partition("?")[0] for path, _ in asked] == [f"/schemas/guids/{guid}"]


def test_nobody_answers() -> None:
    [port] = free_ports(1)
    with pytest.raises(SinkPipelineError, match="does not answer") as caught:
        Registry(RegistrySettings(url=f"http://{HOST}:{port}")).writers([avro.frame(1)])
    assert caught.value.reason is Reason.SCHEMA_REGISTRY_UNREACHABLE


def test_credentials_are_read_when_they_are_needed(served: Serve, tmp_path: Path) -> None:
    url, asked = served((200, '{"schema": "\\"long\\""}'))
    secret = tmp_path / "secret"
    with_basic = Registry(RegistrySettings(url=url, username="me", password_file=str(secret)))
    with_token = Registry(RegistrySettings(url=url, token_file=str(secret)))
    for content in ("a:b", "c\n"):
        secret.write_text(content)
        assert with_basic.writers([avro.frame(1)])[avro.frame(1)] == Found('"long"', "AVRO")
        with_token.writers([avro.frame(1)])
    basic = [f"Basic {base64.b64encode(each.encode()).decode()}" for each in ("me:a:b", "me:c")]
    assert [who for _, who in asked] == [basic[0], "Bearer a:b", basic[1], "Bearer c"]


def test_both_show_certificates(served: Serve, tmp_path: Path) -> None:
    authority, other, server = trustme.CA(), trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    ours = authority.issue_cert("us@example.org")
    contents = {"ca": authority.cert_pem, "other": other.cert_pem, "key": ours.private_key_pem}
    for name, content in {**contents, "certificate": ours.cert_chain_pems[0]}.items():
        content.write_to_path(str(tmp_path / name))
    url, _ = served((200, '{"schema": "\\"long\\""}'), server)

    def ask(ca: str, *pair: str) -> Found | None:
        certificate, key = (str(tmp_path / each) for each in pair) if pair else (None, None)
        tls = Tls(ca_file=str(tmp_path / ca), certificate_file=certificate, key_file=key)
        return Registry(RegistrySettings(url=url, tls=tls)).writers([avro.frame(1)])[avro.frame(1)]

    assert ask("ca", "certificate", "key") == Found('"long"', "AVRO")
    for wrong in (("ca",), ("other", "certificate", "key")):
        with pytest.raises(SinkPipelineError, match="does not answer") as caught:
            ask(*wrong)
        assert caught.value.reason is Reason.SCHEMA_REGISTRY_UNREACHABLE
