"""What the operator sees of a sink while no driver runs, on a real broker."""

from __future__ import annotations

import pytest

from sinkpipeline.kafka.inspection import inspect
from support.kafka import topics
from support.sink.one_sink import OneSink, deliver

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts")]


@pytest.mark.parametrize(("read_committed", "lag"), [(True, 25), (False, 26)], ids=str)
def test_the_lag_is_up_to_where_a_driver_would_read(filled: OneSink, read_committed: bool, lag: int) -> None:
    source = {"read_committed": read_committed}
    deliver(filled, filled.start(source=source), range(5))
    with topics.open_transaction(filled.servers, topics.unique("foreign"), [(filled.source, b"k", b"v")]):
        report = inspect(filled.settings(source=source), None)
    assert (report.error, report.lag) == (None, lag)
