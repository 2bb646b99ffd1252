"""Redis' names, entries and settings, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.manifest.clear_text import credentials_in_clear
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.core.records import Row
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.redis_streams.entries import MOST_FIELDS, arguments
from sinkpipeline.redis_streams.replies import Meaning, meaning
from sinkpipeline.redis_streams.settings import Acknowledge, SinkSettings, Stream
from sinkpipeline_operator.child.runconfig import secret_keys
from support.resource.manifests import SINK, changed, smallest
from support.resource.redis import stream

_SECRET = {"name": "redis-user", "key": "password"}


@pytest.mark.parametrize(
    ("key", "beside"),
    [("orders", "{orders}"), ("{shop}:orders", "{shop}"), ("a:{shop}", "{shop}"), ("shop", "{shop}")],
)
def test_what_is_ours_is_in_the_slot_of_the_stream(key: str, beside: str) -> None:
    found = Stream(key=key)
    assert (found.progress, found.known) == (f"{beside}:sinkpipeline:progress", f"{beside}:sinkpipeline:streams")


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
