"""The exit code of a run of several sinks, and whether it needs executors."""

from __future__ import annotations

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.outcome import need_executors, outcome
from sinkpipeline.core.status import SinkReport, SinkState


def report(told: str) -> SinkReport:
    """Such as Failed:SparkFailed; with a ? where the sink is not required."""
    state, _, reason = told.removesuffix("?").partition(":")
    error = SinkPipelineError(Reason(reason), "m", "r") if reason else None
    required = not told.endswith("?")
    return SinkReport(name="one", exactly_once=True, required=required, state=SinkState(state), error=error)


@pytest.mark.parametrize(
    ("sinks", "stopped", "exit_code"),
    [
        ("Suspended", True, 0),
        ("Suspended Suspended", False, 0),
        ("Retrying:BrokerUnreachable", True, 0),
        ("Suspended Failed:CircuitOpen", True, 0),
        ("Suspended Failed:Superseded", True, 0),
        ("Suspended Failed:CircuitOpen", False, 3),
        ("Failed:CircuitOpen", True, 3),
        ("Failed:CircuitOpen Failed:DataTopicLost", True, 3),
        ("Failed:SparkFailed", True, 1),
        ("Failed:DataTopicLost Failed:Superseded", False, 4),
        ("Running Failed:Superseded", False, 4),
        ("Failed:SparkFailed Failed:CircuitOpen", False, 3),
        ("Failed:ExpressionInvalid Failed:CircuitOpen", False, 2),
        ("Suspended Failed:CircuitOpen?", False, 0),
        ("Failed:SparkFailed Failed:CircuitOpen?", False, 1),
        ("Failed:SparkFailed Failed:CircuitOpen?", True, 1),
        ("Suspended Failed:Superseded?", False, 4),
    ],
)
def test_the_exit_code_is_that_of_the_most_telling_error(sinks: str, stopped: bool, exit_code: int) -> None:
    error = outcome([report(each) for each in sinks.split()], stopped=stopped)
    assert (0 if error is None else error.reason.exit_code) == exit_code


def sink(state: SinkState, lag: int | None, *, proved: bool) -> SinkReport:
    return SinkReport(name="one", exactly_once=True, state=state, lag=lag, proved=proved)


@pytest.mark.parametrize(
    ("reports", "needed"),
    [
        ([], False),
        ([sink(SinkState.STARTING, 5, proved=False)], False),
        ([sink(SinkState.RUNNING, 0, proved=True)], False),
        ([sink(SinkState.RUNNING, 0, proved=False)], True),
        ([sink(SinkState.RUNNING, 5, proved=True)], True),
        ([sink(SinkState.RUNNING, None, proved=True)], None),
        ([sink(SinkState.RUNNING, None, proved=True), sink(SinkState.RUNNING, 5, proved=True)], True),
        ([sink(SinkState.RUNNING, 0, proved=True), sink(SinkState.FAILED, 5, proved=False)], False),
    ],
    ids=["no sink", "starting", "idle", "unproved", "records wait", "unknown", "one of them", "a failed one"],
)
def test_when_executors_are_needed(reports: list[SinkReport], needed: bool | None) -> None:
    assert need_executors(reports) is needed
