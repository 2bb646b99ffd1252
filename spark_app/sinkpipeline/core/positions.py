"""Positions that somebody else has committed, and from which a sink goes on: a checkpoint, a consumer group, a time.

A position is the next offset to read, as a frontier is. Records that the other program may have written beyond it are
delivered again, which is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sinkpipeline.core.batch import OffsetRange, count_offsets
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import is_before, latest
from sinkpipeline.core.starting import SourceView

_VERSION = "v1"
_METADATA = 2
"""Lines of an offset log before those of the sources: the version, and the batch's metadata."""
_MOST_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Where somebody else stands, as it was found."""

    origin: str
    """Whose they are, in words that follow "from"."""
    next: Mapping[SourcePartition, int]
    batch: int | None = None
    """The batch of Spark's that was begun after them and never committed."""
    overlap: Mapping[SourcePartition, OffsetRange] = field(default_factory=lambda: MappingProxyType({}))
    """Its ranges: they may have been written already."""
    told: tuple[str, ...] = ()
    """What a person should know of them, one sentence each."""

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(partition.topic for partition in self.next)


@dataclass(frozen=True, kw_only=True)
class CheckpointFiles:
    """The texts of a checkpoint's logs, by batch."""

    directory: str
    offsets: Mapping[int, str]
    commits: Mapping[int, str]
    initial: str | None = None
    """Where the query began: `sources/0/0`."""
    has_state: bool = False


def refused(message: str, remedy: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.POSITIONS_REFUSED, message, remedy)


def of_checkpoint(files: CheckpointFiles) -> Positions:
    """After the last batch that a query of Spark's Structured Streaming has committed.

    Raises:
        SinkPipelineError: PositionsRefused.
    """
    where = f"checkpoint {files.directory}"
    committed = max(files.commits, default=None)
    if committed is not None:
        _lines(files.commits[committed], f"{files.directory}/commits/{committed}")
        if committed not in files.offsets:
            raise refused(
                f"{where} has commits/{committed}, and no offsets/{committed}",
                "give the checkpoint as the query left it, with all of its files",
            )
        position = _offsets(files.offsets[committed], f"{files.directory}/offsets/{committed}")
        origin = f"{where} (after batch {committed})"
    else:
        if len(files.offsets) > 1:
            raise refused(
                f"{where} has {len(files.offsets)} batches in offsets, and none in commits",
                "copy its folder commits too; Spark commits a batch before it begins the next one",
            )
        if files.initial is None or 0 not in files.offsets:
            raise refused(
                f"{where} has no committed batch: neither commits/ nor sources/0/0 tells where the query stands",
                "give the directory of option checkpointLocation; or begin without it, at startingOffsets",
            )
        # A byte of zero stands before the text, for releases of long ago.
        position = _offsets_of(files.initial.lstrip("\0"), f"{files.directory}/sources/0/0", before=1)
        origin = f"{where} (before its first batch)"
    begun = [batch for batch in files.offsets if committed is None or batch > committed]
    overlap: dict[SourcePartition, OffsetRange] = {}
    if begun:
        path = f"{files.directory}/offsets/{max(begun)}"
        for partition, end in _offsets(files.offsets[max(begun)], path).items():
            # A partition that is new in this batch begins at its beginning, which nobody has written down.
            start = position.get(partition, 0)
            if is_before(start, end):
                overlap[partition] = OffsetRange(start, end)
    told = ["the query keeps state (aggregation, deduplication, join), which is not taken over"] * files.has_state
    if len(begun) > 1:
        told.append(f"{len(begun)} batches were begun after it (asynchronous progress): they are taken together")
    return Positions(
        origin=origin,
        next=MappingProxyType(position),
        batch=max(begun, default=None),
        overlap=MappingProxyType(overlap),
        told=tuple(told),
    )


def of_group(group: str, state: str | None, committed: Mapping[SourcePartition, int]) -> Positions:
    """Where a consumer group stands that nobody is a member of.

    Args:
        group: its id.
        state: as the brokers spell it, in capitals; None where they don't list it.
        committed: all offsets that it has committed, of topics that may be described.

    Raises:
        SinkPipelineError: PositionsRefused.
    """
    if state not in (None, "EMPTY", "DEAD"):
        raise refused(
            f"consumer group {group} is in use (state {state}): its offsets move on while they are read",
            "stop its consumers (a connector: PUT /connectors/NAME/stop), and try again",
        )
    return Positions(
        origin=f"consumer group {group}",
        next=MappingProxyType(dict(committed)),
        told=("what the group's consumers wrote after their last commit is delivered again: nobody knows how much",),
    )


