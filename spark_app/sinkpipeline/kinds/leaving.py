"""Removing what reads a database, with what a start has made there: of a pipeline that goes."""

from __future__ import annotations

from collections.abc import Collection

from sinkpipeline.changes.settings import DatabaseSettings, StageSettings, sink_settings
from sinkpipeline.core.changes.dropping import Kept
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kinds import ports
from sinkpipeline.sinks.removal import SinkRemoval


def stage_removal(stage: StageSettings, admin: Admin, announced: Collection[str] | None) -> SinkRemoval:
    """The removal of a stage; `announced`: as of a sink's."""
    names = None if announced is None else frozenset(announced)
    own = ports(sink_settings(stage), admin, admin)
    if not isinstance(stage.database, DatabaseSettings):
        # Nothing was made there.
        return SinkRemoval(ports=own, announced=names)
    # Only who reads a database pays for the client.
    from sinkpipeline.changes.removal import StageRemoval  # noqa: PLC0415

    return StageRemoval(ports=own, announced=names, stage=stage)


def kept_in_database(removal: SinkRemoval) -> tuple[Kept, ...]:
    """What a removal that was carried out has left in the database."""
    return tuple(getattr(removal, "kept", ()))
