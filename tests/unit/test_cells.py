"""The protocol over cells with compare-and-set: starts, writers, resets are the product's; the store is in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sinkpipeline.cells import ledger
from sinkpipeline.cells.store import Cell, Puts, Version
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.redrive import redrive_of
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.sinks import delivery, takeover, transactional
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.removal import SinkRemoval
from sinkpipeline.sinks.reset import SinkReset
from support.cells import TOPIC, Fate, MemoryPorts, MemorySource, MemoryTarget, Store
from support.sink.cell_driver import Driver
from support.sink.one_sink import rows
from support.sink.starts import refusal

P0, P1 = (SourcePartition(TOPIC, number) for number in range(2))
ENDS = {P0: 12, P1: 5}


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None)
    monkeypatch.setattr(takeover, "time", nothing)
    monkeypatch.setattr(transactional, "time", nothing)
    monkeypatch.setattr(delivery, "_ANNOUNCED_S", 0.0)


def ports_on(store: Store) -> MemoryPorts:
    return MemoryPorts(store, MemorySource(dict(ENDS)), MemoryTarget(store, table=None))


def delivered(store: Store) -> dict[SourcePartition, list[int]]:
    """By source partition, the offsets of the rows in the order of the store."""
    return {
        each: [int(value or b"") for value, key, *_ in store.rows if key == str(each).encode()] for each in (P0, P1)
    }


ONCE = {each: list(range(end)) for each, end in ENDS.items()}


def test_a_first_start_and_its_batches_and_a_resume() -> None:
    store = Store()
    first = Driver(ports_on(store), ENDS)
    first.batch()
    assert delivered(store) == {P0: [0, 1, 2, 3], P1: [0, 1, 2, 3]}

    second = Driver(first.ports, ENDS)
    second.drain()

    assert delivered(store) == ONCE
    meta = second.delivery.progress.meta
    assert meta is not None
    assert (meta.data, meta.partitions) == ("t1", {TOPIC: 2})
    assert refusal(first.batch, Reason.SUPERSEDED)
    assert delivered(store) == ONCE


def went_back(store: Store, before: Mapping[str, Cell]) -> None:
    """As a standby that took over without the last commits."""
    store.cells = dict(before)
    store.connections += 1


def test_a_store_that_went_back_is_noticed_where_no_record_comes() -> None:
    """No commit finds it out."""
    store = Store()
    driver = Driver(ports_on(store), ENDS, remembered=Remembered())
    driver.batch()
    before = dict(store.cells)
    driver.drain()
    store.connections += 1
    driver.delivery.check_world()
    went_back(store, before)
    with pytest.raises(Restart, match="went back"):
        driver.delivery.check_world()
    driver.delivery.close()
    refusal(driver.start, Reason.PROGRESS_REGRESSED)


def test_what_is_known_is_not_written_over_a_cell_that_went_back() -> None:
    """In the middle of a batch nobody looks: the rows that went with it would count as delivered."""
    store = Store()
    driver = Driver(ports_on(store), ENDS, remembered=Remembered())
    driver.batch()
    key = driver.ports.settings.id.partition_key(P1)
    before = store.cells[key]
    driver.drain()
    store.cells[key] = before
    with pytest.raises(Restart):
        driver.delivery.snapshot()
    assert store.cells[key] is before


def test_an_earlier_driver_of_a_store_that_went_back_is_no_newer_one() -> None:
    """Also where a task finds it, which knows of nothing else than another run."""
    store, remembered = Store(), Remembered()
    first = Driver(ports_on(store), ENDS, remembered=remembered)
    first.batch()
    before = dict(store.cells)
    first.delivery.close()
    driver = Driver(first.ports, ENDS, remembered=Remembered(remembered.memory))
    driver.batch()
    writer, offsets = next(driver.writers())
    went_back(store, before)
    told = refusal(lambda: driver.write(writer, offsets), Reason.SUPERSEDED)
    assert isinstance(driver.delivery.explained(told), Restart)
    driver.delivery.close()
    refusal(driver.start, Reason.PROGRESS_REGRESSED)


def test_a_task_that_meets_a_store_that_went_back_leaves_it_to_the_next_start() -> None:
    """What went back with the progress the task can't tell, and it would be an error for a person."""
    store = Store()
    driver = Driver(ports_on(store), ENDS, remembered=Remembered())
    before = dict(store.cells)
    driver.batch()
    writer, offsets = next(driver.writers())
    went_back(store, before)
    told = refusal(lambda: driver.write(writer, offsets), Reason.PROGRESS_REGRESSED)
    assert isinstance(driver.delivery.explained(told), Restart)
    driver.delivery.close()
    assert driver.starter.remembered.memory is not None
    assert driver.starter.remembered.memory.counted == 8
    # Here the rows are all there.
    refusal(driver.start, Reason.PROGRESS_REGRESSED)


