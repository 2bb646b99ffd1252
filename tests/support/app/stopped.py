"""A pipeline that has delivered something and is not running, made without Spark: by the product's own parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sinkpipeline.cli.manifest_file import read_manifest
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.status import SinkReport, render
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kinds import kafka_alone, ports
from sinkpipeline.kinds.resolve import SinkSettings as AnySettings
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.delivery import SinkDelivery
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.starting import SinkStarter
from sinkpipeline.sinks.worker import Worker
from support.app.command import App
from support.kafka.streams import Stream
from support.sink.one_sink import rows


class StoppedPipeline:
    """Every sink of an app's manifest has delivered `delivered` rows of partition 0; the status file says so too."""

    def __init__(self, app: App, source: Stream, delivered: int) -> None:
        pipeline = read_manifest(app.manifest)
        self._app = app
        self.sinks = {settings.id.sink: settings for settings in _topics(resolve_sinks(pipeline, None))}
        self.progress = {name: _deliver(settings, source, delivered) for name, settings in self.sinks.items()}
        reports = [
            SinkReport(name=name, exactly_once=settings.exactly_once, progress=self.progress[name])
            for name, settings in self.sinks.items()
        ]
        status = render(reports, identity=pipeline.identity, generation=None, previous=None, now_ms=0)
        app.status_file.write_text(json.dumps(status))

    def misremember(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Changes what the status file says of a sink."""
        status = self._app.status()
        [found] = [each for each in status["sinks"] if each["name"] == name]
        change(found)
        self._app.status_file.write_text(json.dumps(status))


def _topics(sinks: list[AnySettings]) -> list[SinkSettings]:
    return [kafka_alone(each, "a stopped pipeline") for each in sinks]


def _deliver(settings: SinkSettings, source: Stream, count: int) -> Progress:
    admin = Admin(settings.connection)
    starter = SinkStarter(ports=ports(settings, admin, admin))
    delivery = SinkDelivery(starter, starter.start(), lambda _progress, _rows: None)
    partition = SourcePartition(source.topic, 0)
    plan = delivery.begin({partition: OffsetRange(0, count)})
    writer = (ExactlyOnceWriter if settings.exactly_once else AtLeastOnceWriter)(plan, partition, Worker())
    values: list[bytes | None] = [f"0:{number}".encode() for number in range(count)]
    writer.write(rows(range(count), keys=values, values=values))
    writer.finish()
    delivery.end(plan, [writer.receipt()])
    delivery.close()
    starter.remembered.let_go()
    return delivery.progress
