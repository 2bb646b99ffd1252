"""The one place that reads, on a client that says what a test wants."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka import reading
from sinkpipeline.kafka.reading import Answers, Reading, first_records
from sinkpipeline.kafka.waiting import Waiting

AT = TopicPartition("t", 0, 3)


@dataclass(frozen=True)
class Event:
    at: int
    code: int | None = None
    number: int | None = 0
    """Of its partition; None of an event of the whole client."""

    def topic(self) -> str | None:
        return None if self.number is None else "t"

    def partition(self) -> int | None:
        return self.number

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


def end(at: int) -> Event:
    return Event(at, KafkaError._PARTITION_EOF)


@dataclass
class Client:
    """Gives one batch after the other, and then nothing."""

    batches: list[list[Event]]
    assigned: list[int] = field(default_factory=list)

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned += [each.offset for each in partitions]

    def consume(self, _count: int, _timeout_s: float) -> list[Event]:
        return self.batches.pop(0) if self.batches else []

    def poll(self, _timeout_s: float) -> None:
        return None


class Refused(Exception):
    pass


class GivenUp(Exception):
    pass


def give_up(position: int, waiting: Waiting) -> None:
    raise GivenUp(position, waiting.at_the_end)


def read(*batches: Iterable[Event], bound: int | None = None, **answers: Any) -> tuple[Reading, Client]:
    client: Any = Client([list(each) for each in batches])
    told = Answers(**{"failed": lambda error: Refused(error.code()), "held_back": give_up, **answers})
    return Reading(client, AT, told, bound=bound), client


def offsets(found: Iterable[Any]) -> list[int]:
    return [each.offset() for each in found]


RECORDS = [Event(3), Event(5), Event(6)]


def test_it_stops_at_its_bound_and_goes_on_from_there() -> None:
    found, _ = read(RECORDS[:2], RECORDS[2:], bound=6)
    assert offsets(found) == [3, 5]
    assert found.position == 6
    found.bound = 7
    assert (offsets(found), found.position) == ([6], 7)


def test_what_was_fetched_and_not_taken_is_there_for_the_next_time() -> None:
    found, _ = read(RECORDS, bound=7)
    assert next(iter(found)).offset() == 3
    assert offsets(found) == [5, 6]


def test_an_end_is_reached_without_a_record() -> None:
    """Behind it stand markers of transactions, and what was aborted."""
    found, _ = read([Event(3), end(9)], bound=9)
    assert (offsets(found), found.position) == ([3], 9)


def test_a_bound_that_nobody_knows_is_asked_for_at_the_end() -> None:
    found, _ = read([Event(3), end(4)], [Event(4), Event(5)], at_the_end=lambda: 6)
    assert (offsets(found), found.position) == ([3, 4, 5], 6)


@pytest.mark.parametrize(
    ("batches", "at_the_end"),
    [
        pytest.param([], False, id="no answer"),
        pytest.param([[Event(3)], [end(4)]], True, id="the end is told"),
        pytest.param([[Event(3), end(4)]], True, id="the end is told with a record"),
        pytest.param([[end(4)]], True, id="the end is further than the last record"),
        pytest.param([[end(3), Event(3)]], False, id="a record came behind the end"),
        pytest.param([[Event(3), Event(2, KafkaError._PARTITION_EOF)]], False, id="the end of long ago"),
    ],
)
def test_who_waits_knows_whether_it_is_at_the_end(batches: list[list[Event]], at_the_end: bool) -> None:
    """Then a transaction that is open holds it back; else nobody answers."""
    found, _ = read(*batches, bound=9)
    with pytest.raises(GivenUp) as caught:
        list(found)
    assert caught.value.args == (found.position, at_the_end)


def test_what_was_deleted_is_passed_over_where_that_is_allowed() -> None:
    gone = Event(-1, KafkaError._AUTO_OFFSET_RESET)
    found, client = read([gone], [Event(7)], bound=8, moved=lambda _: 7)
    assert (offsets(found), client.assigned) == ([7], [3, 7])
    with pytest.raises(Refused):
        list(read([gone], bound=8)[0])


@pytest.mark.parametrize(
    ("code", "passes"),
    [(KafkaError._TRANSPORT, True), (KafkaError.GROUP_AUTHORIZATION_FAILED, True), (KafkaError._FATAL, False)],
)
def test_errors_that_pass_are_outlived_by_every_reader(code: int, passes: bool) -> None:
    for take in (list[Any], lambda found: list(found.arrived(0.0))):  # type: Callable[[Any], Any]
        found, _ = read([Event(-1, code), *RECORDS], bound=7)
        if passes:
            assert offsets(take(found)) == [3, 5, 6]
        else:
            with pytest.raises(Refused):
                take(found)


def test_a_record_is_given_once() -> None:
    """The client may give some again that it had fetched before it was assigned."""
    found, _ = read([Event(2), *RECORDS, Event(5)], bound=7)
    assert offsets(found) == [3, 5, 6]


def test_it_is_told_of_an_open_transaction_and_then_given_up(caplog: pytest.LogCaptureFixture) -> None:
    def ask(*, at_the_end: bool, patience_s: float) -> None:
        reading.wait_or_give_up(
            Waiting(patience_s, at_the_end=at_the_end),
            "offset 4 of t",
            reading_log,
            writer=lambda: None,
            held=lambda writer: GivenUp("held", writer),
            silent=lambda: GivenUp("silent"),
        )

    reading_log = logging.getLogger("sinkpipeline.test")
    ask(at_the_end=True, patience_s=60.0)
    assert not caplog.records
    with pytest.raises(GivenUp, match=r"held.*somebody unknown"):
        ask(at_the_end=True, patience_s=-1.0)
    ask(at_the_end=False, patience_s=-1.0)


WANTED = {SourcePartition("t", number): 3 for number in range(4)}


def first(*batches: list[Event], patience_s: float = 0.0) -> dict[int, int]:
    client: Any = Client(list(batches))
    found = first_records(client, WANTED, patience_s)
    assert client.assigned == [3] * 4
    return {each.partition: message.at for each, message in found.items()}  # type: ignore[attr-defined]


def test_the_first_record_of_each_partition_is_that_at_its_offset_or_behind_it() -> None:
    records = [Event(2), Event(3), Event(4), Event(7, number=1), Event(3, KafkaError._TRANSPORT, 2), Event(3, number=2)]
    others = [Event(9, KafkaError._PARTITION_EOF, 3), Event(9, number=3)]
    assert first([*records, *others], patience_s=60) == {0: 3, 1: 7, 2: 3}, "and of the last one only its end is known"


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_what_is_told_instead_of_a_record_is_not_waited_for(code: int) -> None:
    rest = [Event(3, number=1), Event(3, number=2), Event(3, number=3)]
    assert first([Event(-1, code)], rest, patience_s=60) == {1: 3, 2: 3, 3: 3}


def test_what_is_wrong_with_the_whole_client_ends_it_and_so_does_time() -> None:
    refused = Event(-1, KafkaError.SASL_AUTHENTICATION_FAILED, None)
    assert first([Event(3)], [refused], patience_s=60) == {0: 3}
    assert first([Event(3)], patience_s=0.05) == {0: 3}
    assert first([Event(3)]) == {}
