"""Looks for a run in which the protocol breaks its word, with new seeds, for as long as one likes.

`make hunt HUNT="--seconds 3600"`. What it finds is made small, printed, and written below `build/hunt` as a test
to keep: tests/model/cases.py says how. `--seed` begins with that one: a run of the same code repeats what it did.
"""

from __future__ import annotations

import logging
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from model.exploring import seeded
from model.machine import (
    AddedTopics,
    AtLeastOnce,
    DeadLetters,
    Everything,
    FirstStarts,
    ListedTopics,
    LostEnds,
    Protocol,
    SeveralRows,
    SeveralTopics,
    SlowLinks,
    WriteBacks,
)
from model.product import product_on_the_model
from model.rules import Calm
from support.runs.hunting import asked

MACHINES: tuple[type[Calm], ...] = (
    Protocol,
    DeadLetters,
    Everything,
    AtLeastOnce,
    FirstStarts,
    WriteBacks,
    LostEnds,
    SlowLinks,
    SeveralRows,
    SeveralTopics,
    ListedTopics,
    AddedTopics,
)
RUNS = 100
"""With one seed: about ten seconds."""
FOUND = Path("build", "hunt")

CASE = '''\
def test_{name}() -> None:
    """Seed {seed}: {what}."""
{steps}
'''


def hunt(machine: type[Calm], with_seed: int, runs: int = RUNS, *, small: bool = True) -> str | None:
    """A test as source that shows what was found; None where the protocol kept its word.

    `small`: made as small as can be, which takes minutes.
    """
    phases = [Phase.generate, Phase.shrink] if small else [Phase.generate]
    try:
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            seeded(machine, with_seed),
            settings=settings(
                max_examples=runs,
                stateful_step_count=15,
                deadline=None,
                database=None,
                phases=phases,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, the protocol should not have raised it
        return _case(machine, with_seed, error)
    return None


def _case(machine: type[Calm], with_seed: int, error: Exception) -> str:
    lines = [line for note in getattr(error, "__notes__", ()) for line in note.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line.startswith("state = "))
    end = next(number for number, line in enumerate(lines) if line.startswith("state.teardown()"))
    first = next(iter(str(error).splitlines()), type(error).__name__)
    steps = textwrap.indent("\n".join(lines[begin : end + 1]), "    ")
    return CASE.format(name=f"{machine.__name__.lower()}_{with_seed}", seed=with_seed, what=first, steps=steps)


def main(arguments: Sequence[str] | None = None, say: Callable[[str], object] = print) -> int:
    asked_for = asked("hunt", __doc__, arguments)
    logging.disable(logging.CRITICAL)
    runs = 0
    try:
        with product_on_the_model():
            for each in asked_for.seeds:
                for machine in MACHINES:
                    # One seed is tried however short the time is.
                    if runs >= RUNS * len(MACHINES) and asked_for.is_over:
                        say(f"{runs} runs: nothing found")
                        return 0
                    case = hunt(machine, each)
                    if case is not None:
                        FOUND.mkdir(parents=True, exist_ok=True)
                        file = FOUND / f"{machine.__name__.lower()}-{each}.py"
                        file.write_text(case)
                        say(f"{case}\nseed {each}: kept as {file}")
                        return 1
                    runs += RUNS
                say(f"seed {each}: nothing; {runs} runs so far")
    except KeyboardInterrupt:
        say(f"{runs} runs: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
