"""Which tests `make test` runs, which ones only `make test-all`, and which ones only `make test-long`.

`@pytest.mark.thorough("why")` stands at a test that can wait, or at a module of such tests: `make test-all` runs it.
`@pytest.mark.long("why")` stands at one that takes minutes, or many starts, and shows once more what a test of a
shorter stage shows, which the reason names. `after=2` keeps the first two variants of a parametrized test in the
shorter stage; the reason says what the others vary. A variant that can wait, of a test that can wait, has `thorough`
twice: it is for `make test-long`, too.
"""

from __future__ import annotations

from collections import Counter

import pytest

STAGES = ("test", "rest", "long")


class Choosing:
    """Deselects the tests of the other stages; with no stage all run."""

    def __init__(self, stage: str | None) -> None:
        self._stage = stage

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        seen: Counter[str] = Counter()
        stages: dict[str, list[pytest.Item]] = {stage: [] for stage in STAGES}
        for item in items:
            function = item.nodeid.partition("[")[0]
            seen[function] += 1
            stages[_stage_of(item, seen[function])].append(item)
        if self._stage is not None:
            items[:] = stages.pop(self._stage)
            config.hook.pytest_deselected(items=[each for others in stages.values() for each in others])


def _stage_of(item: pytest.Item, variant: int) -> str:
    """Of the nth variant of a test. Raises UsageError for a marker without its reason."""
    if _marks(item, "long", variant) or _marks(item, "thorough", variant) > 1:
        return "long"
    return "rest" if _marks(item, "thorough", variant) else "test"


def _marks(item: pytest.Item, name: str, variant: int) -> int:
    """How many of them are of this variant."""
    marks = list(item.iter_markers(name))
    for mark in marks:
        reasons, after = mark.args, mark.kwargs.get("after", 0)
        told = len(reasons) == 1 and isinstance(reasons[0], str) and reasons[0] != ""
        if not told or not isinstance(after, int) or mark.kwargs.keys() - {"after"}:
            raise pytest.UsageError(f'{item.nodeid}: use @pytest.mark.{name}("why it can wait"[, after=N])')
    return sum(variant > mark.kwargs.get("after", 0) for mark in marks)
