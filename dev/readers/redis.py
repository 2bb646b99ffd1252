"""What any client of Redis or Valkey gets of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import redis

_AT_ONCE: Final = 10_000

Entry = Mapping[bytes, bytes]


def entries(address: str, key: str) -> list[Entry]:
    """The fields of each entry, in the stream's order; none where there is no stream."""
    found: list[Entry] = []
    behind = "-"
    with _connected(address) as session:
        while page := session.xrange(key, behind, count=_AT_ONCE):
            found += [fields for _, fields in page]
            behind = "(" + page[-1][0].decode()
    return found


def count(address: str, key: str) -> int:
    """How many they are."""
    with _connected(address) as session:
        return int(session.xlen(key))


def remove(address: str, key: str) -> None:
    with _connected(address) as session:
        session.delete(key)


def _connected(address: str) -> redis.Redis:
    host, _, port = address.rpartition(":")
    return redis.Redis(host=host, port=int(port))
