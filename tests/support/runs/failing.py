"""A failure is told when it happens: a run that is ended from outside would take its summary with it."""

from __future__ import annotations

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
