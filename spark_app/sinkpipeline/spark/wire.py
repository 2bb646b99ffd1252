"""How rows travel from Spark to a Python worker.

Spark 4.0 asks every column of an Arrow batch for its size after every row, which costs a third of the JVM's time with
small rows. So there are as few columns as can be, and two ways to bound an Arrow batch's memory:

- *counted*: at most `COUNTED_ROWS` rows, fewer where the last ones were large (`core.batch.rows_at_once`), none larger
  than `COUNTED_ROW_BYTES`. A larger one is only marked, in `notes`; then the sink starts again, measured.
- *measured*: Spark's own way, by `spark.sql.execution.arrow.maxBytesPerBatch`. With large rows its price is nothing.

`notes` is JSON text, null for most rows: `error` (why a record could not be decoded), `headers`, `oversized`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.records import Headers
from sinkpipeline.core.schemas import pending

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW = "row"
TARGET_TOPIC = "target_topic"
COUNTED_ROWS = 5_000
COUNTED_ROW_BYTES = 16 * 1024

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_DO_NOT_MEASURE = str(2**31 - 1)

_BAD_KEY = "exists(headers, header -> header.key IS NULL OR instr(header.key, char(0)) > 0)"
_BAD_KEY_ERROR = ErrorClass.INVALID_HEADER.error("a header has no name, or one with a NUL character")
_ERROR = f"CASE WHEN error IS NULL AND {_BAD_KEY} THEN '{_BAD_KEY_ERROR}' ELSE error END"
_HEADERS = (
    "CASE WHEN size(headers) > 0 THEN transform(headers, each -> struct(each.key AS k, base64(each.value) AS v)) END"
)
_NOTES = f"""
    CASE WHEN error IS NOT NULL OR size(headers) > 0
         THEN to_json(struct({_ERROR} AS error, {_HEADERS} AS headers)) END
"""
_SIZE = " + ".join(f"coalesce(octet_length({each}), 0)" for each in ("key", "value", "notes"))
_FITS = f"{_SIZE} <= {COUNTED_ROW_BYTES}"
_OVERSIZED = '{"oversized":true}'
_COUNTED = {
    "key": f"CASE WHEN {_FITS} THEN key END",
    "value": f"CASE WHEN {_FITS} THEN value END",
    "notes": f"CASE WHEN {_FITS} THEN notes ELSE '{_OVERSIZED}' END",
}


@dataclass(frozen=True)
class Note:
    """What `notes` says of one row."""

    error: str | None = None
    headers: Headers = None
    oversized: bool = False
    pending: bytes | None = None
    """The frame of a record whose schema is not known yet: it is neither good nor bad, and `error` names no class."""


def to_wire(rows: DataFrame, *, several_topics: bool = True, targets: bool = True, counted: bool = False) -> DataFrame:
    """partition, offset, key, value, timestamp_ms, notes; and topic and target_partition where they are needed.

    Also target_topic, of a sink that names topics.

    Where a record may have several rows, also `row`: by that the other side knows it.
    A header that Kafka's client would alter in silence makes its record an error.

    Args:
        rows: as `transform.output_rows` gives them.
        several_topics: whether the rows are of more than one topic.
        targets: whether the rows choose their target partitions.
        counted: whether `count_batches` bounds the Arrow batches.
    """
    names = ["partition", "offset", "key", "value", "timestamp_ms"]
    names += ["topic"] if several_topics else []
    names += ["target_partition"] if targets else []
    names += [TARGET_TOPIC] if TARGET_TOPIC in rows.columns else []
    names += [ROW] if ROW in rows.columns else []
    # Whole lists of texts: every call that builds a column is a round trip to the JVM.
    noted = rows.selectExpr(*names, f"{_NOTES} AS notes")
    if not counted:
        return noted
    return noted.selectExpr(*(f"{_COUNTED.get(name, name)} AS {name}" for name in (*names, "notes")))


def counted_rows(rows: DataFrame) -> int:
    """The most rows of a counted Arrow batch, as the session of `rows` was given."""
    wanted = int(rows.sparkSession.conf.get(_ROWS) or 0)
    return min(wanted, COUNTED_ROWS) if wanted > 0 else COUNTED_ROWS


def count_batches(rows: DataFrame, most: int) -> None:
    """Bounds the Arrow batches of jobs in the session of `rows`, a query's own, by count alone."""
    conf = rows.sparkSession.conf
    conf.set(_ROWS, str(most))
    conf.set(_BYTES, _DO_NOT_MEASURE)


def note_from_wire(text: str | None) -> Note:
    """The note of one row; Spark leaves a null out of its JSON."""
    if text is None:
        return Note()
    document = json.loads(text)
    headers, error = document.get("headers"), document.get("error")
    return Note(
        error=error,
        headers=None
        if headers is None
        else [(each.get("k", ""), None if each.get("v") is None else base64.b64decode(each["v"])) for each in headers],
        oversized="oversized" in document,
        pending=pending(error),
    )
