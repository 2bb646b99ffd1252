"""What can be seen of sinks that are no topics, while no driver runs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.finding import Finding
from sinkpipeline.kafka import purify as kafka
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.inspection import Seen
from sinkpipeline.kinds.cells import cell_ports, loaded
from sinkpipeline.kinds.resolve import CellSettings, letters_of
from sinkpipeline.sinks.foreseen import begins, foreseen


def check_reached(sink: CellSettings) -> None:
    """Raises SinkPipelineError: SinkUnreachable, AuthenticationFailed, SinkRefused."""
    loaded(sink).look.check_reached(sink)


def purify(sink: CellSettings) -> Finding:
    """What is in its way is part of the finding."""
    try:
        return _purified(sink)
    except SinkPipelineError as error:
        return Finding(sink.id, None, error, called=sink.data.called)


def _purified(sink: CellSettings) -> Finding:
    kind, source_admin = loaded(sink), Admin(sink.source.connection)
    topics = kafka.readable_topics(sink.source, source_admin)
    ports = cell_ports(sink, source_admin, looks=True)
    with closing(ports.client):
        kind.look.check_names(ports)
        data, place, progress = kind.look.look(ports)
        decision = foreseen(sink, ports.source, topics, data=data, place=place, progress=progress)
        kind.look.check_rights(ports, data, place)
        wanted = letters_of(sink)
        letters = kafka.purify_letters(None if wanted is None else wanted.wanted, sink.source.connection)
        return Finding(
            sink.id,
            decision if kind.place_is_apart else replace(decision, create_progress=False),
            None,
            warnings=(*decision.drift, *letters.drift, *kind.look.fears(ports)),
            begins=begins(ports.source, decision),
            creates_dead_letters=letters.create,
            called=sink.data.called,
        )


def seen(sink: CellSettings, source_admin: Admin) -> Seen:
    """Raises SinkPipelineError."""
    ports = cell_ports(sink, source_admin, looks=True)
    with closing(ports.client):
        data, place, progress = loaded(sink).look.look(ports)
    return Seen(data=data, place=place, progress=progress)
