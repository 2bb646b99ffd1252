"""A transaction whose events are compressed, event by event: however large it is, one of them is in memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Final

from sinkpipeline.core.changes.binlog import head
from sinkpipeline.core.changes.binlog_events import HEADER, Payload
from sinkpipeline.core.changes.pgoutput import NotUnderstood

_MOST: Final = 1 << 30
"""Bytes of one event: what a server allows."""


def expanded(payload: Payload) -> Iterator[bytes]:
    """Its events, without checksums.

    Raises:
        NotUnderstood
    """
    try:
        with _opened(payload) as stream:
            while begin := stream.read(HEADER):
                size = head(begin).size - HEADER
                if not 0 <= size <= _MOST:
                    raise NotUnderstood(f"an event of {size + HEADER} bytes in a transaction that is compressed")
                rest = stream.read(size)
                if len(rest) != size:
                    raise NotUnderstood("a transaction that is compressed, and is cut off")
                yield begin + rest
    except OSError as error:
        raise NotUnderstood(f"a transaction that is compressed can't be read: {error}") from error


def _opened(payload: Payload) -> IO[bytes]:
    if not payload.is_compressed:
        return io.BytesIO(payload.data)
    # Only who meets one pays for it.
    import pyarrow as pa  # noqa: PLC0415

    stream = pa.CompressedInputStream(pa.BufferReader(payload.data), "zstd")
    # It may answer with less than it was asked for.
    return io.BufferedReader(stream)
