"""With which properties a driver writes under its control id."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.control import ControlProducer
from sinkpipeline.kafka.producers import TransactionalProducer

MANY = 1_001
"""Source topics whose `meta` may be too large for a topic, unless it is compressed."""


@pytest.mark.parametrize(
    ("properties", "source_topics", "compression", "like_tasks"),
    [
        ({}, 1, None, True),
        ({"compression.type": "lz4"}, 1, "lz4", True),
        ({"compression.type": "none"}, 1, "none", True),
        ({}, MANY, "zstd", False),
        ({"compression.type": "none"}, MANY, "zstd", False),
        ({"compression.type": "lz4"}, MANY, "lz4", True),
    ],
)
def test_rows_are_compressed_as_a_task_would_or_left_to_tasks(
    monkeypatch: pytest.MonkeyPatch,
    properties: Mapping[str, str],
    source_topics: int,
    compression: str | None,
    like_tasks: bool,
) -> None:
    made, producer = _made(monkeypatch, properties, source_topics)
    assert (made.get("compression.type"), producer.writes_like_tasks) == (compression, like_tasks)


@pytest.mark.parametrize(("asked", "given"), [(None, "1000000"), ("50000", "50000"), ("10000000", "1000000")])
def test_what_is_sent_at_once_fits_a_progress_topic(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, given: str
) -> None:
    made, _ = _made(monkeypatch, {} if asked is None else {"batch.size": asked}, 1)
    assert made["batch.size"] == given


def _made(
    monkeypatch: pytest.MonkeyPatch, properties: Mapping[str, str], source_topics: int
) -> tuple[dict[str, str], ControlProducer]:
    made: dict[str, str] = {}

    def init(_self: TransactionalProducer, _connection: Connection, _id: str, given: Mapping[str, str]) -> None:
        made.update(given)

    monkeypatch.setattr(TransactionalProducer, "__init__", init)
    connection = Connection(bootstrap_servers="a:1")
    return made, ControlProducer(connection, "id", properties, source_topics=source_topics)
