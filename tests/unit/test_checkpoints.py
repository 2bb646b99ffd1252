"""Where another reader of a slot has stopped: nothing may be passed over by it that was not delivered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sinkpipeline.core.changes.checkpoints import CheckpointError, from_debezium, from_place
from sinkpipeline.core.changes.positions import LogPosition

AT_REST = {"lsn_proc": 846849904, "messageType": "COMMIT", "lsn_commit": 846849904, "lsn": 846849904, "txId": 739}


def test_an_lsn_is_where_whole_transactions_end() -> None:
    assert from_place("0/3279E770").at == LogPosition(0x3279E770)


def test_a_position_is_read_as_messages_print_it() -> None:
    at = LogPosition(0x1_3279E770, 439)
    assert from_place(str(at)).at == at


def test_debezium_at_rest_leaves_nothing_to_come_again() -> None:
    found = from_debezium(json.dumps(AT_REST))
    assert found.at == LogPosition(846849904)
    assert found.overlap == ""


@pytest.mark.parametrize(
    "inside",
    [
        {"lsn": 846850000, "messageType": "INSERT"},
        # A transaction that began before the one which was committed last.
        {"lsn": 846840000, "messageType": "INSERT"},
        # Its first row stands right behind the end of the transaction before.
        {"messageType": "INSERT"},
        # Releases before 3 do not say what it is of.
        {"messageType": None},
    ],
)
def test_a_transaction_of_which_a_part_was_delivered_comes_whole(inside: dict[str, Any]) -> None:
    found = from_debezium(json.dumps({**AT_REST, **inside}))
    assert found.at == LogPosition(846849904)
    assert found.overlap.startswith("Debezium had read all transactions up to 0/3279E770, and perhaps a part")


def test_what_kafka_connect_answers_is_read() -> None:
    answer = {"offsets": [{"partition": {"server": "shop"}, "offset": AT_REST}]}
    assert from_debezium(json.dumps(answer)) == from_debezium(json.dumps(AT_REST))


@pytest.mark.parametrize("snapshot", [{"snapshot": True}, {"snapshot": "INITIAL"}, {"snapshot": "true"}])
def test_a_snapshot_that_is_not_complete_is_no_place(snapshot: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="not completed"):
        from_debezium(json.dumps({**AT_REST, **snapshot}))
    assert from_debezium(json.dumps({**AT_REST, **snapshot, "snapshot_completed": True})).at == LogPosition(846849904)


@pytest.mark.parametrize("value", [0, -1, 1 << 64, 1.5, True, "0/1", "", [], {}])
def test_what_is_no_lsn_is_refused(value: object) -> None:
    with pytest.raises(CheckpointError, match="lsn_commit"):
        from_debezium(json.dumps({**AT_REST, "lsn_commit": value}))
