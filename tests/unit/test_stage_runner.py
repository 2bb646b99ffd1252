"""What a driver makes of its stage: of its receipts, of its end, and of a silence; by children that follow a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sinkpipeline.changes.settings import Slot, StageSettings, read
from sinkpipeline.core.changes.checkpoints import Checkpoint
from sinkpipeline.core.changes.positions import LogPosition
from sinkpipeline.core.changes.told import StageReport, error_of, with_source
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.failure import FailurePolicy
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.status import SinkReport, SinkState, condition_of, render
from sinkpipeline.kinds import stage
from sinkpipeline.kinds.resolve import resolve_stage
from sinkpipeline.kinds.stage import StageRunner
from support.resource.manifests import changed, of_database, of_slot, smallest
from support.waiting import wait_until

CLAIMED = {"event": "claimed", "run": "r", "position": ["0/10", 0], "next": 0, "rows": 0, "dead": 0, "dropped": 0}
CLAIMED |= {"timeline": 1, "seconds": 0.1}
COMMITTED = {"event": "committed", "position": ["0/20", 3], "next": 3, "rows": 3, "dead": 1}
COMMITTED |= {"dropped": 0, "changes": {"public.a": {"c": 3}}, "skipped": 0, "committedAt": 1, "transactions": [3]}
STATE = {"event": "state", "position": ["0/20", 3], "next": 3, "serverEnd": "0/40", "lagBytes": 32, "slot": "s"}
STATE |= {"lagSeconds": 2, "retainedBytes": 48, "safeBytes": None, "timeline": 1, "atRisk": None}
WAITS = "signal.pause()"


def failed(reason: Reason) -> dict[str, Any]:
    return {"event": "failed", "error": SinkPipelineError(reason, "the fact", "the remedy").to_dict()}


def settings() -> StageSettings:
    pipeline = parse_manifest(changed(smallest(), (("spec", "source"), of_database(slot={"name": "s"}))))
    found = resolve_stage(pipeline, None, Owner(cluster="c", name="n"))
    assert found is not None
    return found


@pytest.mark.parametrize(("asked", "snapshot"), [("Now", False), ("Snapshot", True)])
def test_a_stage_is_told_where_it_begins(asked: str, snapshot: bool) -> None:
    pipeline = parse_manifest(changed(smallest(), (("spec", "source"), of_database(startingPosition=asked))))
    found = resolve_stage(pipeline, None, Owner(cluster="c", name="n"))
    assert found is not None
    assert found.database.snapshot is snapshot


@pytest.mark.parametrize(("asked", "refused"), [({}, True), ({"onExistingData": "Append"}, False)])
def test_data_of_others_is_refused_unless_the_manifest_says_so(asked: dict[str, str], refused: bool) -> None:
    pipeline = parse_manifest(changed(smallest(), (("spec", "source"), of_database(asked))))
    found = resolve_stage(pipeline, None, Owner(cluster="c", name="n"))
    assert found is not None
    assert found.refuse_existing_data is refused


def test_a_stage_is_told_where_another_reader_has_stopped() -> None:
    pipeline = parse_manifest(changed(smallest(), (("spec", "source"), of_slot(lsn="0/3279E770 (439)"))))
    found = resolve_stage(pipeline, None, Owner(cluster="c", name="n"))
    assert found is not None
    assert found.database.start_from == Checkpoint(at=LogPosition(0x3279E770, 439))
    assert found.database.slot == Slot(name="theirs", create=False)


class Script:
    """Lives of a stage, one after the other; the last one is lived again and again."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        file = directory / "stage.py"
        file.write_text(
            "import json, os, pathlib, shutil, signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
            f"here = pathlib.Path({str(directory)!r})\n"
            "number = len(list(here.glob('settings-*')))\n"
            "shutil.copy(sys.argv[1], here / f'settings-{number}')\n"
            "lives = json.loads((here / 'lives').read_text())\n"
            "told, then = lives[min(number, len(lives) - 1)]\n"
            "for each in told:\n"
            "    print(json.dumps(each), flush=True)\n"
            "exec(then)\n"
        )
        monkeypatch.setattr(stage, "COMMAND", (sys.executable, str(file)))

    def run(self, *lives: tuple[list[dict[str, Any]], str], policy: FailurePolicy | None = None) -> StageRunner:
        (self.directory / "lives").write_text(json.dumps(lives))
        quickly = policy or FailurePolicy(max_consecutive_failures=3, initial_backoff_s=0.01, max_backoff_s=0.02)
        runner = StageRunner(settings(), quickly, lambda: None, "start the pipeline again")
        runner.start()
        return runner

    @property
    def lives(self) -> list[StageSettings]:
        files = sorted(self.directory.glob("settings-*"), key=lambda each: int(each.name.rpartition("-")[2]))
        return [read(each) for each in files]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(tmp_path, monkeypatch)


