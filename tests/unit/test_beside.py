"""Looks beside the batches: who waits for them, what counts of them, and what they raise."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Mark
from sinkpipeline.sinks import beside
from sinkpipeline.sinks.beside import Beside
from sinkpipeline.sinks.contract import Restart
from support.waiting import wait_until

AT = SourcePartition("source", 0)


def marks(number: int) -> dict[SourcePartition, Mark]:
    """Those that look `number` finds."""
    return {AT: Mark(number, 0)}


class World:
    """The source of a sink, as slow as one likes."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.given: list[Mapping[SourcePartition, Mark]] = []
        self.error: Reason | None = None
        source = SimpleNamespace(beginnings=self._offsets, ends=self._offsets, marks=self._marks)
        self.ports: Any = SimpleNamespace(source=source, settings=SimpleNamespace(id="a/b"))

    @staticmethod
    def _offsets(*_: object, **__: object) -> dict[SourcePartition, int]:
        return {}

    def _marks(self, known: Mapping[SourcePartition, Mark], *_: object) -> Mapping[SourcePartition, Mark]:
        self.given.append(known)
        number = len(self.given)
        assert self.gate.wait(20)
        if self.error is not None:
            raise SinkPipelineError(self.error, "told", "remedy")
        return marks(number)

    def has_begun(self, looks: int) -> None:
        wait_until(lambda: len(self.given) == looks, f"{looks} looks have begun")


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.gate.set()


@pytest.fixture
def looks(world: World, monkeypatch: pytest.MonkeyPatch) -> Beside:
    """One is due at each batch."""
    monkeypatch.setattr(beside, "EVERY_S", -1.0)
    return Beside(world.ports, marks(0))


def is_done(looks: Beside) -> bool:
    return looks._look is not None and looks._look.done()


def test_no_batch_waits_for_a_look(world: World, looks: Beside) -> None:
    world.gate.clear()
    assert [looks.marks({}) for _ in range(5)] == [marks(0)] * 5
    world.gate.set()
    wait_until(lambda: looks.marks({}) != marks(0), "the look counts")
    assert world.given[0] == marks(0)


def test_none_begins_before_it_is_due(world: World) -> None:
    looks = Beside(world.ports, marks(0))
    assert looks.marks({}) == marks(0)
    assert looks._look is None


def test_a_look_compares_what_the_one_before_has_found(world: World, looks: Beside) -> None:
    """A mark that was found, and then replaced before anybody compared it, would prove nothing."""
    looks.marks({})
    world.has_begun(1)
    wait_until(lambda: is_done(looks), "the look is done")
    assert looks.marks({}) == marks(1)
    world.has_begun(2)
    assert world.given == [marks(0), marks(1)]


def test_another_source_is_for_the_next_start(world: World, looks: Beside) -> None:
    world.error = Reason.SOURCE_DATA_LOST
    looks.marks({})
    with pytest.raises(Restart, match="told"):
        wait_until(lambda: looks.marks({}) != marks(0), "never")


def test_an_outage_that_has_passed_ends_nothing(world: World, looks: Beside) -> None:
    world.error = Reason.BROKER_UNREACHABLE
    looks.marks({})
    wait_until(lambda: is_done(looks), "the look has failed")
    world.error = None
    wait_until(lambda: looks.marks({}) != marks(0), "a later one counts")


def test_who_can_wait_has_what_was_on_its_way_compared(world: World, looks: Beside) -> None:
    world.gate.clear()
    looks.marks({})
    world.has_begun(1)
    threading.Timer(0.1, world.gate.set).start()
    assert looks.marks_now({}) == marks(2)
    assert world.given == [marks(0), marks(1)]


@pytest.mark.parametrize("error", [Reason.SOURCE_DATA_LOST, Reason.BROKER_UNREACHABLE])
def test_who_can_wait_is_told(world: World, looks: Beside, error: Reason) -> None:
    world.error = error
    with pytest.raises(Restart if error is Reason.SOURCE_DATA_LOST else SinkPipelineError, match="told"):
        looks.marks_now({})


def test_what_a_look_has_found_is_remembered_at_the_end(looks: Beside) -> None:
    looks.marks({})
    wait_until(lambda: is_done(looks), "the look is done")
    assert looks.found() == marks(1)
    assert looks.found() == marks(1), "there is no other one"


def test_a_bug_in_a_look_keeps_nothing_from_being_remembered(
    world: World, looks: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    world.ports.source.marks = lambda *_: {}[AT]
    looks.marks({})
    wait_until(lambda: is_done(looks), "the look has failed")
    assert looks.found() == marks(0)
    assert "KeyError" in caplog.text


def test_at_the_end_nobody_waits_and_what_was_noted_is_for_the_next_start(world: World, looks: Beside) -> None:
    world.gate.clear()
    looks.marks({})
    assert looks.found() == marks(0)
    world.error = Reason.SOURCE_DATA_LOST
    world.gate.set()
    wait_until(lambda: is_done(looks), "the look has failed")
    assert looks.found() == marks(0)


def test_a_look_that_does_not_end_is_told_once(
    world: World, looks: Beside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(beside, "_TELL_AFTER_S", -1.0)
    world.gate.clear()
    for _ in range(4):
        looks.marks({})
    assert caplog.text.count("a look at the source's marks takes over") == 1
