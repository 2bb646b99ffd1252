from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.nats import LocalNats, old_program
from sinkpipeline.sinks import delivery, takeover, transactional
from support.sink.nats_sink import NatsSink


@pytest.fixture
def sink(nats: LocalNats) -> Iterator[NatsSink]:
    """A sink of its own, whose stream does not exist."""
    found = NatsSink(nats.address)
    yield found
    found.close()


@pytest.fixture(scope="module")
def old() -> Iterator[LocalNats]:
    """A server before 2.12, which has no atomic batches."""
    binary = old_program()
    if binary is None:
        pytest.skip("no old NATS server: make nats-old")
    with LocalNats(binary=binary) as found:
        yield found


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "_MAX_DELAY_S", 0.11)
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.02)
    monkeypatch.setattr(delivery, "_ANNOUNCED_S", 0.0)
