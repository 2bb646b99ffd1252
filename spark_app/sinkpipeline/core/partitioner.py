"""Which partition a key goes to: murmur2, as the Java clients and librdkafka's `murmur2_random` have it."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_WORD = 0xFFFFFFFF


def partition_of_key(key: bytes | None, partitions: int) -> int | None:
    """None where there is no key: the client takes any."""
    return None if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    found = (_SEED ^ len(data)) & _WORD
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _WORD
        word = (word ^ word >> 24) * _M & _WORD
        found = (found * _M & _WORD) ^ word
    rest = data[whole:]
    if rest:
        found = (found ^ int.from_bytes(rest, "little")) * _M & _WORD
    found = (found ^ found >> 13) * _M & _WORD
    return found ^ found >> 15
