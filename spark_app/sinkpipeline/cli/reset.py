"""`sinkpipeline reset`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.cli.say import say
from sinkpipeline.cli.status_file import read_status
from sinkpipeline.cli.tables import table, terminal_width
from sinkpipeline.core.asked import epochs, told
from sinkpipeline.core.errors import ExitCode
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.positions import Positions
from sinkpipeline.core.reset import Move, ResetPlan
from sinkpipeline.core.targets import Targets, parse_targets, usage_invalid
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.source.positions import read_checkpoint, read_group
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.looking import preflight
from sinkpipeline.kinds.resolve import SinkSettings, resolve_sinks
from sinkpipeline.sinks.reset import SinkReset


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks for."""

    manifest: Path
    sink: str
    secrets_dir: Path | None = None
    to: Sequence[str] = ()
    to_checkpoint: str | None = None
    to_group: str | None = None
    status_file: Path | None = None
    output: str = "table"
    yes: bool = False
    dry_run: bool = False

    def targets(self) -> Targets:
        """What `to` says.

        Raises:
            SinkPipelineError: UsageInvalid.
        """
        if not self.to and self.to_checkpoint is None and self.to_group is None:
            raise usage_invalid("nothing says where the sink goes on", "give --to, --to-checkpoint or --to-group")
        if self.to_checkpoint is not None and self.to_group is not None:
            raise usage_invalid("--to-checkpoint stands beside --to-group", "give one of them")
        return parse_targets(self.to) if self.to else Targets()

    def positions(self, connection: Connection) -> Positions | None:
        """Where somebody else stands, if it is to go on there; the group is one of that cluster."""
        if self.to_checkpoint is not None:
            return read_checkpoint(self.to_checkpoint)
        return None if self.to_group is None else read_group(self.to_group, connection)


def reset(asked: Request) -> None:
    """Shows the plan, asks, and carries it out. The plan goes to stdout, everything else to stderr."""
    # What is wrong with the arguments is told before anybody is asked for a terminal.
    targets = asked.targets()
    settings = find_sink(resolve_sinks(read_manifest(asked.manifest), asked.secrets_dir), asked.sink)
    if not (asked.yes or asked.dry_run or sys.stdin.isatty()):
        raise usage_invalid(
            "standard input is no terminal, so nobody can be asked whether the sink is to be reset",
            "give --yes to reset it without asking, or --dry-run to see what would be done",
        )
    earlier = None if asked.status_file is None else read_status(asked.status_file)
    preflight([settings])
    with Clients() as clients:
        resetting = SinkReset(
            ports=clients.ports(settings),
            memory=None if earlier is None else memory_of(earlier, settings.id.identity, asked.sink),
        )
        _carry_out(asked, settings, resetting, targets)


def _carry_out(asked: Request, settings: SinkSettings, resetting: SinkReset, targets: Targets) -> None:
    plan = resetting.plan(targets, asked.positions(settings.source.connection))
    _show(plan, asked.output)
    for line in _told(plan, settings):
        say(line, err=True)
    if asked.dry_run:
        say("nothing was changed (--dry-run)", err=True)
        return
    if not asked.yes and not click.confirm(f"Reset sink {asked.sink}?", err=True):
        say("nothing was changed", err=True)
        sys.exit(ExitCode.FAILED)
    resetting.carry_out(plan)
    say(f"sink {asked.sink} was reset and is in epoch {plan.epoch}; its next run goes on from there", err=True)


def some_sinks(sinks: Iterable[SinkSettings]) -> list[SinkSettings]:
    """Raises SinkPipelineError: UsageInvalid where there is none: what a stage has done is in the status alone."""
    found = list(sinks)
    if not found:
        fact = "the manifest has no sinks: a stage writes the change topic, and nobody reads it here"
        raise usage_invalid(fact, "look at `source` in the status, of `sinkpipeline run --status-file FILE`")
    return found


def find_sink(sinks: Iterable[SinkSettings], name: str) -> SinkSettings:
    """Raises SinkPipelineError: UsageInvalid."""
    found = {settings.id.sink: settings for settings in some_sinks(sinks)}
    if name not in found:
        raise usage_invalid(f"the manifest has no sink {name}", f"name one of {', '.join(sorted(found))}")
    return found[name]


def _show(plan: ResetPlan, output: str) -> None:
    lines = [_line(plan, move) for move in plan.moves]
    if output == "json":
        say(json.dumps(lines, indent=2))
        return
    names = ("sink", "topic", "partition", "from", "to", "again", "skipped", "note")
    rows = [["-" if line[name] is None else str(line[name]) for name in names] for line in lines]
    say(table(names, rows, right=names[2:7], heads=3, width=terminal_width()))


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
    yield from plan.told[:1]
    yield from (f"warning: {line}" for line in plan.told[1:])
    yield from told(plan, settings.data.name, exactly_once=settings.exactly_once)
    change = epochs(plan, f"{settings.data.called} {settings.data.name}")
    yield f"{change}; a driver that runs ends with exit code {ExitCode.SUPERSEDED.value}"
