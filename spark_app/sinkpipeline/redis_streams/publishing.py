"""Rows as entries of their own, each with the field `idempotency_key`, by which who reads them tells repeated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.records import Row
from sinkpipeline.redis_streams.cells import changed
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.entries import Words, words_of
from sinkpipeline.redis_streams.scripts import NOTE
from sinkpipeline.redis_streams.settings import Stream


@dataclass(frozen=True)
class RedisPublisher:
    """As of `cells.sending`; `target`: the id of the stream, `store`: of the driver, whose task this is."""

    client: Client
    stream: Stream
    target: str
    store: str

    def made(self, row: Row, row_id: str) -> Words | Verdict:
        try:
            return words_of(row, row_id)
        except ValueError as error:
            return Verdict(ErrorClass.RECORD_REFUSED, str(error))

    def publish(self, messages: Sequence[Words]) -> None:
        """Behind them a script notes how many entries the stream has, by which it is known again."""
        stream = self.stream
        length: Words = [] if stream.maxlen is None else ["MAXLEN", "~", str(stream.maxlen)]
        added: list[Words] = [["XADD", stream.key, "NOMKSTREAM", *length, "*", *each] for each in messages]
        if None in self.client.pipelined(added, at=self.store):
            raise changed(stream)
        if self.client.write(NOTE, (stream.key, stream.known), [self.target], at=self.store) != [b"OK"]:
            raise changed(stream)