def test_a_newer_driver_is_one_also_on_another_connection() -> None:
    store = Store()
    driver = Driver(ports_on(store), ENDS)
    driver.batch()
    Driver(driver.ports, ENDS).batch()
    store.connections += 1
    told = refusal(driver.delivery.check_world, Reason.SUPERSEDED)
    assert driver.delivery.explained(told) is told


Told = dict[str, list[Fate]]
"""What becomes of the first puts, and of the first commits."""

fates = st.fixed_dictionaries(
    dict.fromkeys(
        ("put", "commit"),
        st.lists(st.sampled_from([*["done"] * 8, "refused", "torn", "lost", 1, 3, 9]), max_size=20),
    )
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=fates, step=st.integers(1, 12), tears=st.booleans())
def test_whatever_becomes_of_answers_each_row_is_there_once(told: Told, step: int, tears: bool) -> None:
    left = {what: list(each) for what, each in told.items()}
    store = Store(fate=lambda what: left[what].pop(0) if left[what] else "done", tears=tears)
    ports = ports_on(store)
    started(ports, step).drain()
    assert delivered(store) == ONCE


def started(ports: MemoryPorts, step: int) -> Driver:
    """A driver is started again, as its runner would; what nobody may try again is an error."""
    for _ in range(50):
        try:
            return Driver(ports, ENDS, step)
        except SinkPipelineError as error:
            # What a driver that is gone has on its way may look like a newer one; a person starts it again.
            if not error.reason.retry and error.reason is not Reason.SUPERSEDED:
                raise
    raise AssertionError("it never started")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.sampled_from(["old", "new", "swap"]), max_size=20), told=fates, tears=st.booleans())
@example(
    turns=["new"] * 3,
    told={"put": ["done"] * 2 + ["refused"] * 4, "commit": ["done"] * 3 + ["refused"] * 2},
    tears=False,
)
def test_two_drivers_that_take_the_sink_from_each_other(turns: list[str], told: Told, tears: bool) -> None:
    left: Told = {"put": [], "commit": []}
    store = Store(fate=lambda what: left[what].pop(0) if left[what] else "done", tears=tears)
    ports = ports_on(store)
    old, new = Driver(ports, ENDS, 2), Driver(ports, ENDS, 3)
    left.update({what: list(each) for what, each in told.items()})
    for turn in turns:
        try:
            if turn == "swap":
                old, new = new, Driver(ports, ENDS, 2)
            else:
                (old if turn == "old" else new).batch()
        except Restart:
            continue
        except SinkPipelineError as error:
            if not error.reason.retry and error.reason is not Reason.SUPERSEDED:
                raise
    left.update({"put": [], "commit": []})
    Driver(ports, ENDS).drain()
    assert delivered(store) == ONCE


def test_a_first_start_whose_last_step_is_torn_begins_anew() -> None:
    puts: list[Fate] = ["done", "done", "done", "torn"]
    store = Store(fate=lambda what: puts.pop(0) if what == "put" and puts else "done", tears=True)
    Driver(ports_on(store), ENDS).drain()
    assert (puts, delivered(store)) == ([], ONCE)


