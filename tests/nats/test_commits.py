"""Rows and progress in one atomic batch, on a real server: what the suite of all kinds does not show."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from servers.nats import LocalNats
from sinkpipeline.core.errors import Reason
from sinkpipeline.sinks.contract import RowBatch
from support.sink.cell_sink import P0
from support.sink.nats_sink import NatsSink, batch, messages
from support.sink.starts import refusal
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(60)


def test_a_commit_is_one_batch_with_its_cell_first_and_each_row_names_its_record(sink: NatsSink) -> None:
    sink.driver(step=12).drain()
    assert sink.delivered() == sink.once
    of_p0 = [
        each for each in messages(sink.direct, sink.stream) if each[2].get("Nats-Batch-Commit") and each[3] == b"0:11"
    ]
    [(last, subject, headers, _)] = of_p0
    batch = [
        each for each in messages(sink.direct, sink.stream) if each[2].get("Nats-Batch-Id") == headers["Nats-Batch-Id"]
    ]
    (first, cell, of_cell, value), *rows = batch
    assert (last - first, subject, len(rows)) == (12, sink.subject, 12)
    assert cell == f"_sinkpipeline.v1.i%2E1.{sink.name}.p.{P0.topic}.0"
    assert json.loads(value)["next"] == 12
    assert (of_cell["Sinkpipeline-Behind"], json.loads(of_cell["Sinkpipeline-Before"])["next"]) == ("12", 0)
    assert of_cell["Nats-TTL"] == "never"
    assert [each[2]["Sinkpipeline-Offset"] for each in rows] == [str(each) for each in range(12)]


def test_a_restart_goes_on_where_the_cells_say(sink: NatsSink) -> None:
    first = sink.driver()
    first.batch()
    sink.driver().drain()
    refusal(first.batch, Reason.SUPERSEDED)
    assert sink.delivered() == sink.once


def test_a_commit_has_at_most_999_rows(nats: LocalNats) -> None:
    sink = NatsSink(nats.address, ends={P0: 2_500})
    sink.driver(step=2_500).drain()
    assert sink.delivered() == sink.once
    found = messages(sink.direct, sink.stream)
    assert [each[2]["Sinkpipeline-Behind"] for each in found if "Sinkpipeline-Behind" in each[2]] == [
        *("999", "999", "502")
    ]
    sink.close()


def test_a_server_that_takes_smaller_batches_gets_smaller_ones() -> None:
    with LocalNats(settings={"jetstream": {"limits": {"batch": {"max_msgs": 100}}}}) as server:
        sink = NatsSink(server.address, ends={P0: 1_200})
        sink.driver(step=1_200).drain()
        assert sink.delivered() == sink.once
        found = messages(sink.direct, sink.stream)
        assert max(int(each[2].get("Sinkpipeline-Behind", 0)) for each in found) < 100
        sink.close()


def test_a_record_with_more_rows_than_a_batch_takes_is_refused_alone(sink: NatsSink) -> None:
    def exploded(_partition: object, offsets: range) -> RowBatch:
        rows = {each: 1_000 if each == 2 else 1 for each in offsets}
        values: list[bytes | None] = [b"0:%d" % each for each, count in rows.items() for _ in range(count)]
        firsts = [0, *itertools.accumulate(rows.values())]
        return replace(batch(offsets, values), firsts=firsts)

    error = refusal(sink.driver(step=12, make=exploded).drain, Reason.RECORD_UNDECODABLE)
    assert "1000 rows don't fit into one batch" in error.message
    assert sink.delivered().keys() == {(0, 0), (0, 1)}


def test_rows_expire_and_the_progress_does_not(sink: NatsSink) -> None:
    sink.create(max_age=10**8)
    sink.driver(step=12).drain()
    wait_until(lambda: not sink.rows(), "the rows have expired")
    states = sink.driver().delivery.progress.partitions
    assert {each: state.next for each, state in states.items()} == sink.ends
