"""The registry as we ask it: Apicurio's, and answers that no registry should give."""

from __future__ import annotations

import base64
import contextlib
import json
import socketserver
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
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.tls import Tls
from sinkpipeline.kafka.registry import Answers, Found, Registry
from sinkpipeline.kafka.resolve import resolve_registry
from sinkpipeline.kafka.settings import RegistrySettings
from sinkpipeline.protobuf.compiler import compiled
from sinkpipeline.protobuf.messages import columns_of, message_of
from support import avro
from support.kafka.topics import unique
from support.resource import manifests

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
    frames = [avro.frame(ids[1]), avro.frame(999_999_999), b"\1" + uuid.uuid4().bytes, avro.frame(ids[0])]
    writers = registry_at(registry).writers(frames).found

    assert [(each.subject, each.version, each.id) for each in found] == [(subject, 1, ids[0]), (subject, 2, ids[1])]
    assert [json.loads(each.schema.text) for each in found] == [first, second]
    assert tuple(writers) == tuple(frames)
    assert [writers[each] for each in frames[1:3]] == [None, None]
    assert [writers[avro.frame(each)] for each in ids] == [each.schema for each in found]


def test_a_manifest_with_ids_of_eight_bytes_and_a_schema_of_its_own(registry: LocalRegistry) -> None:
    schema = order()
    frame = avro.frame(registry.register(unique("orders"), schema), size=8)
    decode = manifests.registry(url=registry.url, idFormat="Int64", reader={"schema": avro.text(schema)})
    document = manifests.changed(manifests.smallest(), (("spec", "decode"), decode))

    settings = resolve_registry(parse_manifest(document), None)

    assert settings is not None
    assert (settings.id_bytes, settings.reader, settings.version) == (8, avro.text(schema), None)
    found = Registry(settings).writers([frame]).found[frame]
    assert found is not None
    assert json.loads(found.text) == schema


def test_a_schema_of_another_kind_is_told(registry: LocalRegistry) -> None:
    frame = avro.frame(registry.register(unique("orders"), PROTOBUF, kind="PROTOBUF"))
    found = registry_at(registry).writers([frame]).found[frame]
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


def test_files_that_a_schema_of_protobuf_imports_have_their_names(registry: LocalRegistry) -> None:
    part, item, whole = unique("part"), unique("item"), unique("whole")
    texts = {
        part: "package p; message Part { int32 n = 1; }",
        item: 'package p; import "p/part.proto"; message Item { Part part = 1; }',
        whole: 'import "p/item.proto"; message Whole { p.Item item = 1; }',
    }
    of_part = {"name": "p/part.proto", "subject": part, "version": 1}
    of_item = {"name": "p/item.proto", "subject": item, "version": 1}
    for subject, references in ((part, []), (item, [of_part]), (whole, [of_item])):
        text = f'syntax = "proto3"; {texts[subject]}'
        number = registry.register(subject, text, kind="PROTOBUF", references=references)

    of_reader = registry_at(registry).reader(whole, "latest").schema
    of_writer = registry_at(registry).writers([avro.frame(number)]).found[avro.frame(number)]

    assert of_reader == of_writer
    assert set(of_reader.files) == {"p/part.proto", "p/item.proto"}
    columns = columns_of(message_of(compiled(of_reader.text, of_reader.files), None))
    assert columns == "`item` STRUCT<`part`: STRUCT<`n`: INT>>"


@pytest.mark.parametrize("version", ["latest", "7"])
def test_a_reader_that_is_not_there_is_told(registry: LocalRegistry, version: str) -> None:
    with pytest.raises(SinkPipelineError, match=f"version {version}") as caught:
        registry_at(registry).reader(unique("none"), version)
    assert caught.value.reason is Reason.SCHEMA_NOT_FOUND


