"""Which stage a test is in, which process runs it, and how long a shared server runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer

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


@pytest.mark.parametrize(("said", "line"), [("no\nat all", "no"), ("  \n", ""), ("", "")])
def test_a_failure_is_told_at_once(said: str, line: str) -> None:
    lines: list[str] = []
    terminal = SimpleNamespace(ensure_newline=lambda: None, write_line=lines.append)
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda _: terminal))
    crash = SimpleNamespace(reprcrash=SimpleNamespace(message=said))
    for failed in (True, False):
        report: Any = SimpleNamespace(failed=failed, nodeid="tests/a.py::test_b", when="call", longrepr=crash)
        AtOnce(config).pytest_runtest_logreport(report)
    assert lines == [f"FAILED tests/a.py::test_b (call): {line}"]


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
