"""The model finds every mutation of the protocol: a rule that nothing here depends on is one that nobody tests."""

from __future__ import annotations

from functools import partial

import pytest

from model.cases import CASES
from model.exploring import search
from model.mutations import MUTATIONS
from model.sought import Sought

pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough("each mutation; tests/model/test_cases has one")]

_RUNS = 1000
"""Nearly all are found within a hundred."""


SOUGHT = [
    Sought(each.name, each.applied, partial(search, each.machine), _RUNS)
    for each in MUTATIONS
    if each.name not in {mutation for _, mutation in CASES}
]
"""A case shows the others: tests/model/test_cases."""


@pytest.mark.parametrize("sought", [pytest.param(each, id=each.name) for each in SOUGHT])
def test_the_model_finds(sought: Sought) -> None:
    sought.find()
