"""A stage of a binary log keeps its word in every run that is tried, also where servers take over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase

from model.exploring import LONGER, explore_plays
from model.sought import Sought
from model.taking_over import play
from sinkpipeline.changes.binlog import taking_over as looking
from sinkpipeline.changes.binlog.executed import Executed
from sinkpipeline.changes.binlog.halves import Halves
from sinkpipeline.changes.binlog.reader import Reader
from sinkpipeline.changes.mysql.dialect import MysqlDialect
from sinkpipeline.changes.ports import Begun
from sinkpipeline.core.changes import taking_over
from sinkpipeline.core.changes.binlog_places import Places
from sinkpipeline.core.changes.course import Course
from sinkpipeline.core.changes.gtids import MysqlGtids
from sinkpipeline.core.changes.positions import BinlogPosition

pytestmark = pytest.mark.timeout(1800 * max(1.0, LONGER))

Patch = contextlib.AbstractContextManager[Any]


def explore(
    runs: int, phases: tuple[Phase, ...] = tuple(Phase), *, of: str = "takeover", with_seed: int | None = None
) -> None:
    """In the world of this name."""
    explore_plays(partial(play, of=of), runs, phases, with_seed=with_seed)


@pytest.mark.parametrize("runs", [30, pytest.param(500, marks=pytest.mark.thorough("more of the same runs"))])
@pytest.mark.parametrize("of", ["takeover", "alone"])
def test_a_stage_keeps_its_word(of: str, runs: int) -> None:
    explore(runs, of=of)


def _nothing_is_passed_over() -> Patch:
    return mock.patch.object(Executed, "passes", return_value=False)


def _passed_over_in_one_life_only() -> Patch:
    return mock.patch.object(BinlogPosition, "ahead", property(lambda _: ""))


def _nothing_is_added_to_what_was_executed() -> Patch:
    return mock.patch.object(Executed, "counts", return_value=None)


def _what_was_executed_is_what_the_server_has() -> Patch:
    """At that moment, and not before that place."""

    def with_executed(self: Reader, place: BinlogPosition) -> BinlogPosition:
        [(told,)] = self._side.rows("SELECT @@global.gtid_executed")
        return place if place.executed else place.with_executed(told)

    return mock.patch.object(Reader, "with_executed", with_executed)


def _changes_of_a_transaction_are_counted_in_one_life_only() -> Patch:
    begun = Course.begun
    return mock.patch.object(Course, "begun", lambda self, note="", before=0: begun(self, note, 0 * before))


def _a_part_of_a_transaction_is_one_more() -> Patch:
    inside = looking._inside

    def beyond(reader: Reader, place: BinlogPosition, begin: BinlogPosition) -> BinlogPosition:
        return inside(reader, replace(place, inside=max(1, place.inside - 1)), begin)

    return mock.patch.object(looking, "_inside", beyond)


def _the_newest_file_will_do() -> Patch:
    def newest(reader: Reader, _place: Any, log: str, files: Any, _executed: Any) -> Any:
        file = f"{log}.{files[-1].number:06d}"
        return files[-1].number, reader.ask(lambda dialect, wire: dialect.previous(wire, file))

    return mock.patch.object(looking, "_file", newest)


def _a_server_that_lacks_something_will_do() -> Patch:
    return mock.patch.object(MysqlDialect, "lacks", return_value=None)


def _any_server_is_the_same() -> Patch:
    return mock.patch.object(Reader, "check_server", return_value=None)


def _files_are_not_counted_on() -> Patch:
    begin_of = taking_over.begin_of

    def as_named(place: BinlogPosition, log: str, number: int, executed: Any, previous: Any) -> BinlogPosition:
        found = begin_of(place, log, number, executed, previous)
        return BinlogPosition(number << 32 | found.offset, 0, log, found.note)

    return mock.patch.object(taking_over, "begin_of", as_named)


def _before_others_a_part_may_come_behind() -> Patch:
    """The first transaction is taken for the one of which there is a part."""
    real = taking_over.transaction_of
    seen: list[str] = []

    def first(place: BinlogPosition) -> str | None:
        found = real(place)
        if place.inside and found:
            seen[:] = [found]
            return found
        return seen[0] if seen else found

    return mock.patch.object(looking.taking_over, "transaction_of", first)


def _begun_knows_nothing() -> Patch:
    make = Begun.__init__
    return mock.patch.object(Begun, "__init__", lambda self, note="", before=0: make(self, note.split("@")[0], before))


def _a_clone_lacks_nothing() -> Patch:
    return mock.patch.object(MysqlDialect, "missing", return_value=None)


def _a_clone_begins_with_its_log() -> Patch:
    return mock.patch.object(MysqlDialect, "unlogged", return_value=MysqlGtids())


def _a_half_is_whole() -> Patch:
    return mock.patch.object(Halves, "is_one", return_value=False)


def _a_file_ends_with_a_whole_event() -> Patch:
    return mock.patch.object(Halves, "may_end_with_one", return_value=False)


def _places_have_32_bits() -> Patch:
    """Those beyond 4 GiB are taken for others of the same file."""
    return mock.patch.object(Places, "passed", lambda self, head: setattr(self, "end", head.end))


OF_ONE_SERVER: list[Callable[[], Patch]] = [_a_half_is_whole, _a_file_ends_with_a_whole_event, _places_have_32_bits]
MUTATIONS: list[Callable[[], Patch]] = [
    _nothing_is_passed_over,
    _passed_over_in_one_life_only,
    _nothing_is_added_to_what_was_executed,
    _what_was_executed_is_what_the_server_has,
    _changes_of_a_transaction_are_counted_in_one_life_only,
    _a_part_of_a_transaction_is_one_more,
    _the_newest_file_will_do,
    _a_server_that_lacks_something_will_do,
    _any_server_is_the_same,
    _files_are_not_counted_on,
    _before_others_a_part_may_come_behind,
    _begun_knows_nothing,
    _a_clone_lacks_nothing,
    _a_clone_begins_with_its_log,
]


SOUGHT = [
    Sought(f"takeover: {each.__name__.strip('_')}", each, partial(explore, phases=(Phase.generate,)), 3000)
    for each in MUTATIONS
] + [
    Sought(f"alone: {each.__name__.strip('_')}", each, partial(explore, phases=(Phase.generate,), of="alone"), 3000)
    for each in OF_ONE_SERVER
]


@pytest.mark.thorough("each mutation; tests/model/test_mutations has those of sinks")
@pytest.mark.parametrize("sought", [pytest.param(each, id=each.name) for each in SOUGHT])
def test_the_model_finds(sought: Sought) -> None:
    sought.find()
