"""What the operator sees of a sink whose server has lost rows and progress, while no driver runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.redis import LocalRedis
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Owner, Progress
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.rolled_back import RolledBack
from sinkpipeline.core.status import SinkReport, SinkState, render
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.resolve import SinkSettings, resolve_sinks
from sinkpipeline.sinks.delivery import SinkDelivery
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.starting import SinkStarter
from sinkpipeline.sinks.worker import Worker
from sinkpipeline_operator.decide.decision import Decision, Standing, Step
from sinkpipeline_operator.decide.restarts import Restarts
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.observe.kafka_view import Found, KafkaView, Question
from sinkpipeline_operator.report.known import Known
from sinkpipeline_operator.report.sinks import sink_status
from support.app.command import manifest
from support.kafka import topics
from support.resource.redis import stream
from support.sink.dead_letters import records
from support.sink.redis_sink import of_offsets
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
COUNT, KEPT = 12, 4
SINK = "copy"
LOST = COUNT - KEPT
BACK = RolledBack(rows=LOST, offsets=LOST, partitions=1)


@pytest.fixture
def server() -> Iterator[LocalRedis]:
    """One of its own, as it is killed, and its files are replaced."""
    with LocalRedis(settings={"appendfsync": "always"}) as found:
        yield found


class Pipeline:
    """One on a cluster, whose drivers and operator are played without Kubernetes."""

    def __init__(self, brokers: str, server: LocalRedis) -> None:
        name = topics.unique("away")
        self.at = SourcePartition(f"{name}-in", 0)
        topics.create_topic(brokers, self.at.topic, config={"retention.ms": "-1"})
        topics.produce_whole(brokers, self.at.topic, records(COUNT))
        wanted = stream(SINK, name, servers=server.address)
        self.ref = Ref("test", name)
        self.manifest = parse_manifest(manifest(brokers, name, [self.at.topic], sinks=[wanted]))
        self.status: dict[str, Any] = {}

    def settings(self, files: Path | None = None) -> SinkSettings:
        [found] = resolve_sinks(self.manifest, files)
        return replace(found, owner=Owner(cluster="c", name=str(self.ref)))

    def drive(self, end: int) -> RolledBack | None:
        """A driver that knows the status, up to this offset; its last status becomes the resource's.

        Returns:
            what it says that the sink has lost.
        """
        worker = Worker()
        memory = memory_of(self.status, self.manifest.identity, SINK) if self.status else None
        progress: list[Progress] = []
        with Clients() as clients:
            starter = SinkStarter(ports=clients.ports(self.settings()), remembered=Remembered(memory))
            started = starter.start()
            delivery = SinkDelivery(starter, started, lambda found, _rows: progress.append(found))
            plan = delivery.begin({self.at: OffsetRange(delivery.frontier[self.at].next, end)})
            writer = ExactlyOnceWriter(plan, self.at, worker)
            writer.write(of_offsets(self.at, range(plan.ranges[self.at].start, end)))
            writer.finish()
            delivery.end(plan, [writer.receipt()])
            progress.append(delivery.progress)
        for kept in worker._shared.values():
            kept.close()
        report = SinkReport(name=SINK, exactly_once=True, state=SinkState.RUNNING, progress=progress[-1], proved=True)
        self.status = render([report], identity=self.manifest.identity, generation=1, previous=None, now_ms=0)
        return started.rolled_back

    def look(self) -> Found:
        """The operator's own look, as no driver answers."""
        question = Question(
            ref=self.ref,
            pipeline=self.manifest,
            config_hash="h",
            status=self.status,
            secrets={},
            cluster="c",
        )
        with KafkaView(every_s=60.0, tell=lambda _: None) as view:
            return wait_until(lambda: view.of(question), "it has looked")

    def tell(self, found: Found) -> dict[str, Any]:
        """The sink's part of the status that it writes."""
        stopped = Decision(step=Step.NOTHING, standing=Standing.STOPPED, why="Suspended", restarts=Restarts())
        known = Known(
            generation=1,
            previous=self.status,
            now_ms=0,
            identity=self.manifest.identity,
            sinks={SINK: "ExactlyOnce"},
            decision=stopped,
            observed=found.sinks,
            topics=found.topics,
            suspended=True,
        )
        sink = sink_status(known, SINK)
        self.status = {**self.status, "sinks": [sink]}
        return sink


def test_a_look_at_a_server_that_went_back_forgets_nothing(kafka: LocalKafka, server: LocalRedis) -> None:
    """Otherwise the next driver would not know that rows were lost, and how many: nobody would be told."""
    pipeline = Pipeline(kafka.bootstrap_servers, server)
    assert pipeline.drive(KEPT) is None
    server.keep_files()
    assert pipeline.drive(COUNT) is None
    server.put_files_back()

    found = pipeline.look()
    assert SINK not in found.sinks, "what is older than what is remembered is no news"
    told = pipeline.tell(found)
    assert [each["next"] for each in told["frontier"]] == [[COUNT]]
    assert (told["rowsDelivered"], "rolledBack" in told) == (COUNT, False)

    assert pipeline.drive(COUNT) == BACK
    assert pipeline.status["sinks"][0]["rolledBack"] == LOST

    # What the operator sees of it from here on is as the driver has told it, until a reset.
    found = pipeline.look()
    assert found.sinks[SINK]["rolledBack"] == LOST
    assert pipeline.tell(found)["rolledBack"] == LOST
    pipeline.status["sinks"][0].pop("rolledBack")
    assert pipeline.tell(pipeline.look())["rolledBack"] == LOST
