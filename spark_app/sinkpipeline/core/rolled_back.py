"""Whether a store that is behind what is remembered has lost rows and progress together.

A store may count by itself what was ever written into a target: `last_seq` of a stream of NATS, `entries-added` of one
of Redis. Nothing that happens to a target takes that back, neither a deletion nor a purge nor others who write. Only a
store that has lost its tail counts less than it did. So where it counts less, the rows are gone that it had counted.

    counts less, by as many as the rows that progress has lost      rolled back: they may be delivered again
    counts less, by fewer                                           some of the rows may be there: not proved
    counts as much as before, or more                               not proved: others may have written since
    nothing but records without a row lies in between               nothing can be there twice

What is not proved is left to a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import between, is_before
from sinkpipeline.core.progress import PartitionProgress, lost_since

Partitions = Mapping[SourcePartition, PartitionProgress]


@dataclass(frozen=True)
class RolledBack:
    """What a store has lost of its tail, as far as somebody remembers it."""

    rows: int
    """That were delivered and are gone; their records come again."""
    offsets: int
    """By which the progress went back."""
    partitions: int
    """Of which it went back."""

    @override
    def __str__(self) -> str:
        return f"{self.rows} rows that were delivered, {self.offsets} offsets in {self.partitions} partitions"


def is_behind(found: Partitions, remembered: Partitions) -> bool:
    """Whether any partition is, or is not there any more. Of the same epoch."""
    return any(each not in found or is_before(found[each].next, state.next) for each, state in remembered.items())


def compared(
    found: Partitions, remembered: Partitions, *, counted: int | None, remembered_count: int | None
) -> RolledBack | None:
    """What went back; None where nothing is behind.

    Args:
        found: the progress, of the epoch of what is remembered.
        remembered: what somebody has seen of it.
        counted: what the store counts now, read after the progress; None where it does not count.
        remembered_count: what it counted when that was seen, or earlier; None where nobody knows.

    Raises:
        SinkPipelineError: ProgressRegressed, where it is not proved that the rows are gone with it.
    """
    if not is_behind(found, remembered):
        return None
    why = _unproved(found, remembered, counted, remembered_count)
    if why is not None:
        raise _regressed(found, remembered, why)
    return difference(found, remembered)


def difference(found: Partitions, remembered: Partitions) -> RolledBack | None:
    """How much is not there of what is remembered; None where nothing is behind."""
    back = [between(found[each].next, state.next) for each, state in remembered.items() if each in found]
    behind = [each for each in back if each > 0]
    if not behind:
        return None
    return RolledBack(rows=_lost_rows(found, remembered), offsets=sum(behind), partitions=len(behind))


def _lost_rows(found: Partitions, remembered: Partitions) -> int:
    """At least so many, where some partitions have gone on since."""
    return max(0, _total(remembered) - _total(found))


def _unproved(found: Partitions, remembered: Partitions, counted: int | None, before: int | None) -> str | None:
    """Why the rows may be there though their progress is not; empty where the store counts nothing."""
    if counted is None or before is None:
        return ""
    if not remembered.keys() <= found.keys():
        # Where it began is not known any more.
        return "a partition has no progress any more"
    rows = _lost_rows(found, remembered)
    if _gave_nothing(found, remembered) or before - counted >= max(rows, 1):
        return None
    return (
        f"the sink counts {counted} entries that were ever written, and {before} were counted before: that does not "
        f"prove that the {rows} rows in between are gone too"
    )


def _gave_nothing(found: Partitions, remembered: Partitions) -> bool:
    """Whether all records that come again had given neither a row nor a letter.

    A status knows the sums of all partitions only: they tell it where none is ahead of what is remembered.
    """
    ahead = any(is_before(state.next, found[each].next) for each, state in remembered.items() if each in found)
    return not ahead and _counts(found) == _counts(remembered)


def _counts(partitions: Partitions) -> tuple[int, int, int]:
    states = partitions.values()
    return _total(partitions), sum(state.dead for state in states), sum(state.dropped for state in states)


def _total(partitions: Partitions) -> int:
    return sum(state.rows for state in partitions.values())


def _regressed(found: Partitions, remembered: Partitions, why: str) -> SinkPipelineError:
    for partition, state in sorted(remembered.items()):
        there = found.get(partition)
        if there is None or is_before(there.next, state.next):
            return regressed(
                f"the status remembers {partition} at {state.next}, the progress says "
                f"{'nothing' if there is None else there.next}; it has lost {lost_since(found, remembered)}"
                f"{f'; {why}' if why else ''}"
            )
    raise ValueError("nothing is behind")


def regressed(message: str) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.PROGRESS_REGRESSED,
        message,
        "find out who changed the progress, or took its server back; then say where to go on with `sinkpipeline reset` "
        "and this status",
    )


def stopped(sink: str, back: RolledBack) -> SinkPipelineError:
    """Of `onRollback: Stop`."""
    return SinkPipelineError(
        Reason.SINK_ROLLED_BACK,
        f"{sink} has lost its newest entries, and their progress with them: {back}. onRollback is Stop",
        "set onRollback: Redeliver, if whoever has read them may read them twice: they are delivered again",
    )
