"""What can be seen of tables while no driver runs. As `tables`, only who has one loads it."""

from __future__ import annotations

from contextlib import closing

from sinkpipeline.core.finding import Finding
from sinkpipeline.kafka import purify as kafka
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.inspection import Seen
from sinkpipeline.kinds import tables
from sinkpipeline.kinds.resolve import letters_of
from sinkpipeline.postgresql import look
from sinkpipeline.postgresql.settings import SinkSettings
from sinkpipeline.sinks.foreseen import begins, foreseen


def check_reached(sink: SinkSettings) -> None:
    """Raises SinkPipelineError: SinkUnreachable, AuthenticationFailed, SinkRefused."""
    look.check_reached(sink)


def purify(sink: SinkSettings) -> Finding:
    """Raises SinkPipelineError."""
    source_admin = Admin(sink.source.connection)
    topics = kafka.readable_topics(sink.source, source_admin)
    ports = tables.ports(sink, source_admin)
    with closing(ports.client):
        ports.target.check_names()
        look.check_schemas(ports)
        data, place, progress = look.look(ports)
        decision = foreseen(sink, ports.source, topics, data=data, place=place, progress=progress)
        look.check_rights(ports, data, place)
        wanted = letters_of(sink)
        letters = kafka.purify_letters(None if wanted is None else wanted.wanted, sink.source.connection)
        return Finding(
            sink.id,
            decision,
            None,
            warnings=(*decision.drift, *letters.drift, *look.fears(ports)),
            begins=begins(ports.source, decision),
            creates_dead_letters=letters.create,
            called="table",
        )


def seen(sink: SinkSettings, source_admin: Admin) -> Seen:
    """Raises SinkPipelineError."""
    ports = tables.ports(sink, source_admin)
    with closing(ports.client):
        data, place, progress = look.look(ports)
    return Seen(data=data, place=place, progress=progress)
