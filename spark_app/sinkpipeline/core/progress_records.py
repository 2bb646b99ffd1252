"""The records of a progress topic: how progress is written, and the fold from a log of records to the truth.

For each key the last record in log order is the truth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sinkpipeline.core.changes.incremental import IncrementalMark, Listed, incremental_from_record
from sinkpipeline.core.changes.positions import Position
from sinkpipeline.core.changes.positions import from_record as position_from_record
from sinkpipeline.core.changes.snapshots import SnapshotMark, mark_from_record
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.naming import SENTINEL_KEY, SinkId, SourcePartition
from sinkpipeline.core.progress import Mark, Meta, Owner, PartitionProgress, Progress, check_forward, corrupt
from sinkpipeline.core.records import Headers
from sinkpipeline.core.tally import checked, dead_of, dropped_of
from sinkpipeline.core.topic_ids import from_record, to_record

VERSION = 1
_SEVERAL_TOPICS = 2
"""Of a `meta` whose `data` or `created` has the ids of several topics. All other records stay as they were."""
_INCREMENTAL = 2
"""Of a partition's record with an incremental snapshot."""
WRITER_HEADER = "sinkpipeline.transactional.id"
"""On a record whose key does not tell it: whose transaction it is of."""


def writer_header(transactional_id: str) -> Headers:
    """The headers of a record whose key does not tell who writes it."""
    return [(WRITER_HEADER, transactional_id.encode())]


def encode_partition(progress: PartitionProgress) -> bytes:
    dead, dropped = dead_of(progress.by_class), dropped_of(progress.by_class)
    return json.dumps(
        {
            # A release that knows of none refuses it: it would forget which rows are still to be read.
            "v": VERSION if progress.incremental is None else _INCREMENTAL,
            "epoch": progress.epoch,
            "next": progress.next,
            "rows": progress.rows,
            "dead": progress.dead,
            "dropped": progress.dropped,
            "lost": progress.lost,
            "at": progress.at,
            **({"deadByClass": dead} if dead else {}),
            **({"droppedByClass": dropped} if dropped else {}),
            **({} if progress.pos is None else {"pos": progress.pos.to_record()}),
            **({} if progress.snapshot is None else {"snapshot": progress.snapshot.to_record()}),
            **({} if progress.incremental is None else {"incremental": progress.incremental.to_record()}),
        },
        separators=(",", ":"),
    ).encode()


def encode_meta(meta: Meta) -> bytes:
    data, created = to_record(meta.data), to_record(meta.created)
    return json.dumps(
        {
            # A release that knows of one topic only refuses it.
            "v": _SEVERAL_TOPICS if isinstance(data, dict) or isinstance(created, dict) else VERSION,
            "epoch": meta.epoch,
            "run": meta.run,
            "owner": {"cluster": meta.owner.cluster, "name": meta.owner.name},
            "partitions": None if meta.partitions is None else dict(meta.partitions),
            "source": dict(meta.source),
            "data": data,
            "progress": meta.progress,
            **({"former": list(meta.former)} if meta.former else {}),
            **({} if created is None else {"created": created}),
            **({} if meta.restored is None else {"restored": meta.restored}),
            **({} if meta.rolled_back is None else {"rolledBack": meta.rolled_back}),
            **({"marks": _encoded(meta.marks)} if meta.marks else {}),
            **({} if meta.tables is None else {"tables": dict(meta.tables)}),
        },
        separators=(",", ":"),
    ).encode()


def _encoded(marks: Mapping[SourcePartition, Mark]) -> dict[str, dict[str, Mark]]:
    """By topic and partition, `[offset, leader epoch]`. The order says how old each is, and is kept."""
    topics: dict[str, dict[str, Mark]] = {}
    for partition, mark in marks.items():
        topics.setdefault(partition.topic, {})[str(partition.partition)] = mark
    return topics


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
            raise corrupt(f"{where} has a key that this version does not know")
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


def _object(value: bytes, where: str, newest: int = VERSION) -> dict[str, Any]:
    try:
        document = parse_json(value)
    except ValueError as error:
        raise corrupt(f"{where} is not JSON") from error
    if not isinstance(document, dict):
        raise corrupt(f"{where} is not a JSON object")
    version = document.get("v")
    if not isinstance(version, int) or isinstance(version, bool) or not VERSION <= version <= newest:
        raise _unknown_version(version, where, newest)
    return document


def _unknown_version(version: object, where: str, newest: int) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.PROGRESS_VERSION_UNKNOWN,
        f"{where} has version {version!r}; this program knows version {newest}",
        "run the newer release that wrote it",
    )


def _count(document: Mapping[str, Any], name: str, where: str) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise corrupt(f"{where} has {name} {value!r}, not a count")
    return value


