"""Where a sink is to go on after a reset: what `--to` says, and `spec.to` of a SinkPipelineAction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.starting import SourceView

_ITEM = re.compile(
    r"(?:(?P<topic>[A-Za-z0-9._-]{1,249})(?::(?P<partition>[0-9]{1,9}))?=)?(?P<to>earliest|latest|[0-9]{1,18})"
)
_SYNTAX = "write earliest, latest, or a list such as orders:0=120,orders:1=latest,refunds=earliest"


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The narrowest that names a partition decides."""

    everywhere: StartingOffsets | None = None
    topics: Mapping[str, StartingOffsets] = field(default_factory=lambda: MappingProxyType({}))
    partitions: Mapping[SourcePartition, StartingOffsets | int] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, partition: SourcePartition, view: SourceView) -> int | None:
        """The offset for a partition of the source; None where nothing names it.

        Raises:
            SinkPipelineError: UsageInvalid where the source doesn't have the offset.
        """
        to = self.partitions.get(partition, self.topics.get(partition.topic, self.everywhere))
        beginning, end = view.beginnings[partition], view.ends[partition]
        if isinstance(to, StartingOffsets):
            return beginning if to is StartingOffsets.EARLIEST else end
        if to is not None and not beginning <= to <= end:
            raise usage_invalid(
                f"offset {to} of {partition} is not in the source, which has {beginning} to {end}",
                f"give {partition} an offset from {beginning} to {end}, earliest or latest",
            )
        return to

    def check_named(self, view: SourceView) -> None:
        """Refuses what the source doesn't have.

        Raises:
            SinkPipelineError: UsageInvalid.
        """
        for topic in sorted({*self.topics, *(partition.topic for partition in self.partitions)}):
            if topic not in view.topics:
                raise usage_invalid(
                    f"the targets name topic {topic}, which is not in the source",
                    f"the source has {', '.join(sorted(view.topics))}",
                )
        for partition in sorted(self.partitions):
            if partition not in view.beginnings:
                last = max(each.partition for each in view.beginnings if each.topic == partition.topic)
                raise usage_invalid(
                    f"the targets name {partition}, which the source does not have",
                    f"the partitions of {partition.topic} are 0 to {last}",
                )


def parse_targets(texts: Iterable[str]) -> Targets:
    """Reads targets, each text a list of them separated by commas.

    Raises:
        SinkPipelineError: UsageInvalid.
    """
    found: dict[SourcePartition | str | None, StartingOffsets | int] = {}
    for item in (each.strip() for text in texts for each in text.split(",")):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise usage_invalid(f"{item!r} is no target", _SYNTAX)
        topic, number, to = match["topic"], match["partition"], match["to"]
        if to.isdigit() and number is None:
            raise usage_invalid(f"target {item} names no partition: an offset means another record in each", _SYNTAX)
        scope = topic if number is None else SourcePartition(topic, int(number))
        if scope in found:
            raise usage_invalid(f"the targets name {'everything' if scope is None else scope} twice", "say it once")
        found[scope] = int(to) if to.isdigit() else StartingOffsets(to)
    words = {scope: to for scope, to in found.items() if isinstance(to, StartingOffsets)}
    return Targets(
        everywhere=words.get(None),
        topics=MappingProxyType({scope: to for scope, to in words.items() if isinstance(scope, str)}),
        partitions=MappingProxyType({scope: to for scope, to in found.items() if isinstance(scope, SourcePartition)}),
    )


def usage_invalid(message: str, remedy: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.USAGE_INVALID, message, remedy)
