"""The `sinkpipeline` command: arguments, exit codes, and the last line on stderr.

What a command does is imported when it runs: a shell asks for completions at each press of a key, and Spark alone takes
half a second.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from sinkpipeline.cli.dlq.command import dlq
from sinkpipeline.cli.options import CONFIG_MAPS, FILE, JARS, OUTPUT, SECRETS, help_without_command
from sinkpipeline.cli.say import say
from sinkpipeline.core.errors import ExitCode, SinkPipelineError


def check_master(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(
        r"local(\[(\*|[1-9][0-9]*)(,[0-9]+)?\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+", value
    ):
        raise click.BadParameter(f"{value!r} is no Spark master such as local[*] or local[2]")
    return value


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="sinkpipeline")
@click.pass_context
def cli(context: click.Context) -> None:
    """Deliver Kafka records exactly once, with Spark.

    Exit codes: 0 done; 1 failed; 2 the manifest or its expressions are wrong; 3 refused, because something outside of
    the manifest is not as it must be, or every sink's circuit is open; 4 superseded by a newer run or a reset.
    """
    help_without_command(context)


@cli.command(short_help="Check a manifest; change nothing.")
@FILE
@SECRETS
@CONFIG_MAPS
@JARS
@click.option("--offline", is_flag=True, help="Check manifest and expressions only; connect to no broker.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: all problems as one document, each with path, message and remedy.",
)
def validate(
    manifest: Path,
    secrets_dir: Path | None,
    config_maps_dir: Path | None,
    output: str,
    jars: tuple[str, ...],
    *,
    offline: bool,
) -> None:
    """Check a manifest, its expressions and what it finds on the brokers; change nothing."""
    from sinkpipeline.cli import validate as validate_command  # noqa: PLC0415 - see above

    validate_command.validate(
        manifest, secrets_dir, output, config_maps_dir=config_maps_dir, jars=jars, offline=offline
    )


@cli.command(short_help="Show rows as they would be written; write nothing.")
@FILE
@SECRETS
@CONFIG_MAPS
@JARS
@click.option("--sink", help="The sink's name; needed if there are several sinks.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Show at most this many rows."
)
@click.option(
    "--from",
    "begin",
    multiple=True,
    metavar="earliest|TIME|OFFSETS",
    help="Where to begin, written as for --to of `reset`; by default where the sink would go on.",
)
@OUTPUT
def preview(**options: Any) -> None:
    """Show rows as they would be written, and records that would be dead letters.

    Of a row it shows key, value, headers, timestamp and partition, or the columns of a table. It creates no topic and
    no consumer group, and changes no progress.
    """
    from sinkpipeline.cli import preview as preview_command  # noqa: PLC0415 - see above

    preview_command.preview(preview_command.Request(**options))


@cli.command(short_help="Run a pipeline on this machine.")
@FILE
@SECRETS
@CONFIG_MAPS
@JARS
@click.option("--until-idle", is_flag=True, help="End with 0 once everything is delivered that is in the source now.")
@click.option(
    "--status-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the status in this file. If the progress topic is lost, the next run restores it from the file.",
)
@click.option("--master", default="local[*]", show_default=True, callback=check_master, help="Spark's master.")
@click.option(
    "--log-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Spark's log; by default in the user's log folder.",
)
def run(
    manifest: Path,
    secrets_dir: Path | None,
    config_maps_dir: Path | None,
    status_file: Path | None,
    master: str,
    log_file: Path | None,
    jars: tuple[str, ...],
    *,
    until_idle: bool,
) -> None:
    """Run a pipeline with Spark on this machine, until it is stopped (SIGTERM, Ctrl-C) or idle."""
    from sinkpipeline.cli import run as run_command  # noqa: PLC0415 - see above

    run_command.run(
        manifest,
        secrets_dir,
        status_file,
        master,
        log_file,
        config_maps_dir=config_maps_dir,
        jars=jars,
        until_idle=until_idle,
    )


@cli.command(short_help="Show frontier, lag and counts.")
@FILE
@SECRETS
@OUTPUT
@click.option("--sink", help="Only this sink's.")
@click.option(
    "--status-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A run's status file: also say on stderr whether that run still goes on.",
)
@click.option("-w", "--watch", is_flag=True, help="Show it again every two seconds, with rates.")
def progress(
    manifest: Path, secrets_dir: Path | None, output: str, sink: str | None, status_file: Path | None, *, watch: bool
) -> None:
    """Show frontier, lag and counts of every sink and partition, read from the progress; also while nothing runs."""
    from sinkpipeline.cli import progress as progress_command  # noqa: PLC0415 - see above

    progress_command.progress(manifest, secrets_dir, output, status_file, sink, watch=watch)


@cli.command(short_help="Set where a sink goes on: deliver again, or skip.")
@FILE
@SECRETS
@click.option("--sink", required=True, help="The sink's name.")
@click.option(
    "--to",
    multiple=True,
    metavar="earliest|latest|TIME|OFFSETS",
    help="Where it goes on: earliest, latest, a time such as 2026-01-01T00:00:00Z, or a list of TOPIC=earliest|latest|"
    "TIME and TOPIC:PARTITION=OFFSET. The narrowest entry that fits a partition decides. A partition that no entry "
    "fits stays where it is.",
)
@click.option(
    "--to-checkpoint",
    metavar="DIR",
    help="Go on after the last committed batch of this checkpoint of Spark; a TOPIC:PARTITION of --to overrules it.",
)
@click.option(
    "--to-group",
    metavar="NAME",
    help="Go on at the offsets of this consumer group, which must have no members; a TOPIC:PARTITION of --to overrules "
    "it.",
)
@click.option(
    "--status-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The status file of an earlier run, for a sink whose progress is gone. The reset does not change it.",
)
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@OUTPUT
def reset(**options: Any) -> None:
    """Set where a sink goes on: back, so that records are delivered again, or ahead, so that some are skipped for good.

    Shows what it would do, asks, and does exactly that or nothing. A driver that runs ends with exit code 4. A reset
    also repairs a sink that refuses to start: DataTopicLost, SourceRecreated, SourceDataLost, ProgressLost,
    ProgressCorrupt, ProgressRegressed.
    """
    from sinkpipeline.cli import reset as reset_command  # noqa: PLC0415 - see above

    reset_command.reset(reset_command.Request(**options))


cli.add_command(dlq)


def main() -> None:
    """Runs the command; whatever fails ends with the line `REASON: message (remedy)` on stderr, and its exit code."""
    # Without a handler the Kafka client's chatter would reach stderr; `run` sends it to its log file.
    logging.getLogger("sinkpipeline.kafka").addHandler(logging.NullHandler())
    try:
        cli.main(standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(ExitCode.FAILED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(ExitCode.FAILED)
    except Exception as error:  # noqa: BLE001 - the last resort; the class is told, the stack is in the log
        from sinkpipeline.cli.endings import told  # noqa: PLC0415 - see above

        _fail(told(error))


def _fail(error: SinkPipelineError) -> None:
    from sinkpipeline.cli.endings import lines  # noqa: PLC0415 - see above

    try:
        say("\n".join(lines(error)), err=True)
    except OSError:
        # Nobody listens. The exit code still tells, which a failing flush at the end would overrule.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(error.reason.exit_code)