def test_a_schema_is_registered_once_and_refused_where_it_is_not_compatible(registry: LocalRegistry) -> None:
    asked, subject, first = registry_at(registry), unique("written"), order()
    assert asked.id_of(subject, "AVRO", avro.text(first)) is None
    asked.check_fits(subject, "AVRO", avro.text(first))
    number = asked.register(subject, "AVRO", avro.text(first))
    assert asked.id_of(subject, "AVRO", avro.text(first)) == number == asked.register(subject, "AVRO", avro.text(first))
    registry.compatibility(subject, "BACKWARD")
    fits, other = (
        {**first, "fields": [*first["fields"], {"name": "n", "type": kind, **more}]}
        for kind, more in (
            ("long", {"default": 0}),
            ("long", {}),
        )
    )
    asked.check_fits(subject, "AVRO", avro.text(fits))
    asked.register(subject, "AVRO", avro.text(fits))
    asked.register(subject, "AVRO", avro.text(first))
    registry.compatibility(subject, "BACKWARD_TRANSITIVE")
    changed = {**first, "fields": [*first["fields"], {"name": "n", "type": "string", "default": ""}]}
    of_json = '{"type": "object"}'
    for kind, text in (("AVRO", avro.text(other)), ("AVRO", avro.text(changed)), ("JSON", of_json)):
        for refused in (asked.check_fits, asked.register):
            with pytest.raises(SinkPipelineError, match=subject) as caught:
                refused(subject, kind, text)
            assert caught.value.reason is Reason.SCHEMA_REFUSED


Answer = tuple[int, str]
Asked = tuple[str, str | None]
"""A path, and by whom."""
Serve = Callable[..., tuple[str, list[Asked]]]


@pytest.fixture
def served() -> Iterator[Serve]:
    """Makes a server that answers everything alike, or each path in its own way; what it was asked."""
    servers = []

    def serve(
        answers: Answer | Callable[[str], Answer], context: ssl.SSLContext | None = None
    ) -> tuple[str, list[Asked]]:
        asked: list[Asked] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers["Authorization"]))
                answer = answers(self.path) if callable(answers) else answers
                self.send_response(answer[0])
                self.end_headers()
                self.wfile.write(answer[1].encode())

            do_POST = do_GET  # noqa: N815 - http.server's own name

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


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, '{"id": null}'), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((200, '{"id": "7"}'), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((200, "[]"), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((401, "{}"), Reason.AUTHENTICATION_FAILED),
        ((403, "{}"), Reason.AUTHORIZATION_FAILED),
        *(
            ((status, '{"error_code": 42201, "message": "no"}'), Reason.SCHEMA_REFUSED)
            for status in (400, 409, 413, 422)
        ),
    ],
)
@pytest.mark.thorough("each wrong answer", after=3)
def test_an_answer_to_a_registration_is_an_id_or_told(served: Serve, answer: Answer, reason: Reason) -> None:
    url, _ = served(answer)
    asked = Registry(RegistrySettings(url=url, path="sinks[0].kafka.encode.value.schemaRegistry"))
    with pytest.raises(SinkPipelineError) as caught:
        asked.register("orders", "AVRO", avro.text(order()))
    assert caught.value.reason is reason
    for ask in (asked.id_of, asked.check_fits):
        with pytest.raises(SinkPipelineError) as caught:
            ask("orders", "AVRO", avro.text(order()))
        assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("answered", "kind", "is_taken"),
    [
        (avro.text(order()), "", True),
        (avro.text({**order(), "doc": "as it was made", "namespace": "of.others"}), "AVRO", True),
        (avro.text(order(("other", "long"))), "AVRO", False),
        (avro.text(order()), "JSON", False),
    ],
    ids=["the same", "as it was made", "another one", "of another kind"],
)
def test_an_id_of_another_schema_than_was_asked_for_is_not_taken(
    served: Serve, answered: str, kind: str, is_taken: bool
) -> None:
    more = {"schemaType": kind} if kind else {}
    url, _ = served((200, json.dumps({"subject": "orders", "version": 1, "id": 7, "schema": answered, **more})))
    asked = Registry(RegistrySettings(url=url, path="sinks[0].kafka.encode.value.schemaRegistry"))
    if is_taken:
        assert asked.id_of("orders", "AVRO", avro.text(order())) == 7
        return
    with pytest.raises(SinkPipelineError, match="another schema with id 7") as caught:
        asked.id_of("orders", "AVRO", avro.text(order()))
    assert caught.value.reason is Reason.SCHEMA_REGISTRY_UNREACHABLE


