"""One minute of `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from soak.run import show, soak

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

SECONDS = 60
SEED = 1


@pytest.mark.thorough("a minute of `make soak`")
def test_a_minute_of_kills_and_faults(tmp_path: Path) -> None:
    console = Console(width=120)
    outcome = soak(SECONDS, SEED, tmp_path, console)
    show(outcome, console)
    assert not outcome.problems
    assert outcome.faults.total() >= 5, "something happened"
