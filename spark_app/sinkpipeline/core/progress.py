"""The progress of one sink: its records, their codec, and the fold from a log of records to the truth.

One rule: a source record at offset `o` of partition `p` has been handled if and only if `progress[p].next > o`.
For each key the last record in log order is the truth. What contradicts itself is refused with its reason and never
read as "start at the beginning".

The idea of a progress topic that is written in the same transaction as the rows is Materialize's (2023).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SENTINEL_KEY, SinkId, SourcePartition
from sinkpipeline.core.tally import Tally, checked

VERSION = 1

_INSPECT = "find out who wrote it; then say where to go on with `sinkpipeline reset`, or use another identity"


@dataclass(frozen=True, kw_only=True)
class PartitionProgress:
    """How far one source partition has been handled, with cumulative counts."""

    epoch: int
    next: int
    """The next source offset that has not been handled."""
    rows: int = 0
    """Rows delivered."""
    dead: int = 0
    """Records dead-lettered."""
    dropped: int = 0
    """Records dropped under `onFailure: DropAndContinue`."""
    lost: int = 0
    """Source offsets that the source no longer had, under `onDataLoss: Skip`."""
    at: int = 0
    """When the record was written, Unix milliseconds; for people, never for decisions."""
    dead_by_class: Tally = ()
    """`dead` by error class; less than that where a release has written that did not know of classes."""
    dropped_by_class: Tally = ()
    """`dropped` likewise."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The resource that owns an identity: `cluster` is the uid of kube-system, or "file" for a run from a file."""

    cluster: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.name} of {'a manifest file' if self.cluster == 'file' else f'cluster {self.cluster}'}"


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What a sink's driver says about itself."""

    epoch: int
    run: str
    """The uuid of the start that may write; every start of a sink has its own."""
    owner: Owner
    partitions: Mapping[str, int] | None
    """Source topic to number of partitions that have progress; None until the first start is complete."""
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Source topic to topic id."""
    data: str | None = None
    progress: str | None = None
    created: str | None = None
    """The id of the data topic that a start of this sink has created, if one has; what nobody created isn't deleted."""

    def source_partitions(self) -> frozenset[SourcePartition]:
        return frozenset(
            SourcePartition(topic, number)
            for topic, count in (self.partitions or {}).items()
            for number in range(count)
        )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a read of the progress topic found of one sink."""

    meta: Meta | None = None
    partitions: Mapping[SourcePartition, PartitionProgress] = field(default_factory=lambda: MappingProxyType({}))
    end: int = 0
    """Every record of the progress topic below this offset has been seen (from where the read began)."""
    removed: frozenset[SourcePartition] = field(default=frozenset(), compare=False)
    """Partitions whose newest record is a tombstone: somebody took their progress away, which is not "no news"."""
    faults: Mapping[str, SinkPipelineError] = field(default_factory=lambda: MappingProxyType({}))
    """By key, what can't be believed: only a reset, which replaces it, is given progress that has any."""

    @property
    def complete(self) -> bool:
        """Whether this sink has progress: `meta`, and the keys of all of its partitions."""
        return (
            self.meta is not None
            and self.meta.partitions is not None
            and self.meta.source_partitions() <= self.partitions.keys()
        )

    @property
    def exists(self) -> bool:
        """Whether the sink's first start was completed; where it wasn't, the next start is a first start."""
        return self.meta is not None and self.meta.partitions is not None

    @property
    def rows(self) -> int:
        return sum(progress.rows for progress in self.partitions.values())


def encode_partition(progress: PartitionProgress) -> bytes:
    return json.dumps(
        {
            "v": VERSION,
            "epoch": progress.epoch,
            "next": progress.next,
            "rows": progress.rows,
            "dead": progress.dead,
            "dropped": progress.dropped,
            "lost": progress.lost,
            "at": progress.at,
            **({"deadByClass": dict(progress.dead_by_class)} if progress.dead_by_class else {}),
            **({"droppedByClass": dict(progress.dropped_by_class)} if progress.dropped_by_class else {}),
        },
        separators=(",", ":"),
    ).encode()


