"""Limits that the schema registry's client has none of: of time in all, and of the size of an answer.

Its own timeout is one for each read, so that an answer that drips never ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.common._httpx_compat import httpx
from typing_extensions import override

_MAX_BYTES = 16 * 1024 * 1024
"""Of an answer."""


@contextmanager
def bounded(client: SchemaRegistryClient, seconds: float, late: Callable[[], None]) -> Iterator[None]:
    """After so long `late` is called and the client closed: what it waits for fails, and any further question does."""
    # Nothing public of the client has either limit.
    session = client._rest_client.session
    session.headers["accept-encoding"] = "identity"
    session.event_hooks = {"response": [_limit]}

    def end() -> None:
        late()
        session.close()

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Limited(httpx.SyncByteStream):
    """An answer of a bounded size."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    @override
    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for each in self._stream:
            size += len(each)
            if size > _MAX_BYTES:
                raise httpx.DecodingError(f"the answer is larger than {_MAX_BYTES} bytes")
            yield each

    @override
    def close(self) -> None:
        self._stream.close()


def _limit(response: httpx.Response) -> None:
    # Of a few bytes that are compressed many can be made; none were asked for.
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.DecodingError("the answer is compressed")
    if isinstance(response.stream, httpx.SyncByteStream):
        response.stream = _Limited(response.stream)
