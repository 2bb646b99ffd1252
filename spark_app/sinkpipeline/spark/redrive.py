"""Rows of dead letters: the pipeline's own decode and transform, on what Spark's Kafka source would have given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sinkpipeline.core.redrive import Letter
from sinkpipeline.core.rowplan import RowPlan
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.spark.query import spark_error
from sinkpipeline.spark.schemas import planned
from sinkpipeline.spark.task import row_batch, undecoded
from sinkpipeline.spark.transform import output_rows
from sinkpipeline.spark.untimed import LAST_MS
from sinkpipeline.spark.wire import to_wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinkpipeline.spark.schemas import Schemas

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_SOURCE = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(_HEADER)),
    ]
)


class LetterTransform:
    """Makes rows of letters, no two of which are of the same source offset."""

    def __init__(self, spark: SparkSession, rows: RowPlan, schemas: Schemas | None = None) -> None:
        """`schemas`: where records name theirs in a registry."""
        self._spark = spark
        self._schemas = schemas
        self._rows = rows

    def __call__(self, letters: Sequence[Letter]) -> RowBatch | None:
        """The rows in the letters' order, with the letters' offsets; None where all were filtered out.

        Raises:
            SinkPipelineError: BatchFailed.
        """
        found = self._all_decoded(letters)
        if not found.num_rows:
            return None
        offset_of = {_source_of(each): each.id.offset for each in letters}
        offsets = [offset_of[source] for source in _sources(found)]
        # In the order of the letters, and within each in that of its rows: sorting leaves what is equal as it is.
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        letters_own = pa.array([offsets[at] for at in order], pa.int64())
        ordered = found.take(pa.array(order))
        ordered = ordered.set_column(ordered.column_names.index("offset"), "offset", letters_own)
        [batch] = ordered.combine_chunks().to_batches()
        return row_batch(batch)

    def _all_decoded(self, letters: Sequence[Letter]) -> Any:
        """Letter by letter, so that it ends however many schemas they name: a plan doesn't take them all at once."""
        found = self._decoded(letters)
        done = []
        while self._schemas is not None and (unknown := undecoded(found["notes"])):
            self._schemas.learn(unknown.values(), forgets=True)
            waiting = np.zeros(found.num_rows, dtype=bool)
            waiting[list(unknown)] = True
            done.append(found.filter(pa.array(~waiting)))
            rest = set(_sources(found.filter(pa.array(waiting))))
            found = self._decoded([each for each in letters if _source_of(each) in rest])
        return pa.concat_tables([*done, found])

    def _decoded(self, letters: Sequence[Letter]) -> Any:
        rows = planned(self._rows, self._schemas)
        try:
            frame = self._spark.createDataFrame(_table(letters))
            return to_wire(output_rows(frame, rows), targets=rows.select.partition is not None).toArrow()
        except (PySparkException, Py4JError) as error:
            raise spark_error(error) from error


def _sources(found: Any) -> list[tuple[str, int, int]]:
    return list(zip(*(found[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True))


def _source_of(each: Letter) -> tuple[str, int, int]:
    record = each.letter.record
    return record.partition.topic, record.partition.partition, record.offset


def _table(letters: Sequence[Letter]) -> Any:
    records = [each.letter.record for each in letters]
    columns = {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "topic": [record.partition.topic for record in records],
        "partition": [record.partition.partition for record in records],
        "offset": [record.offset for record in records],
        "timestamp": [max(-LAST_MS, min(record.timestamp, LAST_MS)) * 1000 for record in records],
        "timestampType": [0] * len(records),
        "headers": [_headers(each) for each in letters],
    }
    return pa.Table.from_pydict(columns, schema=_SOURCE)


def _headers(each: Letter) -> list[dict[str, str | bytes | None]] | None:
    headers = each.letter.record.headers
    return None if headers is None else [{"key": name, "value": content} for name, content in headers]
