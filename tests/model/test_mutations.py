"""The model finds every mutation of the protocol: a rule that nothing here depends on is one that nobody tests."""

from __future__ import annotations

import pytest

from model.cases import CASES
from model.exploring import search
from model.judge import Violation
from model.mutations import MUTATIONS, Mutation

pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough("each mutation; tests/model/test_cases has one")]

_RUNS = 1000
"""Nearly all are found within a hundred."""


LOOKED_FOR = [each for each in MUTATIONS if each.name not in {mutation for _, mutation in CASES}]
"""A case shows the others: tests/model/test_cases."""


@pytest.mark.parametrize("mutation", [pytest.param(each, id=each.name) for each in LOOKED_FOR])
def test_the_model_finds(mutation: Mutation) -> None:
    with mutation.applied(), pytest.raises(Violation) as found:
        search(mutation.machine, _RUNS)
    assert "InternalError" not in str(found.value), "this is a crash, and no consequence of the mutation"
