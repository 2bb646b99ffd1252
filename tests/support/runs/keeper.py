"""Servers that several modules of tests need: each runs from the first one that needs it to the last one in a row.

An idle broker takes three per cent of a core, and a run has many minutes. A session's fixture would keep each of its
servers to the end; a module's would start one for each module. The files of one run are sorted by what they need.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

import pytest

T = TypeVar("T")


class Keeper:
    """The servers that run now, by the names of their fixtures, and perhaps a colon and a variant."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[object, contextlib.ExitStack]] = {}

    def get(self, name: str, server: Callable[[], contextlib.AbstractContextManager[T]]) -> T:
        """The one that runs, or a new one."""
        if name not in self._running:
            with contextlib.ExitStack() as stack:
                started = stack.enter_context(server())
                self._running[name] = (started, stack.pop_all())
        return cast("T", self._running[name][0])

    def end_all_but(self, names: Collection[str]) -> None:
        for name in [each for each in self._running if each.partition(":")[0] not in names]:
            self._running.pop(name)[1].close()


KEEPER = Keeper()
"""Of this process."""


class Ending:
    """Ends what the tests to come don't need."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        # After the fixtures, which use the servers to the last.
        result = yield
        if nextitem is None:
            KEEPER.end_all_but(())
        elif nextitem.path != item.path:
            KEEPER.end_all_but(_needed(nextitem))
        return result

    def pytest_sessionfinish(self) -> None:
        KEEPER.end_all_but(())


def _needed(first: pytest.Item) -> set[str]:
    """The fixtures of all tests in the file of this one."""
    return {
        name for each in first.session.items if each.path == first.path for name in getattr(each, "fixturenames", ())
    }
