"""The topics that a sink reads, as the protocol asks of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sinkpipeline.core import starting
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.positions import Positions
from sinkpipeline.core.progress import Mark, Meta, PartitionProgress
from sinkpipeline.core.starting import SourceView
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.settings import SourceSettings
from sinkpipeline.kafka.source.marks import SourceMarks
from sinkpipeline.kafka.source.positions import read_positions
from sinkpipeline.kafka.source.views import check_visible, source_topics, view_source


@dataclass(frozen=True)
class KafkaSource:
    """The source of one sink, which reads it as a group of its own."""

    settings: SourceSettings
    group_id: str
    admin: Admin

    @property
    def tells_positions(self) -> bool:
        return self.settings.start_from is not None

    def topics(self) -> Mapping[str, str]:
        return {name: topic.id for name, topic in source_topics(self.settings, self.admin).items()}

    def view(self) -> SourceView:
        return view_source(self.settings, self.admin)

    def check_visible(self, meta: Meta | None, found: Collection[str]) -> None:
        check_visible(self.settings, self.admin, meta, found)

    def has_others(self, known: Collection[str]) -> bool:
        """Of a topicPattern: more topics than these match it."""
        if self.settings.pattern is None:
            return False
        return not set(filter(self.settings.reads, self.admin.topic_names())) <= set(known)

    def beginnings(self, partitions: Collection[SourcePartition]) -> dict[SourcePartition, int]:
        return self.admin.beginning_offsets(partitions)

    def ends(self, partitions: Collection[SourcePartition], *, readable: bool) -> dict[SourcePartition, int]:
        """`readable`: up to the last stable offset, where that is how far it is read; else the high watermarks."""
        return self.admin.end_offsets(partitions, read_committed=readable and self.settings.read_committed)

    def positions_at(
        self, moments: Mapping[SourcePartition, int], ends: Mapping[SourcePartition, int]
    ) -> dict[SourcePartition, int]:
        return self.admin.offsets_at(moments, ends, read_committed=self.settings.read_committed)

    def positions(self, view: SourceView) -> Positions:
        if self.settings.start_from is None:
            raise ValueError("nobody's positions are asked for")
        return read_positions(self.settings.start_from, self.settings, self.admin, view)

    def planned(
        self,
        known: Mapping[SourcePartition, PartitionProgress],
        view: SourceView,
        *,
        epoch: int,
        imported: Mapping[SourcePartition, int],
    ) -> dict[SourcePartition, PartitionProgress]:
        return starting.plan_partitions(
            known,
            view,
            epoch=epoch,
            starting_offsets=self.settings.starting_offsets,
            discovered=self.settings.pattern is not None and bool(known),
            skip_lost=self.settings.skip_lost,
            at=int(time.time() * 1000),
            imported=imported,
        )

    def begin_new(self, partition: SourcePartition, known_topics: Collection[str], view: SourceView) -> int:
        return starting.new_offset(
            partition,
            known_topics,
            view,
            starting_offsets=self.settings.starting_offsets,
            discovered=self.settings.pattern is not None,
        )

    def marks(
        self,
        known: Mapping[SourcePartition, Mark],
        frontier: Mapping[SourcePartition, PartitionProgress],
        beginnings: Mapping[SourcePartition, int],
        ends: Mapping[SourcePartition, int],
    ) -> dict[SourcePartition, Mark]:
        return SourceMarks(self.settings.connection, self.group_id).renewed(known, frontier, beginnings, ends)
