"""Redis' names, entries and settings, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import characters, text
from redis.crc import key_slot

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.manifest.clear_text import credentials_in_clear
from sinkpipeline.core.ports import InDoubt, RecordRefused
from sinkpipeline.core.records import Row
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.redis_streams.addresses import (
    Named,
    address_in,
    beside,
    epoch_in,
    host_and_port,
    newest,
    owner_in,
    slot_of,
)
from sinkpipeline.redis_streams.entries import MOST_FIELDS, arguments
from sinkpipeline.redis_streams.replies import Meaning, meaning
from sinkpipeline.redis_streams.settings import Acknowledge, Connection, Sentinels, SinkSettings, Stream
from sinkpipeline.redis_streams.where import where_of
from sinkpipeline_operator.child.runconfig import secret_keys
from support.resource.manifests import SINK, changed, smallest
from support.resource.redis import stream

_SECRET = {"name": "redis-user", "key": "password"}


@pytest.mark.parametrize(
    ("key", "tag"),
    [("orders", "{orders}"), ("{shop}:orders", "{shop}"), ("a:{shop}", "{shop}"), ("shop", "{shop}")],
)
def test_what_is_ours_is_in_the_slot_of_the_stream(key: str, tag: str) -> None:
    found = Stream(key=key)
    assert (found.progress, found.known) == (f"{tag}:sinkpipeline:progress", f"{tag}:sinkpipeline:streams")
    assert {slot_of(each) for each in (found.key, found.progress, found.known)} == {key_slot(key.encode())}


@given(text(characters(exclude_characters="{}", exclude_categories=("Cs", "Cc")), min_size=1), text(), text())
def test_a_cluster_finds_them_in_the_slot_that_we_ask_for(tag: str, before: str, behind: str) -> None:
    for key in (tag, f"{before}{{{tag}}}{behind}", f"{before}{{}}{behind}", f"{before}{{{tag}"):
        assert slot_of(key) == key_slot(key.encode())


def test_whom_sentinels_mean() -> None:
    assert newest([]) is None
    late, right = Named("old:1", 3), Named("new:1", 4)
    assert newest([late, right, late]) == newest([right, late]) == "new:1"
    assert address_in([b"::1", b"6379"]) == "[::1]:6379"
    assert host_and_port("[::1]:6379") == ("::1", 6379)
    assert (epoch_in([b"name", b"m", b"config-epoch", b"7"]), epoch_in([b"name", b"m"])) == (7, 0)


def test_who_has_a_slot() -> None:
    slots = [[0, 99, [b"a", 1, b"id", []], [b"r", 1, b"id", []]], [100, 199, [None, 2, b"id"]], [200, 299, [b"::1", 3]]]
    assert [owner_in(slots, each, "asked:9") for each in (99, 100, 200, 300)] == ["a:1", "asked:2", "[::1]:3", None]
    assert (beside("asked:9", ":7"), beside("asked:9", "?:7"), beside("asked:9", "b:7")) == (
        "asked:7",
        "asked:7",
        "b:7",
    )


def test_where_a_node_points_to_is_asked_once() -> None:
    """Then others are asked again: who was pointed to may be gone."""
    found = where_of(Connection(server="127.0.0.1:1,127.0.0.1:2", slot=1))
    found.moved("a:1", ":2")
    assert found.find() == "a:2"
    with pytest.raises(InDoubt) as caught:
        found.find()
    assert caught.value.aborted
    assert caught.value.outage is not None
    assert "127.0.0.1:2" in caught.value.outage.message


@pytest.mark.parametrize("redis", [{"servers": "a:1"}, {"mode": "Cluster", "servers": "a:1,b:2"}])
def test_the_slot_of_a_stream_is_known_where_there_are_slots(redis: dict[str, str]) -> None:
    [settings] = resolve_sinks(parse_manifest(changed(smallest(), (SINK, stream(key="{shop}:orders", **redis)))), None)
    assert isinstance(settings, SinkSettings)
    found = settings.connection
    assert (found.slot, found.fails_over) == ((slot_of("shop"), True) if "mode" in redis else (None, False))


def test_sentinels_of_a_manifest(tmp_path: Path) -> None:
    asked = {"masterName": "m", "auth": {"username": "s", "passwordSecretRef": {"name": "sentinel-user", "key": "p"}}}
    pipeline = parse_manifest(changed(smallest(), (SINK, stream(mode="Sentinel", servers="a:1,b:2", sentinel=asked))))
    (tmp_path / "sentinel-user").mkdir()
    (tmp_path / "sentinel-user" / "p").write_text("hunter2")
    [settings] = resolve_sinks(pipeline, tmp_path)
    assert isinstance(settings, SinkSettings)
    found = settings.connection
    path = str(tmp_path / "sentinel-user" / "p")
    assert (found.server, found.sentinels) == ("a:1,b:2", Sentinels(master="m", user="s", password_file=path))
    assert secret_keys(pipeline) == {"sentinel-user": frozenset({"p"})}
    assert [each for each in credentials_in_clear(pipeline) if "redis.sentinel.auth: the password" in each]
    unasked = stream(mode="Sentinel", servers="a:1,b:2", sentinel={"masterName": "m"})
    [settings] = resolve_sinks(parse_manifest(changed(smallest(), (SINK, unasked))), None)
    assert isinstance(settings, SinkSettings)
    assert settings.connection.sentinels == Sentinels(master="m")


def test_a_row_that_can_be_no_entry_is_told_by_its_place() -> None:
    good: Row = (b"v", None, -1, 0, None)
    bad: list[Row] = [
        (None, None, -1, 0, None),
        (b"v", None, -1, 0, [("key", b"k")]),
        (b"v", None, -1, 0, [(f"h{each}", b"") for each in range(MOST_FIELDS)]),
    ]
    for each in bad:
        with pytest.raises(RecordRefused) as caught:
            arguments([good, each])
        assert (caught.value.index, caught.value.verdict.error_class) == (1, ErrorClass.RECORD_REFUSED)
    assert arguments([good, (None, b"k", -1, 0, [("a", None)])]) == ["2", "value", b"v", "4", "key", b"k", "a", b""]


@pytest.mark.parametrize(
    ("code", "text", "means"),
    [
        ("OOM", "command not allowed when used memory > 'maxmemory'.", Meaning.FULL),
        ("LOADING", "Redis is loading the dataset in memory", Meaning.OUTAGE),
        ("READONLY", "You can't write against a read only replica.", Meaning.OUTAGE),
        ("NOREPLICAS", "Not enough good replicas to write.", Meaning.UNREPLICATED),
        ("NOPERM", "no permissions", Meaning.REFUSED),
        ("ERR", "ACL failure in script: User u has no permissions to run the 'xinfo|stream' command", Meaning.REFUSED),
        ("WRONGPASS", "invalid username-password pair or user is disabled.", Meaning.CREDENTIALS),
        ("ERR", "something else", Meaning.UNKNOWN),
    ],
)
def test_what_a_reply_means(code: str, text: str, means: Meaning) -> None:
    assert meaning(code, text) is means


def test_settings_and_secrets_of_a_manifest(tmp_path: Path) -> None:
    wanted = stream(
        maxlen=9,
        database=2,
        acknowledge={"replicas": 1, "fsync": True},
        auth={"username": "u", "passwordSecretRef": _SECRET},
    )
    pipeline = parse_manifest(changed(smallest(), (SINK, wanted)))
    (tmp_path / "redis-user").mkdir()
    (tmp_path / "redis-user" / "password").write_text("hunter2")
    [settings] = resolve_sinks(pipeline, tmp_path)
    assert isinstance(settings, SinkSettings)
    assert settings.stream == Stream(key="orders", maxlen=9)
    found = settings.connection
    assert (found.server, found.database, found.user) == ("redis:6379", 2, "u")
    assert found.acknowledge == Acknowledge(replicas=1, fsync=True)
    assert "hunter2" not in repr(settings)
    assert secret_keys(pipeline) == {"redis-user": frozenset({"password"})}
    assert [each for each in credentials_in_clear(pipeline) if "redis.auth: the password" in each]
