"""The progress of a sink in cells of its own store.

    hold       `meta`: the same again, if it is as it was read: what a driver before has on its way comes too late
    read       `meta`, and the cells of the partitions that it lists
    write      `meta`, if it is as it was read: who comes later finds another version, and who was before learns it so
    fence      `meta`, and each cell: the same again, with our run and a new claim, if all is as it was read

Nothing holds a sink but that its `meta` is ours. So a driver that was overtaken learns it with its next write.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from sinkpipeline.cells.records import NO_META, PartitionCell, decode_cell, encode_cell, meta_in, metas_in
from sinkpipeline.cells.session import CLAIM_ATTEMPTS
from sinkpipeline.cells.store import Cell, Cells, Moved, Version
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import NOTHING_KNOWN, Believe, CheckMeta, Into
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.order import is_before
from sinkpipeline.core.ports import Creation, Fenced, InDoubt, PlaceChanged
from sinkpipeline.core.progress import Meta, PartitionProgress, Progress, is_behind
from sinkpipeline.core.progress_records import encode_meta
from sinkpipeline.core.records import Row
from sinkpipeline.core.redrive import redrive_of
from sinkpipeline.core.topics import Topic

MOST_AT_ONCE = 10_000
"""Cells in one commit."""


@dataclass
class _Seen:
    """What a read has found."""

    progress: Progress
    versions: dict[str, Version]
    runs: dict[str, str] = field(default_factory=dict)


class _Reading:
    """The cells of one sink."""

    def __init__(self, cells: Cells, sink: SinkId, *, tells_faults: bool) -> None:
        self._cells = cells
        self._sink = sink
        self._tells_faults = tells_faults

    def all(self) -> _Seen:
        """`meta`, and what it lists."""
        faults: dict[str, SinkPipelineError] = {}
        key = self._sink.meta_key
        found = self._cells.read([key])[key]
        meta = self._meta(found, faults)
        seen = self.of(() if meta is None else meta.source_partitions(), faults)
        seen.versions[key] = found.version
        seen.progress = replace(seen.progress, meta=meta, faults=MappingProxyType(faults))
        return seen

    def of(self, partitions: Iterable[SourcePartition], faults: dict[str, SinkPipelineError]) -> _Seen:
        by_key = {self._sink.partition_key(each): each for each in partitions}
        states: dict[SourcePartition, PartitionProgress] = {}
        seen = _Seen(Progress(), {})
        for key, found in self._cells.read(list(by_key)).items() if by_key else ():
            seen.versions[key] = found.version
            cell = self._cell(key, found, faults)
            if cell is not None:
                seen.runs[key] = cell.run
                if cell.progress is not None:
                    states[by_key[key]] = cell.progress
        seen.progress = Progress(partitions=MappingProxyType(states), faults=MappingProxyType(faults))
        return seen

    def _meta(self, found: Cell, faults: dict[str, SinkPipelineError]) -> Meta | None:
        try:
            return meta_in(found, self._sink)
        except SinkPipelineError as fault:
            self._fault(self._sink.meta_key, fault, faults)
            return None

    def _cell(self, key: str, found: Cell, faults: dict[str, SinkPipelineError]) -> PartitionCell | None:
        try:
            return None if found.value is None else decode_cell(found.value, key)
        except SinkPipelineError as fault:
            self._fault(key, fault, faults)
            return None

    def _fault(self, key: str, fault: SinkPipelineError, faults: dict[str, SinkPipelineError]) -> None:
        if not self._tells_faults or fault.reason is Reason.PROGRESS_VERSION_UNKNOWN:
            raise fault
        faults[key] = fault


class CellHold:
    """A sink whose `meta` is as this driver has read or written it."""

    delivers = False
    takes_what_it_writes = True

    def __init__(self, cells: Cells, sink: SinkId, *, tells_faults: bool) -> None:
        self._cells = cells
        self._sink = sink
        self._reading = _Reading(cells, sink, tells_faults=tells_faults)
        self._meta_version: Version = None
        self._meta: Meta | None = None
        self._fenced = Progress()
        self._claimed: set[str] = set()
        """The keys of all partitions that were fenced, also of those that had no progress."""
        self.closed = False

    def take(self) -> None:
        """Whatever is on its way to `meta`, it comes too late from here on.

        Where somebody writes it meanwhile, that may be a newer driver, who goes first: that is for the caller to read.
        """
        key = self._sink.meta_key
        found = self._cells.read([key])[key]
        self._put_all({key: (found.value or NO_META, found.version)})

    def read(self, believe: Believe, check_meta: CheckMeta) -> Progress:  # noqa: ARG002 - any read is sound, none waits
        seen = self._reading.all()
        self._meta_version = seen.versions[self._sink.meta_key]
        return seen.progress

    def read_since(self, end: int, check_meta: CheckMeta) -> Progress:  # noqa: ARG002 - what was fenced was read
        """`meta` as it is now, and each cell as it was when it was fenced."""
        key = self._sink.meta_key
        found = self._cells.read([key])[key]
        return replace(self._fenced, meta=meta_in(found, self._sink))

    def metas(self) -> Mapping[str, Meta | None]:
        return metas_in(self._cells.metas())

    def read_no_more(self) -> None:
        pass

    def fence(self, partitions: Iterable[SourcePartition]) -> None:
        meta = self._owned()
        states: dict[SourcePartition, PartitionProgress] = {}
        faults: dict[str, SinkPipelineError] = {}
        left, listed = sorted(set(partitions)), meta.source_partitions()
        # All at once, where nobody writes: else those that are written meanwhile would hold up the others.
        if self._fence(left, meta, listed, states, faults):
            left = []
        for _ in range(CLAIM_ATTEMPTS):
            left = [each for each in left if not self._fence([each], meta, listed, states, faults)]
            if not left:
                self._fenced = Progress(partitions=MappingProxyType(states), faults=MappingProxyType(faults))
                return
        raise Fenced(f"{self._sink}: the cell of {left[0]} is written again and again")

    def _fence(
        self,
        partitions: Collection[SourcePartition],
        meta: Meta,
        listed: Collection[SourcePartition],
        states: dict[SourcePartition, PartitionProgress],
        faults: dict[str, SinkPipelineError],
    ) -> bool:
        """Whether they could be; else somebody has written one of them meanwhile.

        `meta` goes with them, and first: whoever has taken the sink since is not fenced in return.
        """
        meta_key = self._sink.meta_key
        seen = self._reading.of(partitions, faults)
        # What `meta` does not list was put by a start that did not come to its end: nobody has gone on from there.
        found = {each: state for each, state in seen.progress.partitions.items() if each in listed}
        cells: dict[str, tuple[bytes | None, Version]] = {}
        for each in partitions:
            key = self._sink.partition_key(each)
            cells[key] = _cell(meta.run, found.get(each)), seen.versions[key]
        try:
            self._meta_version = self._cells.put({meta_key: (encode_meta(meta), self._meta_version), **cells})[meta_key]
        except Moved:
            now = self._cells.read([meta_key])[meta_key]
            there = meta_in(now, self._sink)
            if there is None or there.run != meta.run:
                raise Fenced(f"{self._sink}: somebody else has announced himself") from None
            self._meta_version = now.version
            return False
        states.update(found)
        self._claimed |= cells.keys()
        return True

    def write(self, progress: Progress, known: Mapping[SourcePartition, PartitionProgress] = NOTHING_KNOWN) -> None:
        """What stands there must be ours, and no further than what is written: a late task may have come further.

        Nor behind what is known: else the rows that a store has lost would count as delivered.
        """
        keys = {self._sink.partition_key(each): each for each in sorted(progress.partitions)}
        cells: dict[str, tuple[bytes | None, Version]] = {}
        if keys:
            run = self._owned(progress.meta).run
            seen = self._ours(keys.values(), run)
            for key, partition in keys.items():
                new, old = progress.partitions[partition], seen.progress.partitions.get(partition)
                if old is not None and old.epoch == new.epoch and is_before(new.next, old.next):
                    raise Fenced(f"{self._sink}: somebody else has written {key}")
                if partition in known and (old is None or is_behind(old, known[partition])):
                    raise Fenced(f"{self._sink}: {key} is as it was at an earlier time: its store went back")
                cells[key] = _cell(run, new), seen.versions[key]
        self._put(cells, progress.meta)

    def replace(self, found: Progress, new: Progress) -> None:
        """The partitions that are forgotten go last: until `meta` lists them no more, they are missed."""
        run = self._owned(new.meta).run
        gone = found.partitions.keys() - new.partitions.keys()
        versions = self._ours({*new.partitions, *gone}, run).versions
        cells: dict[str, tuple[bytes | None, Version]] = {}
        for each, state in new.partitions.items():
            key = self._sink.partition_key(each)
            cells[key] = _cell(run, state), versions[key]
        forgotten = [self._sink.partition_key(each) for each in sorted(gone)]
        self._put(cells, new.meta, {key: versions[key] for key in forgotten})

    def remove(self, found: Progress) -> None:
        """Each if it is as it was fenced, and `meta` last: what somebody else has taken since stays, all of it.

        A redrive's cells go first, so that none goes on. Letters are too many for one commit; a kill in between leaves
        the rest to the next removal.
        """
        keys = {self._sink.partition_key(each) for each in found.partitions} | found.faults.keys() | self._claimed
        partitions = filter(None, map(self._sink.parse_partition_key, sorted(keys)))
        versions = dict(self._ours(partitions, self._owned().run).versions)
        redrives = redrive_of(self._sink).prefix
        self._clear(redrives)
        self._clear(self._sink.letters_prefix)
        # One that has begun meanwhile.
        versions.update(self._cells.find(redrives, MOST_AT_ONCE))
        cells = {key: (None, version) for key, version in versions.items() if version is not None}
        self._put_all({**cells, self._sink.meta_key: (None, self._meta_version)})
        self._meta, self._meta_version = None, None

    def _clear(self, prefix: str) -> None:
        """`meta` goes with them, and first: who was overtaken removes nothing."""
        key, meta = self._sink.meta_key, encode_meta(self._owned())
        while found := self._cells.find(prefix, MOST_AT_ONCE):
            gone = {each: (None, version) for each, version in found.items()}
            self._meta_version = self._put_all({key: (meta, self._meta_version), **gone})[key]

    def deliver(
        self, rows: Iterable[tuple[Into, Iterable[Row]]], progress: Mapping[SourcePartition, PartitionProgress]
    ) -> None:
        raise NotImplementedError("a store of cells commits partition by partition: tasks deliver")

    def still_holds(self) -> bool:
        key = self._sink.meta_key
        try:
            return not self.closed and self._cells.read([key])[key].version == self._meta_version
        except (InDoubt, SinkPipelineError):
            return False

    def close(self) -> None:
        self.closed = True

    def _owned(self, announced: Meta | None = None) -> Meta:
        meta = announced or self._meta
        if meta is None:
            raise ValueError("a sink is announced before anything else of it is written")
        return meta

    def _ours(self, partitions: Iterable[SourcePartition], run: str) -> _Seen:
        """Their cells as they are, of which nobody else has taken one."""
        seen = self._reading.of(partitions, {})
        for key, found in seen.runs.items():
            if found != run:
                raise Fenced(f"{self._sink}: somebody else has written {key}")
        return seen

    def _put(
        self,
        cells: Mapping[str, tuple[bytes | None, Version]],
        meta: Meta | None,
        gone: Mapping[str, Version] = MappingProxyType({}),
    ) -> None:
        """`meta` last, also where it has not changed: so nothing is written by who was overtaken.

        `gone`: cells that are removed behind it.
        """
        meta = self._owned(meta)
        key = self._sink.meta_key
        removed = {each: (None, version) for each, version in gone.items() if version is not None}
        versions = self._put_all({**cells, key: (encode_meta(meta), self._meta_version), **removed})
        self._meta_version, self._meta = versions[key], meta

    def _put_all(self, cells: Mapping[str, tuple[bytes | None, Version]]) -> Mapping[str, Version]:
        try:
            return self._cells.put(cells)
        except Moved as moved:
            raise Fenced(f"{self._sink}: {moved.key} is another one than it was") from moved


def _cell(run: str, progress: PartitionProgress | None) -> bytes:
    """With a claim that nobody had."""
    return encode_cell(PartitionCell(run=run, claim=str(uuid.uuid4()), progress=progress))


class Place(Protocol):
    """Where cells are kept: the target itself, or what stands beside it."""

    def describe(self, source: Mapping[str, str]) -> Topic | None: ...

    def id(self) -> str | None: ...

    def create(self) -> Creation: ...


class CellFollower:
    """Sees a newer driver in `meta`, and a store that went back in all cells."""

    def __init__(self, cells: Cells, sink: SinkId, position: int) -> None:
        self._cells = cells
        self._sink = sink
        self._connections = cells.connections
        self.position = position
        self.tells_all = False

    @property
    def store(self) -> str:
        return self._cells.store

    def poll(self) -> Progress:
        """One cell: who writes another one without having announced himself finds it moved, or we do.

        All of them on another connection than before: a store that was restored, or a standby that took over, may be
        without the last commits, and of a partition that gets no records nobody else would learn it.
        """
        key = self._sink.meta_key
        meta = meta_in(self._cells.read([key])[key], self._sink)
        self.tells_all = self._cells.connections != self._connections
        if not self.tells_all:
            return Progress(meta=meta)
        seen = _Reading(self._cells, self._sink, tells_faults=False).all().progress
        self._connections = self._cells.connections
        return seen

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class CellLedger:
    """The cells of one sink, in their place."""

    cells: Cells
    sink: SinkId
    kept_in: Place
    tells_faults: bool = False

    @property
    def name(self) -> str:
        return f"the cells of {self.sink}"

    @property
    def _reading(self) -> _Reading:
        return _Reading(self.cells, self.sink, tells_faults=self.tells_faults)

    def place(self) -> Topic | None:
        return self.kept_in.describe({})

    def create(self) -> Creation:
        return self.kept_in.create()

    def check_apart(self, place: Topic, source: Mapping[str, str]) -> None:  # noqa: ARG002 - it is no topic
        self.kept_in.describe(source)

    def check_same(self, place: Topic) -> None:
        if self.kept_in.id() != place.id:
            raise PlaceChanged(f"{place.name} was deleted or re-created")

    def observe(self) -> Progress:
        return self._reading.all().progress

    def decide(self, place: Topic) -> Progress:  # noqa: ARG002 - every read is as exact
        return self.observe()

    def look(self, place: Topic, believe: Believe) -> tuple[Progress, bool]:  # noqa: ARG002 - likewise
        return self.observe(), True

    def metas(self) -> Mapping[str, Meta | None]:
        return metas_in(self.cells.metas())

    def hold(self, *, source_topics: int) -> CellHold:  # noqa: ARG002 - no limit of a record
        hold = CellHold(self.cells, self.sink, tells_faults=self.tells_faults)
        hold.take()
        return hold

    def follow(self, end: int) -> CellFollower:
        return CellFollower(self.cells, self.sink, end)

    def with_faults(self) -> CellLedger:
        return replace(self, tells_faults=True)
