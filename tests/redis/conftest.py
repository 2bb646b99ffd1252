from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.redis import LocalRedis
from sinkpipeline.sinks import delivery, takeover, transactional
from support.sink.redis_sink import RedisSink


@pytest.fixture
def sink(valkey: LocalRedis) -> Iterator[RedisSink]:
    found = RedisSink(valkey.address)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "_MAX_DELAY_S", 0.11)
    monkeypatch.setattr(transactional, "_MAX_DELAY_S", 0.02)
    monkeypatch.setattr(delivery, "_ANNOUNCED_S", 0.0)
