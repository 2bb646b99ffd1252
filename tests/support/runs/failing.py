"""A failure is told when it happens: a run that is ended from outside would take its summary with it."""

from __future__ import annotations

from typing import Any

import pytest


class AtOnce:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or terminal is None:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        said = crash.message if crash is not None else report.longreprtext
        first = next(iter(said.strip().splitlines()), "")
        terminal.ensure_newline()
        terminal.write_line(f"FAILED {report.nodeid} ({report.when}): {first}")
        for place in _places(report.longrepr):
            terminal.write_line(f"    at {place}")


def _places(longrepr: Any) -> list[str]:
    """Of the tests' own code, from the outer to the inner: in which of its waits a test ran out of time."""
    trace = getattr(longrepr, "reprtraceback", None)
    entries = [getattr(each, "reprfileloc", None) for each in getattr(trace, "reprentries", ())]
    return [f"{each.path}:{each.lineno}" for each in entries if each is not None and each.path.startswith("tests")]
