from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql, bin_directory
from support.changes.lab import LOGICAL, Lab
from support.runs.keeper import KEEPER


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if bin_directory() is not None:
        return
    for item in items:
        if "tests/changes" in str(item.path):
            item.add_marker(pytest.mark.skip(reason="no PostgreSQL server: make postgresql"))


@pytest.fixture(scope="module")
def logical() -> LocalPostgresql:
    """One server whose changes can be read, shared likewise: tests keep apart by their databases and slots."""
    return KEEPER.get("logical", lambda: LocalPostgresql(settings=LOGICAL))


@pytest.fixture
def lab(kafka: LocalKafka, logical: LocalPostgresql, tmp_path: Path) -> Iterator[Lab]:
    found = Lab(logical, kafka.bootstrap_servers, tmp_path)
    yield found
    found.close()
