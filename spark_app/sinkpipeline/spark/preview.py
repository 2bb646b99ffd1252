"""The rows of a preview: read, decoded and transformed as a run does it, and handed to a person instead of a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sinkpipeline.core.deadletter import Verdict
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.partitioner import partition_of_key
from sinkpipeline.core.records import Headers
from sinkpipeline.core.rowplan import RowPlan
from sinkpipeline.kafka.preview import Outlook
from sinkpipeline.kinds import kind_of
from sinkpipeline.kinds.resolve import SinkSettings
from sinkpipeline.sinks.contract import BatchPlan, RowBatch, content_bytes
from sinkpipeline.spark.query import spark_error
from sinkpipeline.spark.schemas import planned
from sinkpipeline.spark.source import read_batch
from sinkpipeline.spark.transform import output_rows
from sinkpipeline.spark.wire import TARGET_TOPIC, note_from_wire, to_wire

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from sinkpipeline.spark.schemas import Schemas

_PATIENCE_S = 30.0
_NONE = -1
Source = tuple[str, int, int]
"""Topic, partition and offset of a record."""


@dataclass(frozen=True, kw_only=True)
class PreviewRow:
    """One row as it would be written."""

    source: SourcePartition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    """Milliseconds; None for the time at which it is written."""
    partition: int | None
    """Of the data topic; None where the client takes any, or nobody knows how many there are."""
    verdict: Verdict | None
    """Why it can't be delivered; then the rest is the source record's own."""
    topic: str | None = None
    """Which one of the sink's, where it has several."""


def preview_rows(
    spark: SparkSession,
    settings: SinkSettings,
    rows: RowPlan,
    outlook: Outlook,
    limit: int,
    schemas: Schemas | None = None,
) -> list[PreviewRow]:
    """The first rows that are not filtered out, of one source partition after the other. The plan has passed `analyse`.

    Of a record that can't be delivered, that is one row, whatever else it gave.

    `schemas`: where records name theirs in a registry.

    Raises:
        SinkPipelineError: what Spark says of the source or the rows; and as `Schemas.learn`.
    """
    if not outlook.ranges:
        return []
    # So many more that the last record that is shown has all of its rows.
    most = limit if rows.explode is None else limit + rows.explode.most_rows
    found = settled(lambda: _taken(spark, settings, planned(rows, schemas), outlook, most), schemas)
    return list(islice(_judged(found, settings, outlook), limit))


def settled(taken: Callable[[], list[Row]], schemas: Schemas | None) -> list[Row]:
    """What `taken` gives, with the schemas that its rows name.

    A row that was decoded once is: so it ends however many schemas they name, which a plan doesn't take all at once.
    """
    found = _by_source(taken())
    done: dict[Source, list[Row]] = {}
    while schemas is not None:
        pending = {source: note_from_wire(rows[0].notes).pending for source, rows in found.items()}
        done |= {source: rows for source, rows in found.items() if pending[source] is None}
        unknown = [frame for source, frame in pending.items() if frame and source not in done]
        if not unknown:
            break
        schemas.learn(unknown, forgets=True)
        found = _by_source(taken())
    return [row for source, rows in found.items() for row in done.get(source, rows)]


def _by_source(found: Iterable[Row]) -> dict[Source, list[Row]]:
    """The rows of each record."""
    of: dict[Source, list[Row]] = {}
    for row in found:
        of.setdefault((row.topic, row.partition, row.offset), []).append(row)
    return of


def _taken(spark: SparkSession, settings: SinkSettings, plan: RowPlan, outlook: Outlook, limit: int) -> list[Row]:
    try:
        source = read_batch(spark, settings.source, settings.group_id, outlook.ranges, _PATIENCE_S)
        # Batch by batch of partitions, as many as it takes for so many rows: not all of the source is read.
        return to_wire(output_rows(source, plan)).take(limit)
    except (PySparkException, Py4JError) as error:
        raise spark_error(error) from error


def _judged(found: list[Row], settings: SinkSettings, outlook: Outlook) -> Iterator[PreviewRow]:
    limits = _plan(settings, outlook).limits()
    for (topic, number, offset), rows in _by_source(found).items():
        source = SourcePartition(topic, number)
        record = _record(offset, rows, outlook)
        if record.bad_rows(limits):
            at = record.culprit(0, limits) or 0
            yield _shown(source, record, at, rows[at].target_partition, record.verdict(0, limits), outlook)
            continue
        for at, row in enumerate(rows):
            yield _shown(source, record, at, row.target_partition, None, outlook)


def _record(offset: int, rows: list[Row], outlook: Outlook) -> RowBatch:
    notes = [note_from_wire(row.notes) for row in rows]
    record = RowBatch(
        offsets=[offset],
        keys=[_bytes(row.key) for row in rows],
        values=[_bytes(row.value) for row in rows],
        target_partitions=[_NONE if row.target_partition is None else row.target_partition for row in rows]
        if outlook.data_partitions is not None
        else None,
        target_topics=[getattr(row, TARGET_TOPIC) for row in rows] if hasattr(rows[0], TARGET_TOPIC) else None,
        timestamps=[row.timestamp_ms or 0 for row in rows],
        headers=[note.headers for note in notes],
        errors=[note.error for note in notes],
        size=0,
        firsts=[0, len(rows)],
    )
    return replace(record, size=content_bytes(record))


def _shown(
    source: SourcePartition, record: RowBatch, row: int, target: int | None, verdict: Verdict | None, outlook: Outlook
) -> PreviewRow:
    key, timestamp = record.keys[row], record.timestamps[row]
    partition = target if target is not None and target >= 0 else None
    topic = None if record.target_topics is None else record.target_topics[row]
    own = None if topic is None else outlook.data_limits.parts.get(topic)
    if partition is None and outlook.data_partitions is not None:
        partition = partition_of_key(key, outlook.data_partitions if own is None else own.partitions)
    return PreviewRow(
        source=source,
        offset=record.offsets[0],
        key=key,
        value=record.values[row],
        headers=None if record.headers is None else record.headers[row],
        timestamp=timestamp or None,
        partition=None if verdict is not None else partition,
        verdict=verdict,
        topic=topic if verdict is None else None,
    )


def _plan(settings: SinkSettings, outlook: Outlook) -> BatchPlan:
    """Of a batch that nobody runs: what it holds of limits is what a task goes by."""
    return BatchPlan(
        kind=kind_of(settings),
        settings=settings,
        run="",
        data_limits=outlook.data_limits,
        letter_limits=outlook.data_limits,
        data_topic_id="",
        progress_topic_id="",
        verified=0,
        ranges=outlook.ranges,
        frontier={},
        owners={},
    )


def _bytes(content: bytearray | bytes | None) -> bytes | None:
    return None if content is None else bytes(content)
