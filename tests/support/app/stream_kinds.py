"""A sink of the command that is a stream, of each kind: its server, its manifest, and what its clients find in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from readers import nats, redis
from servers.local_server import LocalServer
from servers.nats import LocalNats
from servers.redis import LocalRedis
from support.kafka.streams import Verdict, judge
from support.kafka.topics import Record
from support.resource import redis as redis_streams
from support.resource import streams as nats_streams


@dataclass(frozen=True)
class StreamKind:
    """Streams are named after their sinks."""

    name: str
    server: Callable[[], LocalServer]
    """What it has acknowledged it still has after a SIGKILL."""
    points: tuple[str, ...]
    """Where a task can be held: before a commit, and within or behind it."""
    sink: Callable[..., dict[str, Any]]
    """By the server's address and the sink's name; with `select` where not each record is to be a row as it is."""
    values: Callable[[str, str], list[bytes]]
    """By the server's address and the sink's name: what a client of that system reads, in the stream's order."""
    count: Callable[[str, str], int]
    remove: Callable[[str, str], None]

    def judge(self, address: str, name: str, expected: set[str]) -> Verdict:
        """Of rows as a source of `support.kafka.streams` has them."""
        return judge([_row(number, each) for number, each in enumerate(self.values(address, name))], expected)


def _row(number: int, value: bytes) -> Record:
    return Record(partition=0, offset=number, key=None, value=value, headers=[], timestamp=0)


def _nats_sink(address: str, name: str, select: dict[str, Any] | None = None) -> dict[str, Any]:
    return nats_streams.stream(name, select=select, servers=address, subject=f"rows.{name}", of_stream={"name": name})


def _redis_sink(address: str, name: str, select: dict[str, Any] | None = None) -> dict[str, Any]:
    return redis_streams.stream(name, name, select=select, servers=address)


def _kept_redis() -> LocalRedis:
    """By default it tells its clients of what is not written yet while the disk is slow."""
    return LocalRedis(settings={"appendfsync": "always"})


NATS = StreamKind(
    "nats",
    LocalNats,
    ("nats-before-batch", "after-progress-before-commit"),
    _nats_sink,
    lambda address, name: [each.payload for each in nats.messages(address, name, f"rows.{name}")],
    lambda address, name: nats.count(address, name, f"rows.{name}"),
    nats.remove,
)
REDIS = StreamKind(
    "redis",
    _kept_redis,
    ("redis-before-commit", "redis-after-commit"),
    _redis_sink,
    lambda address, name: [each[b"value"] for each in redis.entries(address, name)],
    redis.count,
    redis.remove,
)
KINDS = (NATS, REDIS)
