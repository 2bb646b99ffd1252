"""What decoding Protobuf in a stage of Python would cost, beside JSON in the JVM: a measurement for docs/design/0056.

`make bench-protobuf`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m protobuf_stage --rows N --rounds N`

The records and the transform of `formats`, on one core. Values are framed as by Confluent's serializer: the magic byte,
the id of a schema, and the path of the message within its file. The stage stands before the expressions: Spark hands
it the values as Arrow, and it gives columns as Arrow. A bad value gives nulls and an error. `lines` adds three nested
messages to each record. The variants take turns; the first round warms up and is not counted.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from formats import COLUMNS, SELECT, WHERE, orders, ours, source, timed
from protobuf_decoder import FRAME, PATH, message_of, stage
from record import recording
from sinkpipeline.core.rowplan import RowPlan
from sinkpipeline.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JSON = "json"
FLAT = "protobuf, a stage of Python"
NESTED = "the same, with three nested messages"
LINES = "lines ARRAY<STRUCT<sku: STRING, n: INT>>"
STAGE = f"{COLUMNS.replace(' NOT NULL', '')}, {LINES}, error STRING, offset BIGINT"


def in_protobuf(spark: SparkSession, found: list[dict[str, Any]], rows: int, lines: int) -> DataFrame:
    order = message_of(FRAME, (1,))
    more = {"lines": [{"sku": f"sku-{each}", "n": each} for each in range(lines)]}
    values = [FRAME + PATH + order(**each, **more).SerializeToString() for each in found]
    staged = source(spark, values, rows).select("value", "offset").mapInArrow(stage, STAGE)
    kept = staged.where(F.col("error").isNull()).where(WHERE)
    return kept.selectExpr(
        "offset", f"CAST({SELECT.key} AS BINARY) AS key", f"CAST({SELECT.value} AS BINARY) AS value", "size(lines) AS n"
    )


def variants(spark: SparkSession, rows: int, chance: random.Random) -> dict[str, DataFrame]:
    found = list(orders(chance))
    told = [json.dumps({name: each for name, each in order.items() if each is not None}).encode() for order in found]
    return {
        JSON: ours(spark, told, rows, RowPlan("json", COLUMNS, where=WHERE, select=SELECT)),
        FLAT: in_protobuf(spark, found, rows, 0),
        NESTED: in_protobuf(spark, found, rows, 3),
    }


def checked(frames: dict[str, DataFrame]) -> None:
    """All of them give the same rows."""
    sums = {
        name: each.select(F.count("*"), F.sum(F.hash("key", "value"))).collect()[0] for name, each in frames.items()
    }
    if len(set(map(tuple, sums.values()))) > 1:
        raise SystemExit(f"the variants do not give the same rows: {sums}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="protobuf_stage", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {}
    chance = random.Random(1)  # noqa: S311 - no secret
    with recording("protobuf_stage", arguments) as record, TemporaryDirectory(prefix="bench-") as directory:
        with spark_session("bench", "local[1]", {"spark.driver.memory": "2g"}, Path(directory) / "spark.log") as spark:
            frames = variants(spark, arguments.rows, chance)
            checked(frames)
            record.ran("all", spark={**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll})
            for number in range(arguments.rounds + 1):
                for name in chance.sample(list(frames), len(frames)):
                    seconds = timed(frames[name].write.format("noop").mode("overwrite").save)
                    if number:
                        rates.setdefault(name, []).append(arguments.rows / seconds)
                        print(f"  round {number}, {name}: {arguments.rows / seconds:,.0f} rows/s", flush=True)
        picks: tuple[Callable[[list[float]], float], ...] = (statistics.median, min, max)
        cells = [(name, *(f"{pick(rates[name]):,.0f}" for pick in picks)) for name in frames]
        record.table(
            f"{arguments.rows:,} records, {arguments.rounds} rounds", ("format", "median", "least", "most"), cells
        )
        for name in frames:
            record.bar("decoding", "rows/s", "local[1]", name, rates[name])


if __name__ == "__main__":
    main()
