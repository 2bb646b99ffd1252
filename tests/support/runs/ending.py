"""A run that has so many minutes: no test begins later, and what did not begin is counted.

A run that is ended from outside takes with it what it knows of the tests before.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

_NOT_BEGUN = "not begun: the run's minutes are over"


class Until:
    """In each process that runs tests."""

    def __init__(self, minutes: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._end = now, now() + 60 * minutes

    # Before the test's fixtures, which may take minutes themselves.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if self._now() > self._end:
            pytest.skip(_NOT_BEGUN)


class Counting:
    """In the process that prints."""

    def __init__(self) -> None:
        self._not_begun: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[2].endswith(_NOT_BEGUN):
            self._not_begun.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._not_begun:
            files = sorted({each.partition("::")[0] for each in self._not_begun})
            terminalreporter.section(f"{len(self._not_begun)} tests did not begin in time", sep="=", red=True)
            terminalreporter.line(f"They are in {', '.join(files)}.")
