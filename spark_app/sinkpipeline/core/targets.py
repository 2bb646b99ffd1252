"""Where a sink is to go on after a reset: what `--to` says, and `spec.to` of a SinkPipelineAction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.moments import POINT, moment_ms
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import is_within
from sinkpipeline.core.starting import SourceView

_ITEM = re.compile(
    r"(?:(?P<topic>[A-Za-z0-9._-]{1,249})(?::(?P<partition>[0-9]{1,9}))?=)?"
    rf"(?P<to>earliest|latest|[0-9]{{1,18}}|{POINT})"
)
_SYNTAX = (
    "write earliest, latest, a time such as 2026-01-01T00:00:00Z, or a list such as "
    "orders:0=120,orders:1=latest,refunds=earliest"
)


@dataclass(frozen=True)
class Moment:
    """The first record that is not older."""

    ms: int
    """Unix milliseconds."""


Word = StartingOffsets | Moment


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The narrowest that names a partition decides."""

    everywhere: Word | None = None
    topics: Mapping[str, Word] = field(default_factory=lambda: MappingProxyType({}))
    partitions: Mapping[SourcePartition, Word | int] = field(default_factory=lambda: MappingProxyType({}))
    imported: Mapping[SourcePartition, int] = field(default_factory=lambda: MappingProxyType({}))
    """Where somebody else stands, perhaps beyond what is committed in the source; `partitions` overrule it."""

    def of(self, partition: SourcePartition, view: SourceView) -> int | None:
        """The offset for a partition of the source; None where nothing names it.

        Raises:
            SinkPipelineError: UsageInvalid where the source doesn't have the offset.
        """
        to = self._word(partition)
        beginning, end = view.beginnings[partition], view.ends[partition]
        if partition in self.imported and partition not in self.partitions:
            end = view.high_watermarks[partition]
        if isinstance(to, Moment):
            raise TypeError("a time is resolved before offsets are asked for")
        if isinstance(to, StartingOffsets):
            return beginning if to is StartingOffsets.EARLIEST else end
        if to is not None and not is_within(to, beginning, end):
            raise usage_invalid(
                f"offset {to} of {partition} is not in the source, which has {beginning} to {end}",
                f"give {partition} an offset from {beginning} to {end}, earliest or latest",
            )
        return to

    def _word(self, partition: SourcePartition) -> Word | int | None:
        wide = self.topics.get(partition.topic, self.everywhere)
        return self.partitions.get(partition, self.imported.get(partition, wide))

    def moments(self, view: SourceView) -> dict[SourcePartition, int]:
        """Of the partitions that go to a time, that time."""
        words = {partition: self._word(partition) for partition in view.beginnings}
        return {partition: word.ms for partition, word in words.items() if isinstance(word, Moment)}

    def resolved(self, offsets: Mapping[SourcePartition, int]) -> Targets:
        """With the offsets of `moments`."""
        return replace(self, partitions=MappingProxyType({**self.partitions, **offsets}))

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
    found: dict[SourcePartition | str | None, Word | int] = {}
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
        found[scope] = int(to) if to.isdigit() else _word(to)
    words = {scope: to for scope, to in found.items() if not isinstance(to, int)}
    return Targets(
        everywhere=words.get(None),
        topics=MappingProxyType({scope: to for scope, to in words.items() if isinstance(scope, str)}),
        partitions=MappingProxyType({scope: to for scope, to in found.items() if isinstance(scope, SourcePartition)}),
    )


def _word(text: str) -> Word:
    if "T" not in text:
        return StartingOffsets(text)
    try:
        return Moment(moment_ms(text))
    except ValueError as error:
        raise usage_invalid(f"{text} is on a day that does not exist", _SYNTAX) from error


def usage_invalid(message: str, remedy: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.USAGE_INVALID, message, remedy)
