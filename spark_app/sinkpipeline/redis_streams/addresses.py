"""Addresses of servers, `host:port`, as manifests, sentinels and nodes of a cluster write them; and slots."""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SLOTS = 16_384
_NO_HOSTS = frozenset({"", "?"})
"""What a node of a cluster says of one whose host is that of the node that was asked."""


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def slot_of(key: str) -> int:
    """What stands in the first braces says it, or the whole key where nothing does."""
    _, opened, behind = key.partition("{")
    tag, closed, _ = behind.partition("}")
    return binascii.crc_hqx((tag if opened and closed and tag else key).encode(), 0) % SLOTS


def beside(asked: str, address: str) -> str:
    """An address that the node `asked` has told: without a host it means its own."""
    host, port = host_and_port(address)
    return address_of(host_and_port(asked)[0] if host in _NO_HOSTS else host, port)


@dataclass(frozen=True)
class Named:
    """What one sentinel says of a master: where it is, and since which failover."""

    address: str
    epoch: int


def newest(named: Sequence[Named]) -> str | None:
    """The master's address: sentinels that have missed a failover know an older epoch; None where none names one."""
    return max(named, key=lambda each: each.epoch).address if named else None


def address_in(answer: Sequence[bytes]) -> str:
    """Of a sentinel, to `GET-MASTER-ADDR-BY-NAME`."""
    host, port = (each.decode() for each in answer)
    return address_of(host, int(port))


def epoch_in(answer: Sequence[bytes]) -> int:
    """Of a sentinel, to `MASTER`."""
    return int(fields_of(answer).get("config-epoch", "0"))


def fields_of(words: Sequence[bytes]) -> Mapping[str, str]:
    texts = [each.decode(errors="replace") for each in words]
    return dict(zip(texts[::2], texts[1::2], strict=False))


def owner_in(slots: Sequence[Any], slot: int, asked: str) -> str | None:
    """From the answer of the node `asked` to `CLUSTER SLOTS`: the master that has the slot; None where nobody has."""
    for first, last, (host, port, *_), *_ in slots:
        if first <= slot <= last:
            name = "" if host is None else host.decode()
            return beside(asked, address_of(name, int(port)))
    return None
