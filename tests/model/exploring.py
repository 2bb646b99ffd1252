"""How long, and how, Hypothesis explores a machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.stateful import run_state_machine_as_test

from model.rules import Calm

Draw = Callable[[st.SearchStrategy[Any]], Any]

LONGER = float(os.environ.get("MODEL_LONGER", "1"))
"""By what factor more runs are tried than `make test` does: new ones, unless that is 1."""


@contextlib.contextmanager
def _the_same_runs() -> Iterator[None]:
    """Hypothesis draws the numbers that stand in the source, too: every change of it would be another lottery."""
    with mock.patch.object(providers, "_get_local_constants", providers.Constants):
        providers.CONSTANTS_CACHE.cache.clear()
        yield
    providers.CONSTANTS_CACHE.cache.clear()


@_the_same_runs()
def explore(machine: type[Calm], runs: int) -> None:
    """Tries the same runs every time, or runs that nobody has tried before; a failing one is made as small as can be.

    A change that breaks nothing isn't held up by what somebody else's run would have found.
    """
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=int(runs * LONGER),
            stateful_step_count=15,
            deadline=None,
            derandomize=LONGER == 1,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def explore_plays(
    play: Callable[[Draw], None],
    runs: int,
    phases: tuple[Phase, ...] = tuple(Phase),
    *,
    with_seed: int | None = None,
) -> None:
    """Tries the same runs of what draws each step itself every time, unless MODEL_LONGER or a seed says otherwise."""

    @settings(
        max_examples=int(runs * LONGER),
        deadline=None,
        derandomize=LONGER == 1 and with_seed is None,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        play(data.draw)

    if with_seed is not None:
        run = seed(with_seed)(run)
    run()


def seeded(machine: type[Calm], with_seed: int) -> type[Calm]:
    """A class of its own: Hypothesis keeps the seed at the class."""
    return seed(with_seed)(type(machine.__name__, (machine,), {}))


@_the_same_runs()
def search(machine: type[Calm], runs: int, *, with_seed: int | None = None) -> None:
    """Tries the same runs every time, and ends with the first that fails, as it is."""
    if with_seed is not None:
        machine = seeded(machine, with_seed)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=8,
            deadline=None,
            derandomize=with_seed is None,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
