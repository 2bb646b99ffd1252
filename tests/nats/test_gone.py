"""Stores that went back, were purged or stand still, and what is known of an earlier connection."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from servers.nats import LocalNats
from sinkpipeline.cells.store import Moved
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.rolled_back import RolledBack
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.nats import client
from sinkpipeline.nats.subjects import cell_of
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.reset import SinkReset
from support.sink.cell_sink import P0, P1
from support.sink.nats_sink import NatsSink, api, messages
from support.sink.starts import refusal

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def server() -> Iterator[LocalNats]:
    """One of its own, as it is killed, and its files are replaced."""
    with LocalNats() as found:
        yield found


def reset(sink: NatsSink) -> None:
    """To the progress that is there."""
    states = sink.ports().ledger.observe().partitions
    there = ",".join(f"{each.topic}:{each.partition}={state.next}" for each, state in states.items())
    resetting = SinkReset(ports=sink.ports())
    resetting.carry_out(resetting.plan(parse_targets([there])))


def keep(server: LocalNats) -> None:
    """A copy of what it has."""
    server.kill()
    shutil.copytree(server.directory / "store", server.directory / "older")
    server.start()


def go_back(server: LocalNats) -> None:
    server.kill()
    shutil.rmtree(server.directory / "store")
    (server.directory / "older").rename(server.directory / "store")
    server.start()


def test_a_task_that_meets_it_first_leaves_it_to_the_next_start(server: LocalNats) -> None:
    sink = NatsSink(server.address)
    driver = sink.driver(remembered=Remembered())
    keep(server)
    for _ in range(2):
        with contextlib.suppress(Restart):
            driver.batch()
            break
        driver.start()
    writer, offsets = next(driver.writers())
    go_back(server)
    told = refusal(lambda: driver.write(writer, offsets), Reason.PROGRESS_REGRESSED)
    assert isinstance(driver.delivery.explained(told), Restart)
    driver.delivery.close()
    driver.start()
    assert driver.started.rolled_back == RolledBack(rows=8, offsets=8, partitions=2)
    driver.drain()
    assert sink.delivered() == sink.once
    sink.close()


def test_a_server_that_is_back_without_its_last_commits_is_told_and_goes_on(server: LocalNats) -> None:
    """As a machine of its own that failed before its disk had all, or a copy that was put back."""
    sink = NatsSink(server.address)
    driver = sink.driver(step=3, remembered=Remembered())
    driver.batch()
    keep(server)
    driver.drain()
    go_back(server)
    with pytest.raises(Restart, match="went back"):
        driver.delivery.check_world()
    driver.delivery.close()
    assert sink.delivered().total() == 6
    sink.changes = {"stops_rolled_back": True}
    memory = driver.starter.remembered.memory
    told = refusal(lambda: sink.driver(remembered=Remembered(memory)), Reason.SINK_ROLLED_BACK)
    assert "11 rows that were delivered, 11 offsets in 2 partitions" in told.message
    sink.changes = {}
    driver.start()
    assert driver.started.rolled_back == RolledBack(rows=11, offsets=11, partitions=2)
    driver.drain()
    assert sink.delivered() == sink.once
    sink.close()


def test_a_stream_that_went_back_to_before_its_first_start_is_left_to_a_person(server: LocalNats) -> None:
    """What a status remembers is not written back: the rows went with the progress."""
    sink = NatsSink(server.address)
    sink.create()
    keep(server)
    driver = sink.driver(remembered=Remembered())
    driver.drain()
    driver.delivery.close()
    go_back(server)
    memory = driver.starter.remembered.memory
    assert sink.delivered().total() == 0
    refusal(lambda: sink.driver(remembered=Remembered(memory)), Reason.PROGRESS_LOST)
    sink.close()


def test_progress_that_was_put_back_alone_stays_an_error_and_a_reset_goes_on(sink: NatsSink) -> None:
    """A person has deleted the newest message of a partition's progress, and not the rows behind it."""
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    driver.batch()
    driver.delivery.close()
    subject = cell_of(sink.settings.progress_subject, sink.settings.id.partition_key(P0))
    newest = [seq for seq, found, _, _ in messages(sink.direct, sink.settings.stream.name) if found == subject][-1:]
    for each in newest:
        assert "error" not in api(sink.direct, f"STREAM.MSG.DELETE.{sink.settings.stream.name}", seq=each)
    told = refusal(driver.start, Reason.PROGRESS_REGRESSED)
    assert "sinkpipeline reset" in told.remedy
    assert "does not prove that the 4 rows in between are gone too" in told.message
    before = sink.delivered()
    reset(sink)
    sink.driver().drain()
    assert sink.delivered() == before + Counter({(0, each): 1 for each in range(4, 12)})


