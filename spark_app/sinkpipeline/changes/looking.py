"""Whether a database can be read as a stage would: asked for by a person, before there is one. Creates nothing."""

from __future__ import annotations

from sinkpipeline.changes.postgresql.reader import Reader
from sinkpipeline.changes.settings import DatabaseSettings
from sinkpipeline.core.changes.beginning import Seen, check_slot, publication_missing
from sinkpipeline.core.changes.suitable import check_tables


def look(settings: DatabaseSettings) -> Seen:
    """The server, its slot and publication; whether the slot is this stage's only its progress can tell.

    Raises:
        SinkPipelineError: SourceUnsuitable, PublicationMissing, SlotLost, SourceRecreated, SourceUnreachable,
            AuthenticationFailed, SecretNotFound.
    """
    reader = Reader(settings)
    try:
        facts, seen = reader.facts(), reader.seen()
        if seen.identity.publication:
            check_tables(facts.tables, reader.where, require_full=settings.require_full)
        elif not settings.publication.create:
            raise publication_missing(f"{reader.where}: publication {settings.publication.name}")
        if seen.slot is not None:
            check_slot(seen.slot, seen.identity, reader.where)
        return seen
    finally:
        reader.close()
