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

_BAD_KEY = "exists(headers, header -> header.key IS NULL OR instr(header.key, char(0)) > 0)"
_BAD_KEY_ERROR = "InvalidHeader: a header has no name, or one with a NUL character"


def to_wire(rows: DataFrame) -> DataFrame:
    """The same columns; `headers` is JSON text, null where there are none.

    A header that Kafka's client would alter in silence makes its record an error.
    """
    return rows.withColumns(
        {
            "error": F.expr(f"CASE WHEN error IS NULL AND {_BAD_KEY} THEN '{_BAD_KEY_ERROR}' ELSE error END"),
            "headers": F.expr(f"CASE WHEN size(headers) > 0 THEN {_HEADERS} END"),
        }
    )


def headers_from_wire(text: str | None) -> Headers:
    """The headers of one row; Spark leaves a null out of its JSON."""
    if text is None:
        return None
    return [(each.get("k", ""), None if "v" not in each else base64.b64decode(each["v"])) for each in json.loads(text)]