def ended(runner: StageRunner) -> StageReport:
    wait_until(lambda: runner.ended, "it has ended")
    return runner.report


def told(runner: StageRunner, what: Callable[[StageReport], bool]) -> StageReport:
    return wait_until(lambda: runner.report if what(runner.report) else None, "it has told")


def test_receipts_are_what_is_known(script: Script) -> None:
    runner = script.run(([CLAIMED, COMMITTED, STATE], WAITS))
    assert told(runner, lambda each: each.lag_bytes is not None).to_status() == {
        "state": "Running",
        "slot": "s",
        "position": "0/20",
        "index": 3,
        "changes": 3,
        "deadLettered": 1,
        "serverEnd": "0/40",
        "lagBytes": 32,
        "lagSeconds": 2,
        "retainedBytes": 48,
        "timeline": 1,
    }
    assert runner.report.reached("0/20")
    assert not runner.report.reached("0/21")
    runner.stop()
    runner.join()
    assert runner.report.state is SinkState.SUSPENDED
    left = {"state", "slot", "position", "index", "changes", "deadLettered", "serverEnd", "timeline"}
    assert {*runner.report.to_status()} == left, "nobody looks any more"
    assert runner.failure is None
    assert [each.takes_over for each in script.lives] == [True]


@pytest.mark.parametrize(("position", "end"), [("0/20", "0/40"), ("0/40", "0/40"), ("0/50", "0/50")])
def test_the_servers_end_is_that_of_the_last_look(script: Script, position: str, end: str) -> None:
    """Or what was read since, and not where a stage is that is far behind."""
    then = {**COMMITTED, "position": [position, 0], "rows": 4}
    runner = script.run(([CLAIMED, STATE, then], WAITS))
    assert told(runner, lambda each: each.changes == 4).server_end == end
    runner.stop()
    runner.join()


def test_a_stage_that_is_held_anew_tells_no_numbers_of_before(script: Script) -> None:
    again = failed(Reason.SLOT_BUSY)
    runner = script.run(([CLAIMED, STATE, again], "sys.exit(1)"), ([CLAIMED], WAITS))
    told(runner, lambda each: each.state is SinkState.RUNNING and each.lag_bytes is None)
    assert "retainedBytes" not in runner.report.to_status()
    runner.stop()
    runner.join()


def test_a_snapshot_is_told_while_it_goes_on(script: Script) -> None:
    snapshot = {"phase": "Reading", "epoch": 1, "table": "public.a", "tablesDone": 0, "tables": 2, "rows": 3}
    reading = [{**CLAIMED, "snapshot": {"epoch": 1}}, {**COMMITTED, "snapshot": snapshot}]
    runner = script.run((reading, WAITS))
    status = told(runner, lambda each: each.changes == 3).to_status()
    assert status["snapshot"] == snapshot
    assert not runner.report.reached("0/20"), "rows that were there before are still to come"
    runner.stop()
    runner.join()
    done = runner.report.heard({**COMMITTED, "snapshot": None})
    assert "snapshot" not in done.to_status()
    assert done.reached("0/20")


def test_rows_beside_the_stream_are_told_while_they_come(script: Script) -> None:
    beside = {"table": "public.a", "tablesWaiting": 2, "rows": 3, "waitsFor": "a transaction is open"}
    runner = script.run(([{**CLAIMED, "incrementalSnapshot": beside}, COMMITTED], WAITS))
    status = told(runner, lambda each: each.changes == 3).to_status()
    assert (status["state"], status["incrementalSnapshot"]) == ("Running", beside)
    assert not runner.report.reached("0/20"), "a run until all is delivered goes on"
    runner.stop()
    runner.join()
    done = runner.report.heard({**COMMITTED, "incrementalSnapshot": None})
    assert "incrementalSnapshot" not in done.to_status()
    assert done.reached("0/20")


def test_a_stage_that_was_killed_goes_on(script: Script) -> None:
    killed = "print('{\"event\": \"com', end='', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    runner = script.run(([], killed), ([CLAIMED, STATE], killed), ([CLAIMED, COMMITTED], WAITS))
    told(runner, lambda each: each.changes == 3)
    runner.stop()
    runner.join()
    # Before it has held its source another driver's stage may be there.
    assert [each.takes_over for each in script.lives] == [True, True, False]
    assert len({each.run for each in script.lives}) == 1


