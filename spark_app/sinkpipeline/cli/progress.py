"""`sinkpipeline progress`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from pydantic.alias_generators import to_camel

from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.reset import find_sink, some_sinks
from sinkpipeline.cli.say import say
from sinkpipeline.cli.status_file import Here, read_status, who_writes
from sinkpipeline.cli.tables import table, terminal_width
from sinkpipeline.core.durability import Durability, tier
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest.sinks import DeliveryGuarantee
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import between
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.status import timestamp
from sinkpipeline.core.tally import checked, dead_of, dropped_of, entries, total
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.source.views import view_source
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.looking import preflight
from sinkpipeline.kinds.resolve import SinkSettings, resolve_sinks

_WATCH_S = 2.0
Errors = Mapping[str, SinkPipelineError]
_COLUMNS = ("sink", "topic", "partition", "next", "end", "lag", "rows", "dead", "dropped", "lost", "at")
_TEXTS = ("sink", "topic", "at")


@dataclass(frozen=True)
class _Line:
    sink: str
    topic: str
    partition: int
    next: int
    end: int | None
    """None where the source no longer has the partition."""
    lag: int | None
    rows: int
    dead: int
    dropped: int
    lost: int
    at: str
    guarantee: str
    durability: str | None
    """None where it is not known, and of AtLeastOnce."""
    dead_by_class: dict[str, int]
    dropped_by_class: dict[str, int]


def progress(
    manifest: Path,
    secrets_dir: Path | None,
    output: str,
    status_file: Path | None = None,
    only: str | None = None,
    *,
    watch: bool = False,
) -> None:
    """`only`: of one sink. `watch`: again and again, until somebody ends it."""
    if status_file is not None and (writer := who_writes(read_status(status_file), status_file, Here.and_now())):
        say(writer, err=True)
    sinks = some_sinks(resolve_sinks(read_manifest(manifest), secrets_dir))
    if only is not None:
        sinks = [find_sink(sinks, only)]
    preflight(sinks)
    rates = Rates()
    while True:
        lines, errors = _all_lines(sinks)
        text = _told(sinks, lines, errors) if output == "table" else _for_programs(sinks, lines, errors)
        if watch and output == "table":
            text += "".join(f"\n{rate}" for rate in rates.of(sinks, lines))
        if watch and sys.stdout.isatty():
            click.clear()
        say(text)
        if not watch:
            if errors:
                raise next(iter(errors.values()))
            return
        time.sleep(_WATCH_S)


def _all_lines(sinks: Sequence[SinkSettings]) -> tuple[list[_Line], dict[str, SinkPipelineError]]:
    """Those of the sinks that could be read, and by name why others could not; raises where none could."""
    lines: list[_Line] = []
    errors: dict[str, SinkPipelineError] = {}
    for sink in sinks:
        try:
            lines += _lines(sink)
        except SinkPipelineError as error:
            errors[sink.id.sink] = error
            if len(errors) == len(sinks):
                raise
    return lines, errors


def _for_programs(sinks: Sequence[SinkSettings], lines: Sequence[_Line], errors: Errors) -> str:
    told = [_document(line) for line in lines]
    others = ({"sink": name, **_why(errors.get(name))} for name in _without(sinks, lines))
    return json.dumps([*told, *others], indent=2)


def _why(error: SinkPipelineError | None) -> dict[str, object]:
    return {} if error is None else {"error": error.to_dict()}


def _told(sinks: Sequence[SinkSettings], lines: Sequence[_Line], errors: Errors) -> str:
    width = terminal_width()
    rows = [["-" if (value := getattr(line, name)) is None else str(value) for name in _COLUMNS] for line in lines]
    parts = [table(_COLUMNS, rows, right=set(_COLUMNS) - set(_TEXTS), heads=3, width=width)] if rows else []
    classes = _by_class(lines)
    if classes:
        names = ("sink", "stage", "class", "dead", "dropped")
        parts += ["", table(names, classes, right=("dead", "dropped"), heads=3, width=width)]
    tiers = {
        line.sink: tier({name: value for name, value in _document(line).items() if value is not None}) for line in lines
    }
    parts += ["", *(f"sink {name}: {told}" for name, told in tiers.items())] if tiers else []
    parts += [
        f"sink {name}: {errors[name]}" if name in errors else f"sink {name} has no progress yet"
        for name in _without(sinks, lines)
    ]
    return "\n".join(parts)


class Rates:
    """Rows a second of each sink, from one look to the next."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: dict[str, tuple[float, int]] = {}

    def of(self, sinks: Sequence[SinkSettings], lines: Sequence[_Line]) -> Iterator[str]:
        for sink in sinks:
            name, now = sink.id.sink, self._clock()
            rows = sum(line.rows for line in lines if line.sink == name)
            at, before = self._before.get(name, (now, rows))
            self._before[name] = (now, rows)
            if now > at:
                # A reset begins to count anew.
                yield f"sink {name}: {max(0, rows - before) / (now - at):,.0f} rows/s"


def _without(sinks: Sequence[SinkSettings], lines: Sequence[_Line]) -> list[str]:
    """The sinks that have no progress."""
    return [sink.id.sink for sink in sinks if not any(line.sink == sink.id.sink for line in lines)]


def _document(line: _Line) -> dict[str, object]:
    """Named as the status names things."""
    return {to_camel(name): value for name, value in asdict(line).items()}


def _by_class(lines: Sequence[_Line]) -> list[list[str]]:
    """Why records could not be delivered; empty where all could."""
    rows: list[list[str]] = []
    for sink in dict.fromkeys(line.sink for line in lines):
        of_sink = [line for line in lines if line.sink == sink]
        counts = total(checked(line.dead_by_class, line.dropped_by_class) for line in of_sink)
        rows += (
            [sink, each["stage"], each["class"], str(each["count"]), str(each["dropped"])] for each in entries(counts)
        )
    return rows


def _lines(sink: SinkSettings) -> list[_Line]:
    found, durability = _read(sink)
    ends = _ends(sink)
    guarantee = DeliveryGuarantee.EXACTLY_ONCE if sink.exactly_once else DeliveryGuarantee.AT_LEAST_ONCE
    return [
        _Line(
            sink=sink.id.sink,
            topic=partition.topic,
            partition=partition.partition,
            next=state.next,
            end=ends.get(partition),
            lag=None if partition not in ends else between(state.next, ends[partition]),
            rows=state.rows,
            dead=state.dead,
            dropped=state.dropped,
            lost=state.lost,
            at=timestamp(state.at),
            guarantee=guarantee.value,
            durability=None if durability is None else durability.value,
            dead_by_class=dead_of(state.by_class),
            dropped_by_class=dropped_of(state.by_class),
        )
        for partition, state in sorted(found.partitions.items())
    ]


def _ends(sink: SinkSettings) -> Mapping[SourcePartition, int]:
    """The source's end offsets; none where a topic of it is missing, as the frontier is worth showing all the same."""
    try:
        return view_source(sink.source, Admin(sink.source.connection)).ends
    except SinkPipelineError as error:
        if error.reason is not Reason.SOURCE_TOPIC_MISSING:
            raise
        say(str(error), err=True)
        return {}


def _read(sink: SinkSettings) -> tuple[Progress, Durability | None]:
    with Clients() as clients:
        ports = clients.ports(sink)
        place = ports.ledger.place()
        progress, durability = Progress() if place is None else ports.ledger.decide(place), None
        # The progress is worth showing all the same.
        with suppress(SinkPipelineError):
            durability = ports.target.durability()
        return progress, durability
