"""How rows travel from Spark to a Python worker: as `transform.output_rows` gives them, but with headers as text.

Spark 4.0 asks for the size of an Arrow batch after every row, and a column of lists of structs answers that in a time
that grows with the batch: with headers as they are, two thirds of the JVM's time went there, headers or not. Most
records have none, and a null text costs nothing.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

from sinkpipeline.kafka.producers import Headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HEADERS = "to_json(transform(headers, header -> struct(header.key AS k, base64(header.value) AS v)))"


def to_wire(rows: DataFrame) -> DataFrame:
    """The same columns; `headers` is JSON text, null where there are none."""
    return rows.withColumn("headers", F.expr(f"CASE WHEN size(headers) > 0 THEN {_HEADERS} END"))


def headers_from_wire(text: str | None) -> Headers:
    """The headers of one row; Spark leaves a null out of its JSON."""
    if text is None:
        return None
    return [(each["k"], None if "v" not in each else base64.b64decode(each["v"])) for each in json.loads(text)]
