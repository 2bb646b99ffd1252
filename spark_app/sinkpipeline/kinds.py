"""All kinds of sinks: the one module that knows them. There is one so far."""

from __future__ import annotations

from sinkpipeline.core.ledger_ports import Ports
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import Claims
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KAFKA, KafkaPorts
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.sinks.contract import SinkKind


def kind_of(settings: SinkSettings) -> SinkKind:  # noqa: ARG001 - there is one so far
    return KAFKA


def ports(settings: SinkSettings, source_admin: Admin, admin: Admin) -> KafkaPorts:
    """What the protocol works with, by clients that somebody else may use too."""
    return KafkaPorts(settings, source_admin, admin)


class Clients:
    """What the sinks of one driver, or of one command, share: clients, and who of them writes where."""

    def __init__(self) -> None:
        self._admins: dict[Connection, Admin] = {}
        self._claims = Claims()

    def admin(self, connection: Connection) -> Admin:
        if connection not in self._admins:
            self._admins[connection] = Admin(connection)
        return self._admins[connection]

    def ports(self, settings: SinkSettings) -> Ports:
        """Likewise. One client serves both sides where they are one connection."""
        return KafkaPorts(
            settings, self.admin(settings.source.connection), self.admin(settings.connection), self._claims
        )
