"""`sinkpipeline progress`: how fast each sink is, from one look to the next, and which one could not be read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sinkpipeline.cli import progress
from sinkpipeline.cli.progress import Rates
from sinkpipeline.core.errors import Reason, SinkPipelineError


def look(rates: Rates, rows: int) -> list[str]:
    sinks = [SimpleNamespace(id=SimpleNamespace(sink="enriched"))]
    lines = [SimpleNamespace(sink="enriched", rows=rows - 1), SimpleNamespace(sink="enriched", rows=1)]
    return list(rates.of(cast(Any, sinks), cast(Any, lines)))


def test_rates_are_of_all_partitions_of_a_sink() -> None:
    clock = iter([0.0, 2.0, 4.0])
    rates = Rates(clock=lambda: next(clock))
    assert look(rates, 1_000) == [], "one look has no rate"
    assert look(rates, 21_000) == ["sink enriched: 10,000 rows/s"]
    assert look(rates, 5) == ["sink enriched: 0 rows/s"], "a reset counts anew"


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_sink_that_can_not_be_read_hides_no_other_one(
    output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = SinkPipelineError(Reason.SINK_UNREACHABLE, "pg-0:5432 does not answer", "check that the server runs")
    line = progress._Line(
        sink="there", topic="orders", partition=0, next=7, end=9, lag=2, rows=7, dead=0, dropped=0, lost=0, at="-",
        guarantee="ExactlyOnce", durability="Committed",
        dead_by_class={}, dropped_by_class={},
    )  # fmt: skip

    def lines(sink: Any) -> list[Any]:
        if sink.id.sink == "away":
            raise away
        return [line]

    sinks = [SimpleNamespace(id=SimpleNamespace(sink=name)) for name in ("away", "there")]
    monkeypatch.setattr(progress, "read_manifest", lambda _: None)
    monkeypatch.setattr(progress, "resolve_sinks", lambda *_: sinks)
    monkeypatch.setattr(progress, "preflight", lambda _: None)
    monkeypatch.setattr(progress, "_lines", lines)
    with pytest.raises(SinkPipelineError, match="pg-0:5432"):
        progress.progress(Path("m.yaml"), None, output, None)
    shown = capsys.readouterr().out
    assert "orders" in shown
    assert "pg-0:5432 does not answer" in shown
    assert ("sink there: ExactlyOnce, Committed" if output == "table" else '"durability": "Committed"') in shown
