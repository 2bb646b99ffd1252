"""All benchmarks, one after the other, each in a process of its own; then the plots.

`make bench`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m suite [--tiny] [--only NAME ...]`

`--tiny` shows within minutes that all of them work; its figures say nothing. One that fails is told, and the others
go on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Final

import plots

TINY: Final = {
    "throughput": "--rows 20000 --rounds 1 --warm-up 1 --batch 0 --master local[2]",
    "drains": "--rounds 1 --share 0.05 --only bytes",
    "many_sinks": "--sinks 1 2 --batches 3 --rounds 1",
    "top_rate": "--seconds 20",
    "latency": "--batches 3 --rounds 1 --partitions 4 --master local[2] --only cost",
    "dead_letters": "--rows 20000 --rounds 1 --pipeline raw --master local[2]",
    "start": "--rounds 1 --short-lived",
    "resume": "--rounds 2 --records 0 1000",
    "moves": "--batches 3 --rows 100 --partitions 4 --master local[2]",
    "slow_clock": "--rounds 1 --rows 1000 --batches 3",
    "formats": "--rounds 1 --rows 20000",
    "tables": "--rounds 1 --batch 100 --batches 3",
    "cells": "--rounds 1 --batch 100 --batches 3",
    "snapshot": "--rounds 1 --rows 20000",
    "changes": "--rounds 1 --rows 20000",
    "new_schemas": "--rounds 1",
    "operator_scale": "--pipelines 4 --seconds 5 --probes 2",
}
"""The benchmarks, and the least that each can be asked for."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="suite", description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="as few rows as can be; the figures say nothing")
    parser.add_argument("--only", nargs="+", choices=list(TINY), default=list(TINY))
    arguments = parser.parse_args()
    failed = []
    for name in arguments.only:
        began = time.monotonic()
        print(f"== {name}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", name, *(TINY[name].split() if arguments.tiny else ())], check=False
        )
        print(f"== {name}: {time.monotonic() - began:.0f} s, exit code {done.returncode}\n", flush=True)
        if done.returncode:
            failed.append(name)
    plots.main()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
