"""Another server takes over, by GTIDs: the topic has each change once, whatever place it has in the new log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from support.changes.binlog import BOTH
from support.changes.binlog_load import insert
from support.changes.takeover import (
    TwoServers,
    caught_up,
    promote,
    server,
    two,
)

pytestmark = pytest.mark.kafka


@pytest.fixture
def servers(kafka: LocalKafka, kind: str, tmp_path: Path) -> Iterator[TwoServers]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(server(kind, number)) for number in (1, 2)]
        found = two(kafka.bootstrap_servers, tmp_path, made)
        yield found
        found.lab.end_stages()


@BOTH
def test_a_replica_takes_over(servers: TwoServers) -> None:
    lab = servers.lab
    lab.live()
    insert(lab, 0, 100)
    lab.live()
    insert(lab, 1000, 30)
    caught_up(servers.first, servers.other)
    promote(servers.other)
    servers.first.kill()
    servers.take_over()
    insert(lab, 2000, 40)
    lab.live()
    assert lab.check() == 170
    insert(lab, 3000, 5)
    lab.live()
    assert lab.check() == 175
