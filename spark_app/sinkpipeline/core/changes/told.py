"""What a driver knows of its stage, by the stage's own receipts; and as the status has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sinkpipeline.core.changes.positions import parse_place
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.status import Condition, Phase, SinkState, condition_of, conditions, timestamp

SOURCE_HEALTHY = "SourceHealthy"
"""The type of the condition that is about a stage."""
SLOT_AT_RISK = "SlotAtRisk"
LOG_AT_RISK = "LogAtRisk"
AT_RISK = frozenset({SLOT_AT_RISK, LOG_AT_RISK})
SOURCE_STARTING = "SourceStarting"
_OF_A_LOOK = frozenset({"lagBytes", "lagSeconds", "retainedBytes", "safeBytes"})
"""What grows, or shrinks, while nobody looks."""
_ALONE = {SinkState.STARTING: Phase.STARTING, SinkState.SUSPENDED: Phase.SUSPENDED}
"""Of a pipeline without sinks, by the state of its stage."""
_CATCH_UP = (
    "let the pipeline run until it has caught up, or find out what slows it down; if nobody needs it any more, drop "
    "the slot: docs/changes.md"
)


_READ_ON = (
    "let the pipeline run until it has caught up, or find out what slows it down; or raise "
    "binlog_expire_logs_seconds of the server: docs/changes.md"
)


@dataclass(frozen=True, kw_only=True)
class StageReport:
    """A stage, as it last told."""

    slot: str | None = None
    """What the database keeps for the stage; None where it keeps nothing for anybody."""
    state: SinkState = SinkState.STARTING
    position: str | None = None
    """Where a transaction is, as the server spells it; None until it is known."""
    index: int = 0
    """In the transaction that was committed there."""
    changes: int | None = None
    """How many changes were written since the first start."""
    dead: int = 0
    dropped: int = 0
    server_end: str | None = None
    """Where the server's log ends."""
    lag_bytes: int | None = None
    lag_seconds: int | None = None
    """For how long a change may have waited that is not written yet, by the server's clock."""
    retained_bytes: int | None = None
    safe_bytes: int | None = None
    timeline: int | None = None
    at_risk: str | None = None
    snapshot: Mapping[str, Any] | None = None
    """How far the snapshot has come that goes on, as the stage tells it; None where none does."""
    incremental: Mapping[str, Any] | None = None
    """Likewise, of an incremental one."""
    circuit_opened_at: int | None = None
    """Unix milliseconds."""
    error: SinkPipelineError | None = None

    def heard(self, told: Mapping[str, Any]) -> StageReport:
        """With a receipt; one that says nothing of it changes nothing."""
        found = self
        if "position" in told:
            place, index = told["position"]
            found = replace(found, position=place, index=index)
        if "rows" in told:
            found = replace(found, changes=told["rows"], dead=told["dead"], dropped=told["dropped"])
        if "snapshot" in told:
            found = replace(found, snapshot=told["snapshot"])
        if "serverEnd" in told:
            found = replace(found, server_end=told["serverEnd"])
        elif found.server_end is not None and found.reached(found.server_end):
            # It has read what came since the last look.
            found = replace(found, server_end=found.position)
        if "incrementalSnapshot" in told:
            found = replace(found, incremental=told["incrementalSnapshot"])
        if told["event"] == "claimed":
            found = replace(found, lag_bytes=None, lag_seconds=None, retained_bytes=None, safe_bytes=None)
            return replace(found, state=SinkState.RUNNING, error=None, timeline=told["timeline"])
        if told["event"] == "state":
            return replace(
                found,
                lag_bytes=told["lagBytes"],
                lag_seconds=told["lagSeconds"],
                retained_bytes=told["retainedBytes"],
                # Beyond its limit the server tells a number below zero, until its next checkpoint.
                safe_bytes=None if told["safeBytes"] is None else max(0, told["safeBytes"]),
                at_risk=told["atRisk"],
            )
        return found

    def reached(self, place: str) -> bool:
        """Whether the change topic has everything that the server committed before this, as `server_end` says it."""
        if self.snapshot is not None or self.incremental is not None:
            return False
        return self.position is not None and parse_place(self.position).commit >= parse_place(place).commit

    @property
    def is_in_trouble(self) -> bool:
        return self.state in (SinkState.RETRYING, SinkState.FAILED)

    def to_status(self) -> dict[str, Any]:
        """`status.source`."""
        told = {
            "position": self.position,
            "index": None if self.position is None else self.index,
            "changes": self.changes,
            "deadLettered": self.dead or None,
            "dropped": self.dropped or None,
            "serverEnd": self.server_end,
            "lagBytes": self.lag_bytes,
            "lagSeconds": self.lag_seconds,
            "retainedBytes": self.retained_bytes,
            "safeBytes": self.safe_bytes,
            "timeline": self.timeline,
            "atRisk": self.at_risk,
            "snapshot": self.snapshot,
            "incrementalSnapshot": self.incremental,
            "circuit": None if self.circuit_opened_at is None else {"openedAt": timestamp(self.circuit_opened_at)},
            "error": None if self.error is None else self.error.to_dict(),
        }
        left_out = () if self.state is SinkState.RUNNING else _OF_A_LOOK
        known = {name: value for name, value in told.items() if value is not None and name not in left_out}
        held = {} if self.slot is None else {"slot": self.slot}
        return {"state": self.state.value, **held, **known}