def test_a_refusal_ends_it(script: Script) -> None:
    runner = script.run(([CLAIMED, failed(Reason.SLOT_LOST)], "sys.exit(3)"))
    report = ended(runner)
    assert report.state is SinkState.FAILED
    assert runner.failure is not None
    assert (runner.failure.reason, runner.failure.message) == (Reason.SLOT_LOST, "the fact")
    assert len(script.lives) == 1


def test_failures_in_a_row_open_its_circuit(script: Script) -> None:
    runner = script.run(([CLAIMED, STATE, failed(Reason.TRANSACTION_FAILED)], "sys.exit(1)"))
    report = ended(runner)
    assert report.error is not None
    assert report.error.reason is Reason.CIRCUIT_OPEN
    assert "TransactionFailed: the fact" in report.error.message
    assert report.to_status()["circuit"]
    assert len(script.lives) == 3


def test_a_server_that_is_away_is_waited_for(script: Script) -> None:
    away = ([failed(Reason.SOURCE_UNREACHABLE)], "sys.exit(1)")
    runner = script.run(([CLAIMED, STATE], "sys.exit(0)"), *[away] * 5, ([CLAIMED, COMMITTED], WAITS))
    told(runner, lambda each: each.changes == 3)
    runner.stop()
    runner.join()
    assert len(script.lives) == 7


def test_a_server_that_never_answered_may_be_wrong(script: Script) -> None:
    report = ended(script.run(([failed(Reason.SOURCE_UNREACHABLE)], "sys.exit(1)")))
    assert report.error is not None
    assert report.error.reason is Reason.CIRCUIT_OPEN


def test_a_stage_that_hangs_is_killed(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_SILENT_S", 0.0)
    runner = script.run(([CLAIMED, STATE], WAITS), ([CLAIMED, COMMITTED], WAITS))
    told(runner, lambda each: each.lag_bytes is not None)
    runner.watch()
    told(runner, lambda each: each.changes == 3)
    runner.stop()
    runner.join()


def document(report: StageReport, previous: dict[str, Any] | None = None, now_ms: int = 1_000) -> dict[str, Any]:
    sink = SinkReport(name="a", exactly_once=True, state=SinkState.RUNNING, lag=0)
    rendered = render([sink], identity="i", generation=1, previous=previous, now_ms=now_ms)
    return with_source(rendered, report, previous, now_ms)


def test_without_sinks_a_stage_is_all_that_there_is() -> None:
    rendered = render([], identity="i", generation=1, previous=None, now_ms=1_000)
    assert rendered["totals"] == {"sinksReady": "0/0", "rowsDelivered": 0, "deadLettered": 0, "dropped": 0, "lost": 0}
    for state, phase, status in (
        (SinkState.STARTING, "Starting", "False"),
        (SinkState.RUNNING, "Running", "True"),
        (SinkState.SUSPENDED, "Suspended", "False"),
        (SinkState.RETRYING, "Degraded", "False"),
        (SinkState.FAILED, "Failed", "False"),
    ):
        error = error_of(failed(Reason.SLOT_BUSY)) if state in (SinkState.RETRYING, SinkState.FAILED) else None
        found = with_source(rendered, StageReport(slot="s", state=state, error=error), None, 1_000)
        assert (found["phase"], condition_of(found, "Ready")["status"]) == (phase, status), state
        assert [each["type"] for each in found["conditions"]].count("Ready") == 1


def test_sinks_are_not_well_where_nothing_comes_any_more() -> None:
    report = StageReport(slot="s", state=SinkState.RUNNING)
    found = document(report)
    assert (found["phase"], found["source"]) == ("Running", {"state": "Running", "slot": "s"})
    assert condition_of(found, "Ready")["status"] == "True"
    trouble = replace(report, state=SinkState.RETRYING, error=error_of(failed(Reason.SLOT_BUSY)))
    found = document(trouble, found, 5_000)
    assert (found["phase"], condition_of(found, "Ready")["status"]) == ("Degraded", "False")
    assert "source: SlotBusy: the fact" in condition_of(found, "Ready")["message"]
    assert condition_of(found, "Ready")["lastTransitionTime"] == "1970-01-01T00:00:05Z"
    assert condition_of(found, "SinksHealthy")["status"] == "True"
    again = document(trouble, found, 9_000)
    assert condition_of(again, "Ready")["lastTransitionTime"] == "1970-01-01T00:00:05Z"
    assert condition_of(document(report, again, 9_000), "Ready")["status"] == "True"
