"""What the sinks of a run come to: its exit code, and whether there is work for executors. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sinkpipeline.core.errors import ExitCode, Reason, SinkPipelineError
from sinkpipeline.core.status import SinkReport, SinkState

_RANK = {ExitCode.SUPERSEDED: 0, ExitCode.MANIFEST: 1, ExitCode.REFUSED: 2, ExitCode.FAILED: 3, ExitCode.DONE: 4}


def outcome(reports: Iterable[SinkReport], *, stopped: bool) -> SinkPipelineError | None:
    """The error that decides the exit code of a run that has ended; None for 0.

    Of a sink that is not required that is only `Superseded`: somebody else runs the pipeline.
    """
    sinks = list(reports)
    failed = [report for report in sinks if report.state is SinkState.FAILED and report.error is not None]
    if stopped and len(failed) < len(sinks):
        return None
    errors = [
        report.error
        for report in failed
        if report.error is not None and (report.required or report.error.reason is Reason.SUPERSEDED)
    ]
    return min(errors, key=lambda error: _RANK[error.reason.exit_code], default=None)


def waits(report: SinkReport) -> bool | None:
    """Whether records wait for a sink that runs; None where that is not known."""
    if report.state is not SinkState.RUNNING:
        return False
    return None if report.lag is None else report.lag > 0


def need_executors(reports: Iterable[SinkReport]) -> bool | None:
    """Whether there is work for one, or a sink that can't show without one that it works; None: not known."""
    running = [report for report in reports if report.state is SinkState.RUNNING]
    found = {waits(report) for report in running}
    if True in found or not all(report.ready for report in running):
        return True
    return None if None in found else False