def place(state: PartitionProgress) -> dict[str, Any]:
    """Of `status.source`, what a stage's progress says."""
    if state.pos is None or state.snapshot is not None:
        # A snapshot begins anew, wherever it has come.
        return {}
    told = {
        "position": state.pos.place,
        "index": state.pos.index,
        "changes": state.rows,
        "deadLettered": state.dead,
        "dropped": state.dropped,
    }
    return {name: value for name, value in told.items() if value or name not in ("deadLettered", "dropped")}


def source_healthy(source: Mapping[str, Any]) -> Condition:
    """SourceHealthy, by `status.source` as a driver tells it; a slot at risk is told before anything is lost."""
    error = source.get("error")
    if error:
        return Condition("False", error["reason"], f"source: {error['message']} ({error['remedy']})")
    if source.get("atRisk"):
        if "slot" not in source:
            return Condition("False", LOG_AT_RISK, f"{source['atRisk']} ({_READ_ON})")
        return Condition("False", SLOT_AT_RISK, f"slot {source['slot']}: {source['atRisk']} ({_CATCH_UP})")
    if source["state"] == SinkState.STARTING.value:
        what = f"slot {source['slot']} is being taken" if "slot" in source else "the log is being looked at"
        return Condition("Unknown", SOURCE_STARTING, f"nothing is read yet: {what}")
    if source["state"] == SinkState.RUNNING.value:
        return Condition("True", "NoErrors", "")
    return Condition("Unknown", "NotYetKnown", "no stage reads the database")


def with_source(
    document: Mapping[str, Any], report: StageReport, previous: Mapping[str, Any] | None, now_ms: int
) -> dict[str, Any]:
    """A status document with its source: sinks that have all that is there are not well, if nothing comes any more.

    Where there are no sinks, the stage is all that there is.
    """
    source = report.to_status()
    healthy = source_healthy(source)
    found = {**document, "source": source}
    own = {SOURCE_HEALTHY: healthy}
    if not report.is_in_trouble and not document["sinks"] and report.state is not SinkState.RUNNING:
        found["phase"] = _ALONE[report.state].value
        own["Ready"] = Condition("False", found["phase"], healthy.message)
    if report.is_in_trouble:
        ready = condition_of(document, "Ready")
        also = ready["message"] if ready["status"] == "False" else ""
        text = "; ".join(filter(None, (f"source: {report.error}", also)))
        is_last = report.state is SinkState.FAILED
        own["Ready"] = Condition("False", (Phase.FAILED if is_last else Phase.DEGRADED).value, text)
    entries = {each["type"]: each for each in conditions(own, document.get("observedGeneration"), previous, now_ms)}
    rest = [each for name, each in entries.items() if name != "Ready"]
    found["conditions"] = [entries.get(each["type"], each) for each in document["conditions"]] + rest
    if not report.is_in_trouble:
        return found
    if not document["sinks"] and report.state is SinkState.FAILED:
        found["phase"] = Phase.FAILED.value
    elif found["phase"] in (Phase.RUNNING.value, Phase.STARTING.value):
        found["phase"] = Phase.DEGRADED.value
    return found


def error_of(told: Mapping[str, Any]) -> SinkPipelineError:
    """Of a receipt that says why a stage has failed."""
    error = told["error"]
    return SinkPipelineError(Reason(error["reason"]), error["message"], error["remedy"])
