"""Which of many failed deliveries is the cause."""

from __future__ import annotations

import itertools

import pytest
from confluent_kafka import KafkaError

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.kafka.deliveries import Deliveries
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
