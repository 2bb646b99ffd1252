"""`sinkpipeline progress`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.table import Table

from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.reset import find_sink
from sinkpipeline.cli.status_file import Here, read_status, who_writes
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.status import timestamp
from sinkpipeline.core.tally import checked, dead_of, dropped_of, entries, total
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.purify import preflight
from sinkpipeline.kafka.resolve import resolve_sinks
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.views import describe, view_source

_PIPED_WIDTH = 250
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
    dead_by_class: dict[str, int]
    dropped_by_class: dict[str, int]


def progress(
    manifest: Path, secrets_dir: Path | None, output: str, status_file: Path | None = None, only: str | None = None
) -> None:
    """`only`: of one sink."""
    if status_file is not None and (writer := who_writes(read_status(status_file), status_file, Here.and_now())):
        click.echo(writer, err=True)
    sinks = resolve_sinks(read_manifest(manifest), secrets_dir)
    if only is not None:
        sinks = [find_sink(sinks, only)]
    preflight(sinks)
    lines = [line for sink in sinks for line in _lines(sink)]
    if output == "json":
        told = [_document(line) for line in lines]
        told += [{"sink": name} for name in _without(sinks, lines)]
        click.echo(json.dumps(told, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name.upper(), justify="left" if name in _TEXTS else "right")
    for line in lines:
        cells = (getattr(line, name) for name in _COLUMNS)
        table.add_row(*("-" if value is None else str(value) for value in cells))
    console = Console()
    # Piped, a table is as wide as it needs to be.
    console = console if console.is_terminal else Console(width=_PIPED_WIDTH)
    console.print(table)
    classes = _by_class(lines)
    if classes.row_count:
        console.print()
        console.print(classes)
    for name in _without(sinks, lines):
        click.echo(f"sink {name} has no progress yet")


def _without(sinks: Sequence[SinkSettings], lines: Sequence[_Line]) -> list[str]:
    """The sinks that have no progress."""
    return [sink.id.sink for sink in sinks if not any(line.sink == sink.id.sink for line in lines)]


def _document(line: _Line) -> dict[str, object]:
    """Named as the status names things."""
    return {to_camel(name): value for name, value in asdict(line).items()}


def _by_class(lines: Sequence[_Line]) -> Table:
    """Why records could not be delivered; without rows where all could."""
    table = Table(box=None, pad_edge=False)
    for name in ("SINK", "STAGE", "CLASS"):
        table.add_column(name)
    for name in ("DEAD", "DROPPED"):
        table.add_column(name, justify="right")
    for sink in dict.fromkeys(line.sink for line in lines):
        of_sink = [line for line in lines if line.sink == sink]
        for each in entries(total(checked(line.dead_by_class, line.dropped_by_class) for line in of_sink)):
            table.add_row(sink, each["stage"], each["class"], str(each["count"]), str(each["dropped"]))
    return table


def _lines(sink: SinkSettings) -> list[_Line]:
    found = _read(sink)
    ends = _ends(sink)
    return [
        _Line(
            sink=sink.id.sink,
            topic=partition.topic,
            partition=partition.partition,
            next=state.next,
            end=ends.get(partition),
            lag=None if partition not in ends else max(0, ends[partition] - state.next),
            rows=state.rows,
            dead=state.dead,
            dropped=state.dropped,
            lost=state.lost,
            at=timestamp(state.at),
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
        click.echo(str(error), err=True)
        return {}


def _read(sink: SinkSettings) -> Progress:
    topic = describe(Admin(sink.connection), sink.progress.name)
    if topic is None:
        return Progress()
    with ProgressLog(sink.connection, sink.progress.name, sink.group_id) as log:
        return log.decide(sink.id)
