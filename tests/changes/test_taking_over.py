"""A stage goes on with a slot that another program has read: what that had delivered is not delivered again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sinkpipeline.changes.postgresql.foreseen import foresee
from sinkpipeline.changes.settings import Slot
from sinkpipeline.core.changes.checkpoints import Checkpoint, from_debezium, from_place
from sinkpipeline.core.changes.positions import LogPosition, lsn_text
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.topics import TopicRequest
from support.changes.lab import CUT_AT_ONE, Killed, Lab, Life
from support.changes.oracle import check, in_topic
from support.kafka.topics import delete_topic

pytestmark = pytest.mark.kafka

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"
SMALL = CutPolicy(rows=1000, bytes=1 << 20, seconds=0.1)


def others(lab: Lab, start: Checkpoint, name: str = "new") -> dict[str, Any]:
    """A pipeline of another identity, which goes on with the slot of the one before."""
    return {
        "id": SinkId(f"{lab.name}-{name}", "changes"),
        "topic": TopicRequest(name=f"{lab.name}-{name}", partitions=3),
        "progress": progress_request(f"{lab.name}-{name}-progress", None),
        "database": {"slot": Slot(name=lab.slot, create=False), "start_from": start},
    }


def insert(lab: Lab, first: int, rows: int) -> None:
    lab.sql(f"INSERT INTO orders SELECT g, 'x' FROM generate_series({first}, {first + rows - 1}) AS g")


def stopped_after(lab: Lab, changes: int) -> LogPosition:
    """A stage is killed when it has delivered so many; where it stands."""

    def kill(told: dict[str, Any]) -> None:
        if told["event"] == "committed" and told["next"] >= changes:
            raise Killed

    lab.live(Life(kill), cuts=CUT_AT_ONE)
    return LogPosition(*lab.progress())


@pytest.fixture
def prepared(lab: Lab) -> Lab:
    lab.sql(TABLE)
    lab.watch()
    lab.live()
    return lab


@pytest.mark.parametrize(
    ("count", "index"), [pytest.param(4, 4, marks=pytest.mark.thorough("behind the last change of one")), (7, 3)]
)
def test_it_goes_on_at_a_change_of_a_transaction(prepared: Lab, count: int, index: int) -> None:
    insert(prepared, 0, 4)
    insert(prepared, 10, 6)
    stopped = stopped_after(prepared, count)
    assert stopped.index == index
    first = prepared.found()
    asked = others(prepared, from_place(str(stopped)))
    told = foresee(replace(prepared.settings(), **{**asked, "database": replaced(prepared, asked)})).told
    assert told == [f"starts for the first time, at {stopped}; creates nothing"]
    prepared.live(**asked)
    second = in_topic(prepared.servers, asked["topic"].name)
    assert len(second) == 10 - count
    check(prepared.expected(), [*first, *second])


def replaced(lab: Lab, asked: dict[str, Any]) -> Any:
    return replace(lab.settings().database, **asked["database"])


def test_an_offset_of_debezium_gives_the_transaction_whole(prepared: Lab) -> None:
    insert(prepared, 0, 4)
    committed = prepared.end_of_log()
    insert(prepared, 10, 6)
    offset = {"lsn_proc": committed + 8, "lsn_commit": committed, "lsn": committed + 8, "messageType": "INSERT"}
    asked = others(prepared, from_debezium(json.dumps(offset)))
    told = foresee(replace(prepared.settings(), **{**asked, "database": replaced(prepared, asked)})).told
    assert told[0] == f"starts for the first time, at {lsn_text(committed)} (0); creates nothing"
    assert told[1].endswith("that part comes again")
    prepared.live(**asked)
    check(prepared.expected()[4:], in_topic(prepared.servers, asked["topic"].name))


def test_what_the_slot_does_not_have_any_more_is_told(prepared: Lab) -> None:
    before = LogPosition(prepared.end_of_log())
    insert(prepared, 0, 4)
    prepared.live()
    asked = others(prepared, Checkpoint(at=before))
    error = prepared.refusal(**asked)
    assert error.reason is Reason.SOURCE_DATA_LOST
    assert f"startFrom is {before}" in str(error)
    [found] = foresee(replace(prepared.settings(), **{**asked, "database": replaced(prepared, asked)})).errors
    assert str(found) == str(error)


@pytest.mark.thorough("another place that can't be taken")
def test_a_place_that_the_server_has_not_reached_is_of_another_one(prepared: Lab) -> None:
    asked = others(prepared, Checkpoint(at=LogPosition(prepared.end_of_log() + (1 << 30))))
    assert prepared.refusal(**asked).reason is Reason.SOURCE_ROLLED_BACK


@contextmanager
def being_read(lab: Lab) -> Iterator[None]:
    stage = lab.start(cuts=SMALL)
    stage.wait_for("state")
    yield
    assert stage.end() == 0


@pytest.mark.thorough("another place that can't be taken")
def test_a_slot_that_is_read_is_not_taken_from_its_reader(prepared: Lab) -> None:
    at = Checkpoint(at=LogPosition(prepared.end_of_log()))
    with being_read(prepared):
        assert prepared.refusal(**others(prepared, at)).reason is Reason.SLOT_BUSY
        insert(prepared, 0, 4)
        prepared.caught_up()
    assert len(prepared.found()) == 4


@pytest.mark.thorough("a start that was interrupted")
def test_a_start_that_was_interrupted_begins_there_again(prepared: Lab) -> None:
    insert(prepared, 0, 4)
    stopped = stopped_after(prepared, 2)
    asked = others(prepared, Checkpoint(at=stopped))
    stage = prepared.start("stage-after-meta", **asked)
    stage.wait_at("stage-after-meta")
    stage.kill()
    prepared.live(**asked)
    assert len(in_topic(prepared.servers, asked["topic"].name)) == 2
    # From now on the progress decides.
    moved = {**asked, "database": {**asked["database"], "start_from": Checkpoint(at=LogPosition(1))}}
    insert(prepared, 10, 1)
    prepared.live(**moved)
    assert len(in_topic(prepared.servers, asked["topic"].name)) == 3


@pytest.mark.thorough("a progress topic that is gone")
def test_a_stage_whose_progress_was_lost_goes_on_in_its_topic(prepared: Lab) -> None:
    insert(prepared, 0, 4)
    stopped_after(prepared, 2)
    delete_topic(prepared.servers, f"{prepared.name}-progress")
    newest = max(each.place for each in prepared.found())
    start = Checkpoint(at=LogPosition(newest[0], newest[1] + 1))
    database = {"slot": Slot(name=prepared.slot, create=False), "start_from": start}
    assert prepared.refusal(database=database).reason is Reason.DATA_TOPIC_NOT_EMPTY
    prepared.live(database=database, refuse_existing_data=False)
    assert prepared.check() == 4
