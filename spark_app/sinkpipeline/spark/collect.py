"""The rows of a small batch, brought to the driver: its tasks only read, decode and transform, and need no Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks.contract import BatchPlan, OversizedRecord, RowBatch
from sinkpipeline.spark.task import Oversized, decoded_part, partition_of, to_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collected(wire: DataFrame, plan: BatchPlan) -> list[tuple[SourcePartition, RowBatch]] | None:
    """All rows as `wire.to_wire` gives them; those of a partition come from one task, in offset order.

    Returns:
        None where a record's schema is not known: tasks deliver what comes before it.

    Raises:
        OversizedRecord: a record is too large for how rows travel.
        SinkPipelineError: InternalError, where a task had rows of several partitions.
    """
    found = []
    for batch in wire.toArrow().to_batches():
        if batch.num_rows:
            if decoded_part(batch)[1]:
                return None
            partition = partition_of(plan, batch)
            try:
                found.append((partition, to_rows(batch, partition)))
            except Oversized as oversized:
                raise OversizedRecord from oversized
    return found
