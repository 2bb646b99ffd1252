"""A laboratory with servers of sinks, and batches of a given size that are delivered into them one after the other."""

from __future__ import annotations

import abc
import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pyspark
from typing_extensions import override

from lab import Lab, Stretch, cpu_of
from servers.local_server import LocalServer
from sinkpipeline.core.failure import fetch_patience_s
from sinkpipeline.core.manifest import SinkPipeline, parse_manifest
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.spark.runner import SinkRunner
from sinkpipeline.spark.session import plain_files
from sinkpipeline.spark.source import broker_waits_s, source_options

PARTITIONS = 4
Found = dict[str, list[Stretch]]
"""By variant, the stretches of its rounds."""


@dataclass(kw_only=True)
class ServerLab(Lab, abc.ABC):
    """Sinks on servers of their own, whose CPU seconds are counted as `server`."""

    servers: Sequence[LocalServer]

    @abc.abstractmethod
    def document(self, variant: str, *, told: bool = False) -> dict[str, Any]:
        """The manifest of the next stretch; `told`: as the record has it, with names that no two runs differ in."""

    @abc.abstractmethod
    def server_settings(self, variant: str) -> Mapping[str, Any]:
        """Those of its server that are no defaults."""

    def prepare(self, rows: int) -> None:
        """Before stretches of so many rows."""

    def between(self) -> None:
        """So that what the last stretch left to be done is not the next one's."""

    def _ours(self, variant: str) -> Stretch:
        with self._runner(variant) as (runner, ends):
            before = self._start()
            self.until(runner, lambda: runner.reached(ends))
            return self._stretch(*before, sum(ends.values()))

    @contextmanager
    def _runner(self, variant: str) -> Iterator[tuple[SinkRunner, Mapping[SourcePartition, int]]]:
        """Our sink, started; with the source's end offsets."""
        pipeline = parse_manifest(self.document(variant))
        self._set_checkpoint_files(plain_files(pyspark.__version__))
        [settings] = resolve_sinks(pipeline, None)
        self._tell(variant, pipeline, manifest=self.document(variant, told=True))
        with Clients() as clients, self.running(pipeline, settings, clients.later(settings)) as found:
            yield found

    def _tell(self, variant: str, pipeline: SinkPipeline, **more: Mapping[str, Any]) -> None:
        source = resolve_sinks(pipeline, None)[0].source
        assert source is not None
        most = pipeline.spec.trigger.max_offsets_per_trigger
        self.record.ran(
            f"{variant}, batches of {most:,}",
            spark=self.effective_conf(),
            consumer=source_options(source, "bench", {}, most, fetch_patience_s(broker_waits_s(source))),
            server=self.server_settings(variant),
            **more,
        )

    def _start(self) -> tuple[Mapping[str, float], float]:
        return self.cpu(), time.monotonic()

    @override
    def cpu(self) -> dict[str, float]:
        seconds = super().cpu()
        # Of children that have ended the first process knows.
        ended = [psutil.Process(pid).cpu_times() for pid in self._first_processes()]
        seconds["server"] = sum(each.children_user + each.children_system for each in ended)
        for pid in self._processes():
            try:
                seconds["server"] += cpu_of(psutil.Process(pid))
            except psutil.NoSuchProcess:
                continue
        return seconds

    @override
    def _servers(self) -> set[int]:
        return super()._servers() | self._processes()

    def _processes(self) -> set[int]:
        """Those of the servers, as they are now."""
        first = self._first_processes()
        return first | {each.pid for pid in first for each in psutil.Process(pid).children(recursive=True)}

    def _first_processes(self) -> set[int]:
        return {each.pid for each in self.servers if each.pid is not None}


def measure(bench: ServerLab, variants: Sequence[str], sizes: Mapping[int, int], rounds: int) -> dict[int, Found]:
    """By rows of a batch; `sizes`: how many batches of so many rows. A round that warms up is not counted."""
    found: dict[int, Found] = {}
    order = random.Random(1)  # noqa: S311 - no secret
    for batch, batches in sizes.items():
        bench.trigger = {"interval": "0s", "maxOffsetsPerTrigger": batch}
        bench.source = f"source-{batch}"
        bench.fill(batch * batches, PARTITIONS)
        bench.prepare(batch * batches)
        found[batch] = {variant: [] for variant in variants}
        for number in range(rounds + 1):
            for variant in order.sample([*variants], len(variants)):
                bench.between()
                stretch = bench.drain(variant)
                each_ms = stretch.seconds * 1000 / batches
                print(f"  {batch:,} rows, round {number or 'warm-up'}: {variant} {each_ms:,.0f} ms", flush=True)
                if number:
                    found[batch][variant].append(stretch)
    return found


def command_line(prog: str, description: str) -> tuple[argparse.Namespace, dict[int, int]]:
    """The arguments, and how many batches of which sizes they ask for."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--batch", type=int, nargs="+", default=[100, 1_000, 100_000], help="rows")
    parser.add_argument("--batches", type=int, nargs="+", default=[30, 30, 5], help="how many of each")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if len(arguments.batch) != len(arguments.batches):
        parser.error("--batch and --batches belong together: name as many of the one as of the other")
    return arguments, dict(zip(arguments.batch, arguments.batches, strict=True))
