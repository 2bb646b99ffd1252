"""Kafka's protocol by hand: records that no client of ours can write, and what its admin client lacks.

Other people's clients write header names of any bytes; ours takes C strings, and Java's takes its own strings.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

_DEADLINE_S = 20.0
_CLIENT = "raw"
_NO_PRODUCER = struct.pack(">qhi", -1, -1, -1)
_TRANSACTIONAL = 0x10
_CRC32C = 0x82F63B78
"""Castagnoli's polynomial, mirrored."""

RawHeaders = list[tuple[bytes, bytes | None]]
RawRecord = tuple[bytes | None, bytes | None, RawHeaders]
"""Value, key, headers."""


def produce_raw(
    servers: str, topic: str, records: Iterable[RawRecord], *, partition: int = 0, timestamp: int = 1_700_000_000_000
) -> None:
    """Produces records, byte for byte, as one batch; `servers` is the partition's leader."""
    body = struct.pack(">hhi", -1, -1, int(_DEADLINE_S * 1000))  # no transaction, all replicas
    _append(servers, topic, partition, body, _batch(list(records), timestamp))


def _append(servers: str, topic: str, partition: int, body: bytes, batch: bytes) -> None:
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    answer = _ask(servers, 0, 3, body)
    [error] = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
    assert error == 0, f"{topic} refused the batch with error {error}"


def hang_a_transaction(servers: str, topic: str, *, partition: int = 0, producer: int = 4_711) -> None:
    """A transaction that no coordinator knows, as an old bug of brokers left them: nobody ends it by itself.

    The broker must run with `transaction.partition.verification.enable=false`. Its record is years old.
    """
    batch = _batch([(b"hanging", None, [])], 1_700_000_000_000, producer=struct.pack(">qhi", producer, 0, 0))
    body = _text("hanging") + struct.pack(">hi", -1, int(_DEADLINE_S * 1000))
    _append(servers, topic, partition, body, batch)


def limit_produce_rate(servers: str, client: str | None, rate: float | None) -> None:
    """Sets the quota of a client id, None for the default of all, in bytes per second; None as the rate removes it."""
    entity = struct.pack(">i", 1) + _text("client-id") + (struct.pack(">h", -1) if client is None else _text(client))
    operation = struct.pack(">i", 1) + _text("producer_byte_rate") + struct.pack(">d?", rate or 0.0, rate is None)
    answer = _ask(servers, 49, 0, struct.pack(">i", 1) + entity + operation + b"\0")
    [error] = struct.unpack_from(">h", answer, 4 + 4)
    assert error == 0, f"the quota was refused with error {error}"


def _ask(servers: str, api: int, version: int, body: bytes) -> bytes:
    host, _, port = servers.split(",", maxsplit=1)[0].rpartition(":")
    with socket.create_connection((host, int(port)), _DEADLINE_S) as connection:
        request = struct.pack(">hhi", api, version, 7) + _text(_CLIENT) + body
        connection.sendall(struct.pack(">i", len(request)) + request)
        [size] = struct.unpack(">i", _receive(connection, 4))
        return _receive(connection, size)[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        assert more, "the broker ended the connection: it can't read the request"
        found += more
    return found


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _batch(records: list[RawRecord], timestamp: int, *, producer: bytes = _NO_PRODUCER) -> bytes:
    """Version 2, not compressed; one of a producer belongs to its transaction."""
    last, attributes = len(records) - 1, 0 if producer == _NO_PRODUCER else _TRANSACTIONAL
    rest = struct.pack(">hiqq", attributes, last, timestamp, timestamp) + producer + struct.pack(">i", len(records))
    rest += b"".join(_record(number, *record) for number, record in enumerate(records))
    inner = struct.pack(">ibI", -1, 2, _crc32c(rest)) + rest
    return struct.pack(">qi", 0, len(inner)) + inner


def _record(number: int, value: bytes | None, key: bytes | None, headers: RawHeaders) -> bytes:
    body = b"\0" + _varint(0) + _varint(number) + _sized(key) + _sized(value) + _varint(len(headers))
    body += b"".join(_sized(name) + _sized(content) for name, content in headers)
    return _varint(len(body)) + body


def _sized(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _varint(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 31), b""
    while left > 0x7F:
        found += bytes([left & 0x7F | 0x80])
        left >>= 7
    return found + bytes([left])


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _entry(index: int) -> int:
    for _ in range(8):
        index = (index >> 1) ^ (_CRC32C if index & 1 else 0)
    return index


_TABLE = [_entry(index) for index in range(256)]
