"""What a stream of NATS, and one of Redis or Valkey, costs: rows a second, and CPU for each row.

`make bench-cells`, or
`PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m cells [--batch ROWS ... --batches N ... --rounds N]`

A backlog is delivered in batches of so many rows, back to back, into a new stream; all are exactly once. The variants
take turns, in another order in each round, on one broker, one server of each variant and one JVM; a round that warms up
is not counted. The servers differ in when they acknowledge:

- as they come: NATS once its system has the rows (`sync_interval` of two minutes), Valkey once its log has them, which
  it writes to the disk once a second (`appendfsync everysec`)
- on the disk: NATS with `sync_interval: always`, Valkey with `appendfsync always` and `acknowledge: {fsync: true}`

A topic by `ExactlyOnce` stands beside them, whose small batches are those of tasks too. After each stretch a client of
the server counts its rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import override

from lab import EXACTLY_ONCE, Stretch, laboratory
from record import Record, recording
from server_lab import PARTITIONS, Found, ServerLab, command_line, measure
from servers.local_server import LocalServer
from servers.nats import LocalNats
from servers.redis import LocalRedis
from support.app.command import manifest
from support.app.stream_kinds import NATS, REDIS, StreamKind
from support.kafka.topics import unique

TOPIC: Final = "a topic"
PARTS: Final = ("broker", "server", "jvm", "driver", "workers")


@dataclass(frozen=True)
class Variant:
    """A server, and a sink of it."""

    kind: StreamKind
    server: LocalServer
    settings: Mapping[str, Any]
    """Of the server: those that are no defaults."""
    sink: Mapping[str, Any]
    """More of the manifest's part for the kind."""


@dataclass(kw_only=True)
class Cells(ServerLab):
    """A laboratory with servers of streams."""

    variants: Mapping[str, Variant]
    _name: str = ""
    """Of the stream of the next stretch."""

    @override
    def drain(self, variant: str) -> Stretch:
        if variant == TOPIC:
            self.label = f"{TOPIC}, batches of {self.trigger['maxOffsetsPerTrigger']:,}"
            return self._our_drain(EXACTLY_ONCE)
        used = self.variants[variant]
        self._name = unique("bench")
        stretch = self._ours(variant)
        found = used.kind.count(used.server.address, self._name)
        if found != stretch.rows:
            raise AssertionError(f"{variant}: {found:,} rows in the stream, and not {stretch.rows:,}")
        used.kind.remove(used.server.address, self._name)
        return stretch

    @override
    def document(self, variant: str, *, told: bool = False) -> dict[str, Any]:
        used, name = self.variants[variant], "any" if told else self._name
        sink = used.kind.sink(used.server.address, name)
        sink[used.kind.name] |= used.sink
        return manifest(
            self.kafka.bootstrap_servers, name, [self.source], trigger=dict(self.trigger), spark={}, sinks=[sink]
        )

    @override
    def server_settings(self, variant: str) -> Mapping[str, Any]:
        return self.variants[variant].settings


def variants_of(servers: ExitStack) -> dict[str, Variant]:
    """Each with a server that runs until the stack ends."""
    everysec = {"appendonly": "yes", "appendfsync": "everysec"}
    always = {**everysec, "appendfsync": "always"}
    on_disk = {"sync_interval": "always"}
    return {
        "NATS": Variant(NATS, servers.enter_context(LocalNats()), {}, {}),
        "NATS, on the disk": Variant(
            NATS, servers.enter_context(LocalNats(settings={"jetstream": on_disk})), on_disk, {}
        ),
        "Valkey": Variant(REDIS, servers.enter_context(LocalRedis(settings=everysec)), everysec, {}),
        "Valkey, on the disk": Variant(
            REDIS, servers.enter_context(LocalRedis(settings=always)), always, {"acknowledge": {"fsync": True}}
        ),
    }


def show(record: Record, title: str, batches: int, found: Found, group: str) -> None:
    rows = []
    for variant, stretches in found.items():
        times = [each.seconds * 1000 / batches for each in stretches]
        record.bar("a batch into a stream", "ms", group, variant, times)
        rates = [each.rate for each in stretches]
        cpu = {part: statistics.median(_us(each, part) for each in stretches) for part in PARTS}
        rows.append(
            (
                variant,
                f"{statistics.median(times):,.0f} ({min(times):,.0f} to {max(times):,.0f})",
                f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
                *(f"{cpu[part]:,.1f}" for part in PARTS),
                f"{sum(cpu.values()):,.1f}",
            )
        )
    record.table(title, ("variant", "ms a batch", "rows/s", *PARTS, "CPU a row"), rows)


def _us(stretch: Stretch, part: str) -> float:
    """CPU microseconds of a row."""
    return stretch.cpu_s[part] * 1e6 / stretch.rows


def main() -> None:
    arguments, sizes = command_line("cells", __doc__.splitlines()[0])
    with recording("cells", arguments) as record, ExitStack() as servers:
        variants = variants_of(servers)
        bench = servers.enter_context(
            laboratory(
                Cells,
                arguments.master,
                record,
                None,
                variants=variants,
                servers=[each.server for each in variants.values()],
                small_offsets=0,
            )
        )
        for batch, found in measure(bench, [TOPIC, *variants], sizes, arguments.rounds).items():
            title = (
                f"batches of {batch:,} rows, {PARTITIONS} partitions, {arguments.master}: medians of {arguments.rounds}"
            )
            show(record, title, sizes[batch], found, f"{batch:,} rows, {arguments.master}")
        record.line(f"{', '.join(PARTS)}, CPU a row: CPU microseconds of a row, medians")


if __name__ == "__main__":
    main()
