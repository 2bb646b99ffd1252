"""Removing what reads a database, with its slot there: of a pipeline that goes."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sinkpipeline.changes.settings import StageSettings, sink_settings
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kinds import ports

if TYPE_CHECKING:
    from sinkpipeline.changes.removal import StageRemoval


def stage_removal(stage: StageSettings, admin: Admin, announced: Collection[str] | None) -> StageRemoval:
    """The removal of a stage; `announced`: as of a sink's."""
    # Only who reads a database pays for the client.
    from sinkpipeline.changes.removal import StageRemoval  # noqa: PLC0415

    names = None if announced is None else frozenset(announced)
    return StageRemoval(ports=ports(sink_settings(stage), admin, admin), announced=names, stage=stage)
