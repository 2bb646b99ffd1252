"""What can be seen of Redis' streams while no driver runs. As `redis_streams`, only who has one loads it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from sinkpipeline.core.finding import Finding
from sinkpipeline.kafka import purify as kafka
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.inspection import Seen
from sinkpipeline.kinds import redis_streams
from sinkpipeline.kinds.resolve import letters_of
from sinkpipeline.redis_streams import look
from sinkpipeline.redis_streams.settings import SinkSettings
from sinkpipeline.sinks.foreseen import begins, foreseen


def check_reached(sink: SinkSettings) -> None:
    """Raises SinkPipelineError: SinkUnreachable, AuthenticationFailed, SinkRefused."""
    look.check_reached(sink)


def purify(sink: SinkSettings) -> Finding:
    """Raises SinkPipelineError."""
    source_admin = Admin(sink.source.connection)
    topics = kafka.readable_topics(sink.source, source_admin)
    found = redis_streams.ports(sink, source_admin, looks=True)
    with closing(found.client):
        found.target.check_names()
        data, place, progress = look.look(found)
        decision = foreseen(sink, found.source, topics, data=data, place=place, progress=progress)
        look.check_rights(found)
        wanted = letters_of(sink)
        letters = kafka.purify_letters(None if wanted is None else wanted.wanted, sink.source.connection)
        return Finding(
            sink.id,
            # What keeps the progress is made with the stream, beside it.
            replace(decision, create_progress=False),
            None,
            warnings=(*decision.drift, *letters.drift, *look.fears(found)),
            begins=begins(found.source, decision),
            creates_dead_letters=letters.create,
            called="stream",
        )


def seen(sink: SinkSettings, source_admin: Admin) -> Seen:
    """Raises SinkPipelineError."""
    found = redis_streams.ports(sink, source_admin, looks=True)
    with closing(found.client):
        data, place, progress = look.look(found)
    return Seen(data=data, place=place, progress=progress)
