from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.mariadb import LocalMariadb, root_directory
from support.changes.mariadb import ORDERS, MariadbLab
from support.runs.keeper import KEEPER


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if root_directory() is not None:
        return
    for item in items:
        if "tests/mariadb" in str(item.path):
            item.add_marker(pytest.mark.skip(reason="no MariaDB server: make mariadb"))


@pytest.fixture(scope="module")
def mariadb() -> LocalMariadb:
    """One server with a binary log, shared likewise: tests keep apart by their databases."""
    return KEEPER.get("mariadb", LocalMariadb)


@pytest.fixture
def lab(kafka: LocalKafka, mariadb: LocalMariadb, tmp_path: Path) -> Iterator[MariadbLab]:
    found = MariadbLab(mariadb, kafka.bootstrap_servers, tmp_path)
    yield found
    found.close()


@pytest.fixture
def prepared(lab: MariadbLab) -> MariadbLab:
    """With a table, and a first start behind it."""
    lab.sql(ORDERS)
    lab.live()
    return lab


@pytest.fixture
def own(kafka: LocalKafka, tmp_path: Path) -> Iterator[MariadbLab]:
    """On a server of its own, which may be killed. Its files are small."""
    with LocalMariadb(settings={"max-binlog-size": "262144"}) as server:
        lab = MariadbLab(server, kafka.bootstrap_servers, tmp_path)
        lab.sql(ORDERS)
        lab.live()
        yield lab
        lab.end_stages()
