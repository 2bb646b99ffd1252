"""The rows of a small batch, brought to the driver: its tasks only read, decode and transform, and need no Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sinkpipeline.core.batch import SMALL_OFFSETS
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks.contract import BatchPlan, OversizedRecord, RowBatch, Stop
from sinkpipeline.spark.session import RESULT_SIZE
from sinkpipeline.spark.task import Oversized, decoded_part, partition_of, to_rows
from sinkpipeline.spark.wire import ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


MOST_ROWS = SMALL_OFFSETS
"""Of one task, where a record may give several: of a batch with more the tasks deliver all."""
_PLACE = "(monotonically_increasing_id() & 8589934591L)"
"""Of a row in its task: the lower 33 bits."""


@dataclass(frozen=True)
class Found:
    """The rows of a batch."""

    rows: list[tuple[SourcePartition, RowBatch]]
    stops: Mapping[SourcePartition, Stop] = field(default_factory=dict)
    """Where a partition's rows end before its range does, as the next record's schema is not known."""


def collected(wire: DataFrame, plan: BatchPlan) -> Found | None:
    """All rows as `wire.to_wire` gives them; those of a partition come from one task, in offset order.

    Returns:
        None where records gave more rows, or larger ones, than the driver has room for: tasks deliver.

    Raises:
        OversizedRecord: a record is too large for how rows travel.
        SinkPipelineError: InternalError, where a task had rows of several partitions.
        PySparkException, Py4JError: the job failed.
    """
    if ROW in wire.columns:
        wire = wire.where(f"{_PLACE} <= {MOST_ROWS}")
    try:
        table = wire.toArrow()
    except (PySparkException, Py4JError) as error:
        # Spark has no condition for it. Tasks only read, so nothing has to be undone.
        if RESULT_SIZE in str(error):
            return None
        raise
    rows: list[tuple[SourcePartition, RowBatch]] = []
    stops: dict[SourcePartition, Stop] = {}
    for batch in table.to_batches():
        if not batch.num_rows:
            continue
        partition = partition_of(plan, batch)
        known, unknown = decoded_part(batch)
        stopped = stops.get(partition)
        if unknown:
            at = batch["offset"][known.num_rows].as_py() if stopped is None else stopped.offset
            stops[partition] = Stop(at, (*(() if stopped is None else stopped.frames), *unknown))
        if stopped is None and known.num_rows:
            try:
                rows.append((partition, to_rows(known, partition)))
            except Oversized as oversized:
                raise OversizedRecord from oversized
    return None if _are_too_many(rows) else Found(rows, stops)


def _are_too_many(found: list[tuple[SourcePartition, RowBatch]]) -> bool:
    rows: Counter[SourcePartition] = Counter()
    for partition, batch in found:
        rows[partition] += batch.count(0, len(batch))
    return max(rows.values(), default=0) > MOST_ROWS
