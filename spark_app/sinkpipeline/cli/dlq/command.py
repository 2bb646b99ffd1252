"""The commands of `sinkpipeline dlq`, and their arguments; what they do is imported when they run (`cli/main.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sinkpipeline.cli.options import CONFIG_MAPS, FILE, JARS, OUTPUT, SECRETS, help_without_command
from sinkpipeline.core.deadletter import ErrorClass, Stage

if TYPE_CHECKING:
    from sinkpipeline.cli.dlq.redriving import How
    from sinkpipeline.cli.dlq.selection import Filters

_CLASSES = [each.value for each in ErrorClass]
_STAGES = [each.value for each in Stage]
_SINK = click.option("--sink", help="The sink's name; needed if several sinks have dead letters.")
_MOMENT = "a time such as 2026-11-22T08:00:00Z, or how long ago: 90m"


def _filters(command: Callable[..., None]) -> Callable[..., None]:
    """Gives the command its options that choose letters as one argument, `filters`."""

    @functools.wraps(command)
    def filtered(
        stages: tuple[str, ...], classes: tuple[str, ...], since: str | None, until: str | None, **more: Any
    ) -> None:
        from sinkpipeline.cli.dlq.selection import Filters  # noqa: PLC0415 - see above

        command(filters=Filters(stages=stages, classes=classes, since=since, until=until), **more)

    for option in (
        click.option("--until", metavar="TIME", help="Only letters written before this time: likewise."),
        click.option("--since", metavar="TIME", help=f"Only letters written since this time: {_MOMENT}."),
        click.option(
            "--class", "classes", multiple=True, type=click.Choice(_CLASSES), help="Only letters of this error class."
        ),
        click.option(
            "--stage",
            "stages",
            multiple=True,
            type=click.Choice(_STAGES),
            help="Only letters that failed at this stage.",
        ),
    ):
        option(filtered)
    return filtered


def _how(command: Callable[..., None]) -> Callable[..., None]:
    """Likewise `how`."""

    @functools.wraps(command)
    def given(to: str, rate: float | None, *, dry_run: bool, **more: Any) -> None:
        from sinkpipeline.cli.dlq.redriving import How  # noqa: PLC0415 - see above

        of_how = {name: more.pop(name) for name in ("output", "log_file", "config_maps_dir", "jars")}
        how = How(rate=rate, dry_run=dry_run, to_source=to == "source", **of_how)
        command(how=how, **more)

    for option in (
        OUTPUT,
        CONFIG_MAPS,
        click.option("--log-file", type=click.Path(path_type=Path, dir_okay=False), help="Spark's log."),
        JARS,
        click.option("--dry-run", is_flag=True, help="Show what is pending, and deliver nothing."),
        click.option(
            "--to",
            type=click.Choice(["data", "source"]),
            default="data",
            show_default=True,
            help="data: as rows into the sink's topic or table. source: as they were, back into their source topic.",
        ),
        click.option(
            "--rate", type=click.FloatRange(0, min_open=True), help="Redrive at most this many letters a second."
        ),
    ):
        option(given)
    return given


@click.group(invoke_without_command=True)
@click.pass_context
def dlq(context: click.Context) -> None:
    """Look at dead letters, redrive them, delete them."""
    help_without_command(context)


@dlq.command("list", short_help="List dead letters.")
@FILE
@SECRETS
@click.option("--sink", help="Only this sink's.")
@_filters
@click.option(
    "--state",
    type=click.Choice(["pending", "redriven", "all"]),
    default="all",
    show_default=True,
    help="Only letters that are pending, or that were redriven.",
)
@click.option(
    "--limit", type=click.IntRange(0), default=1000, show_default=True, help="List this many of the oldest; 0: all."
)
@OUTPUT
def _list(
    manifest: Path,
    secrets_dir: Path | None,
    sink: str | None,
    filters: Filters,
    state: str,
    limit: int,
    output: str,
) -> None:
    """List dead letters, oldest first, and what became of them; never what is in them."""
    from sinkpipeline.cli.dlq.listing import list_letters  # noqa: PLC0415 - see above

    list_letters(manifest, secrets_dir, sink, filters, state, limit, output)


@dlq.command(short_help="Show one dead letter with its payload.")
@FILE
@SECRETS
@_SINK
@click.option("--raw", is_flag=True, help="Write only the bytes of the value, as they are.")
@OUTPUT
@click.argument("letter_id", metavar="ID")
def show(manifest: Path, secrets_dir: Path | None, sink: str | None, output: str, letter_id: str, *, raw: bool) -> None:
    """Show one dead letter: what happened to it, and its headers, key and value."""
    from sinkpipeline.cli.dlq.showing import show_letter  # noqa: PLC0415 - see above

    show_letter(manifest, secrets_dir, sink, letter_id, output, raw=raw)


@dlq.command(short_help="Deliver pending dead letters.")
@FILE
@SECRETS
@_SINK
@_filters
@_how
@click.argument("ids", metavar="[ID]...", nargs=-1)
def redrive(
    manifest: Path,
    secrets_dir: Path | None,
    sink: str | None,
    filters: Filters,
    how: How,
    ids: tuple[str, ...],
) -> None:
    """Deliver the pending dead letters of a sink, each once: all of them, those that a filter chooses, or by id.

    Each goes through decode and transform of this manifest. If it fails again, it becomes a new dead letter, which a
    later redrive can take. If this command is killed, or stopped by SIGTERM or Ctrl-C, call it again: it goes on where
    it was, and delivers nothing twice. The pipeline may run meanwhile.
    """
    from sinkpipeline.cli.dlq.redriving import redrive_letters  # noqa: PLC0415 - see above

    redrive_letters(manifest, secrets_dir, sink, ids, filters, how)


@dlq.command(short_help="Delete dead letters for good.")
@FILE
@SECRETS
@_SINK
@click.option(
    "--before-offset",
    "before",
    multiple=True,
    metavar="PARTITION:OFFSET",
    help="Delete every letter before this offset in its partition, pending ones too.",
)
@click.option(
    "--until", metavar="TIME", help=f"Delete every letter written before this time, pending ones too: {_MOMENT}."
)
@click.option("--redriven", is_flag=True, help="Delete everything before the first pending letter.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
def purge(
    manifest: Path,
    secrets_dir: Path | None,
    sink: str | None,
    before: tuple[str, ...],
    until: str | None,
    *,
    redriven: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Delete the beginning of a dead-letter topic for good, with the letters of every sink that shares it.

    Give one bound. Shows what would be deleted, and asks.
    """
    from sinkpipeline.cli.dlq.purging import UpTo, purge_letters  # noqa: PLC0415 - see above

    up_to = UpTo(before=before, until=until, redriven=redriven)
    purge_letters(manifest, secrets_dir, sink, up_to, yes=yes, dry_run=dry_run)
