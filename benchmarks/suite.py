"""All benchmarks, one after the other, each in a process of its own; then the plots.

`make bench`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m suite [--tiny] [--only NAME ...] [--plots PATH]`

Each runs as the figures of `docs/benchmarks.md` were measured. In all that takes hours, one of them at the top rate.
`--tiny` shows within minutes that all of them work; its figures say nothing. One that fails is told, and the others
go on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import plots
from record import STORE


@dataclass(frozen=True)
class Run:
    """A benchmark, and what it is asked for."""

    benchmark: str
    usual: str = ""
    """As in `docs/benchmarks.md`."""
    tiny: str = ""
    """The least that shows that it works."""
    part: str = ""
    """Where a benchmark runs several times: what this one is of. Its record is stored by this name too."""

    @property
    def name(self) -> str:
        return f"{self.benchmark}-{self.part}" if self.part else self.benchmark

    def store(self) -> None:
        """Keeps the record from the next run of the same benchmark."""
        if self.part:
            (STORE / f"{self.benchmark}.json").replace(STORE / f"{self.name}.json")


_COST: Final = "--only cost --batches 3 --rounds 1 --master local[2]"

RUNS: Final = (
    Run(
        "throughput",
        "--rows 2000000 --rounds 4 --batch 0",
        "--rows 20000 --rounds 1 --warm-up 1 --batch 0 --master local[2]",
    ),
    Run("drains", "", "--rounds 1 --share 0.05 --only bytes"),
    Run("latency", "--only cost --batches 30 --rounds 3 --partitions 4 16", f"{_COST} --partitions 4", "batch"),
    Run("latency", "--only cost --batches 15 --rounds 2 --partitions 64", f"{_COST} --partitions 64", "batch-of-64"),
    Run(
        "latency",
        "--only cost --batches 20 --rounds 3 --batch-rows 10000 --partitions 4",
        f"{_COST} --batch-rows 10000 --partitions 4",
        "large-batch",
    ),
    Run(
        "latency",
        "--only visible --rounds 9 --seconds 30 --variants Spark ExactlyOnce --master local-cluster[2,1,1024]",
        "--only visible --rounds 1 --seconds 3 --rates 1000 --variants Spark ExactlyOnce --master local[2]",
        "visible",
    ),
    Run("many_sinks", "--batches 30 --rounds 3", "--sinks 1 2 --batches 3 --rounds 1"),
    Run("top_rate", "", "--seconds 20"),
    Run("dead_letters", "", "--rows 20000 --rounds 1 --pipeline raw --master local[2]"),
    Run("start", "", "--rounds 1 --short-lived"),
    Run("resume", "", "--rounds 2 --records 0 1000"),
    Run("moves", "", "--batches 3 --rows 100 --partitions 4 --master local[2]"),
    Run("slow_clock", "", "--rounds 1 --rows 1000 --batches 3"),
    Run("formats", "", "--rounds 1 --rows 20000"),
    Run("tables", "--rounds 4 --batches 20 20 3", "--rounds 1 --batch 100 --batches 3"),
    Run("cells", "--batch 100 1000 100000 --batches 15 15 2 --rounds 2", "--rounds 1 --batch 100 --batches 3"),
    Run("snapshot", "", "--rounds 1 --rows 20000"),
    Run("changes", "--rounds 3", "--rounds 1 --rows 20000"),
    Run("new_schemas", "", "--rounds 1"),
    Run("operator_scale", "", "--pipelines 4 --seconds 5 --probes 2"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="suite", description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="as few rows as can be; the figures say nothing")
    names = list(dict.fromkeys(name for run in RUNS for name in (run.benchmark, run.name)))
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--plots", type=Path, default=STORE, help="where they are drawn")
    asked = parser.parse_args()
    failed = []
    for run in RUNS:
        if not {run.benchmark, run.name} & set(asked.only):
            continue
        began = time.monotonic()
        options = run.tiny if asked.tiny else run.usual
        print(f"== {run.name}: {run.benchmark} {options}", flush=True)
        done = subprocess.run([sys.executable, "-m", run.benchmark, *options.split()], check=False)
        print(f"== {run.name}: {time.monotonic() - began:.0f} s, exit code {done.returncode}\n", flush=True)
        if done.returncode:
            failed.append(run.name)
        else:
            run.store()
    plots.main(asked.plots)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
