"""The stream of rows, and the hash of cells beside it, as a start finds or makes them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from sinkpipeline.cells.kind import LetteredTarget
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.lost_topics import data_topic_lost
from sinkpipeline.core.ports import Creation, Letters, LetterTarget
from sinkpipeline.core.topics import Topic
from sinkpipeline.redis_streams.cells import changed
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.entries import MOST_BYTES
from sinkpipeline.redis_streams.scripts import DELETE, KNOW, LOOK
from sinkpipeline.redis_streams.settings import SinkSettings, Stream
from sinkpipeline.redis_streams.soundness import check_server

STREAM_LIMITS = TopicLimits(partitions=1, message_bytes=MOST_BYTES)
_ID = "id"
"""The field of the place's own; the key of a cell has a slash in it."""


@dataclass(frozen=True)
class RedisTarget(LetteredTarget):
    """The stream of one sink. `gives_id`: whether one that has none is given one, as it is described."""

    settings: SinkSettings
    client: Client
    letters: LetterTarget | None = None
    gives_id: bool = True

    def check_names(self) -> None:
        """And that the server is one that keeps what it takes, before anything is written there."""
        if self.letters is not None:
            self.letters.check_names()
        if self.gives_id:
            check_server(self.client, self.settings)

    def describe(self, source: Mapping[str, str]) -> Topic | None:  # noqa: ARG002 - a stream is not what is read
        found = self._known(make=False) if self.gives_id else self._look()
        return None if not found else self._topic(found)

    def id(self) -> str | None:
        found = self._look()
        return found[0].decode() if found else None

    def create(self, there: Topic | None = None) -> Creation:  # noqa: ARG002 - it is one stream
        found = self._known(make=True)
        # What was made by a request without an answer is described by the next one, as somebody else's.
        return Creation(topic=self._topic(found), is_ours=bool(found[3]))

    def take(self, target: Topic, place: Topic, letters: Letters) -> None:  # noqa: ARG002 - the server was looked at
        if self.letters is not None:
            self.letters.take(letters)

    def limits_of(self, target: Topic) -> TopicLimits:  # noqa: ARG002 - as any stream
        return STREAM_LIMITS

    def limits(self) -> TopicLimits | None:
        return None if self.id() is None else STREAM_LIMITS

    def durability(self) -> Durability | None:
        if not self.settings.exactly_once:
            return None
        return Durability.AS_HELD_BY_SINK

    @override
    def counted(self) -> int | None:
        found = self._look()
        return found[2] if found else None

    def lost(self, what: str) -> SinkPipelineError:
        return data_topic_lost(self.settings.stream.key, what, self.settings.data.called)

    def delete(self, target: str) -> None:
        stream = self.settings.stream
        if self.client.look(DELETE, (stream.key, stream.known), target) != [b"OK"]:
            raise changed(stream)

    def _look(self) -> list[Any]:
        stream = self.settings.stream
        found: list[Any] = self.client.look(LOOK, (stream.key, stream.known))
        return found

    def _known(self, *, make: bool) -> list[Any]:
        stream = self.settings.stream
        found: list[Any] = self.client.look(KNOW, (stream.key, stream.known), str(uuid.uuid4()), "1" if make else "0")
        return found

    def _topic(self, found: list[Any]) -> Topic:
        return Topic(
            name=self.settings.stream.key,
            id=found[0].decode(),
            partitions=1,
            replication_factor=1,
            holds_data=found[1] > 0,
            counted=found[2],
        )


@dataclass(frozen=True)
class RedisPlace:
    """The hash of cells, which all sinks of a slot's streams share."""

    stream: Stream
    client: Client

    def describe(self, source: Mapping[str, str]) -> Topic | None:  # noqa: ARG002 - a hash is not what is read
        found = self.id()
        return None if found is None else self._topic(found)

    def id(self) -> str | None:
        found = self.client.read("HGET", self.stream.progress, _ID)
        return None if found is None else str(found.decode())

    def create(self) -> Creation:
        mine = str(uuid.uuid4())
        self.client.read("HSETNX", self.stream.progress, _ID, mine)
        found = self.id() or mine
        return Creation(topic=self._topic(found), is_ours=found == mine)

    def _topic(self, found: str) -> Topic:
        return Topic(name=self.stream.progress, id=found, partitions=1, replication_factor=1)
