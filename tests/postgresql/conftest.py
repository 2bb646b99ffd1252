from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.postgresql import LocalPostgresql, bin_directory
from sinkpipeline.sinks import delivery, takeover, transactional
from support.sink.sql_sink import SqlSink


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if bin_directory() is not None:
        return
    for item in items:
        if "tests/postgresql" in str(item.path):
            item.add_marker(pytest.mark.skip(reason="no PostgreSQL server: make postgresql"))


@pytest.fixture
def sink(postgresql: LocalPostgresql) -> Iterator[SqlSink]:
    """A sink of its own, whose rows are appended."""
    found = SqlSink(postgresql.address)
    found.create_schema()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "_MAX_DELAY_S", 0.11)
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.02)
    monkeypatch.setattr(delivery, "_ANNOUNCED_S", 0.0)
