"""Mutations that the model has to find, and the seeds that find each of them soon.

Runs that are drawn anew find some mutation only after hundreds. So `seeds.json` keeps for each a seed whose first few
runs find it. Where it does so no more, since the product or the model draws otherwise now, all runs are tried; `make
seeds` looks for another seed (`model.seeds`).
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from model.judge import Violation

SEEDS = Path(__file__).with_name("seeds.json")
FEW = 12
"""Runs of a kept seed: about a second. Hypothesis draws others where it is asked for another number of them."""
_LONG_S = 120.0
"""After which no more seeds are tried for one mutation."""


class Look(Protocol):
    """Tries so many runs, those of the seed or those of every time, and raises what the first bad one raised."""

    def __call__(self, runs: int, *, with_seed: int | None = None) -> None: ...


@dataclass(frozen=True)
class Sought:
    name: str
    applied: Callable[[], AbstractContextManager[Any]]
    look: Look
    runs: int
    """That suffice without a seed."""

    def find(self) -> None:
        """Fails where nothing is found, or a crash that the mutation would not cause in the product."""
        kept = json.loads(SEEDS.read_text()).get(self.name)
        if kept is not None and self.is_found_by(kept):
            return
        with self.applied(), pytest.raises(Violation) as found:
            self.look(self.runs)
        assert not is_a_crash(found.value), "this is a crash, and no consequence of the mutation"

    def is_found_by(self, seed: int) -> bool:
        """Raises Violation where the product does the same without the mutation, which then shows nothing."""
        try:
            with self.applied():
                self.look(FEW, with_seed=seed)
        except Violation as violation:
            if is_a_crash(violation):
                return False
        else:
            return False
        self.look(FEW, with_seed=seed)
        return True

    def seed(self) -> int | None:
        """The first that finds it, if one does in time."""
        ends = time.process_time() + _LONG_S
        for each in itertools.count():
            if self.is_found_by(each):
                return each
            if time.process_time() > ends:
                break
        return None


def is_a_crash(violation: Violation) -> bool:
    return "InternalError" in str(violation) or "a bug" in str(violation)
