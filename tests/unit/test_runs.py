"""Which stage a test is in, which process runs it, and how long a shared server runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer

from support.runs.ending import Counting, Until
from support.runs.failing import AtOnce
from support.runs.keeper import Keeper
from support.runs.sharing import BothEnds
from support.runs.stages import Choosing

LATER = pytest.mark.thorough("each variant", after=2).mark
CAN_WAIT = pytest.mark.thorough("it waits").mark
LAST = pytest.mark.long("the others show it", after=3).mark


class Item:
    def __init__(self, nodeid: str, *marks: pytest.Mark) -> None:
        self.nodeid, self.marks = nodeid, marks

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        return (mark for mark in self.marks if mark.name == name)


def chosen(stage: str | None, *items: Item) -> list[str]:
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))  # noqa: ARG005
    found: Any = list(items)
    Choosing(stage).pytest_collection_modifyitems(config, found)
    return [each.nodeid for each in found]


ITEMS = [
    Item("quick"),
    Item("slow", CAN_WAIT),
    *(Item(f"each[{number}]", LATER) for number in range(4)),
    *(Item(f"both[{number}]", LATER, CAN_WAIT) for number in range(3)),
    *(Item(f"some[{number}]", LATER, LAST) for number in range(5)),
]


def test_every_test_is_in_one_stage() -> None:
    assert chosen("test", *ITEMS) == ["quick", "each[0]", "each[1]", "some[0]", "some[1]"]
    assert chosen("rest", *ITEMS) == ["slow", "each[2]", "each[3]", "both[0]", "both[1]", "some[2]"]
    assert chosen("long", *ITEMS) == ["both[2]", "some[3]", "some[4]"]
    assert chosen(None, *ITEMS) == [each.nodeid for each in ITEMS]


@pytest.mark.parametrize(
    "mark",
    [pytest.mark.thorough, pytest.mark.thorough(""), pytest.mark.thorough("why", 2), pytest.mark.thorough("why", to=2)],
)
def test_a_marker_without_its_reason_is_refused(mark: pytest.MarkDecorator) -> None:
    with pytest.raises(pytest.UsageError, match=r"test_it: use @pytest\.mark\.thorough"):
        chosen("test", Item("test_it", mark.mark))


class Process:
    """A worker of a parallel run, by the numbers of the tests that it was sent."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.sent += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


FILES = [f"tests/{name}.py::test_{number}" for name in "abcdef" for number in range(2)]


def started(*processes: Process) -> Any:
    config: Any = SimpleNamespace(
        getvalue=lambda name: {"tx": ["popen"] * len(processes)}[name], option=SimpleNamespace(loadscopereorder=False)
    )
    scheduler: Any = BothEnds(config, Producer("test", enabled=False))
    for each in processes:
        joins(scheduler, each)
    return scheduler


def joins(scheduler: Any, process: Process) -> None:
    scheduler.add_node(process)
    scheduler.add_node_collection(process, FILES)
    if scheduler.collection_is_completed:
        scheduler.schedule()


def test_half_of_the_processes_begin_with_the_last_file() -> None:
    processes = [Process(), Process()]
    scheduler = started(*processes)
    for done in range(len(FILES) // 2):
        for each in processes:
            scheduler.mark_test_complete(each, each.sent[done])
    assert processes[0].sent == [0, 1, 2, 3, 4, 5]
    assert processes[1].sent == [10, 11, 8, 9, 6, 7]


def test_a_run_ends_in_which_a_process_crashed() -> None:
    """A process runs a test once it was sent another one, or told that there is none."""
    crashes, stays, comes = (Process() for _ in range(3))
    scheduler = started(crashes, stays)
    done: dict[Process, int] = dict.fromkeys((stays, comes), 0)

    def run(process: Process) -> bool:
        runnable = len(process.sent) - (0 if process.shutting_down else 1)
        if done[process] >= runnable:
            return False
        scheduler.mark_test_complete(process, process.sent[done[process]])
        done[process] += 1
        return True

    for number in (0, 1, 2):
        scheduler.mark_test_complete(crashes, number)
    assert scheduler.remove_node(crashes) == FILES[3]
    joins(scheduler, comes)
    while any([run(stays), run(comes)]):
        pass
    assert scheduler.tests_finished
    assert stays.shutting_down
    assert comes.shutting_down
    assert sorted([0, 1, 2, *stays.sent, *comes.sent]) == list(range(len(FILES)))


class Terminal:
    """Keeps what is printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def ensure_newline(self) -> None: ...

    def write_line(self, line: str) -> None:
        self.lines.append(line)

    def section(self, title: str, **_: object) -> None:
        self.lines.append(title)

    line = write_line


@pytest.mark.parametrize(("said", "line"), [("no\nat all", "no"), ("  \n", ""), ("", "")])
def test_a_failure_is_told_at_once(said: str, line: str) -> None:
    terminal = Terminal()
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda _: terminal))
    places = [
        SimpleNamespace(path=path, lineno=7) for path in ("tests/a.py", "/usr/lib/queue.py", "tests/support/b.py")
    ]
    entries = [*(SimpleNamespace(reprfileloc=each) for each in places), SimpleNamespace(reprfileloc=None)]
    longrepr = SimpleNamespace(
        reprcrash=SimpleNamespace(message=said), reprtraceback=SimpleNamespace(reprentries=entries)
    )
    for failed in (True, False):
        report: Any = SimpleNamespace(failed=failed, nodeid="tests/a.py::test_b", when="call", longrepr=longrepr)
        AtOnce(config).pytest_runtest_logreport(report)
    assert terminal.lines == [
        f"FAILED tests/a.py::test_b (call): {line}",
        "    at tests/a.py:7",
        "    at tests/support/b.py:7",
    ]


def test_no_test_begins_when_the_minutes_are_over() -> None:
    clock = iter([100.0, 159.0, 161.0])
    run = Until(1, lambda: next(clock))
    run.pytest_runtest_setup()
    with pytest.raises(pytest.skip.Exception, match="not begun: the run's minutes are over"):
        run.pytest_runtest_setup()


def test_what_did_not_begin_is_counted() -> None:
    counting, terminal = Counting(), Terminal()
    printing: Any = terminal
    counting.pytest_terminal_summary(printing)
    assert terminal.lines == []
    skips = {
        "tests/b.py::test_1": "Skipped: not begun: the run's minutes are over",
        "tests/b.py::test_2": "Skipped: no",
    }
    for nodeid, why in {**skips, "tests/a.py::test_3[x]": skips["tests/b.py::test_1"]}.items():
        report: Any = SimpleNamespace(skipped=True, nodeid=nodeid, longrepr=("ending.py", 1, why))
        counting.pytest_runtest_logreport(report)
    counting.pytest_terminal_summary(printing)
    assert terminal.lines == ["2 tests did not begin in time", "They are in tests/a.py, tests/b.py."]


def test_a_server_runs_until_nobody_needs_it() -> None:
    events: list[str] = []

    @contextlib.contextmanager
    def server() -> Iterator[str]:
        events.append("starts")
        yield "server"
        events.append("ends")

    keeper = Keeper()
    assert [keeper.get("kafka", server) for _ in range(2)] == ["server", "server"]
    keeper.end_all_but({"kafka", "spark"})
    assert events == ["starts"]
    keeper.end_all_but({"spark"})
    assert events == ["starts", "ends"]
    keeper.get("kafka", server)
    assert events == ["starts", "ends", "starts"]
