"""What a driver tells of a sink before it has started it."""

from __future__ import annotations

from dataclasses import replace

from sinkpipeline.core.ports import Settings
from sinkpipeline.core.resume import OpenCircuit
from sinkpipeline.core.status import SinkReport, SinkState
from sinkpipeline.core.topics import Memory, recall


def first_report(settings: Settings, memory: Memory | None, circuit: OpenCircuit | None) -> SinkReport:
    """What is known of a sink before its start: what is remembered, and whether its circuit is still open."""
    # What is remembered stays in the status until more is known: a start that is killed must not forget it.
    recalled = None if memory is None else recall(memory, settings.owner)
    report = SinkReport(name=settings.id.sink, exactly_once=settings.exactly_once, progress=recalled, proved=False)
    if circuit is None:
        return report
    return replace(report, state=SinkState.FAILED, error=circuit.error, circuit_opened_at=circuit.opened_at)