def test_all_of_a_stream_purged_under_its_driver_is_left_to_a_person(sink: NatsSink) -> None:
    """With its rows the progress went: nothing is delivered again by a guess."""
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    sink.purge()
    told = refusal(driver.drain, Reason.PROGRESS_CORRUPT)
    assert "was removed" in told.message
    assert sink.delivered().total() == 0
    refusal(lambda: sink.driver(remembered=driver.starter.remembered), Reason.PROGRESS_LOST)


def test_a_version_of_another_connection_is_not_believed(sink: NatsSink) -> None:
    """A server that went back may give a sequence twice."""
    sink.driver()
    ports = sink.ports()
    cells, key = ports.ledger.cells, sink.settings.id.partition_key(P1)
    cell = cells.read([key])[key]
    assert cell.value is not None
    ports.client.close()
    with pytest.raises(InDoubt) as doubt:
        cells.put({key: (cell.value, cell.version)})
    assert doubt.value.aborted
    again = cells.read([key])[key]
    assert again == cell
    new = cells.put({key: (cell.value, cell.version)})[key]
    with pytest.raises(Moved):
        cells.put({key: (cell.value, cell.version)})
    assert cells.read([key])[key].version == new


def test_a_subject_that_is_another_streams_by_now_gets_nothing(sink: NatsSink) -> None:
    """It has no such cell, as a first start expects."""
    sink.create()
    cells, key = sink.ports().ledger.cells, sink.settings.id.meta_key
    cells.read([key])
    sink.update(subjects=[f"unused.{sink.name}"])
    other = {**sink.ports().target._asked(), "name": f"OTHER-{sink.name}"}
    assert "error" not in api(sink.direct, f"STREAM.CREATE.OTHER-{sink.name}", **other)
    refusal(lambda: cells.put({key: (b"{}", None)}), Reason.TOPICS_CHANGED)
    refusal(lambda: cells.put({key: (b"{}", None), f"{key}2": (b"{}", None)}), Reason.TOPICS_CHANGED)
    assert api(sink.direct, f"STREAM.INFO.OTHER-{sink.name}")["state"]["messages"] == 0


def test_a_server_that_answers_nobody_is_an_outage(
    sink: NatsSink, nats: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = sink.driver()
    driver.batch()
    writer, offsets = next(driver.writers())
    nats.pause()
    try:
        # Only here: one that answers may take longer on a busy machine.
        with monkeypatch.context() as shortly:
            shortly.setattr(client, "ANSWER_S", 0.5)
            refusal(lambda: driver.write(writer, offsets), Reason.SINK_UNREACHABLE)
    finally:
        nats.resume()
    driver.delivery.close()
    driver.start()
    driver.drain()
    assert sink.delivered() == sink.once


def test_a_commit_of_before_that_comes_late_writes_nothing(sink: NatsSink) -> None:
    """The same batch once more: it finds another cell."""
    driver = sink.driver(step=12)
    writer, offsets = next(driver.writers())
    writer.write(driver.make(P0, offsets))
    session = writer._session
    assert session is not None
    writer.finish()
    late = session._cells  # type: ignore[attr-defined]
    key = sink.settings.id.partition_key(P0)
    with pytest.raises(Moved):
        late.commit(key, b"{}", session._version - 13, session._rows)  # type: ignore[attr-defined]
    assert sink.delivered() == {each: 1 for each in sink.once if each[0] == 0}
