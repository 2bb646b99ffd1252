"""One sink on a real NATS server, without Spark: its stream, its settings, and what stands in it, read by its own eyes.

The stream is looked at with a client of the test's own, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import nats.errors
from nats.aio.client import Client as NatsConnection
from typing_extensions import override

import nats
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Owner
from sinkpipeline.nats.client import Client
from sinkpipeline.nats.kind import NatsPorts
from sinkpipeline.nats.settings import Connection, SinkSettings, Stream
from sinkpipeline.sinks.contract import RowBatch
from support.sink.cell_sink import CellSink, WithLetters
from support.waiting import wait_until

T = TypeVar("T")


_NO_MESSAGE = 10037
"""The code of the API's error where none has that sequence."""


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def awaited(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(60)


def api(address: str, call: str, *, seconds: float = 10, **arguments: Any) -> dict[str, Any]:
    """One call of JetStream's API, by a connection of its own."""
    [found] = apis(address, [(call, arguments)], seconds)
    return found


def asked(address: str, call: str, **arguments: Any) -> dict[str, Any]:
    """Where nobody leads, nobody answers."""
    try:
        return api(address, call, seconds=2, **arguments)
    except (nats.errors.Error, OSError):
        return {"error": "no answer"}


def apis(address: str, calls: Collection[tuple[str, Mapping[str, Any]]], seconds: float = 10) -> list[dict[str, Any]]:
    async def asked() -> list[dict[str, Any]]:
        session = await connected(address)
        try:
            answers = [
                await session.request(
                    f"$JS.API.{call}", json.dumps(arguments).encode() if arguments else b"", timeout=seconds
                )
                for call, arguments in calls
            ]
            return [json.loads(each.data) for each in answers]
        finally:
            await session.close()

    return awaited(asked())


async def connected(address: str) -> NatsConnection:
    return await nats.connect(f"nats://{address}", allow_reconnect=False)


def messages(address: str, stream: str) -> list[tuple[int, str, dict[str, str], bytes]]:
    """All that are there: sequence, subject, headers, payload."""
    state = api(address, f"STREAM.INFO.{stream}")
    if "error" in state:
        return []
    first, last = state["state"]["first_seq"], state["state"]["last_seq"]
    calls = [(f"STREAM.MSG.GET.{stream}", {"seq": each}) for each in range(max(1, first), last + 1)]
    answers = wait_until(lambda: _answered(address, calls), "each message is there, or is none") if calls else []
    found = []
    for answer in answers:
        if "error" not in answer:
            each = answer["message"]
            block = base64.b64decode(each.get("hdrs") or "").decode().split("\r\n")[1:]
            headers = dict(line.split(": ", 1) for line in block if line)
            payload = base64.b64decode(each.get("data") or "")
            found.append((each["seq"], each["subject"], headers, payload))
    return found


def _answered(address: str, calls: Collection[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Nothing where a stream has no leader for a moment: that says nothing of a message."""
    found = apis(address, calls)
    return found if all(each.get("error", {}).get("err_code", _NO_MESSAGE) == _NO_MESSAGE for each in found) else []


def of_offsets(partition: SourcePartition, offsets: range) -> RowBatch:
    return batch(offsets, [f"{partition.partition}:{each}".encode() for each in offsets])


def batch(offsets: Collection[int], values: Collection[bytes | None], keys: Collection[bytes] = ()) -> RowBatch:
    """`keys`: their subjects."""
    return RowBatch(
        offsets=list(offsets),
        keys=list(keys) or [None] * len(values),
        values=list(values),
        target_partitions=None,
        timestamps=[0] * len(values),
        headers=None,
        errors=None,
        size=sum(map(len, filter(None, values))),
    )


@dataclass
class NatsSink(CellSink):
    """The names of one sink; every instance has a stream of its own. `address` may be a proxy's."""

    direct: str = ""

    client_of = Client
    ports_of = NatsPorts
    make = staticmethod(of_offsets)

    @override
    def __post_init__(self) -> None:
        self.direct = self.direct or self.address

    @property
    def stream(self) -> str:
        return f"ORDERS-{self.name}"

    @property
    def subject(self) -> str:
        return f"orders.{self.name}"

    @property
    @override
    def settings(self) -> SinkSettings:
        found = SinkSettings(
            id=SinkId("i.1", self.name),
            owner=Owner(cluster="file", name="n"),
            source=None,
            group_id="g",
            connection=Connection(servers=self.address),
            stream=Stream(name=self.stream, subjects=(f"{self.subject}.>", self.subject)),
            subject=self.subject,
        )
        return replace(found, **self.changes)

    # What stands there

    def create(self, **changes: Any) -> dict[str, Any]:
        """Somebody else creates the stream."""
        asked = {**self.ports().target._asked(), **changes}
        return api(self.direct, f"STREAM.CREATE.{self.stream}", **asked)

    def update(self, **changes: Any) -> dict[str, Any]:
        config = api(self.direct, f"STREAM.INFO.{self.stream}")["config"]
        return api(self.direct, f"STREAM.UPDATE.{self.stream}", **{**config, **changes})

    def info(self) -> dict[str, Any]:
        return api(self.direct, f"STREAM.INFO.{self.stream}")

    def delete(self) -> None:
        api(self.direct, f"STREAM.DELETE.{self.stream}")

    def purge(self, **which: Any) -> None:
        api(self.direct, f"STREAM.PURGE.{self.stream}", **which)

    def publish(self, subject: str, payload: bytes) -> None:
        """By somebody else."""

        async def published() -> None:
            session = await connected(self.direct)
            try:
                await session.request(subject, payload, timeout=10)
            finally:
                await session.close()

        awaited(published())

    def rows(self) -> list[tuple[str, dict[str, str], bytes]]:
        """Subject, headers and payload of all that are no cells, in their order."""
        found = messages(self.direct, self.stream)
        return [each[1:] for each in found if not each[1].startswith("_sinkpipeline.")]

    def delivered(self) -> Counter[tuple[int, int]]:
        """How often the row of each partition and offset is there."""
        values = [payload.split()[0].split(b":") for _, _, payload in self.rows()]
        return Counter((int(partition), int(offset)) for partition, offset in values)

    @property
    def once(self) -> Counter[tuple[int, int]]:
        return Counter((each.partition, offset) for each, end in self.ends.items() for offset in range(end))


@dataclass
class LetteredNats(WithLetters, NatsSink):
    """With dead letters on a real broker."""