def test_another_version_than_was_asked_for_is_not_taken(served: Serve) -> None:
    url, _ = served((200, '{"subject": "orders", "version": 3, "id": 7, "schema": "\\"long\\""}'))
    asked = Registry(RegistrySettings(url=url))
    assert (asked.reader("orders", "latest").version, asked.reader("orders", "3").version) == (3, 3)
    with pytest.raises(SinkPipelineError, match="gave no answer that can be read"):
        asked.reader("orders", "2")


@pytest.mark.parametrize("fits", ['"false"', "1", "null", "false"])
def test_only_a_yes_says_that_a_schema_fits(served: Serve, fits: str) -> None:
    url, _ = served(
        (200, f'{{"schema": "\\"long\\"", "subject": "a", "version": 1, "id": 1, "is_compatible": {fits}}}')
    )
    with pytest.raises(SinkPipelineError) as caught:
        Registry(RegistrySettings(url=url)).check_fits("orders", "AVRO", avro.text(order()))
    assert caught.value.reason is Reason.SCHEMA_REFUSED


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_never_ends_is_none(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinkpipeline.kafka.registry._QUESTION_S", 0.3)
    monkeypatch.setattr("sinkpipeline.kafka.registry._ROUND_S", 0.0)
    with dripping(start) as url:
        asked = Registry(RegistrySettings(url=url))
        for ask in (lambda: asked.reader("orders", "latest"), lambda: asked.id_of("orders", "AVRO", "{}")):
            with pytest.raises(SinkPipelineError, match="takes too long") as caught:
                ask()
            assert caught.value.reason is Reason.SCHEMA_REGISTRY_UNREACHABLE
        error = asked.writers([avro.frame(1), avro.frame(2)]).error
        assert error is not None
        assert "takes too long" in error.message


@contextlib.contextmanager
def dripping(start: bytes) -> Iterator[str]:
    """A server that goes on for ever, a byte at a time; without a `start` with a status of many spaces."""
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.recv(65536)
                self.request.sendall(start or b"HTTP/1.1 200 OK\r\na: ")
                while not over.wait(0.02):
                    self.request.sendall(b" ")

    with socketserver.ThreadingTCPServer((HOST, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://{HOST}:{server.server_address[1]}"
        over.set()
        server.shutdown()


def test_an_answer_that_is_too_large_is_none(served: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    url, _ = served((200, '{"schema": "\\"long\\""' + " " * 1000 + "}"))
    asked = Registry(RegistrySettings(url=url))
    assert asked.writers([avro.frame(1)]) == Answers({avro.frame(1): FOUND})
    monkeypatch.setattr("sinkpipeline.kafka.bounded._MAX_BYTES", 1000)
    error = asked.writers([avro.frame(1)]).error
    assert error is not None
    assert "larger than 1000 bytes" in error.message


ERROR = '{"error_code": %d, "message": "no"}'
GUID = b"\1" + bytes(16)
WRONG = [
    "",
    "null",
    "[]",
    "{}",
    '"x"',
    '{"schema": null}',
    '{"schema": ""}',
    '{"schema": 5}',
    '{"schema": "x", "schemaType": 5}',
    '{"schema": "x", "references": 5}',
    '{"schema": "x", "references": [{}]}',
    "[" * 100_000,
]
"""What no registry gives for a schema that it has."""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, "<html>no such page</html>"), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((404, ERROR % 404), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((200, "<html>welcome</html>"), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((500, ERROR % 50001), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((503, ""), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((500, "x" * 100_000), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        ((404, ERROR.replace("%d", '"40403"')), Reason.SCHEMA_REGISTRY_UNREACHABLE),
        *((((200, each)), Reason.SCHEMA_REGISTRY_UNREACHABLE) for each in WRONG),
        ((401, ERROR % 40101), Reason.AUTHENTICATION_FAILED),
        ((403, ERROR % 40301), Reason.AUTHORIZATION_FAILED),
    ],
)
@pytest.mark.thorough("each wrong answer", after=4)
def test_what_is_no_answer_of_a_registry_says_of_no_schema_that_it_is_not_there(
    served: Serve, answer: Answer, reason: Reason
) -> None:
    url, _ = served(answer)
    answers = Registry(RegistrySettings(url=url)).writers([avro.frame(1), GUID])
    assert answers.error is not None
    assert (answers.found, answers.error.reason) == ({}, reason)
    assert len(answers.error.message) < 400
    with pytest.raises(SinkPipelineError) as caught:
        Registry(RegistrySettings(url=url)).reader("orders", "latest")
    assert caught.value.reason is reason


@pytest.mark.parametrize("number", ["null", "0", "-1", "7.9", '"7"', "true", "2147483648"])
@pytest.mark.thorough("each wrong id", after=2)
def test_what_is_no_id_is_not_written_into_a_frame(served: Serve, number: str) -> None:
    url, _ = served((200, f'{{"schema": "\\"long\\"", "subject": "orders", "version": 1, "id": {number}}}'))
    with pytest.raises(SinkPipelineError) as caught:
        Registry(RegistrySettings(url=url)).reader("orders", "latest")
    assert caught.value.reason is Reason.SCHEMA_REGISTRY_UNREACHABLE


def test_only_its_own_word_is_believed(served: Serve) -> None:
    url, _ = served((404, ERROR % 40403))
    assert Registry(RegistrySettings(url=url)).writers([avro.frame(1)]) == Answers({avro.frame(1): None})


NOT_FOUND = (404, ERROR % 40403)
NO_PAGE = (404, ERROR % 404)
LONG = (200, '{"schema": "\\"long\\""}')
FOUND = Found('"long"', "AVRO")


@pytest.mark.parametrize("bad", [b"\0\x80\0\0\1", b"\0" + b"\xff" * 8, GUID, b"\0" + (2**40).to_bytes(8, "big")])
@pytest.mark.parametrize("one", [LONG, NOT_FOUND])
@pytest.mark.thorough("each bad frame", after=2)
def test_one_bad_frame_holds_nobody_up(served: Serve, bad: bytes, one: Answer) -> None:
    url, _ = served(lambda path: one if path in ("/schemas/ids/1", "/schemas/ids/2147483647") else NO_PAGE)
    good = {avro.frame(1): FOUND if one is LONG else None}
    assert Registry(RegistrySettings(url=url)).writers([bad, *good]) == Answers({bad: None, **good})
    assert Registry(RegistrySettings(url=url)).writers([bad]) == Answers({bad: None})


def test_what_was_answered_is_kept(served: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    url, asked = served(lambda path: (500, "") if path == "/schemas/ids/1" else LONG)
    registry = Registry(RegistrySettings(url=url))
    answers = registry.writers([avro.frame(each) for each in (2, 1, 3)])
    assert answers.found == {avro.frame(2): FOUND, avro.frame(3): FOUND}
    assert answers.error is not None

    monkeypatch.setattr("sinkpipeline.kafka.registry._ROUND_S", 0.0)
    asked.clear()
    assert registry.writers([avro.frame(2), avro.frame(3)]) == Answers({avro.frame(2): FOUND})
    assert len(asked) == 1


def test_a_schema_whose_part_is_gone_is_found_without_it(served: Serve) -> None:
    refers = '{"schema": "x", "references": [{"name": "P", "subject": "p", "version": 1}]}'
    url, _ = served(lambda path: (404, ERROR % 40401) if path.startswith("/subjects") else (200, refers))
    assert Registry(RegistrySettings(url=url)).writers([avro.frame(1)]).found == {avro.frame(1): Found("x", "AVRO")}


@pytest.mark.parametrize("content", ["", "SECRET part", "SECRET ", " SECRET", "SEC\nRET", "SECR\u00e9T", "SECRET\x01"])
def test_a_secret_that_no_header_takes_is_not_told(served: Serve, content: str, tmp_path: Path) -> None:
    url, asked = served(LONG)
    secret = tmp_path / "secret"
    secret.write_text(content)
    settings = [RegistrySettings(url=url, token_file=str(secret))]
    if not content or "\n" in content:
        settings.append(RegistrySettings(url=url, username="me", password_file=str(secret)))
    for each in settings:
        with pytest.raises(SinkPipelineError) as caught:
            Registry(each).writers([avro.frame(1)])
        assert caught.value.reason is Reason.SECRET_INVALID
        assert "SEC" not in str(caught.value)
    assert asked == []


def test_authorities_are_those_of_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: Serve) -> None:
    authority, server = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(server)
    authority.cert_pem.write_to_path(str(tmp_path / "bundle"))
    url, _ = served(LONG, server)
    assert Registry(RegistrySettings(url=url)).writers([avro.frame(1)]).found == {}
    monkeypatch.setattr("sinkpipeline.kafka.registry.system_authorities", lambda: str(tmp_path / "bundle"))
    assert Registry(RegistrySettings(url=url)).writers([avro.frame(1)]).found == {avro.frame(1): FOUND}


def test_a_guid_is_asked_for_as_confluent_documents_it(served: Serve) -> None:
    url, asked = served((200, '{"schema": "\\"long\\""}'))
    guid = uuid.uuid4()
    frame = b"\1" + guid.bytes
    assert Registry(RegistrySettings(url=url)).writers([frame]) == Answers({frame: FOUND})
    assert [path.partition("?")[0] for path, _ in asked] == [f"/schemas/guids/{guid}"]


def test_nobody_answers() -> None:
    [port] = free_ports(1)
    error = Registry(RegistrySettings(url=f"http://{HOST}:{port}")).writers([avro.frame(1), avro.frame(2)]).error
    assert error is not None
    assert "does not answer" in error.message
    assert error.reason is Reason.SCHEMA_REGISTRY_UNREACHABLE


def test_credentials_are_read_when_they_are_needed(served: Serve, tmp_path: Path) -> None:
    url, asked = served((200, '{"schema": "\\"long\\""}'))
    secret = tmp_path / "secret"
    with_basic = Registry(RegistrySettings(url=url, username="me", password_file=str(secret)))
    with_token = Registry(RegistrySettings(url=url, token_file=str(secret)))
    for content in ("a:b", "c\n"):
        secret.write_text(content)
        assert with_basic.writers([avro.frame(1)]).found[avro.frame(1)] == Found('"long"', "AVRO")
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
    theirs = other.issue_cert("them@example.org")
    contents |= {"stranger": theirs.cert_chain_pems[0], "stranger key": theirs.private_key_pem}
    for name, content in {**contents, "certificate": ours.cert_chain_pems[0]}.items():
        content.write_to_path(str(tmp_path / name))
    url, _ = served((200, '{"schema": "\\"long\\""}'), server)

    def ask(ca: str, *pair: str) -> Answers:
        certificate, key = (str(tmp_path / each) for each in pair) if pair else (None, None)
        tls = Tls(ca_file=str(tmp_path / ca), certificate_file=certificate, key_file=key)
        return Registry(RegistrySettings(url=url, tls=tls)).writers([avro.frame(1)])

    assert ask("ca", "certificate", "key") == Answers({avro.frame(1): FOUND})
    for wrong, remedy in {
        ("ca",): "certSecretRef",
        ("other", "certificate", "key"): "caSecretRef",
        ("ca", "stranger", "stranger key"): "certSecretRef a certificate that it trusts",
    }.items():
        error = ask(*wrong).error
        assert error is not None
        assert error.reason is Reason.AUTHENTICATION_FAILED
        assert f"give decode.schemaRegistry.auth.tls.{remedy}" in error.remedy
