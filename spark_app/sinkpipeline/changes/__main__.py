"""`python -m sinkpipeline.changes FILE`: one life of a stage, for its driver. Its receipts are on standard output.

SIGTERM ends it cleanly: what is open is committed if that may be cut, and what is not is read again by the next life.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path

from sinkpipeline.changes import receipts
from sinkpipeline.changes.receipts import DriverGone
from sinkpipeline.changes.settings import StageSettings, read
from sinkpipeline.changes.stage import Stage
from sinkpipeline.core.errors import ExitCode, Reason, SinkPipelineError

_LOG = logging.getLogger("sinkpipeline.changes")


def main(arguments: list[str]) -> int:
    """The exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _live(arguments, stop)
    except DriverGone:
        _LOG.info("the driver is gone")
        return ExitCode.FAILED


def _live(arguments: list[str], stop: threading.Event) -> int:
    try:
        Stage(_settings(arguments), receipts.to_stdout, stop).run()
    except SinkPipelineError as error:
        _LOG.error("%s", error)
        told = error
    except DriverGone:
        raise
    except Exception as error:  # noqa: BLE001 - the driver is to be told of a bug too
        _LOG.error("a bug", exc_info=error)
        told = SinkPipelineError(Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}", "report it with the log")
    else:
        return ExitCode.DONE
    receipts.failed(receipts.to_stdout, told)
    return told.reason.exit_code


def _settings(arguments: list[str]) -> StageSettings:
    if len(arguments) != 1:
        raise SinkPipelineError(
            Reason.USAGE_INVALID, "one argument is wanted: the file of the settings", "let a driver start the stage"
        )
    return read(Path(arguments[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
