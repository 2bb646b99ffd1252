"""What a PostgreSQL table costs, beside Spark's JDBC writer in `foreachBatch`.

`make bench-tables`, or
`PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m tables [--batch ROWS ... --batches N ... --rounds N]`

A backlog is delivered in batches of so many rows, back to back, into a table of the same columns; milliseconds per
batch, and CPU seconds of server, JVM and Python workers. The variants take turns, in another order in each round, on
one broker, one PostgreSQL server and one JVM; a round that warms up is not counted. What each promises:

- Spark's JDBC writer, `mode("append")`: at least once. A task that is tried again repeats its rows, and so does a
  batch. As it comes; and tuned, as those who look for speed do it: `reWriteBatchedInserts` of the driver, and the
  checkpoint file manager that our sessions set, which anyone can set.
- The usual way of an upsert: it writes a staging table, which the driver merges by `INSERT ... ON CONFLICT`. At least
  once: a batch that is repeated merges the same rows again, also over newer ones that somebody else wrote. Tuned too.
- `Append` and `Upsert` of ours: exactly once.

After each stretch the rows of the table are counted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pyspark
from pyspark.sql import DataFrame
from typing_extensions import override

from lab import Stretch, laboratory
from record import Record, recording
from server_lab import PARTITIONS, ServerLab, command_line, measure
from servers.local_process import HOST, cache_directory
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.core.failure import fetch_patience_s
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.spark.session import plain_files
from sinkpipeline.spark.source import broker_waits_s, read_stream
from support.app.command import manifest
from support.kafka.topics import unique

JDBC: Final = "JDBC, as it comes"
TUNED: Final = "JDBC, tuned"
STAGED: Final = "JDBC, tuned, staged and merged"
APPEND: Final = "Append"
UPSERT: Final = "Upsert"
PROMISES: Final = {
    JDBC: "at least once",
    TUNED: "at least once",
    APPEND: "exactly once",
    STAGED: "at least once",
    UPSERT: "exactly once",
}
BESIDE: Final = {APPEND: TUNED, UPSERT: STAGED}
"""What ours are compared with: the fastest that others do."""
REWRITES: Final = "reWriteBatchedInserts"
DRIVER: Final = "org.postgresql.Driver"
TYPES: Final = {"part": "integer", "id": "bigint", "value": "text"}
KEY: Final = ("part", "id")
PARTS: Final = ("server", "jvm", "driver", "workers")


@dataclass(kw_only=True)
class Tables(ServerLab):
    """A laboratory with a PostgreSQL server."""

    keys: int = 0
    """Of a partition: rows that come later change those that came before."""

    @property
    def columns(self) -> dict[str, str]:
        """Expressions of Spark, of a record of its Kafka source."""
        return {"part": "partition", "id": f"offset % {self.keys}", "value": "CAST(value AS STRING)"}

    @override
    def drain(self, variant: str) -> Stretch:
        if variant in BESIDE:
            self._create(keyed=variant == UPSERT)
            stretch = self._ours(variant)
        else:
            stretch = self._jdbc(variant)
        expected = stretch.rows
        if variant in (UPSERT, STAGED):
            expected = sum(min(self.keys, end) for end in self.ends().values())
        [(found,)] = self.sql(f"SELECT count(*) FROM {self._table}")  # noqa: S608 - our own name
        if found != expected:
            raise AssertionError(f"{variant}: {found:,} rows in the table, and not {expected:,}")
        self.sql(f"DROP TABLE {self._table}", f"DROP TABLE IF EXISTS {self._table}_staging")
        return stretch

    def _jdbc(self, variant: str) -> Stretch:
        """As a user of Spark writes it, with the same source; its checkpoint is Spark's own."""
        self._create(keyed=variant == STAGED)
        pipeline = parse_manifest(self.document(APPEND))
        source = resolve_sinks(pipeline, None)[0].source
        assert source is not None
        self._set_checkpoint_files(None if variant == JDBC else plain_files(pyspark.__version__))
        most = pipeline.spec.trigger.max_offsets_per_trigger
        patience_s = fetch_patience_s(broker_waits_s(source))
        ends = self.ends()
        beginning = {each: PartitionProgress(epoch=0, next=0, at=0) for each in ends}
        options = self._jdbc_options(variant)
        own = {name: value.replace(self._table, "bench") for name, value in options.items()}
        self._tell(variant, pipeline, jdbc=own)
        query = (
            read_stream(self.spark, source, "bench", beginning, most, patience_s)
            .selectExpr(*(f"{expression} AS {name}" for name, expression in self.columns.items()))
            .writeStream.foreachBatch(self._writer(variant, options))
            .option("checkpointLocation", (self.directory / unique("jdbc")).as_uri())
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            before = self._start()
            query.processAllAvailable()
            return self._stretch(*before, sum(ends.values()))
        finally:
            query.stop()

    def _jdbc_options(self, variant: str) -> dict[str, str]:
        """`batchsize` and the like are Spark's defaults."""
        staged = variant == STAGED
        rewrites = "" if variant == JDBC else f"?{REWRITES}=true"
        return {
            "url": f"jdbc:postgresql://{HOST}:{self._port}/{DATABASE}{rewrites}",
            "driver": DRIVER,
            "user": SUPERUSER,
            "dbtable": f"{self._table}_staging" if staged else self._table,
            "numPartitions": str(PARTITIONS),
            **({"truncate": "true"} if staged else {}),
        }

    def _writer(self, variant: str, options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
        table = self._table
        names = ", ".join(TYPES)
        key, others = ", ".join(KEY), [name for name in TYPES if name not in KEY]
        merge = (
            f"INSERT INTO {table} ({names}) SELECT {names} FROM {table}_staging ON CONFLICT ({key}) "  # noqa: S608 - ours
            f"DO UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in others)}"
        )

        def append(frame: DataFrame, _batch: int) -> None:
            frame.write.format("jdbc").options(**options).mode("append").save()

        def stage_and_merge(frame: DataFrame, _batch: int) -> None:
            frame.write.format("jdbc").options(**options).mode("overwrite").save()
            self.sql(merge)

        return stage_and_merge if variant == STAGED else append

    def _create(self, *, keyed: bool) -> None:
        """The table of the next stretch, the same for all variants."""
        self._table = unique("bench").replace("-", "_")
        columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        key = f", PRIMARY KEY ({', '.join(KEY)})" if keyed else ""
        self.sql(f"CREATE TABLE {self._table} ({columns}{key})", f"CREATE TABLE {self._table}_staging ({columns})")

    @override
    def server_settings(self, variant: str) -> Mapping[str, Any]:
        return dict(self.sql("SELECT name, setting FROM pg_settings WHERE source <> 'default' ORDER BY name"))

    @override
    def prepare(self, rows: int) -> None:
        self.keys = max(1, rows // PARTITIONS // 2)

    @override
    def between(self) -> None:
        self.sql("CHECKPOINT")

    @override
    def document(self, variant: str, *, told: bool = False) -> dict[str, Any]:
        name, table = ("any", "bench") if told else (unique("table"), self._table)
        upsert = {"writeMode": "Upsert"} if variant == UPSERT else {}
        key = {"primaryKey": list(KEY)} if upsert else {}
        columns = {"part": "kafka.partition", "id": f"kafka.offset % {self.keys}", "value": "CAST(value AS STRING)"}
        return manifest(
            self.kafka.bootstrap_servers,
            name,
            [self.source],
            trigger=dict(self.trigger),
            spark={},
            decode={"format": "raw"},
            sinks=[
                {
                    "name": name,
                    "transform": {"select": {"columns": columns}},
                    "postgresql": {
                        "servers": self.servers[0].address,
                        "database": DATABASE,
                        "auth": {"username": SUPERUSER},
                        "table": {"name": table, "columns": TYPES, **key},
                        **upsert,
                    },
                }
            ],
        )

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last one, if it has any."""
        with psycopg.connect(host=HOST, port=self._port, user=SUPERUSER, dbname=DATABASE, autocommit=True) as session:
            found = [session.execute(each.encode()) for each in statements][-1]
            return [] if found.description is None else found.fetchall()

    @property
    def _port(self) -> int:
        return self.servers[0].port


def jdbc_driver() -> Path:
    found = sorted(cache_directory().glob("postgresql-jdbc-*/postgresql-*.jar"))
    if not found:
        raise FileNotFoundError("no JDBC driver: dev/install.sh jdbc")
    return found[-1]


def show(record: Record, title: str, batches: int, found: Mapping[str, list[Stretch]], group: str) -> None:
    rows = []
    wall = {variant: [each.seconds * 1000 / batches for each in stretches] for variant, stretches in found.items()}
    cpu = {
        variant: {part: statistics.median(each.cpu_s[part] * 1000 / batches for each in stretches) for part in PARTS}
        for variant, stretches in found.items()
    }
    for variant, times in wall.items():
        record.bar("a batch into a table", "ms", group, variant, times)
        median = statistics.median(times)
        rate = statistics.median(each.rate for each in found[variant])
        beside = BESIDE.get(variant)
        rows.append(
            (
                variant,
                PROMISES[variant],
                f"{median:,.0f} ({min(times):,.0f} to {max(times):,.0f})",
                f"{rate:,.0f}",
                *(f"{cpu[variant][part]:,.0f}" for part in PARTS),
                "" if beside is None else f"{median / statistics.median(wall[beside]):.2f}",
                "" if beside is None else f"{sum(cpu[variant].values()) / sum(cpu[beside].values()):.2f}",
            )
        )
    heads = ("variant", "promises", "ms a batch", "rows/s", *PARTS, "ms / JDBC", "CPU / JDBC")
    record.table(title, heads, rows, texts=2)


def main() -> None:
    arguments, sizes = command_line("tables", __doc__.splitlines()[0])
    conf = {"spark.jars": str(jdbc_driver())}
    with (
        recording("tables", arguments) as record,
        LocalPostgresql() as server,
        laboratory(Tables, arguments.master, record, conf, servers=[server]) as bench,
    ):
        for batch, found in measure(bench, [*PROMISES], sizes, arguments.rounds).items():
            group = f"{batch:,} rows, {arguments.master}"
            title = (
                f"batches of {batch:,} rows, {PARTITIONS} partitions, {arguments.master}: medians of {arguments.rounds}"
            )
            show(record, title, sizes[batch], found, group)
        record.line(f"{', '.join(PARTS)}: CPU ms of a batch, medians")
        record.line("/ JDBC: Append to JDBC tuned, Upsert to JDBC tuned, staged and merged")


if __name__ == "__main__":
    main()