def within(positions: Positions, view: SourceView) -> Positions:
    """Those of the source's partitions; what differs from the source is told.

    Raises:
        SinkPipelineError: PositionsRefused where nothing is left.
    """
    # A topic that Spark met only in its last batch was read from the beginning, whatever startingOffsets is.
    met = {
        each: view.beginnings[each]
        for each in positions.overlap
        if each.topic not in positions.topics and each in view.beginnings
    }
    found = {**met, **{each: offset for each, offset in positions.next.items() if each in view.beginnings}}
    # Only now: without the right to describe a topic, its offsets are not shown either, which a view has told before.
    if not positions.next:
        raise refused(
            f"{positions.origin} has no committed offsets",
            "correct its name: the group of a connector is connect-NAME",
        )
    if not found:
        raise refused(
            f"{positions.origin} has no offset of the source's topics: it is of {_listed(positions.topics)}",
            "correct source.kafka.topics, or name another one",
        )
    return replace(
        positions,
        next=MappingProxyType(found),
        overlap=MappingProxyType(
            {
                each: OffsetRange(latest(part.start, view.beginnings[each]), part.end)
                for each, part in positions.overlap.items()
                if each in view.beginnings and is_before(view.beginnings[each], part.end)
            }
        ),
        told=(*positions.told, *_differences(positions, found, view)),
    )


def _differences(positions: Positions, found: Mapping[SourcePartition, int], view: SourceView) -> Iterator[str]:
    if foreign := positions.topics - set(view.topics):
        yield f"topics that are not in the source stay unread: {_listed(foreign)}"
    if gone := sorted(each for each in positions.next.keys() - found.keys() if each.topic in view.topics):
        yield f"partitions that the source does not have are left out: {_listed(map(str, gone))}"
    if unnamed := set(view.topics) - {partition.topic for partition in found}:
        yield f"topics of which there is no position are treated as if none were given: {_listed(unnamed)}"
    named = {partition.topic for partition in found}
    if new := sorted(each for each in view.beginnings.keys() - found.keys() if each.topic in named):
        yield f"partitions of which there is no position: {_listed(map(str, new))}"


def describe(positions: Positions) -> Iterator[str]:
    """What a person is told before anything is delivered, one sentence a line."""
    places = [f"{partition} at {offset}" for partition, offset in sorted(positions.next.items())]
    yield f"begins from {positions.origin}: {_few(places)}"
    if positions.batch is not None:
        rows = count_offsets(positions.overlap)
        ranges = [f"{at} from {part.start} to {part.end - 1}" for at, part in sorted(positions.overlap.items())]
        yield (
            f"batch {positions.batch} was begun and not committed: up to {rows} records may be written already, and "
            f"are delivered AGAIN: {_few(ranges) or 'none'}"
        )
    yield from positions.told


def _few(texts: list[str]) -> str:
    more = len(texts) - _MOST_SHOWN
    return ", ".join(texts[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _listed(names: Any) -> str:
    return _few(sorted(names))


def _lines(text: str, path: str) -> list[str]:
    lines = text.split("\n")
    if lines[0].strip() != _VERSION:
        raise refused(
            f"{path} begins with {lines[0][:20]!r}, not with {_VERSION}: empty, cut off or of another format",
            "give the checkpoint of a query as Spark 3 and 4 write it by default",
        )
    return lines


def _offsets(text: str, path: str) -> dict[SourcePartition, int]:
    return _offsets_of(text, path, before=_METADATA)


def _offsets_of(text: str, path: str, *, before: int) -> dict[SourcePartition, int]:
    sources = [line for line in _lines(text, path)[before:] if line.strip()]
    if len(sources) != 1:
        raise refused(
            f"{path} holds the offsets of {len(sources)} sources, not of one",
            "a pipeline has one source: give the checkpoint of a query with one, or begin at offsets of your own",
        )
    try:
        document = parse_json(sources[0])
        return {
            SourcePartition(str(topic), _number(partition)): _number(offset)
            for topic, partitions in document.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise refused(
            f"{path} holds no offsets of a Kafka source: {sources[0][:80]}",
            "give the checkpoint of a query that reads from Kafka",
        ) from error


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not str(value).isdecimal():
        raise ValueError(f"{value!r} is no number")
    return int(value)
