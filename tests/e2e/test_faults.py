"""The real command on a broker whose connections break: each record once, and a stop that ends."""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest

from servers.tcp_proxy import Api, Fate, Way
from support.app.command import App, Run, by_driver, manifest, sink
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.kafka.topics import unique
from support.worlds.faults import FaultyKafka, faulty_kafka

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

SEED = 20261123
RECORDS = 5_000
CUTS = 25
APIS = (Api.PRODUCE, Api.FETCH, Api.LIST_OFFSETS, Api.METADATA, Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN)
STOP_DEADLINE_S = 150.0


class Flow:
    """A pipeline with a sink of each guarantee, and its source."""

    def __init__(self, faulty: FaultyKafka, directory: Path) -> None:
        self.faulty = faulty
        self.name = unique("cuts")
        self.source = Stream(faulty.direct, f"{self.name}-in").create()
        document = manifest(
            faulty.servers,
            self.name,
            [self.source.topic],
            trigger={"interval": "500ms", "maxOffsetsPerTrigger": 400},
            spark=by_driver(200),
            # The second failure in a row would open a circuit; a second of health forgets the first.
            failurePolicy={
                "maxConsecutiveFailures": 2,
                "resetAfter": "1s",
                "backoff": {"initial": "500ms", "max": "1s"},
            },
            sinks=[
                sink("exact", topic=f"{self.name}-exact"),
                sink("relaxed", topic=f"{self.name}-relaxed", guarantee="AtLeastOnce"),
            ],
        )
        self.app = App(directory, document)

    def until_delivered(self, run: Run) -> None:
        def all_is_delivered() -> bool:
            sinks = self.app.status().get("sinks", [])
            return [each.get("rowsDelivered") for each in sinks] == [self.source.total] * 2

        run.eventually(all_is_delivered, "all is delivered")

    def cut_connections(self, run: Run) -> None:
        chance = random.Random(SEED)
        for _ in range(CUTS):
            self.source.feed(min(50, (RECORDS - self.source.total) // self.source.partitions))
            api, way = chance.choice(APIS), chance.choice(list(Way))
            with self.faulty.proxy.trap(api, way, Fate.CUT) as trap:
                run.eventually(partial(getattr, trap, "caught"), f"a connection is cut at {api.name}")

    def kill_the_broker(self, run: Run) -> None:
        """With a transaction committed, of which its task doesn't know."""
        self.source.feed(50)
        with self.faulty.proxy.trap(Api.END_TXN, Way.ANSWERS, held=True) as trap:
            run.eventually(lambda: trap.caught, "a transaction is committed")
            self.faulty.kafka.kill_broker(1)
        self.faulty.kafka.start_broker(1)

    def lose_the_broker(self, run: Run) -> None:
        """Between two batches, for longer than a circuit stands failures."""
        self.faulty.kafka.kill_broker(1)

        def outage_is_told() -> bool:
            return all(run.stderr.count(f"{each}: BrokerUnreachable: ") >= 2 for each in ("exact", "relaxed"))

        run.eventually(outage_is_told, "both sinks have tried again in vain")
        assert {each["state"] for each in self.app.status()["sinks"]} == {"Retrying"}
        self.faulty.kafka.start_broker(1)

    def stop_workers(self, run: Run) -> None:
        """And the broker, one after the other."""
        workers = run.workers()
        for worker in workers:
            worker.suspend()
        self.source.feed(50)
        self.faulty.kafka.pause_broker(1)
        for worker in workers:
            worker.resume()
        before = self.faulty.proxy.seen.total()
        run.eventually(lambda: self.faulty.proxy.seen.total() > before, "somebody asks the broker something")
        self.faulty.kafka.resume_broker(1)

    def judge(self) -> None:
        assert self.source.judge(f"{self.name}-exact") == EXACTLY_ONCE
        relaxed = self.source.judge(f"{self.name}-relaxed")
        assert (relaxed.missing, relaxed.foreign) == (0, 0)


@pytest.mark.long("minutes of broken connections; tests/kafka breaks them one by one")
def test_5000_records_flow_while_connections_break(tmp_path: Path) -> None:
    """Then the broker dies, workers and broker stand still; in the end nothing answers for good, and a stop ends."""
    with faulty_kafka() as faulty:
        flow = Flow(faulty, tmp_path)
        flow.source.feed(50)
        with flow.app.start() as run:
            flow.until_delivered(run)
            flow.cut_connections(run)
            flow.until_delivered(run)
            flow.judge()
            assert flow.source.total == RECORDS
            flow.kill_the_broker(run)
            flow.until_delivered(run)
            flow.stop_workers(run)
            flow.until_delivered(run)
            flow.lose_the_broker(run)
            flow.source.feed(50)
            flow.until_delivered(run)
            flow.judge()

            faulty.proxy.swallow(Way.REQUESTS)
            os.kill(run.pid, signal.SIGTERM)
            assert run.wait(STOP_DEADLINE_S) == 0, run.stderr
