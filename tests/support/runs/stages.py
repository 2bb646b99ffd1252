"""Which tests `make test` runs, and which ones only `make test-all`.

`@pytest.mark.thorough("why")` stands at a test that can wait, or at a module of such tests. `after=2` keeps the first
two variants of a parametrized test in `make test`; the reason says what the others vary.
"""

from __future__ import annotations

from collections import Counter

import pytest


class Choosing:
    """Deselects the tests of the other stage; with no stage all run."""

    def __init__(self, stage: str | None) -> None:
        self._stage = stage

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        seen: Counter[str] = Counter()
        stages: dict[str, list[pytest.Item]] = {"test": [], "rest": []}
        for item in items:
            function = item.nodeid.partition("[")[0]
            seen[function] += 1
            stages["rest" if _can_wait(item, seen[function]) else "test"].append(item)
        if self._stage is not None:
            chosen = stages.pop(self._stage)
            [others] = stages.values()
            config.hook.pytest_deselected(items=others)
            items[:] = chosen


def _can_wait(item: pytest.Item, variant: int) -> bool:
    """Whether the nth variant of a test is a thorough one. Raises UsageError for a marker without its reason."""
    marks = list(item.iter_markers("thorough"))
    for mark in marks:
        reasons, after = mark.args, mark.kwargs.get("after", 0)
        told = len(reasons) == 1 and isinstance(reasons[0], str) and reasons[0] != ""
        if not told or not isinstance(after, int) or mark.kwargs.keys() - {"after"}:
            raise pytest.UsageError(f'{item.nodeid}: use @pytest.mark.thorough("why it can wait"[, after=N])')
    return any(variant > mark.kwargs.get("after", 0) for mark in marks)
