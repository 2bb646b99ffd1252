"""`sinkpipeline progress --watch`: how fast each sink is, from one look to the next."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from sinkpipeline.cli.progress import Rates


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
