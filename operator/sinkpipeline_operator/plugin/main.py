"""`kubectl sinkpipeline`: its commands, exit codes, and the last line on stderr."""

from __future__ import annotations

import sys

import click

from sinkpipeline_operator.plugin import deciding, seeing, steering
from sinkpipeline_operator.plugin.failure import FAILED, USAGE, Failure
from sinkpipeline_operator.plugin.options import reach
from sinkpipeline_operator.plugin.say import say


@click.group(
    name="kubectl sinkpipeline", context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True
)
@click.version_option(package_name="sinkpipeline-operator")
@reach
@click.pass_context
def cli(context: click.Context, /, **_: str | None) -> None:
    """See and steer SinkPipelines: rows out of Kafka streams, exactly once."""
    if context.invoked_subcommand is None:
        say(context.get_help())


for _command in (seeing.status, seeing.progress, seeing.logs, steering.suspend, steering.resume, steering.restart):
    cli.add_command(_command)
cli.add_command(deciding.reset)
cli.add_command(deciding.dlq)


def main() -> None:
    """Whatever fails ends with the line `REASON: message (remedy)` on stderr, and its exit code."""
    try:
        cli.main(prog_name="kubectl sinkpipeline", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(FAILED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILED)
    except click.UsageError as error:
        _end(Failure("UsageInvalid", error.format_message(), "see --help"), USAGE)
    except Exception as error:  # noqa: BLE001 - the last resort
        from sinkpipeline_operator.plugin.refusal import failure  # noqa: PLC0415 - for failures only

        _end(failure(error), FAILED)


def _end(failure: Failure, code: int) -> None:
    say(str(failure), err=True)
    sys.exit(code)


# --- completion ---


_NO_FILES = ":4"
"""Cobra's directive: nothing of the folder completes it."""


def complete() -> None:
    """`kubectl_complete-sinkpipeline`: kubectl runs it with the words so far, and reads a line for each that fits."""
    from click.shell_completion import ShellComplete  # noqa: PLC0415 - for the shell only

    *words, incomplete = sys.argv[1:] or [""]
    # Cobra takes `--option=`; so does click.
    for each in ShellComplete(cli, {}, "kubectl sinkpipeline", "").get_completions(words, incomplete):
        say(f"{each.value}\t{each.help}" if each.help else each.value)
    say(_NO_FILES)
