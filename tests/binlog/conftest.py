from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from servers.binlog_server import BinlogServer
from servers.local_kafka import LocalKafka
from support.changes.binlog import ORDERS, ROOTS, SERVERS, BinlogLab
from support.changes.takeover import TwoServers, caught_up, promote, server, two
from support.runs.keeper import KEEPER

SAME: Final = pytest.mark.thorough("MariaDB has it: the same code reads MySQL's log")


@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=SAME)])
def kind(request: pytest.FixtureRequest) -> str:
    """Of the server: a test that is about what differs is parametrized with both."""
    found = str(request.param)
    if ROOTS[found]() is None:
        pytest.skip(f"no {SERVERS[found].title} server: make {found}")
    return found


@pytest.fixture(scope="module")
def binlog_server(kind: str) -> BinlogServer:
    """One with a binary log, shared likewise: tests keep apart by their databases."""
    return KEEPER.get(f"binlog_server:{kind}", SERVERS[kind])


@pytest.fixture
def lab(kafka: LocalKafka, binlog_server: BinlogServer, tmp_path: Path) -> Iterator[BinlogLab]:
    found = BinlogLab(binlog_server, kafka.bootstrap_servers, tmp_path)
    yield found
    found.close()


@pytest.fixture
def prepared(lab: BinlogLab) -> BinlogLab:
    """With a table, and a first start behind it."""
    lab.sql(ORDERS)
    lab.live()
    return lab


@pytest.fixture
def own(kafka: LocalKafka, kind: str, tmp_path: Path) -> Iterator[BinlogLab]:
    """On a server of its own, which may be killed. Its files are small, and MySQL gives no GTIDs, as by default."""
    settings: dict[str, Any] = {"max-binlog-size": "262144"}
    if kind == "mysql":
        settings |= {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
    with SERVERS[kind](settings=settings) as server:
        lab = BinlogLab(server, kafka.bootstrap_servers, tmp_path)
        lab.sql(ORDERS)
        lab.live()
        yield lab
        lab.end_stages()


@pytest.fixture
def servers(kafka: LocalKafka, kind: str, tmp_path: Path) -> Iterator[TwoServers]:
    """The other one replicates the first one, and rows of a statement stand in other events there."""
    sizes = {1: "8192", 2: "1024"}
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(server(kind, n, **{"binlog-row-event-max-size": sizes[n]})) for n in sizes]
        found = two(kafka.bootstrap_servers, tmp_path, made)
        yield found
        found.lab.end_stages()


@pytest.fixture
def apart(servers: TwoServers) -> TwoServers:
    """Neither replicates the other any more; both are given what a test wants."""
    servers.lab.live()
    caught_up(servers.first, servers.other)
    promote(servers.other)
    return servers
