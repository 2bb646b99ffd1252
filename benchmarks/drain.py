"""How fast a backlog is drained, ExactlyOnce beside AtLeastOnce, in alternating rounds against one broker.

`PYTHONPATH=dev:tests .venv/bin/python benchmarks/drain.py [ROWS] [ROUNDS]`

Each round is one `sinkpipeline run --until-idle` on `local[2]`; the rate leaves out the first batch, whose JVM is
cold. Broker, JVM and Python workers share the machine's cores. The last line is the ratio of the medians.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from local_kafka import LocalKafka
from support.app import App, manifest
from support.topics import create_topic, produce, unique

PARTITIONS = 4
BATCH = 500_000
GUARANTEES = ("ExactlyOnce", "AtLeastOnce")


def rate(servers: str, topic: str, rows: int, guarantee: str, directory: Path) -> float:
    """Rows per second after the first batch."""
    name = unique(guarantee.lower())
    document = manifest(servers, name, [topic], trigger={"interval": "0s", "maxOffsetsPerTrigger": BATCH}, spark={})
    document["spec"]["sinks"][0]["deliveryGuarantee"] = guarantee
    app = App(directory / name, document)
    with app.start("--until-idle") as run:
        run.until_rows(min(BATCH, rows // 2))
        delivered, began = app.rows_delivered(), time.monotonic()
        run.until_rows(rows)
        seconds = time.monotonic() - began
        run.wait()
    return (rows - delivered) / seconds


def main(rows: int, rounds: int) -> None:
    rates: dict[str, list[float]] = {guarantee: [] for guarantee in GUARANTEES}
    with tempfile.TemporaryDirectory() as directory, LocalKafka(jvm_options=()) as kafka:
        create_topic(kafka.bootstrap_servers, "source", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            records = ((b"%d" % number, b"x" * 100) for number in range(rows // PARTITIONS))
            produce(kafka.bootstrap_servers, "source", records, partition=partition)
        for round_number in range(1, rounds + 1):
            for guarantee in GUARANTEES:
                rates[guarantee].append(rate(kafka.bootstrap_servers, "source", rows, guarantee, Path(directory)))
                print(f"round {round_number}: {guarantee} {rates[guarantee][-1]:,.0f} rows/s", flush=True)
    medians = {guarantee: statistics.median(found) for guarantee, found in rates.items()}
    print(f"ExactlyOnce / AtLeastOnce: ratio {medians['ExactlyOnce'] / medians['AtLeastOnce']:.2f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in [*sys.argv[1:], *("2000000", "3")[len(sys.argv) - 1 :]]))
