"""`make soak`: into topics.

One broker behind a proxy, the real command with an ExactlyOnce and an AtLeastOnce sink, a source that never stops.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from soak.faults import Driver, TopicFaults
from soak.feeder import Feeder
from soak.outcome import Judged, Outcome
from soak.storm import storm
from support.app.command import App, by_driver, manifest, sink
from support.worlds.faults import FaultyKafka, faulty_kafka

PARTITIONS: Final = 3
# As the feeder's bad values want it.
BAD_ROWS: Final = (
    "CASE CAST(value AS STRING) WHEN 'astray' THEN 99 WHEN 'zero' THEN CAST(1 DIV (length(value) - 4) AS INT) END"
)
# Whatever is broken here is mended soon.
PATIENT: Final = {"maxConsecutiveFailures": 10_000, "backoff": {"initial": "200ms", "max": "1s"}}


def soak(seconds: float, seed: int, directory: Path, console: Console) -> Outcome:
    outcome = Outcome(seed)
    with ExitStack() as stack:
        faulty = stack.enter_context(faulty_kafka())
        feeder = Feeder(faulty.direct, "soak-in", PARTITIONS, seed)
        document = fed(
            faulty,
            feeder,
            # Some batches are the driver's, others those of tasks.
            spark=by_driver(1000),
            transform={"select": {"partition": BAD_ROWS}},
            sinks=[with_letters(sink("exact")), with_letters(sink("relaxed", guarantee="AtLeastOnce"))],
        )
        driver = Driver(App(directory, document))
        stack.callback(driver.close)
        faults = TopicFaults(seed, faulty, driver, feeder, ["exact-progress", "relaxed-progress"])
        storm(outcome, seconds, faults, feeder, faulty.heal, outcome.sayer(console))
        good, bad = feeder.handled
        outcome.judged = [
            Judged("ExactlyOnce", good, feeder.judge("exact-out"), exact=True),
            Judged("AtLeastOnce", good, feeder.judge("relaxed-out"), exact=False),
            Judged("ExactlyOnce, dead letters", bad, feeder.judge_letters("exact-dead"), exact=True),
            Judged("AtLeastOnce, dead letters", bad, feeder.judge_letters("relaxed-dead"), exact=False),
        ]
    outcome.judge()
    return outcome


def fed(faulty: FaultyKafka, feeder: Feeder, **changes: Any) -> dict[str, Any]:
    """A pipeline that reads what never stops, and whose tombstones are bad rows."""
    return manifest(
        faulty.servers,
        "soak",
        [feeder.topic],
        # So that a batch is always running.
        trigger={"interval": "0s", "maxOffsetsPerTrigger": 3000},
        failurePolicy=PATIENT,
        decode={"format": "raw", "onNull": "DeadLetter"},
        **changes,
    )


def with_letters(document: dict[str, Any]) -> dict[str, Any]:
    topic = {"name": f"{document['name']}-dead", "partitions": 2, "replicationFactor": 1}
    return {**document, "deadLetter": {"topic": topic}}
