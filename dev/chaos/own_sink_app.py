"""Spark's own Kafka sink, which is at-least-once, with a checkpoint: what `make chaos` is compared with.

Runs as `own_sink_app.py SERVERS SOURCE TARGET CHECKPOINT INTERVAL` in a driver's pod; keys and values pass as they are.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main() -> None:
    servers, source, target, checkpoint, interval = sys.argv[1:]
    query = (
        SparkSession.builder.getOrCreate()
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=interval)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
