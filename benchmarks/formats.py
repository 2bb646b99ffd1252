"""What decoding costs: Avro with and without a registry, and Protobuf, beside JSON and Spark's own `from_avro`.

`make bench-formats`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m formats --rows N --rounds N`

The same records in each format, in Spark's memory, and without Kafka: decode, `where` and `select` of a pipeline, into
Spark's sink that throws rows away. Spark's own has one schema, reads values without a frame, checks nothing, and fails
at the first bad one. The variants take turns; the first round warms up and is not counted. No registry is asked: the
schemas of a plan are given.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.avro.functions import from_avro

from record import recording
from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.core.schemas import Known, Writer
from sinkpipeline.protobuf.compiler import compiled
from sinkpipeline.protobuf.messages import message_of
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.session import spark_session
from sinkpipeline.spark.transform import output_rows
from support import avro, protobuf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLAIN = "Spark's from_avro"
JSON = "json"
EXACT = "json, amount a DECIMAL"
ALONE = "avro, decode.schema"
ONE = "avro, registry, 1 writer"
FIVE = "avro, registry, 5 writers"
SIXTY_FOUR = "avro, registry, 64 writers"
PROTOBUF = "protobuf, registry"
NESTED = "the same, with three nested messages"

PROTO = """
syntax = "proto3"; package shop;
message Other { int64 id = 1; }
message Order {
  int64 id = 1; string customer = 2; string country = 3; double amount = 4; int64 at = 5; optional string note = 6;
  repeated Line lines = 7;
  message Line { string sku = 1; int32 n = 2; }
}
"""

COLUMNS = "id BIGINT NOT NULL, customer STRING, country STRING, amount DOUBLE, at BIGINT, note STRING"
WHERE = "amount > 1"
SELECT = RowSelect(
    key="CAST(id AS STRING)", value="CONCAT_WS('|', id, customer, country, amount, at, COALESCE(note, ''))"
)
EXACT_COLUMNS = COLUMNS.replace("amount DOUBLE", "amount DECIMAL(10, 2)")
"""A record with such a column is read a second time, as it is written (`docs/design/0110`)."""
OF_EXACT = RowSelect(key=SELECT.key, value=str(SELECT.value).replace(" amount,", " CAST(amount AS DOUBLE),"))
PARTITIONS = 4
DISTINCT = 10_000
"""Records; each comes as often as it takes."""


def schema(more: int = 0) -> Any:
    """Of an order; each version has another field, which the reader doesn't have."""
    texts = [(name, "string") for name in ("customer", "country")]
    note = {"name": "note", "type": ["null", "string"], "default": None}
    beyond = [{"name": f"more{more}", "type": "int", "default": 0}] if more else []
    return avro.record(("id", "long"), *texts, ("amount", "double"), ("at", "long"), note, *beyond)


def orders(chance: random.Random) -> Iterator[dict[str, Any]]:
    for number in range(DISTINCT):
        yield {
            "id": number,
            "customer": f"customer-{chance.randrange(10**6):06}",
            "country": chance.choice(["NL", "DE", "FR", "PT"]),
            "amount": round(chance.uniform(2, 500), 2),
            "at": 1_700_000_000_000 + number,
            "note": chance.choice([None, "leave it at the door"]),
        }