def encode_meta(meta: Meta) -> bytes:
    return json.dumps(
        {
            "v": VERSION,
            "epoch": meta.epoch,
            "run": meta.run,
            "owner": {"cluster": meta.owner.cluster, "name": meta.owner.name},
            "partitions": None if meta.partitions is None else dict(meta.partitions),
            "source": dict(meta.source),
            "data": meta.data,
            "progress": meta.progress,
            **({} if meta.created is None else {"created": meta.created}),
        },
        separators=(",", ":"),
    ).encode()


def encode_sentinel(nonce: str) -> bytes:
    return json.dumps({"v": VERSION, "nonce": nonce}, separators=(",", ":")).encode()


def is_sentinel(key: bytes | None, value: bytes | None, nonce: str) -> bool:
    """Whether a record is the sentinel with this nonce."""
    return key == SENTINEL_KEY.encode() and value is not None and value == encode_sentinel(nonce)


def encode(sink: SinkId, progress: Progress) -> list[tuple[str, bytes]]:
    """All records of a sink, `meta` last: what a snapshot, a first start and a write-back commit as one transaction."""
    records = [
        (sink.partition_key(partition), encode_partition(state))
        for partition, state in sorted(progress.partitions.items())
    ]
    if progress.meta is not None:
        records.append((sink.meta_key, encode_meta(progress.meta)))
    return records


