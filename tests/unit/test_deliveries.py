"""Which of many failed deliveries is the cause; how rows are handed to a client."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.core.records import Row, columns
from sinkpipeline.kafka.deliveries import Deliveries, QueueStayedFull, produce_rows
from sinkpipeline.kafka.errors import is_record_error, verdict_of


class Message:
    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topic(self) -> str:
        return self._topic


CAUSE = (KafkaError(KafkaError.INVALID_TIMESTAMP), Message("data"))
NEIGHBOUR = (KafkaError(KafkaError._INVALID_DIFFERENT_RECORD), Message("data"))
PURGED = (KafkaError(KafkaError._PURGE_QUEUE), Message("progress"))
LATER = (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Message("dead"))


@pytest.mark.parametrize("told", list(itertools.permutations([CAUSE, NEIGHBOUR, PURGED])))
def test_the_cause_is_found_in_whatever_order_they_are_told(told: list[tuple[KafkaError, Message]]) -> None:
    deliveries = Deliveries()
    for error, message in (*told, LATER):
        deliveries.report(error, message)  # type: ignore[arg-type]
    assert deliveries.error is CAUSE[0]
    assert (deliveries.topic, deliveries.failed) == ("data", True)


def test_what_was_purged_tells_nothing() -> None:
    deliveries = Deliveries()
    deliveries.report(*PURGED)  # type: ignore[arg-type]
    assert (deliveries.error, deliveries.topic, deliveries.failed) == (None, None, True)


def test_a_neighbour_of_an_invalid_record_is_no_trouble_of_the_broker() -> None:
    deliveries = Deliveries()
    deliveries.report(*NEIGHBOUR)  # type: ignore[arg-type]
    assert deliveries.error is NEIGHBOUR[0]
    assert is_record_error(NEIGHBOUR[0])


def test_how_much_was_acknowledged() -> None:
    deliveries = Deliveries()
    assert deliveries.share(0) == 1
    deliveries.produced = 10
    assert (deliveries.share(10), deliveries.share(4), deliveries.share(0)) == (0, 0.6, 1)
    deliveries.report(*PURGED)  # type: ignore[arg-type]
    assert deliveries.share(4) == 0.5
    deliveries.begin()
    assert deliveries.share(0) == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, ErrorClass.RECORD_TOO_LARGE),
        (KafkaError.RECORD_LIST_TOO_LARGE, ErrorClass.RECORD_TOO_LARGE),
        (KafkaError.INVALID_TIMESTAMP, ErrorClass.INVALID_TIMESTAMP),
        (KafkaError.INVALID_RECORD, ErrorClass.RECORD_REFUSED),
        (KafkaError._UNKNOWN_PARTITION, ErrorClass.RECORD_REFUSED),
    ],
)
def test_what_a_refusal_says_of_the_record(code: int, expected: ErrorClass) -> None:
    verdict = verdict_of(KafkaError(code))
    assert (verdict.error_class, verdict.code) == (expected, KafkaError(code).name())
    assert verdict.text


HEADERS: list[tuple[str, str | bytes | None]] = [("name", b"content")]
ROWS: list[Row] = [(b"%d" % n, b"key", n % 3, 1_000 + n, HEADERS if n % 2 else None) for n in range(9)]


class Client:
    """Takes `room` rows, and as many more at each poll; refuses those whose value is in `refused`."""

    def __init__(self, room: int, refused: Mapping[bytes, int] | None = None) -> None:
        self.taken: list[tuple[object, ...]] = []
        self._step = self._room = room
        self._refused = refused or {}

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, *rest: object) -> None:
        if value in self._refused:
            raise KafkaException(KafkaError(self._refused[value]))
        if not self._room:
            raise BufferError
        self._room -= 1
        no_callback, no_alias, timestamp, headers = rest
        assert (topic, no_callback, no_alias) == ("data", None, None)
        self.taken.append((value, key, partition, timestamp, headers))

    def poll(self, _seconds: float) -> None:
        self._room = self._step

    def __len__(self) -> int:
        return self._step - self._room


@pytest.mark.parametrize("room", [1, 2, 8, 9, 10])
@pytest.mark.parametrize("given", [iter, columns], ids=["rows", "columns"])
def test_each_row_is_handed_over_once_however_full_the_queue_is(
    given: Callable[[list[Row]], Iterable[Row]], room: int
) -> None:
    client, deliveries = Client(room), Deliveries()
    produce_rows(client, "data", given(ROWS), deliveries, 1.0)  # type: ignore[arg-type]
    assert client.taken == ROWS
    assert deliveries.produced == len(ROWS)


def test_no_row_is_none() -> None:
    client, deliveries = Client(1), Deliveries()
    produce_rows(client, "data", [], deliveries, 1.0)  # type: ignore[arg-type]
    assert (client.taken, deliveries.produced) == ([], 0)


@pytest.mark.parametrize("room", [1, 5, 100])
@pytest.mark.parametrize("index", [0, 4, 8])
def test_a_refused_row_is_named_by_its_place(room: int, index: int) -> None:
    client, deliveries = Client(room, {b"%d" % index: KafkaError.MSG_SIZE_TOO_LARGE}), Deliveries()
    with pytest.raises(RecordRefused) as caught:
        produce_rows(client, "data", columns(ROWS), deliveries, 1.0)  # type: ignore[arg-type]
    assert caught.value.index == index
    assert client.taken == ROWS[:index]
    assert deliveries.produced == index + 1


def test_a_queue_that_stays_full_is_told() -> None:
    client, deliveries = Producer({"queue.buffering.max.messages": 5, "log_level": 0}), Deliveries()
    with pytest.raises(QueueStayedFull):
        produce_rows(client, "data", columns(ROWS), deliveries, 0.05)
    assert (len(client), deliveries.produced) == (5, 6)
