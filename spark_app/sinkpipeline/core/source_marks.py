"""Marks in the source: which record stood before the frontier, by offset and leader epoch.

A partition that loses its end, as by an unclean election or a lost disk, and grows past the frontier again, has other
records below the frontier than those that were handled, and its new ones there would never be delivered. Offsets alone
don't tell. A record's leader epoch does: it is given once, by the leader that took the record, and a later leader's is
higher (KIP-101, KIP-320). A driver notes the epoch of a record that it has handled, and compares later.
"""

from __future__ import annotations

from collections.abc import Mapping

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Mark, PartitionProgress

REACH = 2
"""So many records before the frontier one is looked for: the last one may be the marker of a transaction."""


def where_to_look(
    frontier: Mapping[SourcePartition, PartitionProgress],
    beginnings: Mapping[SourcePartition, int],
    known: Mapping[SourcePartition, Mark],
) -> dict[SourcePartition, int]:
    """From which offset to read a record that becomes a mark; without partitions whose mark is as new as it can be."""
    wanted = {}
    for partition, state in frontier.items():
        begin = max(beginnings.get(partition, state.next), state.next - REACH)
        mark = known.get(partition)
        if begin < state.next and (mark is None or mark.offset < begin):
            wanted[partition] = begin
    return wanted


def newest(
    marks: Mapping[SourcePartition, Mark], others: Mapping[SourcePartition, Mark]
) -> dict[SourcePartition, Mark]:
    """Of each partition the mark that was noted last; in the order of `others`."""
    return {each: max(marks.get(each, mark), others.get(each, mark)) for each, mark in {**others, **marks}.items()}


def after_a_look(
    known: Mapping[SourcePartition, Mark],
    compared: Mapping[SourcePartition, Mark],
    found: Mapping[SourcePartition, Mark],
    frontier: Mapping[SourcePartition, PartitionProgress],
) -> dict[SourcePartition, Mark]:
    """The marks that are known now; those that were noted longest ago are the first.

    A mark stays until it was compared: the record that would take its place may be one of those that grew again.

    Args:
        known: as they were noted.
        compared: what stands at those places, where anybody could tell.
        found: records that may become marks. They were read before `compared`, which shows an end that was lost in
            between.
        frontier: what was handled.
    """
    new = {
        each: mark
        for each, mark in found.items()
        if mark.offset < frontier[each].next and (each not in known or each in compared)
    }
    return {**{each: mark for each, mark in known.items() if each not in new}, **new}


def check_marks(
    marks: Mapping[SourcePartition, Mark],
    found: Mapping[SourcePartition, Mark],
) -> None:
    """Refuses a source in which another record stands where one was handled.

    Args:
        marks: as they were noted.
        found: the records that stand there now, or after that; without those of which nothing is known. A record that
            was compacted away, or is too old, tells nothing.

    Raises:
        SinkPipelineError: SourceDataLost.
    """
    for partition, mark in sorted(marks.items()):
        now = found.get(partition)
        if now is not None and now.offset == mark.offset and now.leader_epoch > mark.leader_epoch:
            raise SinkPipelineError(
                Reason.SOURCE_DATA_LOST,
                f"{partition} has another record at offset {mark.offset} than the one that was handled: its leader "
                f"epoch was {mark.leader_epoch}, is {now.leader_epoch}; the source lost its end and has grown again",
                "what grew below the frontier was not delivered; find out what happened to the source (unclean leader "
                "election?), then say where to go on with `sinkpipeline reset`",
            )