class ProgressFold:
    """Folds the records of a progress topic, in log order, to the truth about one sink.

    Records of other sinks and sentinels are passed over. A tombstone removes its key.
    """

    def __init__(self, sink: SinkId) -> None:
        self._sink = sink
        self._prefix = sink.prefix.encode()
        self._meta: Meta | None = None
        self._partitions: dict[SourcePartition, PartitionProgress] = {}
        self._removed: set[SourcePartition] = set()
        self._faults: dict[str, SinkPipelineError] = {}

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Takes the next record. What is wrong with it stands against the result, until a tombstone removes its key.

        Raises:
            SinkPipelineError: ProgressVersionUnknown.
        """
        if key is None or not key.startswith(self._prefix):
            return
        text = key.decode(errors="replace")
        if value is None:
            self._faults.pop(text, None)
        try:
            self._take(text, value, f"record {text} at offset {offset} of the progress topic")
        except SinkPipelineError as fault:
            if fault.reason is Reason.PROGRESS_VERSION_UNKNOWN:
                raise
            self._faults.setdefault(text, fault)

    def _take(self, text: str, value: bytes | None, where: str) -> None:
        if text == self._sink.meta_key:
            self._meta = None if value is None else decode_meta(value, where)
            return
        partition = self._sink.parse_partition_key(text)
        if partition is None:
            raise _corrupt(f"{where} has a key that this version does not know")
        if value is None:
            self._partitions.pop(partition, None)
            self._removed.add(partition)
            return
        new = decode_partition(value, where)
        check_forward(partition, self._partitions.get(partition), new, where)
        self._partitions[partition] = new
        self._removed.discard(partition)

    def result(self, end: int, *, with_faults: bool = False) -> Progress:
        """What the records say.

        Raises:
            SinkPipelineError: ProgressCorrupt or ProgressRegressed, the first of all; never `with_faults`.
        """
        faults = dict(self._faults)
        if faults and not with_faults:
            raise next(iter(faults.values()))
        return Progress(
            meta=self._meta,
            partitions=MappingProxyType(dict(self._partitions)),
            end=end,
            removed=frozenset(self._removed),
            faults=MappingProxyType(faults),
        )


def check_forward(
    partition: SourcePartition, old: PartitionProgress | None, new: PartitionProgress, where: str = "a newer record"
) -> None:
    """Refuses progress that moves back within an epoch.

    Raises:
        SinkPipelineError: ProgressRegressed.
    """
    if old is not None and old.epoch == new.epoch and new.next < old.next:
        raise SinkPipelineError(
            Reason.PROGRESS_REGRESSED,
            f"{where} moves {partition} back from {old.next} to {new.next} within epoch {new.epoch}",
            f"somebody else writes this sink's keys; {_INSPECT}",
        )


def check_not_removed(progress: Progress, partitions: Iterable[SourcePartition]) -> None:
    """Refuses to read the removal of a known partition's progress as if nothing had been written.

    Raises:
        SinkPipelineError: ProgressCorrupt.
    """
    for partition in sorted(progress.removed.intersection(partitions)):
        raise _corrupt(f"the progress of {partition} was removed by a tombstone")


def check(progress: Progress) -> None:
    """Refuses progress that contradicts itself.

    Raises:
        SinkPipelineError: ProgressCorrupt, or the first fault.
    """
    for fault in progress.faults.values():
        raise fault
    meta, partitions = progress.meta, progress.partitions
    if meta is None:
        if partitions:
            raise _corrupt(f"there is progress of {_first(partitions)} but no meta record")
        return
    expected = meta.source_partitions()
    if missing := sorted(expected - partitions.keys()):
        raise _corrupt(f"meta lists {len(expected)} partitions, but {_first(missing)} has no progress record")
    if foreign := sorted(partitions.keys() - expected):
        raise _corrupt(f"there is progress of {_first(foreign)}, which meta does not list")
    for partition, state in sorted(partitions.items()):
        if state.epoch != meta.epoch:
            raise _corrupt(f"progress of {partition} is of epoch {state.epoch}, meta of epoch {meta.epoch}")


def advance(state: PartitionProgress, *, to: int, at: int, lost: int = 0) -> PartitionProgress:
    """The progress after a range in which nothing was delivered: filtered out, or lost by the source."""
    if to < state.next:
        raise ValueError(f"progress can't move back from {state.next} to {to}")
    return replace(state, next=to, at=at, lost=state.lost + lost)


def _first(partitions: Iterable[SourcePartition]) -> SourcePartition:
    return min(partitions)


def _corrupt(message: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.PROGRESS_CORRUPT, message, f"nothing is guessed from it; {_INSPECT}")


def _object(value: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(value)
    except ValueError as error:
        raise _corrupt(f"{where} is not JSON") from error
    if not isinstance(document, dict):
        raise _corrupt(f"{where} is not a JSON object")
    version = document.get("v")
    if version != VERSION or isinstance(version, bool):
        raise SinkPipelineError(
            Reason.PROGRESS_VERSION_UNKNOWN,
            f"{where} has version {version!r}; this program knows version {VERSION}",
            "run the newer release that wrote it",
        )
    return document


def _count(document: Mapping[str, Any], name: str, where: str) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _corrupt(f"{where} has {name} {value!r}, not a count")
    return value


def _text(value: object, name: str, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise _corrupt(f"{where} has no {name}")
    return value


def decode_partition(value: bytes, where: str) -> PartitionProgress:
    """What `encode_partition` has made.

    Raises:
        SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown.
    """
    document = _object(value, where)
    return PartitionProgress(
        **{name: _count(document, name, where) for name in ("epoch", "next", "rows", "dead", "dropped", "lost", "at")},
        dead_by_class=_tally(document, "deadByClass", where),
        dropped_by_class=_tally(document, "droppedByClass", where),
    )


def _tally(document: Mapping[str, Any], name: str, where: str) -> Tally:
    if name not in document:
        return ()
    try:
        return checked(document[name])
    except (TypeError, ValueError) as error:
        raise _corrupt(f"{where} has {name} that are no counts: {error}") from error


def decode_meta(value: bytes, where: str) -> Meta:
    """What `encode_meta` has made.

    Raises:
        SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown.
    """
    document = _object(value, where)
    owner, source, partitions = document.get("owner"), document.get("source"), document.get("partitions")
    if not isinstance(owner, dict):
        raise _corrupt(f"{where} has no owner")
    if not isinstance(source, dict) or not all(isinstance(topic_id, str) for topic_id in source.values()):
        raise _corrupt(f"{where} has no source topic ids")
    if partitions is not None and not isinstance(partitions, dict):
        raise _corrupt(f"{where} has partitions that are not an object")
    for name in ("data", "progress", "created"):
        if not isinstance(document.get(name), (str, type(None))):
            raise _corrupt(f"{where} has a {name} topic id that is not text")
    return Meta(
        epoch=_count(document, "epoch", where),
        run=_text(document.get("run"), "run", where),
        owner=Owner(
            cluster=_text(owner.get("cluster"), "owner.cluster", where),
            name=_text(owner.get("name"), "owner.name", where),
        ),
        partitions=None
        if partitions is None
        else MappingProxyType({topic: _count(partitions, topic, where) for topic in partitions}),
        source=MappingProxyType(source),
        data=document.get("data"),
        progress=document.get("progress"),
        created=document.get("created"),
    )