def _text(value: object, name: str, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise corrupt(f"{where} has no {name}")
    return value


def decode_partition(value: bytes, where: str) -> PartitionProgress:
    """What `encode_partition` has made.

    Raises:
        SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown.
    """
    document = _object(value, where, newest=_INCREMENTAL)
    incremental = _incremental(document, where)
    try:
        by_class = checked(document.get("deadByClass", {}), document.get("droppedByClass", {}))
    except (TypeError, ValueError) as error:
        raise corrupt(f"{where} has deadByClass or droppedByClass that are no counts: {error}") from error
    return PartitionProgress(
        **{name: _count(document, name, where) for name in ("epoch", "next", "rows", "dead", "dropped", "lost", "at")},
        by_class=by_class,
        pos=_position(document, where),
        snapshot=_snapshot(document, where),
        incremental=incremental,
    )


def _position(document: Mapping[str, Any], where: str) -> Position | None:
    if "pos" not in document:
        return None
    try:
        return position_from_record(document["pos"])
    except ValueError as error:
        raise corrupt(f"{where} has a pos that is none: {error}") from error


def _snapshot(document: Mapping[str, Any], where: str) -> SnapshotMark | None:
    if "snapshot" not in document:
        return None
    try:
        return mark_from_record(document["snapshot"])
    except ValueError as error:
        raise corrupt(f"{where} has a snapshot that is none: {error}") from error


def _incremental(document: Mapping[str, Any], where: str) -> IncrementalMark | None:
    if ("incremental" in document) != (document["v"] == _INCREMENTAL):
        raise _unknown_version(document["v"], where, VERSION)
    if "incremental" not in document:
        return None
    try:
        return incremental_from_record(document["incremental"])
    except ValueError as error:
        raise corrupt(f"{where} has an incremental snapshot that is none: {error}") from error


def decode_meta(value: bytes, where: str) -> Meta:
    """What `encode_meta` has made.

    Raises:
        SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown.
    """
    document = _object(value, where, newest=_SEVERAL_TOPICS)
    owner, source, partitions = document.get("owner"), document.get("source"), document.get("partitions")
    if not isinstance(owner, dict):
        raise corrupt(f"{where} has no owner")
    if not isinstance(source, dict) or not all(isinstance(topic_id, str) for topic_id in source.values()):
        raise corrupt(f"{where} has no source topic ids")
    if partitions is not None and not isinstance(partitions, dict):
        raise corrupt(f"{where} has partitions that are not an object")
    if not isinstance(document.get("progress"), (str, type(None))):
        raise corrupt(f"{where} has a progress topic id that is not text")
    if document["v"] != VERSION and not any(isinstance(document.get(each), dict) for each in ("data", "created")):
        raise _unknown_version(document["v"], where, VERSION)
    ids = {name: _topic_ids(document, name, where) for name in ("data", "created")}
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
        data=ids["data"],
        progress=document.get("progress"),
        former=_former(document, where),
        created=ids["created"],
        restored=_count(document, "restored", where) if document.get("restored") is not None else None,
        rolled_back=_count(document, "rolledBack", where) if document.get("rolledBack") is not None else None,
        marks=MappingProxyType(_marks(document, where)),
        tables=_tables(document, where),
    )


def _former(document: Mapping[str, Any], where: str) -> tuple[str, ...]:
    found = document.get("former", [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise corrupt(f"{where} has former topic ids that are no list of texts")
    return tuple(found)


def _tables(document: Mapping[str, Any], where: str) -> Mapping[str, Listed] | None:
    found = document.get("tables")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise corrupt(f"{where} has tables that are no object")
    return MappingProxyType({name: _listed(each, f"{where}: table {name}") for name, each in found.items()})


def _listed(value: object, where: str) -> Listed:
    match value:
        case [str(by), str(identity)]:
            return Listed(by, identity)
        case _:
            raise corrupt(f"{where} has no entry")


def _topic_ids(document: Mapping[str, Any], name: str, where: str) -> str | None:
    value = document.get(name)
    if isinstance(value, dict) and document["v"] == VERSION:
        raise corrupt(f"{where} has a {name} topic id that is not text")
    try:
        return from_record(value)
    except ValueError as error:
        raise corrupt(f"{where} has a {name} topic id that {error}") from error


def _marks(document: Mapping[str, Any], where: str) -> dict[SourcePartition, Mark]:
    try:
        return {
            SourcePartition(topic, int(number)): Mark(int(offset), int(epoch))
            for topic, partitions in (document.get("marks") or {}).items()
            for number, (offset, epoch) in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise corrupt(f"{where} has marks that are no offsets and leader epochs: {error}") from error
