"""`sinkpipeline reset`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.status_file import read_status
from sinkpipeline.cli.tables import table, terminal_width
from sinkpipeline.core.asked import epochs, told
from sinkpipeline.core.errors import ExitCode
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.reset import Move, ResetPlan
from sinkpipeline.core.targets import parse_targets, usage_invalid
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.purify import preflight
from sinkpipeline.kafka.reset import SinkReset
from sinkpipeline.kafka.resolve import resolve_sinks
from sinkpipeline.kafka.settings import SinkSettings


def reset(
    manifest: Path,
    secrets_dir: Path | None,
    sink: str,
    to: Sequence[str],
    status_file: Path | None,
    output: str,
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Shows the plan, asks, and carries it out. The plan goes to stdout, everything else to stderr."""
    # What is wrong with the arguments is told before anybody is asked for a terminal.
    targets = parse_targets(to)
    settings = find_sink(resolve_sinks(read_manifest(manifest), secrets_dir), sink)
    if not (yes or dry_run or sys.stdin.isatty()):
        raise usage_invalid(
            "standard input is no terminal, so nobody can be asked whether the sink is to be reset",
            "give --yes to reset it without asking, or --dry-run to see what would be done",
        )
    earlier = None if status_file is None else read_status(status_file)
    preflight([settings])
    resetting = SinkReset(
        settings=settings,
        source_admin=Admin(settings.source.connection),
        admin=Admin(settings.connection),
        memory=None if earlier is None else memory_of(earlier, settings.id.identity, sink),
    )
    plan = resetting.plan(targets)
    _show(plan, output)
    for line in _told(plan, settings):
        click.echo(line, err=True)
    if dry_run:
        click.echo("nothing was changed (--dry-run)", err=True)
        return
    if not yes and not click.confirm(f"Reset sink {sink}?", err=True):
        click.echo("nothing was changed", err=True)
        sys.exit(ExitCode.FAILED)
    resetting.carry_out(plan)
    click.echo(f"sink {sink} was reset and is in epoch {plan.epoch}; its next run goes on from there", err=True)


def find_sink(sinks: Iterable[SinkSettings], name: str) -> SinkSettings:
    found = {settings.id.sink: settings for settings in sinks}
    if name not in found:
        raise usage_invalid(f"the manifest has no sink {name}", f"name one of {', '.join(sorted(found))}")
    return found[name]


def _show(plan: ResetPlan, output: str) -> None:
    lines = [_line(plan, move) for move in plan.moves]
    if output == "json":
        click.echo(json.dumps(lines, indent=2))
        return
    names = ("sink", "topic", "partition", "from", "to", "again", "skipped", "note")
    rows = [["-" if line[name] is None else str(line[name]) for name in names] for line in lines]
    click.echo(table(names, rows, right=names[2:7], heads=3, width=terminal_width()))


def _line(plan: ResetPlan, move: Move) -> dict[str, str | int | None]:
    return {
        "sink": plan.sink.sink,
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "from": move.old,
        "to": move.new,
        "again": move.again,
        "skipped": move.skipped,
        "note": move.note.value,
    }


def _told(plan: ResetPlan, settings: SinkSettings) -> Iterator[str]:
    """What the table doesn't say, one sentence a line."""
    yield from told(plan, settings.data.name, exactly_once=settings.exactly_once)
    yield (f"{epochs(plan, settings.data.name)}; a driver that runs ends with exit code {ExitCode.SUPERSEDED.value}")