def source(spark: SparkSession, values: list[bytes], rows: int) -> DataFrame:
    """As Spark's Kafka source gives it, kept in memory."""
    found: Any = pa.table({"offset": list(range(len(values))), "value": values})
    every = spark.createDataFrame(found).crossJoin(spark.range(max(1, rows // len(values))).select())
    shaped = every.repartition(PARTITIONS).selectExpr(
        "CAST('k' AS BINARY) AS key",
        "value",
        "'orders' AS topic",
        "0 AS partition",
        "offset",
        "TIMESTAMP_MILLIS(1700000000000) AS timestamp",
        "0 AS timestampType",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    )
    kept = shaped.persist()
    kept.count()
    return kept


def ours(spark: SparkSession, values: list[bytes], rows: int, plan: RowPlan) -> DataFrame:
    analyse(spark, plan)
    return output_rows(source(spark, values, rows), plan)


def spark_own(spark: SparkSession, values: list[bytes], rows: int) -> DataFrame:
    decoded = from_avro("value", avro.text(schema()), {"mode": "FAILFAST"}).alias("order")
    found = source(spark, values, rows).select(decoded, "offset").select("order.*", "offset").where(WHERE)
    return found.selectExpr(
        "offset", f"CAST({SELECT.key} AS BINARY) AS key", f"CAST({SELECT.value} AS BINARY) AS value"
    )


def framed(found: list[dict[str, Any]], writers: int, chance: random.Random) -> tuple[list[bytes], RowPlan]:
    """By so many writers in random order, and a plan that knows them."""
    schemas = [schema(number) for number in range(writers)]
    known = Known(writers=tuple(Writer(avro.frame(at), avro.text(each)) for at, each in enumerate(schemas)))
    numbers = [chance.randrange(writers) for _ in found]
    values = [
        avro.framed(number, schemas[number], {**each, f"more{number}": 7} if number else each)
        for number, each in zip(numbers, found, strict=True)
    ]
    return values, RowPlan("avro", avro.text(schema()), where=WHERE, select=SELECT, known=known)


def in_protobuf(found: list[dict[str, Any]], lines: int) -> tuple[list[bytes], RowPlan]:
    """Framed, of the second message of the file."""
    order = message_of(compiled(PROTO), "shop.Order")
    known = Known(writers=(Writer(avro.frame(7), "1"),))
    more = {"lines": [{"sku": f"sku-{each}", "n": each} for each in range(lines)]}
    values = [avro.frame(7) + protobuf.path(1) + order.kind(**each, **more).SerializeToString() for each in found]
    return values, RowPlan("protobuf", order.to_text(), where=WHERE, select=SELECT, known=known)


def variants(spark: SparkSession, rows: int, chance: random.Random) -> Mapping[str, DataFrame]:
    found = list(orders(chance))
    bodies = [avro.body(schema(), each) for each in found]
    told = [json.dumps({name: each for name, each in order.items() if each is not None}).encode() for order in found]
    frames = {name: framed(found, writers, chance) for name, writers in {ONE: 1, FIVE: 5, SIXTY_FOUR: 64}.items()}
    frames |= {PROTOBUF: in_protobuf(found, 0), NESTED: in_protobuf(found, 3)}
    return {
        PLAIN: spark_own(spark, bodies, rows),
        JSON: ours(spark, told, rows, RowPlan("json", COLUMNS, where=WHERE, select=SELECT)),
        EXACT: ours(spark, told, rows, RowPlan("json", EXACT_COLUMNS, where=WHERE, select=OF_EXACT)),
        ALONE: ours(spark, bodies, rows, RowPlan("avro", avro.text(schema()), where=WHERE, select=SELECT)),
        **{name: ours(spark, values, rows, plan) for name, (values, plan) in frames.items()},
    }


def checked(frames: Mapping[str, DataFrame]) -> None:
    """All of them give the same rows."""
    sums = {
        name: frame.select(F.count("*"), F.sum(F.hash("key", "value"))).collect()[0] for name, frame in frames.items()
    }
    if len(set(map(tuple, sums.values()))) > 1:
        raise SystemExit(f"the variants do not give the same rows: {sums}")


@dataclass(frozen=True)
class Cost:
    """Of one run of a variant."""

    rate: float
    """Rows a second."""
    cpu_s: float
    """CPU seconds for a million rows: of Spark, and of its Python workers."""


def timed(act: Callable[[], None], rows: int) -> Cost:
    began, before = time.monotonic(), _cpu_s()
    act()
    return Cost(rows / (time.monotonic() - began), (_cpu_s() - before) * 1e6 / rows)


def _cpu_s() -> float:
    """Of this process and all below it."""
    found = 0.0
    own = psutil.Process()
    for each in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = each.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


def measured(frames: Mapping[str, DataFrame], rows: int, rounds: int, chance: random.Random) -> dict[str, list[Cost]]:
    """What each cost, round by round, in another order each time; a round before them doesn't count."""
    costs: dict[str, list[Cost]] = {}
    for number in range(rounds + 1):
        for name in chance.sample(list(frames), len(frames)):
            cost = timed(frames[name].write.format("noop").mode("overwrite").save, rows)
            if number:
                costs.setdefault(name, []).append(cost)
                print(f"  round {number}, {name}: {cost.rate:,.0f} rows/s, {cost.cpu_s:.1f} CPU s", flush=True)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(prog="formats", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help=f"a multiple of {DISTINCT:,}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    chance = random.Random(1)  # noqa: S311 - no secret
    with recording("formats", arguments) as record, TemporaryDirectory(prefix="bench-") as directory:
        conf = {"spark.driver.memory": "2g"}
        with spark_session("bench", arguments.master, conf, Path(directory) / "spark.log") as spark:
            frames = variants(spark, arguments.rows, chance)
            checked(frames)
            record.ran("all", spark={**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll})
            costs = measured(frames, arguments.rows, arguments.rounds, chance)
        rates = {name: [each.rate for each in costs[name]] for name in frames}
        cells = [
            (
                name,
                *(f"{pick(found):,.0f}" for pick in (statistics.median, min, max)),
                f"{statistics.median(each.cpu_s for each in costs[name]):.1f}",
                *_ratios(found, rates),
            )
            for name, found in rates.items()
        ]
        columns = ("format", "rows/s, median", "least", "most", "CPU s a million", f"/ {JSON}", f"/ {PLAIN}")
        record.table(f"{arguments.rows:,} records, {arguments.rounds} rounds", columns, cells)
        for name, found in rates.items():
            record.bar("decoding", "rows/s", arguments.master, name, found)


def _ratios(found: list[float], rates: Mapping[str, list[float]]) -> Iterator[str]:
    """Medians of paired rounds."""
    for base in (JSON, PLAIN):
        yield f"{statistics.median(one / other for one, other in zip(found, rates[base], strict=True)):.2f}"


if __name__ == "__main__":
    main()
