"""All kinds of sinks: the one package that knows them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from typing_extensions import Self

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Ports
from sinkpipeline.core.redrive import Wanted
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import Claims
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KAFKA, KafkaPorts
from sinkpipeline.kafka.redrive import Redrive
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kinds.cells import cell_ports, loaded
from sinkpipeline.kinds.later import LaterPorts
from sinkpipeline.kinds.resolve import SinkSettings, letters_of
from sinkpipeline.sinks.contract import SinkKind


def kind_of(settings: SinkSettings) -> SinkKind:
    return KAFKA if isinstance(settings, KafkaSettings) else loaded(settings).kind


def kafka_alone(settings: SinkSettings, what: str) -> KafkaSettings:
    """The settings of a sink of which something is asked that other kinds don't have yet; `what`: such as `preview`.

    Raises:
        SinkPipelineError: NotServed.
    """
    if isinstance(settings, KafkaSettings):
        return settings
    raise SinkPipelineError(
        Reason.NOT_SERVED,
        f"sink {settings.id.sink} is a {settings.data.called}: {what} is for topics so far",
        "name a kafka sink",
    )


def lettered(settings: SinkSettings) -> KafkaSettings | None:
    """As whose dead letters are listed, shown and purged; None where the sink has none."""
    if isinstance(settings, KafkaSettings):
        return None if settings.dead_letter is None else settings
    letters = letters_of(settings)
    return None if letters is None else letters.as_kafka(settings.owner)


def redrive_of(settings: SinkSettings, wanted: Wanted, rate: float | None = None) -> Redrive:
    """A redrive of a sink that has dead letters. Close it."""
    seen = lettered(settings)
    if seen is None:
        raise ValueError(f"{settings.id} has no dead letters")
    if isinstance(settings, KafkaSettings):
        return Redrive(settings=seen, wanted=wanted, rate=rate)
    from sinkpipeline.kinds import redriving  # noqa: PLC0415 - only who redrives loads what does it

    return redriving.of_cells(settings, seen, wanted, rate)


class Clients:
    """What the sinks of one driver, or of one command, share: clients, and who writes where. Use it in a `with`."""

    def __init__(self) -> None:
        self._admins: dict[Connection, Admin] = {}
        self._claims = Claims()
        self._sessions = ExitStack()
        self._lock = threading.RLock()
        """Each sink of a driver makes its ports in a thread of its own."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sessions.close()

    def admin(self, connection: Connection) -> Admin:
        with self._lock:
            if connection not in self._admins:
                self._admins[connection] = Admin(connection)
            return self._admins[connection]

    def later(self, settings: SinkSettings) -> LaterPorts:
        """As `ports`, once something is asked of them."""
        return LaterPorts(settings, lambda: self.ports(settings))

    def ports(self, settings: SinkSettings) -> Ports:
        """What the protocol works with. One client serves source and sink where they are one connection."""
        source_admin = self.admin(settings.source.connection)
        if not isinstance(settings, KafkaSettings):
            found = cell_ports(settings, source_admin, self._claims)
            with self._lock:
                self._sessions.enter_context(closing(found.client))
            return found
        return KafkaPorts(settings, source_admin, self.admin(settings.connection), self._claims)


@contextmanager
def opened(settings: SinkSettings, admin: Admin) -> Iterator[Ports]:
    """Likewise, by a client that somebody else may use too, and that is asked for source and sink alike."""
    if not isinstance(settings, KafkaSettings):
        found = cell_ports(settings, admin)
        with closing(found.client):
            yield found
    else:
        yield ports(settings, admin, admin)


def ports(settings: KafkaSettings, source_admin: Admin, admin: Admin) -> KafkaPorts:
    """Of a topic, likewise."""
    return KafkaPorts(settings, source_admin, admin)
