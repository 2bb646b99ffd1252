"""Streams and servers that would lose rows or their progress are refused at the start, and the others taken."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pytest

from servers.nats import LocalNats
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason
from sinkpipeline.nats.client import Client, Message
from sinkpipeline.nats.look import check_reached, check_rights
from sinkpipeline.nats.stream import StreamInfo
from support.sink.cell_sink import P0
from support.sink.nats_sink import NatsSink
from support.sink.starts import refusal

pytestmark = pytest.mark.timeout(60)
DAY = 86_400 * 10**9


@pytest.mark.parametrize(
    ("changes", "fact", "remedy"),
    [
        ({"allow_atomic": False}, "allow_atomic is off", "--allow-batch"),
        ({"retention": "workqueue"}, "retention workqueue", "another stream"),
        ({"retention": "interest"}, "retention interest", "another stream"),
        ({"storage": "memory"}, "kept in memory", "another stream"),
        ({"max_age": DAY, "allow_msg_ttl": False}, "max_age", "--allow-msg-ttl"),
        ({"max_bytes": 10**9, "discard": "old"}, "discards old messages", "--discard new"),
        ({"max_msgs": 10**6, "discard": "old"}, "discards old messages", "--discard new"),
        ({"max_msgs_per_subject": 9, "discard": "new", "discard_new_per_subject": True}, "of a subject", "another"),
        ({"subjects": ["{subject}"]}, "where the progress is kept", "--subjects '{subject},_sinkpipeline."),
        ({"subjects": ["other.{subject}", "{own}"]}, "the subject of rows", "--subjects 'other.{subject},"),
        ({"subject_transform": {"src": ">", "dest": "x.>"}}, "subject transform", "another"),
    ],
)
def test_a_stream_that_can_not_keep_both_is_refused(
    sink: NatsSink, changes: dict[str, Any], fact: str, remedy: str
) -> None:
    names = {"{subject}": sink.subject, "{own}": sink.settings.own_subjects}

    def named(text: str) -> str:
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    subjects = {"subjects": list(map(named, changes["subjects"]))} if "subjects" in changes else {}
    assert "error" not in sink.create(**{**changes, **subjects})
    error = refusal(sink.driver, Reason.SINK_REFUSED)
    assert fact in error.message
    assert named(remedy) in error.remedy
    assert refusal(lambda: check_rights(sink.ports()), Reason.SINK_REFUSED).message == error.message
    assert sink.info()["state"]["messages"] == 0, "nothing was written"


@pytest.mark.parametrize(
    "changes",
    [
        {"max_age": DAY},
        {"max_bytes": 10**9, "discard": "new"},
        {"max_msgs_per_subject": 1_000},
        {"subjects": [">"]},
        {"allow_direct": True, "deny_delete": True, "deny_purge": True},
    ],
)
def test_a_stream_of_somebody_else_that_can_is_taken(sink: NatsSink, changes: dict[str, Any]) -> None:
    if changes.get("subjects") == [">"]:
        changes = {"subjects": [f"{sink.subject}.>", sink.subject, "_sinkpipeline.v1.*." + sink.name + ".>"]}
    assert "error" not in sink.create(**changes)
    driver = sink.driver()
    driver.drain()
    assert sink.delivered() == sink.once
    assert driver.ports.target.durability() is Durability.AS_HELD_BY_SINK


def test_the_stream_that_is_created_is_as_the_manifest_says(sink: NatsSink) -> None:
    driver = sink.driver()
    config = sink.info()["config"]
    assert (config["allow_atomic"], config["allow_msg_ttl"], config["discard"]) == (True, True, "new")
    assert config["subjects"] == [f"{sink.subject}.>", sink.subject, sink.settings.own_subjects]
    assert driver.started.progress.meta is not None
    assert driver.started.progress.meta.created == sink.info()["created"], "it is ours, and goes with us"
    sink.update(subjects=[sink.subject, sink.settings.own_subjects], max_age=DAY)
    is_there = f"{sink.stream} has subjects={sink.subject}, {sink.settings.own_subjects}"
    asked = f"the manifest says {sink.subject}.>, {sink.subject}, {sink.settings.own_subjects}"
    assert sink.driver().started.drift == (f"{is_there}, {asked}",)


def test_a_limit_that_is_set_under_a_running_driver_is_refused_before_it_takes_progress(sink: NatsSink) -> None:
    driver = sink.driver()
    driver.batch()
    sink.update(discard="old", max_bytes=10**6)
    error = refusal(driver.drain, Reason.SINK_REFUSED)
    assert "discards old messages" in error.message
    sink.update(discard="new")
    sink.driver().drain()
    assert sink.delivered() == sink.once


def test_a_server_without_atomic_batches_is_refused_and_gets_no_stream(old: LocalNats) -> None:
    sink = NatsSink(old.address)
    error = refusal(sink.driver, Reason.SINK_REFUSED)
    assert "older than 2.12" in error.message
    assert "upgrade" in error.remedy
    assert "error" in sink.info(), "there is none"
    refusal(lambda: check_rights(sink.ports()), Reason.SINK_REFUSED)
    sink.close()


def test_a_server_that_has_become_old_is_noticed_by_what_it_answers(old: LocalNats) -> None:
    """It takes `allow_atomic` without a word, and stores each message of a batch on its own."""
    sink = NatsSink(old.address)
    sink.create()
    cells = sink.ports().ledger.cells
    key = sink.settings.id.meta_key
    two = {key: (b"{}", None), f"{key}2": (b"{}", None)}
    error = refusal(lambda: cells.put(two), Reason.SINK_REFUSED)
    assert "one by one" in error.message
    assert "compare the stream with its source" in error.remedy
    sink.close()


def test_what_info_says_of_a_stream() -> None:
    found = StreamInfo("S", "id", {"subjects": ["a.>", "b.*.c"], "max_msg_size": 9}, {"messages": 3, "last_seq": 4})
    assert (found.most_bytes, found.messages, found.last_seq) == (9, 3, 4)
    taken = {each: found.takes(each) for each in ("a.b", "a", "a.b.c", "b.x.c", "b.c", "b.x.d", "a.>", "b.*.c", "b.>")}
    assert taken == {
        **dict.fromkeys(("a.b", "a.b.c", "b.x.c", "a.>", "b.*.c"), True),
        **dict.fromkeys(("a", "b.c", "b.x.d", "b.>"), False),
    }


def test_a_server_that_is_gone_is_an_outage(sink: NatsSink) -> None:
    with closing(Client(sink.settings.connection)) as client:
        client.connect()
        away = NatsSink("127.0.0.1:1")
        before = time.monotonic()
        refusal(lambda: check_reached(away.settings), Reason.SINK_UNREACHABLE)
        other = NatsSink(f"127.0.0.1:1,{sink.address}", ends={P0: 3})
        other.driver().drain()
        other.close()
        assert time.monotonic() - before < 5, "one that is away costs no time, where another one answers"
        assert client.publish([Message("$JS.API.INFO", b"", {})])["api"]["level"] >= 2
