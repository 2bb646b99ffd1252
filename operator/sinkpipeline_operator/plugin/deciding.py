"""The commands that create a `SinkPipelineAction` (`reset`, `dlq redrive`, `dlq purge`), and `dlq list` and `show`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from sinkpipeline.core.deadletter import ErrorClass, Stage
from sinkpipeline_operator.plugin.failure import FAILED, Failure
from sinkpipeline_operator.plugin.options import DRY_RUN, MOMENT, NAME, SINK, YES, reaching
from sinkpipeline_operator.plugin.say import say

if TYPE_CHECKING:
    from sinkpipeline_operator.plugin.asking import Person
    from sinkpipeline_operator.plugin.work import Work


CLASSES = [each.value for each in ErrorClass]
STAGES = [each.value for each in Stage]


@click.command()
@NAME
@SINK
@click.option(
    "--to",
    required=True,
    multiple=True,
    metavar="earliest|latest|TIME|OFFSETS",
    help="Such as 2026-01-01T00:00:00Z, or orders:0=120,orders:1=latest.",
)
@YES
@DRY_RUN
@reaching
def reset(work: Work, name: str, sink: str, to: tuple[str, ...], *, yes: bool, dry_run: bool) -> None:
    """Set where a sink goes on: deliver again, or skip.

    Shows what it would do, asks, and does exactly that or nothing. The driver is stopped for it, and started again.
    Suspend a busy pipeline first: if it delivers after the preview, nothing is changed, and there is a new preview.
    """
    from sinkpipeline.core.targets import parse_targets  # noqa: PLC0415 - see options.py

    parse_targets(to)
    _ask(work, name, {"sink": sink, "action": "Reset", "to": ",".join(to)}, "Reset the sink?", yes=yes, dry_run=dry_run)


@click.group(invoke_without_command=True)
@click.pass_context
def dlq(context: click.Context) -> None:
    """Look at dead letters, redrive them, delete them."""
    if context.invoked_subcommand is None:
        say(context.get_help())


@dlq.command("list")
@NAME
@click.option("--sink", help="Only this sink's.")
@click.option("--state", type=click.Choice(["pending", "redriven", "all"]), default="all", show_default=True)
@click.option(
    "--limit", type=click.IntRange(0), default=1000, show_default=True, help="List this many of the oldest; 0: all."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@reaching
def dlq_list(work: Work, name: str, sink: str | None, state: str, limit: int, output: str) -> None:
    """List dead letters, oldest first, without contents of records."""
    only = () if sink is None else ("--sink", sink)
    _in_driver(work, name, "dlq", "list", *only, "--state", state, "--limit", str(limit), "-o", output)


@dlq.command()
@NAME
@click.argument("letter", metavar="ID")
@click.option("--sink", help="The sink's name; needed if several sinks have dead letters.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@reaching
def show(work: Work, name: str, letter: str, sink: str | None, output: str) -> None:
    """Show one dead letter with its payload."""
    only = () if sink is None else ("--sink", sink)
    _in_driver(work, name, "dlq", "show", *only, "-o", output, letter)


@dlq.command()
@NAME
@click.argument("ids", metavar="[ID]...", nargs=-1)
@SINK
@click.option(
    "--stage", "stages", multiple=True, type=click.Choice(STAGES), help="Only letters that failed at this stage."
)
@click.option("--class", "classes", multiple=True, type=click.Choice(CLASSES), help="Only letters of this error class.")
@click.option("--since", metavar="TIME", help=f"Only letters written since this time: {MOMENT}.")
@click.option("--until", metavar="TIME", help="Only letters written before this time: likewise.")
@click.option("--to", type=click.Choice(["data", "source"]), default="data", show_default=True)
@click.option("--rate", type=click.IntRange(1), help="Redrive at most this many letters a second.")
@YES
@DRY_RUN
@reaching
def redrive(
    work: Work,
    name: str,
    sink: str,
    to: str,
    rate: int | None,
    *,
    yes: bool,
    dry_run: bool,
    **filters: tuple[str, ...] | str | None,
) -> None:
    """Deliver pending dead letters, each once.

    Without ids and filters: all of them.
    """
    letters = {key: list(value) if isinstance(value, tuple) else value for key, value in filters.items() if value}
    spec: dict[str, Any] = {"sink": sink, "action": "Redrive", "to": to.capitalize()}
    spec |= {"letters": letters} if letters else {}
    spec |= {} if rate is None else {"rate": rate}
    _ask(work, name, spec, "Redrive these letters?", yes=yes, dry_run=dry_run)


@dlq.command()
@NAME
@SINK
@click.option(
    "--before-offset",
    "before",
    multiple=True,
    metavar="PARTITION:OFFSET",
    help="Delete every letter before this offset in its partition, pending ones too.",
)
@click.option(
    "--until", metavar="TIME", help=f"Delete every letter written before this time, pending ones too: {MOMENT}."
)
@click.option("--redriven", is_flag=True, help="Delete everything before the first pending letter.")
@YES
@DRY_RUN
@reaching
def purge(
    work: Work,
    name: str,
    sink: str,
    before: tuple[str, ...],
    until: str | None,
    *,
    redriven: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Delete dead letters for good, from the beginning of the topic.

    Also those of other sinks that share the topic. Shows what would be deleted, and asks.
    """
    bounds = {"redriven": redriven, "until": until, "beforeOffsets": list(before)}
    up_to = {key: value for key, value in bounds.items() if value}
    if len(up_to) != 1:
        raise Failure("UsageInvalid", "name exactly one bound", "give --redriven, --until or --before-offset")
    _ask(
        work,
        name,
        {"sink": sink, "action": "Purge", "upTo": up_to},
        "Delete these letters for good?",
        yes=yes,
        dry_run=dry_run,
    )


def _ask(work: Work, name: str, spec: Mapping[str, Any], question: str, *, yes: bool, dry_run: bool) -> None:
    if not (yes or dry_run or sys.stdin.isatty()):
        raise Failure(
            "UsageInvalid",
            "standard input is no terminal, so nobody can be asked",
            "give --yes to do it without asking, or --dry-run to see what would be done",
        )
    person = _person(question, yes=yes, dry_run=dry_run)
    if not work.ask(name, spec, person) and not dry_run:
        sys.exit(FAILED)


def _person(question: str, *, yes: bool, dry_run: bool) -> Person:
    from sinkpipeline_operator.plugin.asking import Person  # noqa: PLC0415 - see options.py

    return Person(
        tell=lambda line: say(line, err=True),
        agrees=lambda: yes or click.confirm(question, err=True),
        dry_run=dry_run,
    )


def _in_driver(work: Work, name: str, *argv: str) -> None:
    code, printed, told = work.in_driver(name, *argv)
    say(printed, end="")
    say(told, err=True, end="")
    sys.exit(code)
