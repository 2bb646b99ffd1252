"""What each test costs: wall clock and CPU seconds, those of all processes that it starts among them.

A pytest plugin. It prints a table at the end of a run that took a while, and `--costs FILE` keeps all as JSON, with why
a test failed: of several runs one after the other, the end of what is printed has it all.

CPU seconds are those of the test process and of everything below it: drivers, JVMs, brokers, API servers. What a shared
server burns while a test runs is that test's. What a fixture of more than one test costs stands in a line of its own. A
process whose parent was killed leaves the tree, and what it spends from then on is not counted: the line of the whole
machine tells how much that can be. On macOS the seconds of ended processes are known for direct children only.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

_DEAREST = 20
_WORTH_A_TABLE_S = 30.0
_WHY_CHARS = 1_500
"""Of what a failed test says, so many: it may describe a whole cluster."""
_LOOK_AGAIN_S = 0.1
"""Quicker tests start no process, and a look at all of the machine's costs milliseconds."""
_LOOK_SELDOM_S = 1.0


@dataclass
class Cost:
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.wall_s - other.wall_s, self.cpu_s - other.cpu_s)


class Meter:
    """What was spent since this process began."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._looked_at = 0.0
        self._below = self._last = 0.0

    def read(self, again_s: float = _LOOK_AGAIN_S) -> Cost:
        """Looks at the processes below this one only where the last look is that old."""
        now = time.monotonic()
        times = self._process.cpu_times()
        if now - self._looked_at >= again_s:
            below = times.children_user + times.children_system + self._running()
            # Less than before: a process has left the tree, and what it had spent by then was counted.
            self._below += max(0.0, below - self._last)
            self._last, self._looked_at = below, now
        return Cost(now, times.user + times.system + self._below)

    def _running(self) -> float:
        total = 0.0
        for process in self._process.children(recursive=True):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total


class Measuring:
    """In each process that runs tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._meter = Meter()
        self._began = self._last = self._meter.read()
        self._fixtures: dict[str, Cost] = {}
        self._fixtures_of_test = Cost()
        self._open = False
        self._collecting = Cost()

    def pytest_collection_finish(self) -> None:
        """In every process of a parallel run: each collects all tests."""
        self._collecting = self._meter.read() - self._began

    def pytest_runtest_logstart(self) -> None:
        # Between two tests a worker waits for the next one to be sent.
        self._last = self._meter.read()
        self._fixtures_of_test = Cost()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function" or self._open:
            return (yield)
        before = self._meter.read()
        self._open = True
        try:
            return (yield)
        finally:
            self._open = False
            spent = self._meter.read() - before
            name = f"fixture {fixturedef.argname} ({fixturedef.baseid or 'everywhere'})"
            self._fixtures[name] = self._fixtures.get(name, Cost()) + spent
            self._fixtures_of_test += spent

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            now = self._meter.read()
            # xdist takes it along.
            vars(report)["cost"] = asdict(now - self._last - self._fixtures_of_test)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        told = {name: asdict(cost) for name, cost in self._fixtures.items()}
        told["collecting"] = asdict(self._collecting)
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["costs"] = told
        else:
            self._config.stash[_TOLD].append(told)


_TOLD = pytest.StashKey[list[dict[str, Any]]]()


class Telling:
    """In the process that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # The workers of a parallel run are below this process, and all that they start.
        self._meter = Meter()
        self._began, self._machine = self._meter.read(), _machine_busy()
        self._tests: dict[str, Cost] = {}
        self._failed: dict[str, str] = {}
        config.stash[_TOLD] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Often enough that nobody leaves the tree with much that was never seen.
        self._meter.read(_LOOK_SELDOM_S)
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = str(report.longrepr) if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
            self._failed[f"{report.nodeid} ({report.when})"] = why[:_WHY_CHARS]
        cost = getattr(report, "cost", None)
        if cost is not None:
            self._tests[report.nodeid] = Cost(**cost)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        told = getattr(node, "workeroutput", {}).get("costs")
        if told is not None:
            self._config.stash[_TOLD].append(told)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        document = self._document(self._meter.read() - self._began)
        file = self._config.getoption("costs")
        if file is not None:
            path = Path(file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document, indent=1))
        if document["stage"]["wall_s"] >= _WORTH_A_TABLE_S:
            terminalreporter.section("what it cost")
            for line in lines(document):
                terminalreporter.write_line(line)

    def _document(self, whole: Cost) -> dict[str, Any]:
        processes = self._config.stash[_TOLD]
        fixtures: dict[str, Cost] = {}
        for process in processes:
            for name, cost in process.items():
                if name != "collecting":
                    fixtures[name] = fixtures.get(name, Cost()) + Cost(**cost)
        folders: dict[str, Cost] = {}
        for nodeid, cost in self._tests.items():
            folder = os.path.dirname(nodeid.partition("::")[0])  # noqa: PTH120 - a node id, and no path
            folders[folder] = folders.get(folder, Cost()) + cost
        folders["shared fixtures"] = sum(fixtures.values(), Cost())
        folders["collecting"] = Cost(0.0, sum(process["collecting"]["cpu_s"] for process in processes))
        # Ending the servers, and what pytest does between two tests.
        folders["the rest"] = Cost(0.0, whole.cpu_s - sum(each.cpu_s for each in folders.values()))
        return {
            "stage": {**asdict(whole), "machine_cpu_s": _machine_busy() - self._machine},
            "folders": _by_cpu(folders),
            "tests": _by_cpu(self._tests),
            "fixtures": _by_cpu(fixtures),
            "failed": self._failed,
        }


def lines(document: Mapping[str, Any]) -> Iterable[str]:
    """The table for people."""
    stage = document["stage"]
    yield f"{'wall s':>9} {'CPU s':>9}"
    yield _line(stage, f"the whole; the machine was busy for {stage['machine_cpu_s']:.0f} CPU s")
    for name, cost in document["folders"].items():
        yield _line(cost, name)
    yield "the dearest:"
    dearest = sorted({**document["tests"], **document["fixtures"]}.items(), key=lambda each: -each[1]["cpu_s"])
    for name, cost in dearest[:_DEAREST]:
        yield _line(cost, name)


def _line(cost: Mapping[str, float], name: str) -> str:
    return f"{cost['wall_s']:9.1f} {cost['cpu_s']:9.1f}  {name}"


def _by_cpu(costs: Mapping[str, Cost]) -> dict[str, dict[str, float]]:
    return {name: asdict(cost) for name, cost in sorted(costs.items(), key=lambda each: -each[1].cpu_s)}


def _machine_busy() -> float:
    """CPU seconds of all processes since the machine started."""
    times = psutil.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """`python -m support.runs.costs FILE...` adds up runs that `--costs` has kept, and says what failed in them."""
    total, failed = Cost(), dict[str, str]()
    print(f"{'wall min':>9} {'CPU min':>9}")
    for file in sys.argv[1:]:
        document = json.loads(Path(file).read_text())
        stage = document["stage"]
        failed |= {f"{Path(file).stem}: {test}": why for test, why in document.get("failed", {}).items()}
        total += Cost(stage["wall_s"] / 60, stage["cpu_s"] / 60)
        print(f"{stage['wall_s'] / 60:9.1f} {stage['cpu_s'] / 60:9.1f}  {Path(file).stem}")
    print(f"{total.wall_s:9.1f} {total.cpu_s:9.1f}  together")
    for test, why in failed.items():
        print(f"\nfailed in {test}\n{textwrap.indent(why, '  ')}")


if __name__ == "__main__":
    main()
