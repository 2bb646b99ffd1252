"""The protocol as it is keeps its word, in every run that is tried. docs/model.md tells how to read one that fails."""

from __future__ import annotations

import pytest

from model.exploring import LONGER, explore
from model.machine import (
    AddedTopics,
    AtLeastOnce,
    Cells,
    CellsAtLeastOnce,
    CellsLost,
    CellsPutBack,
    CellsRolledBack,
    CutInputs,
    DeadLetters,
    Everything,
    FirstStarts,
    ListedTopics,
    LostEnds,
    OldAnswers,
    Protocol,
    SeveralRows,
    SeveralTopics,
    SlowLinks,
    SmallBatches,
    TornStarts,
    TwoNames,
    WriteBacks,
)
from model.rules import Calm

pytestmark = pytest.mark.timeout(1800 * max(1.0, LONGER))  # making a failing run small takes minutes

MORE = pytest.mark.long("more of the same runs; `make hunt` tries new ones")


@pytest.mark.parametrize(
    ("machine", "runs"),
    [
        (Protocol, 100),
        (DeadLetters, 80),
        (Everything, 120),
        (AtLeastOnce, 60),
        (OldAnswers, 30),
        (TwoNames, 10),
        (FirstStarts, 30),
        (SmallBatches, 60),
        (WriteBacks, 15),
        (LostEnds, 20),
        (SlowLinks, 15),
        (Cells, 60),
        (CellsLost, 60),
        (CellsRolledBack, 40),
        (CellsPutBack, 40),
        (CellsAtLeastOnce, 40),
        (SeveralRows, 60),
        (CutInputs, 40),
        (SeveralTopics, 40),
        (ListedTopics, 15),
        (AddedTopics, 15),
        (TornStarts, 10),
        *(pytest.param(*each, marks=MORE) for each in ((Protocol, 200), (DeadLetters, 140), (Everything, 270))),
    ],
)
def test_the_protocol_keeps_its_word(machine: type[Calm], runs: int) -> None:
    explore(machine, runs)