def test_a_late_task_finds_out_where_it_would_commit() -> None:
    store = Store()
    old = Driver(ports_on(store), ENDS)
    late, offsets = next(old.writers())
    late.write(rows(offsets))

    new = Driver(old.ports, ENDS)
    error = refusal(late.finish, Reason.SUPERSEDED)

    assert new.started.run in error.message
    assert store.rows == []


def test_a_commit_that_comes_through_after_the_next_start_has_fenced_it_is_refused() -> None:
    slow = [100]
    store = Store(fate=lambda what: slow.pop() if what == "commit" and slow else "done")
    old = Driver(ports_on(store), ENDS)
    late, offsets = next(old.writers())
    late.write(rows(offsets, keys=[str(P0).encode()] * len(offsets)))
    late.finish()
    assert len(store._late) == 1, "its own recovery has delivered them"
    Driver(old.ports, ENDS).drain()
    for _ in range(100):
        store.read([])
    assert (store._late, delivered(store)) == ([], ONCE)


def test_a_reset_moves_all_cells_at_once_and_ends_who_runs() -> None:
    store = Store()
    driver = Driver(ports_on(store), ENDS)
    driver.batch()
    resetting = SinkReset(ports=driver.ports)

    resetting.carry_out(resetting.plan(parse_targets([f"{TOPIC}:0=1,{TOPIC}:1=earliest"])))

    refusal(driver.batch, Reason.SUPERSEDED)
    again = Driver(driver.ports, ENDS)
    states = again.delivery.progress.partitions
    assert {each: (state.epoch, state.next, state.rows) for each, state in states.items()} == {
        P0: (1, 1, 0),
        P1: (1, 0, 0),
    }
    again.batch()
    assert delivered(store)[P0] == [0, 1, 2, 3, 1, 2, 3, 4], "what a person has asked for"


def test_a_removal_leaves_no_cell() -> None:
    store = Store()
    driver = Driver(ports_on(store), ENDS)
    driver.batch()
    assert SinkRemoval(ports=driver.ports).carry_out() is None
    assert (store.cells, driver.ports.target.table) == ({}, None)


def test_a_removal_takes_the_cells_of_letters_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the redrive first."""
    monkeypatch.setattr(ledger, "MOST_AT_ONCE", 2)
    store = Store()
    driver = Driver(ports_on(store), ENDS)
    driver.batch()
    sink = driver.ports.settings.id
    redrives = {redrive_of(sink).partition_key(P0): (b"{}", None)}
    letters = {sink.letter_key(P0, at, "digest"): (b"{}", None) for at in range(5)}
    store.put({**letters, **redrives})
    put: list[Puts] = []
    real = store.put

    def noted(cells: Puts) -> Mapping[str, Version]:
        put.append(cells)
        return real(cells)

    monkeypatch.setattr(store, "put", noted)
    assert SinkRemoval(ports=driver.ports).carry_out() is None
    assert store.cells == {}
    gone = [[key for key, (value, _) in each.items() if value is None] for each in put]
    assert next(each for each in gone if each) == [*redrives]
    assert [len(each) for each in gone if set(each) & letters.keys()] == [2, 2, 1]
    assert gone[-1][-1] == sink.meta_key


def test_a_cell_that_is_gone_or_foreign_is_not_read_as_a_beginning() -> None:
    store = Store()
    driver = Driver(ports_on(store), ENDS)
    key = driver.ports.settings.id.partition_key(P0)
    kept = store.cells.pop(key)
    refusal(lambda: Driver(driver.ports, ENDS), Reason.PROGRESS_CORRUPT)
    store.cells[key] = type(kept)(b"{}", kept.version)
    refusal(lambda: Driver(driver.ports, ENDS), Reason.PROGRESS_CORRUPT)
