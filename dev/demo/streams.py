"""`make demo SINK=nats` and `make demo SINK=redis`: flights into a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from demo.audit import Broker
from demo.data import Row
from demo.server_demo import ServerDemo
from demo.stage import Stage
from demo.story import Story
from deployed.cluster import ROOT, Kubernetes
from readers import nats, redis
from servers.local_server import LocalServer
from servers.nats import LocalNats
from servers.redis import LocalRedis

EXAMPLES: Final = {kind: ROOT / "examples" / f"flights-{kind}.yaml" for kind in ("nats", "redis")}
_FIELDS: Final = ("id", "carrier", "flight", "origin", "dest", "dep_delay")


@contextmanager
def stream_demo(kind: str, story: Story, broker: Broker, kubernetes: Kubernetes, directory: Path) -> Iterator[Stage]:
    """`kind`: one of EXAMPLES."""
    name, serve, demo = _SERVERS[kind]
    story.step(f"Starting a {name} server")
    with serve() as server:
        story.say(f"it listens on {server.address}")
        yield demo(story, broker, kubernetes, directory, _document(kind, server.address), server)


def _document(kind: str, address: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(EXAMPLES[kind].read_text())
    sink = document["spec"]["sinks"][0][kind]
    sink["servers"] = address
    # It asks nobody who comes from this machine.
    del sink["auth"]
    return document


class _StreamDemo(ServerDemo):
    place = "the stream"

    @override
    def wanted(self, row: Row) -> dict[str, Any]:
        fields = row[1]
        return {**{name: fields[name] for name in _FIELDS}, "header": fields["origin"]}


class _NatsDemo(_StreamDemo):
    counted_by = "consumer of the stream"

    @override
    def count(self) -> int:
        return nats.count(self._server.address, *self._where)

    @override
    def rows(self) -> Iterator[dict[str, Any]]:
        for each in nats.messages(self._server.address, *self._where):
            yield {**json.loads(each.payload), "header": each.headers["origin"], "subject": each.subject}

    @override
    def wanted(self, row: Row) -> dict[str, Any]:
        return {**super().wanted(row), "subject": f"flights.delayed.{row[1]['carrier']}"}

    @property
    def _where(self) -> tuple[str, str]:
        stream = self._document["spec"]["sinks"][0]["nats"]["stream"]
        return stream["name"], stream["subjects"][0]


class _RedisDemo(_StreamDemo):
    counted_by = "reader of the stream"

    @override
    def count(self) -> int:
        return redis.count(self._server.address, self._key)

    @override
    def rows(self) -> Iterator[dict[str, Any]]:
        for each in redis.entries(self._server.address, self._key):
            yield {**json.loads(each[b"value"]), "header": each[b"origin"].decode()}

    @property
    def _key(self) -> str:
        return str(self._document["spec"]["sinks"][0]["redis"]["stream"]["key"])


_SERVERS: Final[Mapping[str, tuple[str, Callable[[], LocalServer], type[_StreamDemo]]]] = {
    "nats": ("NATS", LocalNats, _NatsDemo),
    "redis": ("Valkey", LocalRedis, _RedisDemo),
}
