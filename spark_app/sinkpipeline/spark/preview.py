"""The rows of a preview: read, decoded and transformed as a run does it, and handed to a person instead of a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sinkpipeline.core.deadletter import Verdict
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.partitioner import partition_of_key
from sinkpipeline.core.records import Headers
from sinkpipeline.core.rowplan import RowPlan
from sinkpipeline.kafka.preview import Outlook
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kinds import kind_of
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.spark.query import spark_error
from sinkpipeline.spark.schemas import planned
from sinkpipeline.spark.source import read_batch
from sinkpipeline.spark.transform import output_rows
from sinkpipeline.spark.wire import note_from_wire, to_wire

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from sinkpipeline.spark.schemas import Schemas

_PATIENCE_S = 30.0
_NONE = -1


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


def preview_rows(
    spark: SparkSession,
    settings: SinkSettings,
    rows: RowPlan,
    outlook: Outlook,
    limit: int,
    schemas: Schemas | None = None,
) -> list[PreviewRow]:
    """The first rows that are not filtered out, of one source partition after the other. The plan has passed `analyse`.

    `schemas`: where records name theirs in a registry.

    Raises:
        SinkPipelineError: what Spark says of the source or the rows; and as `Schemas.learn`.
    """
    if not outlook.ranges:
        return []
    found = settled(lambda: _taken(spark, settings, planned(rows, schemas), outlook, limit), schemas)
    return list(_judged(found, settings, outlook))


def settled(taken: Callable[[], list[Row]], schemas: Schemas | None) -> list[Row]:
    """What `taken` gives, with the schemas that its rows name.

    A row that was decoded once is: so it ends however many schemas they name, which a plan doesn't take all at once.
    """
    found = taken()
    done: dict[tuple[str, int, int], Row] = {}
    while schemas is not None:
        pending = [note_from_wire(row.notes).pending for row in found]
        done |= {_source_of(row): row for row, frame in zip(found, pending, strict=True) if frame is None}
        unknown = [frame for row, frame in zip(found, pending, strict=True) if frame and _source_of(row) not in done]
        if not unknown:
            break
        schemas.learn(unknown)
        found = taken()
    return [done.get(_source_of(row), row) for row in found]


def _taken(spark: SparkSession, settings: SinkSettings, plan: RowPlan, outlook: Outlook, limit: int) -> list[Row]:
    try:
        source = read_batch(spark, settings.source, settings.group_id, outlook.ranges, _PATIENCE_S)
        # Batch by batch of partitions, as many as it takes for so many rows: not all of the source is read.
        return to_wire(output_rows(source, plan)).take(limit)
    except (PySparkException, Py4JError) as error:
        raise spark_error(error) from error


def _source_of(row: Row) -> tuple[str, int, int]:
    return row.topic, row.partition, row.offset


def _judged(found: list[Row], settings: SinkSettings, outlook: Outlook) -> Iterator[PreviewRow]:
    limits = _plan(settings, outlook).limits()
    for row in found:
        note = note_from_wire(row.notes)
        key, value = _bytes(row.key), _bytes(row.value)
        target = _NONE if row.target_partition is None else row.target_partition
        timestamp = row.timestamp_ms or 0
        alone = RowBatch(
            offsets=[row.offset],
            keys=[key],
            values=[value],
            target_partitions=[target] if outlook.data_partitions is not None else None,
            timestamps=[timestamp],
            headers=[note.headers],
            errors=[note.error],
            size=len(key or b"") + len(value or b"") + len(row.notes or ""),
        )
        bad = alone.bad_rows(limits)
        partition = target if target >= 0 else None
        if partition is None and outlook.data_partitions is not None:
            partition = partition_of_key(key, outlook.data_partitions)
        yield PreviewRow(
            source=SourcePartition(row.topic, row.partition),
            offset=row.offset,
            key=key,
            value=value,
            headers=note.headers,
            timestamp=timestamp or None,
            partition=None if bad else partition,
            verdict=alone.verdict(0, limits) if bad else None,
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
