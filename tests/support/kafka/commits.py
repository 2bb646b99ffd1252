"""Commits of transactions that end as a test plans them."""

from __future__ import annotations

import pytest

from sinkpipeline.core.ports import InDoubt
from sinkpipeline.kafka.producers import TransactionalProducer
from support.kafka import topics


def planned(monkeypatch: pytest.MonkeyPatch, *outcomes: str) -> list[str]:
    """The next commits end as told: "lost" before the broker knows of it, "answer lost" after; returns what is left."""
    left = list(outcomes)
    real = TransactionalProducer.commit

    def commit(producer: TransactionalProducer, *more: float) -> None:
        outcome = left.pop(0) if left else "committed"
        if outcome == "lost":
            producer._producer.flush(topics.DEADLINE_S)
        else:
            real(producer, *more)
        if outcome != "committed":
            raise InDoubt(outcome)

    monkeypatch.setattr(TransactionalProducer, "commit", commit)
    return left
