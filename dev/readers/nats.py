"""What any client of NATS gets of a stream: by a consumer with a filter, as docs/nats.md asks of readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

import nats

T = TypeVar("T")

DEADLINE_S: Final = 30.0
_AT_ONCE: Final = 5_000


@dataclass(frozen=True)
class Message:
    subject: str
    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def messages(address: str, stream: str, subject: str) -> list[Message]:
    """Those below a subject, in the stream's order; none where there is no stream."""

    async def read(js: JetStreamContext) -> list[Message]:
        consumer = ConsumerConfig(filter_subject=subject, ack_policy=AckPolicy.NONE)
        pulled = await js.pull_subscribe(subject, stream=stream, config=consumer)
        left = (await pulled.consumer_info()).num_pending or 0
        found: list[Message] = []
        while left > len(found):
            some = await pulled.fetch(min(_AT_ONCE, left - len(found)), timeout=DEADLINE_S)
            found += [Message(each.subject, each.data, each.headers or {}) for each in some]
        await pulled.unsubscribe()
        return found

    return _asked(address, read, [])


def count(address: str, stream: str, subject: str) -> int:
    """How many they are."""

    async def counted(js: JetStreamContext) -> int:
        found = await js.stream_info(stream, subjects_filter=subject)
        return sum((found.state.subjects or {}).values())

    return _asked(address, counted, 0)


def remove(address: str, stream: str) -> None:
    async def removed(js: JetStreamContext) -> None:
        await js.delete_stream(stream)

    _asked(address, removed, None)


def _asked(address: str, work: Callable[[JetStreamContext], Coroutine[Any, Any, T]], absent: T) -> T:
    async def connected() -> T:
        session: Client = await nats.connect(f"nats://{address}", allow_reconnect=False)
        try:
            return await work(session.jetstream(timeout=DEADLINE_S))
        except NotFoundError:
            return absent
        finally:
            await session.close()

    return asyncio.run(connected())
