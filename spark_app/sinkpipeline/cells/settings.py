"""What the settings of every sink have whose progress stands in cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.sinks.letters import LetterService


@dataclass(frozen=True, kw_only=True)
class CellSinkSettings:
    id: SinkId
    owner: Owner
    source: Any
    """The source's own settings."""
    group_id: str
    refuse_existing_data: bool = False
    adopt: Owner | None = None
    dead_letter: LetterService | None = None
    """None where a record that can't be delivered stops the sink."""
    exactly_once: bool = True
    stops_rolled_back: bool = False
    """`onRollback: Stop`."""

    @property
    def encodings(self) -> tuple[()]:
        """None: a row is what its expressions give."""
        return ()
