"""How a command ends: whatever was raised, as an error with a reason, and as one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from sinkpipeline.cli.manifest_file import NotYaml
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.printable import printable

CUT_SHORT = SinkPipelineError(
    Reason.INTERNAL_ERROR,
    "a second signal ended the run before the running batches had finished",
    "nothing is lost: what was not committed is delivered again",
)


def tell_at_once(error: SinkPipelineError) -> None:
    """As the last line on stderr, from within a signal's handler: what the signal interrupted may be writing there."""
    os.write(sys.stderr.fileno(), f"{printable(one_line(error))}\n".encode())


def told(error: BaseException) -> SinkPipelineError:
    """The error that is told, and that decides the exit code."""
    if isinstance(error, SinkPipelineError):
        return error
    if isinstance(error, click.UsageError):
        return SinkPipelineError(Reason.USAGE_INVALID, error.format_message(), "see --help")
    return SinkPipelineError(
        Reason.INTERNAL_ERROR, f"{type(error).__name__}: {_text(error)}", "please report this with the log file"
    )


def lines(error: SinkPipelineError) -> list[str]:
    """What is told at the end: several problems, or a place in a file, line by line; and the last line."""
    # Of a manifest, or of its expressions, whose class is not asked for: its module brings Spark.
    problems: Sequence[object] = getattr(error, "problems", ())
    if len(problems) > 1:
        count = f"{len(problems)} problems, which the lines above tell"
        return [*map(str, problems), f"{error.reason.value}: {count} ({error.remedy})"]
    if isinstance(error, NotYaml):
        return [*error.snippet.splitlines(), one_line(error)]
    return [one_line(error)]


def one_line(error: SinkPipelineError) -> str:
    return "; ".join(filter(None, map(str.strip, str(error).splitlines())))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - py4j asks a JVM that may be gone for the text
        return "no text"
