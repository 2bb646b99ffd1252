"""What the operator sees of a sink while no driver runs, on a real broker."""

from __future__ import annotations

import re

import pytest

from servers.local_kafka import LocalKafka, run_command
from sinkpipeline.core.held_back import HeldBack
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.inspection import inspect
from sinkpipeline.kafka.source.ends import SourceEnds
from support.kafka import topics
from support.kafka.raw import hang_a_transaction
from support.sink.one_sink import OneSink, deliver
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts")]


@pytest.mark.parametrize(("read_committed", "lag", "held"), [(True, 25, HeldBack(1)), (False, 26, None)], ids=str)
def test_the_lag_is_up_to_where_a_driver_would_read(
    filled: OneSink, read_committed: bool, lag: int, held: HeldBack | None
) -> None:
    source = {"read_committed": read_committed}
    deliver(filled, filled.start(source=source), range(5))
    with topics.open_transaction(filled.servers, topics.unique("foreign"), [(filled.source, b"k", b"v")]):
        report = inspect(filled.settings(source=source), None)
    assert (report.error, report.lag, report.held_back) == (None, lag, held)


def test_a_transaction_that_stays_open_in_the_source_is_told_of_until_it_ends(filled: OneSink) -> None:
    """As a driver looks again and again."""
    source = filled.settings().source
    ends = SourceEnds(source, Admin(source.connection), patience_s=0.5)
    before = ends.read()
    assert ends.held_back == HeldBack(0)

    def hanging() -> bool:
        assert ends.read() == before, "readers get no further"
        assert ends.held_back is not None
        assert ends.held_back.offsets == 2
        return ends.held_back.open_transaction is not None

    records = [(filled.source, b"k", b"1"), (filled.source, b"k", b"2")]
    with topics.open_transaction(filled.servers, topics.unique("foreign"), records) as producer:
        assert not hanging(), "it has just begun"
        wait_until(hanging, "what stays open is told of", 30.0)
        assert ends.held_back is not None
        assert ends.held_back.open_transaction is not None
        assert f"that began at offset {before[filled.at()]} has" in ends.held_back.open_transaction.message
        producer.commit_transaction()
        wait_until(lambda: ends.read() != before, "what was held back can be read", 30.0)
    assert ends.held_back == HeldBack(0)


@pytest.mark.thorough("a broker of its own, and Java for each command")
def test_what_is_told_of_a_hanging_transaction_ends_it_as_it_is_printed() -> None:
    """One that no coordinator knows. The commands are Kafka's own."""
    with LocalKafka(properties={"transaction.partition.verification.enable": "false"}) as kafka:
        sink = OneSink(kafka.bootstrap_servers)
        topics.alter_topic(sink.servers, sink.source, {"retention.ms": "-1"})
        topics.produce_numbers(sink.servers, sink.source, 3)
        hang_a_transaction(sink.servers, sink.source)
        source = sink.settings().source
        ends = SourceEnds(source, Admin(source.connection), patience_s=0.5)

        def told() -> str:
            ends.read()
            found = ends.held_back and ends.held_back.open_transaction
            return found.remedy if found else ""

        wait_until(lambda: bool(told()), "what stays open is told of", 30.0)
        describe, list_, find, abort = re.findall(r"`kafka-transactions\.sh ([^`]*)`", told())
        open_at = [line.split() for line in transactions(describe).splitlines() if line.startswith("4711")]
        assert [line[-1] for line in open_at] == ["3"], "its ProducerId, by the CurrentTransactionStartOffset"
        assert "4711" not in transactions(list_), "no coordinator knows it"
        assert "4711" in transactions(find), "so it hangs"
        transactions(abort)
        ends.read()
        assert ends.held_back == HeldBack(0)


def transactions(arguments: str) -> str:
    return run_command("org.apache.kafka.tools.TransactionsCommand", *arguments.split())
