"""All kinds of sinks: the one package that knows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from typing_extensions import Self

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Ports
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import Claims
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KAFKA, KafkaPorts, topic_ids
from sinkpipeline.kafka.letters import KafkaLetters
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kafka.source.source import KafkaSource
from sinkpipeline.kinds.resolve import SinkSettings
from sinkpipeline.postgresql.client import Client
from sinkpipeline.postgresql.kind import POSTGRESQL, PostgresqlPorts
from sinkpipeline.postgresql.settings import SinkSettings as PostgresqlSettings
from sinkpipeline.sinks.contract import SinkKind


def kind_of(settings: SinkSettings) -> SinkKind:
    return KAFKA if isinstance(settings, KafkaSettings) else POSTGRESQL


def kafka_alone(settings: SinkSettings, what: str) -> KafkaSettings:
    """The settings of a sink of which something is asked that other kinds don't have yet; `what`: such as `preview`.

    Raises:
        SinkPipelineError: NotServed.
    """
    if isinstance(settings, KafkaSettings):
        return settings
    raise SinkPipelineError(
        Reason.NOT_SERVED, f"sink {settings.id.sink} is a table: {what} is for topics so far", "name a kafka sink"
    )


def lettered(settings: SinkSettings) -> KafkaSettings | None:
    """As whose dead letters are listed, shown and purged; None where the sink has none."""
    if isinstance(settings, KafkaSettings):
        return None if settings.dead_letter is None else settings
    letters = letters_of(settings)
    return None if letters is None else letters.as_kafka(settings.owner)


class Clients:
    """What the sinks of one driver, or of one command, share: clients, and who writes where. Use it in a `with`."""

    def __init__(self) -> None:
        self._admins: dict[Connection, Admin] = {}
        self._claims = Claims()
        self._sessions: list[Client] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions:
            session.close()

    def admin(self, connection: Connection) -> Admin:
        if connection not in self._admins:
            self._admins[connection] = Admin(connection)
        return self._admins[connection]

    def ports(self, settings: SinkSettings) -> Ports:
        """What the protocol works with. One client serves source and sink where they are one connection."""
        source_admin = self.admin(settings.source.connection)
        if isinstance(settings, PostgresqlSettings):
            found = ports_of_a_table(settings, source_admin, self._claims)
            self._sessions.append(found.client)
            return found
        return KafkaPorts(settings, source_admin, self.admin(settings.connection), self._claims)


@contextmanager
def opened(settings: SinkSettings, admin: Admin) -> Iterator[Ports]:
    """Likewise, by a client that somebody else may use too, and that is asked for source and sink alike."""
    if isinstance(settings, PostgresqlSettings):
        found = ports_of_a_table(settings, admin)
        with closing(found.client):
            yield found
    else:
        yield ports(settings, admin, admin)


def ports(settings: KafkaSettings, source_admin: Admin, admin: Admin) -> KafkaPorts:
    """Of a topic, likewise."""
    return KafkaPorts(settings, source_admin, admin)


def ports_of_a_table(
    settings: PostgresqlSettings, source_admin: Admin, claims: Claims | None = None
) -> PostgresqlPorts:
    """With a connection of its own, as one is of one thread at a time; `claims`: of the driver that it is for."""
    letters = letters_of(settings)
    return PostgresqlPorts(
        settings,
        KafkaSource(settings.source, settings.group_id, source_admin),
        lambda topics: topic_ids(source_admin.topics(tuple(topics))),
        Client(settings.connection),
        None if letters is None else letters.target(source_admin, claims),
    )


def letters_of(settings: PostgresqlSettings) -> KafkaLetters | None:
    """Where dead letters of a table go."""
    found = settings.dead_letter
    if found is not None and not isinstance(found, KafkaLetters):
        raise TypeError(f"dead letters that are in no topic: {type(found).__name__}")
    return found
