"""What a worker's clock that is an hour slow costs: a writer with it beside one with the right time, in turns.

`make bench-slow-clock`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m slow_clock --rows N --rounds N`

One task's writer after the other, with dead letters and without Spark, on a data topic that takes rows up to an hour
ahead (Kafka's default). Rows have the right time, so each is beyond the limit by the slow clock, until a broker has
taken one: a worker finds that out in its first batch, once. The first round warms up and is not counted. The last lines
are what that costs, and the ratio of all later batches.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace
from unittest import mock

from record import Record, recording
from servers.local_kafka import LocalKafka
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.producers import transactional_config
from sinkpipeline.kafka.settings import DeadLetterSettings
from sinkpipeline.sinks import contract
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.driver import Driver
from support.sink.one_sink import OneSink, rows

BEHIND_S = 3700
"""An hour, and more than clocks may differ."""

USUAL, SLOW = "usual", "an hour slow"


@dataclass(frozen=True)
class Drain:
    first_s: float
    """Of the first batch."""
    rate: float
    """Rows/s of the others."""
    cpu_s: float
    """Of this process, client and driver included, for a million rows of the others."""


def drain(servers: str, batches: int, count: int, behind_s: float) -> Drain:
    """The first batches of a sink, by one worker."""
    sink = OneSink(servers)
    topics.create_topic(servers, sink.data, config={"message.timestamp.after.max.ms": "3600000"})
    real, worker = time.time, Worker()
    clock = SimpleNamespace(time=lambda: real() - behind_s)
    letters = DeadLetterSettings(topic=TopicRequest(name=sink.dead))
    with Driver(sink, dead_letter=letters) as driver, mock.patch.object(contract, "time", clock):
        began = time.monotonic()
        first_s = cpu_began = 0.0
        for number in range(batches):
            offsets = range(number * count, (number + 1) * count)
            plan = driver.plan(offsets.stop)
            batch = rows(offsets)
            now = int(real() * 1000)
            writer = ExactlyOnceWriter(plan, sink.at(), worker)
            writer.write(replace(batch, timestamps=[now] * count))
            writer.finish()
            receipt = writer.receipt()
            if receipt.clock_skew is not bool(behind_s):
                raise SystemExit(f"the clock was judged otherwise: {receipt}")
            driver.delivery.end(plan, [receipt])
            if not first_s:
                first_s, cpu_began = time.monotonic() - began, time.process_time()
        cpu_s = time.process_time() - cpu_began
        seconds = time.monotonic() - began
        [state] = driver.delivery.progress.partitions.values()
        if (state.rows, state.dead) != (batches * count, 0):
            raise SystemExit(f"rows were not delivered: {state}")
    later = (batches - 1) * count
    return Drain(first_s, later / (seconds - first_s), 1e6 * cpu_s / later)


def main() -> None:
    parser = argparse.ArgumentParser(prog="slow_clock", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="of a batch")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with recording("slow-clock", arguments) as record, LocalKafka(jvm_options=()) as kafka:
        connection = OneSink(kafka.bootstrap_servers).connection
        for name in (USUAL, SLOW):
            record.ran(name, producer=transactional_config(connection, "that of a partition"), clock={"clock": name})
        show(record, measure(kafka, arguments.rounds, arguments.batches, arguments.rows))


def measure(kafka: LocalKafka, rounds: int, batches: int, count: int) -> dict[str, list[Drain]]:
    found: dict[str, list[Drain]] = {USUAL: [], SLOW: []}
    order = random.Random(1)  # noqa: S311 - no secret
    for number in range(rounds + 1):
        for name in order.sample(list(found), len(found)):
            done = drain(kafka.bootstrap_servers, batches, count, BEHIND_S if name == SLOW else 0)
            rates = f"{done.rate:,.0f} rows/s, {done.cpu_s:.2f} CPU s"
            print(f"  round {number or 'warm-up'}: {name}: {done.first_s:.2f} s, {rates}", flush=True)
            if number:
                found[name].append(done)
    return found


def show(record: Record, found: dict[str, list[Drain]]) -> None:
    rows = []
    for name, drains in found.items():
        first, later = [each.first_s for each in drains], [each.rate for each in drains]
        record.bar("the first batch of a worker", "s", "one writer", name, first)
        record.bar("later batches of a worker", "rows/s", "one writer", name, later)
        rows.append(
            (name, _middle(first, ".2f"), _middle(later, ",.0f"), _middle([each.cpu_s for each in drains], ".2f"))
        )
    record.table(
        "a writer by its clock", ("clock", "first batch, s", "later batches, rows/s", "CPU s for a million rows"), rows
    )
    more = [slow.first_s - usual.first_s for slow, usual in zip(found[SLOW], found[USUAL], strict=True)]
    ratios = [slow.rate / usual.rate for slow, usual in zip(found[SLOW], found[USUAL], strict=True)]
    cpu = [slow.cpu_s / usual.cpu_s for slow, usual in zip(found[SLOW], found[USUAL], strict=True)]
    record.line(
        f"{SLOW}: {_middle(more, '.2f')} s more for the first batch of a worker; after it {SLOW} / {USUAL}: "
        f"{_middle(ratios, '.2f')} of the rows/s, {_middle(cpu, '.2f')} of the CPU s, n={len(ratios)}"
    )


def _middle(found: list[float], form: str) -> str:
    return f"{statistics.median(found):{form}} ({min(found):{form}} to {max(found):{form}})"


if __name__ == "__main__":
    main()
