"""Reads marks in the source (`core/source_marks.py`). What can't be read in time is not known, and proves nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import Consumer

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Mark, PartitionProgress
from sinkpipeline.core.source_marks import after_a_look, check_marks, where_to_look
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.consumers import make_consumer, offset_of
from sinkpipeline.kafka.reading import first_records

_LOG = logging.getLogger("sinkpipeline.source")

_DEADLINE_S = 3.0
_AT_ONCE = 100
"""So many partitions are read in one look; the others keep the marks that they have."""
_FETCH_KIB = 1024


class SourceMarks:
    """The marks of one sink's source."""

    def __init__(self, connection: Connection, group_id: str) -> None:
        self._connection = connection
        self._group_id = group_id

    def renewed(
        self,
        known: Mapping[SourcePartition, Mark],
        frontier: Mapping[SourcePartition, PartitionProgress],
        beginnings: Mapping[SourcePartition, int],
        ends: Mapping[SourcePartition, int],
    ) -> dict[SourcePartition, Mark]:
        """The marks that are known, after all of them were compared, and newer ones where the frontier has moved.

        Args:
            known: as they were noted.
            frontier: of every partition that the source has now.
            beginnings: the source's first offsets.
            ends: its end offsets; what ends before a mark is found by that.

        Raises:
            SinkPipelineError: SourceDataLost.
        """
        there = {each: mark.offset for each, mark in known.items() if mark.offset < ends.get(each, 0)}
        wanted = where_to_look(frontier, beginnings, known)
        if not there and not wanted:
            return dict(known)
        try:
            consumer = make_consumer(self._connection, self._group_id, "read_uncommitted", fetch_kib=_FETCH_KIB)
        except SinkPipelineError as refused:
            _LOG.debug("the source's marks can't be read: %s", refused)
            return dict(known)
        try:
            # Those that were marked longest ago are the first of the mapping.
            age = {each: rank for rank, each in enumerate(known)}
            order = sorted(wanted, key=lambda each: age.get(each, -1))[:_AT_ONCE]
            found, compared = _read_both(consumer, {each: wanted[each] for each in order}, there)
        finally:
            consumer.close()
        check_marks(known, compared)
        return after_a_look(known, compared, found, frontier)


def _read_both(
    consumer: Consumer, candidates: Mapping[SourcePartition, int], there: Mapping[SourcePartition, int]
) -> tuple[dict[SourcePartition, Mark], dict[SourcePartition, Mark]]:
    """What may become a mark, and after that what stands at the marks: an end that is lost in between is seen."""
    found = _read(consumer, candidates)
    return found, _read(consumer, there)


def _read(consumer: Consumer, wanted: Mapping[SourcePartition, int]) -> dict[SourcePartition, Mark]:
    found = first_records(consumer, wanted, _DEADLINE_S)
    epochs = {each: message.leader_epoch() for each, message in found.items()}
    # Brokers that tell none tell -1.
    return {
        each: Mark(offset_of(found[each]), epoch) for each, epoch in epochs.items() if epoch is not None and epoch >= 0
    }
