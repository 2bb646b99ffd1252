"""The runs that are kept in `cases` are repeated, with and without the mutation that they show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from model import hunt, machine
from model.cases import CASES, dead_letters_go_as_soon_as_they_are_there
from model.judge import Violation
from model.little_spark import Habits
from model.mutations import MUTATIONS, Mutation


@pytest.mark.parametrize(("case", "mutation"), CASES)
def test_a_case_passes_and_shows_its_mutation(case: Callable[[], None], mutation: str) -> None:
    case()
    [broken] = [each for each in MUTATIONS if each.name == mutation]
    with broken.applied(), pytest.raises(Violation):
        case()


@pytest.mark.parametrize("mutation", [pytest.param(each, id=each.name) for each in MUTATIONS])
def test_a_mutation_fits_what_it_breaks(mutation: Mutation) -> None:
    """Most are looked for in `make test-rest` only: one that the product has outgrown is told here."""
    mutation.patches()


def test_a_case_passes() -> None:
    dead_letters_go_as_soon_as_they_are_there()


@pytest.mark.thorough("looks for a mutation that the case above shows; it is about make hunt")
def test_what_a_hunt_prints_can_be_kept_as_a_case() -> None:
    [broken] = [each for each in MUTATIONS if each.name == "ids_by_task_index"]
    with broken.applied():
        found = [hunt.hunt(broken.machine, seed, runs=60, small=False) for seed in range(3)]
    source = next(filter(None, found))
    names = {**vars(machine), "Habits": Habits}
    exec(source, names)
    [case] = [value for name, value in names.items() if name.startswith("test_")]
    case()
    with broken.applied(), pytest.raises(Violation):
        case()


def test_a_hunt_ends_after_its_time_and_says_how_much_it_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(hunt, "hunt", lambda *_: None)
    assert hunt.main(["--seconds", "0.01", "--seed", "7"], said.append) == 0
    assert said[0].startswith("seed 7: nothing")
    assert said[-1].endswith("runs: nothing found")
