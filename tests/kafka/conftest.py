from __future__ import annotations

from collections.abc import Iterator

import pytest

from local_kafka import LocalKafka
from sinkpipeline.kafka import connection, producers
from support.one_sink import OneSink


@pytest.fixture
def sink(kafka: LocalKafka) -> OneSink:
    """A sink of its own for each test, whose source topic has one partition."""
    return OneSink(kafka.bootstrap_servers)


@pytest.fixture(scope="session")
def impatient_kafka() -> Iterator[LocalKafka]:
    """A broker that looks for transactions to time out five times a second instead of every ten seconds."""
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with LocalKafka(properties=properties) as cluster:
        yield cluster


@pytest.fixture
def short_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of ours may stay open for a second only."""
    monkeypatch.setattr(producers, "TRANSACTION_TIMEOUT_MS", 1_000)
    # The client accepts none that is longer than a transaction.
    monkeypatch.setattr(connection, "SOCKET_TIMEOUT_MS", 1_000)
