"""Faults one after the other while a source never stops, and then the calm in which all is to be delivered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from soak.faults import Faults
from soak.outcome import Outcome, Say
from support.waiting import wait_until

SETTLE_S: Final = 240.0
START_S: Final = 120.0


class Endless(Protocol):
    """A source that never stops, until it is closed."""

    def close(self) -> None: ...


def storm(
    outcome: Outcome, seconds: float, faults: Faults, source: Endless, heal: Callable[[], None], say: Say
) -> None:
    """What does not come in time is a problem of the outcome."""
    driver = faults.driver
    try:
        say(f"seed {outcome.seed}: {seconds:.0f} s of faults once it runs")
        wait_until(faults.is_flowing, "rows are delivered", START_S)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            fault = faults.next()
            say(fault.__name__.replace("_", " "))
            fault()
            outcome.faults[fault.__name__] += 1
            faults.pause()
            driver.look()
        say("no more faults; waiting until all is delivered")
        heal()
        source.close()
        wait_until(faults.is_quiet, "all is delivered", SETTLE_S)
        driver.stop()
    except AssertionError as error:
        outcome.problems.append(str(error))
    outcome.kills, outcome.starts, outcome.ends = faults.kills, driver.starts, driver.ends
