"""A sink on a cluster that asks who we are, whose principal may only do what it was granted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AclOperation
from typing_extensions import override

from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection, Sasl
from sinkpipeline.kinds import ports
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.starting import SinkStarter, StartedSink
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.one_sink import OneSink, plan_of, rows
from support.worlds.secure import Door, Need, Right, SecureKafka, documented

NEEDS = documented()
PASSWORD = "secret"


@dataclass(frozen=True, kw_only=True)
class Secured(OneSink):
    """A sink whose principal may only do what it was granted; the tests themselves may do everything."""

    kafka: SecureKafka
    directory: Path
    user: str = field(default_factory=lambda: topics.unique("user"))

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        (self.directory / "password").write_text(PASSWORD)
        self.kafka.add_user(self.user, PASSWORD)

    @property
    @override
    def connection(self) -> Connection:
        return self.connect(self.user)

    def connect(self, user: str) -> Connection:
        sasl = Sasl(mechanism="SCRAM-SHA-512", username=user, password_file=str(self.directory / "password"))
        return Connection(bootstrap_servers=self.kafka.servers(Door.SASL), sasl=sasl)

    def right(self, need: Need) -> Right:
        names = {
            "source topic": self.source,
            "data topic": self.data,
            "progress topic": self.progress,
            "dead-letter topic": self.dead,
            "imported group": f"{self.name}-imported",
            "group of the sink": f"{self.name}.out",
        }
        return need.right({**names, "identity": self.name})

    def rights(self, command: str, *, creating: bool = False, cluster: str | None = None) -> list[Right]:
        """What the documentation says that a command needs."""
        return [
            self.right(need)
            for need in NEEDS
            if command in need.commands
            and (creating or need.operation is not AclOperation.CREATE)
            and cluster in (None, need.cluster)
        ]

    def grant(self, rights: Collection[Right]) -> None:
        self.kafka.grant(f"User:{self.user}", rights)

    def revoke(self, rights: Collection[Right]) -> None:
        for right in rights:
            self.kafka.revoke(f"User:{self.user}", right)

    def create_topics(self) -> None:
        topics.create_topic(self.servers, self.data)
        topics.create_topic(self.servers, self.progress, config=topics.COMPACTED)

    def feed(self, numbers: range) -> None:
        topics.produce_numbers(self.servers, self.source, len(numbers), start=numbers.start)

    def write(self, started: StartedSink, offsets: range, worker: Worker | None = None) -> None:
        """One batch: by the producer that this worker kept of the batch before, or by a new one."""
        owners = {} if worker is None else {self.at(): worker.token(started.run)}
        plan = plan_of(self, started, offsets.stop, owners=owners)
        writer = ExactlyOnceWriter(plan, self.at(), worker or Worker())
        writer.write(rows(offsets))
        writer.finish()

    def start_by_somebody_else(self) -> None:
        """A first start by a principal who may do everything."""
        connection = Connection(bootstrap_servers=self.servers)
        admin = Admin(connection)
        settings = self.settings(connection=connection, source={"connection": connection})
        SinkStarter(ports=ports(settings, admin, admin)).start().hold.close()
