"""Rows as messages of their own, which the server knows again by their `Nats-Msg-Id` as long as its window is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.core.records import Row
from sinkpipeline.nats.client import ApiError, Client, Message, answered
from sinkpipeline.nats.codes import TOO_LARGE
from sinkpipeline.nats.rows import RowPlace

MSG_ID = "Nats-Msg-Id"


@dataclass(frozen=True)
class NatsPublisher:
    """As of `cells.sending`."""

    client: Client
    place: RowPlace

    def made(self, row: Row, row_id: str | None) -> Message | Verdict:
        """Without an id the server stores it however often it comes."""
        found = self.place.message(row, more=len((row_id or "").encode()))
        if isinstance(found, Verdict) or row_id is None:
            return found
        own = {MSG_ID: row_id, "Nats-Expected-Stream": self.place.stream.name}
        return replace(found, headers={**found.headers, **own})

    def publish(self, messages: Sequence[Message]) -> None:
        """What the server says of one of them it says of the others too, but for their sizes."""
        faults: list[ApiError] = []
        for index, answer in enumerate(self.client.publish_each(messages)):
            try:
                answered(answer)
            except ApiError as error:
                if error.code == TOO_LARGE:
                    raise RecordRefused(Verdict(ErrorClass.RECORD_TOO_LARGE, str(error)), index=index) from error
                faults.append(error)
        for fault in faults:
            raise self.client.as_error(fault) from fault
