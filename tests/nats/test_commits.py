"""Rows and progress in one atomic batch, on a real server: what the suite of all kinds does not show."""

from __future__ import annotations

import json

import pytest

from sinkpipeline.core.errors import Reason
from support.sink.nats_sink import P0, NatsSink, messages
from support.sink.starts import refusal

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
