"""What it costs to move a source partition to another Python worker, how often that happens, and its share of a batch.

`make bench-moves`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m moves [--master MASTER ...]`

A worker keeps the transactional producer of a partition; where Spark runs the partition's next task in another worker,
that one takes the partition over: fence, sentinel, read. The first batch, in which every partition is taken, is left
out. The share is of the time of all cores during the batches.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from lab import EXACTLY_ONCE, lab
from record import recording
from sinkpipeline.core.batch import Receipt
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.delivery import SinkDelivery

CORES = 2


@dataclass
class Batches:
    """What the driver was told, batch by batch."""

    told: list[tuple[float, list[Receipt]]] = field(default_factory=list)
    """Seconds, receipts."""

    def listen(self) -> None:
        begin, end = SinkDelivery.begin, SinkDelivery.end
        began = 0.0

        def timed_begin(delivery: SinkDelivery, *arguments: object) -> BatchPlan:
            nonlocal began
            began = time.monotonic()
            return begin(delivery, *arguments)  # type: ignore[arg-type]

        def timed_end(delivery: SinkDelivery, plan: BatchPlan, receipts: Iterable[Receipt]) -> None:
            receipts = list(receipts)
            end(delivery, plan, receipts)
            self.told.append((time.monotonic() - began, receipts))

        SinkDelivery.begin, SinkDelivery.end = timed_begin, timed_end  # type: ignore[method-assign, assignment]


def main() -> None:
    parser = argparse.ArgumentParser(prog="moves", description=__doc__.splitlines()[0])
    parser.add_argument("--master", nargs="+", default=["local[2]", "local-cluster[2,1,1024]"])
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 200_000], help="of a batch")
    parser.add_argument("--partitions", type=int, nargs="+", default=[4, 64])
    arguments = parser.parse_args()
    batches = Batches()
    batches.listen()
    trigger = {"interval": "0s"}
    rows = []
    with recording("moves", arguments) as record:
        for master in arguments.master:
            for partitions in arguments.partitions:
                for size in arguments.rows:
                    at_most = {**trigger, "maxOffsetsPerTrigger": size}
                    with lab(master, record, trigger=at_most, small_offsets=0) as bench:
                        bench.fill(size * arguments.batches, partitions)
                        batches.told.clear()
                        bench.drain(EXACTLY_ONCE)
                    told = batches.told[1:]
                    cells = (master, str(partitions), f"{size:,}", *_cells(told))
                    print("  ", *cells, flush=True)
                    rows.append(cells)
                    spent = [1000 * seconds for seconds, _ in told]
                    group = f"{partitions} partitions, {size:,} rows"
                    record.bar("a batch that tasks deliver", "ms", group, master, spent)
        columns = ("master", "partitions", "rows a batch", "tasks", "moved", "ms a move", "p90", "ms a batch", "share")
        record.table("partitions that moved to another Python worker", columns, rows)


def _cells(told: list[tuple[float, list[Receipt]]]) -> list[str]:
    tasks = [receipt for _, receipts in told for receipt in receipts if receipt.partition is not None]
    costs = [1000 * receipt.claiming_s for receipt in tasks if receipt.claims]
    seconds = sum(each for each, _ in told)
    return [
        f"{len(tasks):,}",
        f"{len(costs) / len(tasks):.0%}",
        f"{statistics.median(costs):.0f}" if costs else "-",
        f"{statistics.quantiles(costs, n=10)[8]:.0f}" if len(costs) > 1 else "-",
        f"{1000 * seconds / len(told):.0f}",
        f"{sum(costs) / 1000 / (CORES * seconds):.0%}",
    ]


if __name__ == "__main__":
    main()
