"""What transactions of the source that are still open hold back from a reader of committed records.

Such a reader gets to the last stable offset, where the first transaction begins that is still open. What stands after
it, up to the high watermark, waits. A short transaction holds back a little for a moment: only the number is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import between

PATIENCE_S = 960.0
"""Brokers abort a transaction after its own time-out, and allow at most 15 minutes, unless `transaction.max.timeout.ms`
says otherwise. One that is open for a minute longer was allowed more, or nobody knows of it any more."""

_NAMED = 3


@dataclass(frozen=True)
class Held:
    """Of one partition, while its last stable offset stands still below the high watermark."""

    stable: int
    """The last stable offset: the first one of the transaction."""
    offsets: int
    """From there to the high watermark."""
    since: float
    """When it was first seen so."""


@dataclass(frozen=True)
class OpenTransaction:
    """That transactions have been open for too long, for a person."""

    message: str
    remedy: str

    def to_dict(self) -> dict[str, str]:
        """The shape of `status.sinks[].openTransaction`."""
        return {"message": self.message, "remedy": self.remedy}


@dataclass(frozen=True)
class HeldBack:
    """Of all partitions of the source."""

    offsets: int
    open_transaction: OpenTransaction | None = None


def look(
    before: Mapping[SourcePartition, Held],
    stable: Mapping[SourcePartition, int],
    high: Mapping[SourcePartition, int],
    now: float,
) -> dict[SourcePartition, Held]:
    """What is held back now. A last stable offset that has moved is of another transaction.

    Args:
        before: what was found by the look before.
        stable: the last stable offsets.
        high: the high watermarks.
        now: a monotonic clock.
    """
    found: dict[SourcePartition, Held] = {}
    for each, offset in stable.items():
        offsets = between(offset, high.get(each, offset))
        if offsets:
            known = before.get(each)
            since = known.since if known is not None and known.stable == offset else now
            found[each] = Held(stable=offset, offsets=offsets, since=since)
    return found


def held_back(
    held: Mapping[SourcePartition, Held], now: float, servers: str, patience_s: float = PATIENCE_S
) -> HeldBack:
    """What is told of it.

    Args:
        held: as `look` found it.
        now: the same clock.
        servers: the source's bootstrap servers.
        patience_s: how long a transaction may be open.
    """
    offsets = sum(each.offsets for each in held.values())
    hanging = sorted(partition for partition, each in held.items() if now - each.since >= patience_s)
    if not hanging:
        return HeldBack(offsets)
    facts = [_fact(partition, held[partition], now) for partition in hanging[:_NAMED]]
    if len(hanging) > _NAMED:
        facts.append(f"the same in {len(hanging) - _NAMED} more partitions")
    first = hanging[0]
    tool = f"kafka-transactions.sh --bootstrap-server {servers}"
    at = f"--topic {first.topic} --partition {first.partition}"
    remedy = (
        f"`{tool} describe-producers {at}` tells the ProducerId whose CurrentTransactionStartOffset is "
        f"{held[first].stable}, and `{tool} list` its TransactionalId: start the producer with that id again, or end "
        f"it. Only where `{tool} find-hanging {at}` names the transaction, `{tool} abort {at} "
        f"--start-offset {held[first].stable}` ends it"
    )
    return HeldBack(offsets, OpenTransaction("; ".join(facts), remedy))


def _fact(partition: SourcePartition, held: Held, now: float) -> str:
    return (
        f"in partition {partition.partition} of {partition.topic} a transaction that began at offset {held.stable} has "
        f"been open for at least {(now - held.since) / 60:.0f} minutes, and holds back {held.offsets} offsets"
    )
