from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core import troubles
from sinkpipeline.kafka import admin, connection, errors, producers, progress_log
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer
from sinkpipeline.sinks import takeover, transactional
from support.kafka.topics import produce_numbers
from support.runs.keeper import KEEPER
from support.sink.one_sink import OneSink
from support.worlds.faults import FaultyKafka, faulty_kafka


@pytest.fixture
def sink(kafka: LocalKafka) -> OneSink:
    """A sink of its own for each test, whose source topic has one partition."""
    return OneSink(kafka.bootstrap_servers)


@pytest.fixture
def filled(sink: OneSink) -> OneSink:
    """A sink whose source holds the numbers from 0 to 29."""
    produce_numbers(sink.servers, sink.source, 30)
    return sink


@pytest.fixture
def short_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that was fenced soon tries again."""
    monkeypatch.setattr(takeover, "_MAX_DELAY_S", 0.2)


@pytest.fixture
def short_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of ours may stay open for a second only."""
    monkeypatch.setattr(producers, "TRANSACTION_TIMEOUT_MS", 1_000)
    # The client accepts none that is longer than a transaction.
    monkeypatch.setattr(connection, "SOCKET_TIMEOUT_MS", 1_000)


@pytest.fixture
def expressions_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`validate` does not go on to the expressions, for which Spark would start in this process."""
    monkeypatch.setattr("sinkpipeline.cli.validate._check_expressions", lambda *_: None)


@pytest.fixture(scope="module")
def _faulty_kafka() -> FaultyKafka:
    return KEEPER.get("_faulty_kafka", faulty_kafka)


@pytest.fixture
def faulty(_faulty_kafka: FaultyKafka) -> Iterator[FaultyKafka]:
    """A broker behind a proxy, whole again after each test."""
    yield _faulty_kafka
    _faulty_kafka.heal()


@pytest.fixture
def short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request without an answer is given up soon."""
    monkeypatch.setattr(connection, "SOCKET_TIMEOUT_MS", 1_000)
    for module in (admin, errors):
        monkeypatch.setattr(module, "REQUEST_TIMEOUT_S", 4.0)


@pytest.fixture
def short_deadlines(short_requests: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - it acts
    """Everything that is tried again is given up soon."""
    monkeypatch.setattr(TransactionalProducer.__init__, "__kwdefaults__", {"deadline_s": 3.0})
    monkeypatch.setattr(TransactionalProducer.commit, "__defaults__", (3.0,))
    monkeypatch.setattr(PlainProducer.flush, "__defaults__", (3.0,))
    monkeypatch.setattr(producers, "COMMIT_DEADLINE_S", 3.0)
    monkeypatch.setattr(progress_log, "READ_DEADLINE_S", 3.0)
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.05)
    monkeypatch.setattr(troubles, "_OUTAGE_S", 4.0)
