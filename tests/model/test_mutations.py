"""The model finds every mutation of the protocol: a rule that nothing here depends on is one that nobody tests."""

from __future__ import annotations

import pytest

from model.exploring import search
from model.judge import Violation
from model.mutations import MUTATIONS, Mutation

pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough("each mutation; tests/model/test_cases has one")]

_RUNS = 1000
"""Nearly all are found within a hundred."""


@pytest.mark.parametrize("mutation", [pytest.param(each, id=each.name) for each in MUTATIONS])
def test_the_model_finds(mutation: Mutation) -> None:
    with mutation.applied(), pytest.raises(Violation) as found:
        search(mutation.machine, _RUNS)
    assert "InternalError" not in str(found.value), "this is a crash, and no consequence of the mutation"
