"""What the settings of a sink of cells are made of, beside what its kind has in the manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core.manifest import SecretRef
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.tls import Tls


@dataclass(frozen=True, kw_only=True)
class Given:
    id: SinkId
    owner: Owner
    """Of its progress."""
    source: Any
    """The source's own settings."""
    group_id: str
    """As which the source is read."""
    refuse_existing_data: bool
    exactly_once: bool
    stops_rolled_back: bool
    dead_letter: Any
    """Where its dead letters go."""
    tls: Tls | None
    """Its files, which are right."""
    secret_file: Callable[[SecretRef], str]
    """The path of a key of a Secret, which is there and can be read. Raises SinkPipelineError: SecretNotFound."""

    def secret(self, ref: SecretRef | None) -> str | None:
        return None if ref is None else self.secret_file(ref)

    @property
    def of_every_kind(self) -> dict[str, Any]:
        """Fields that the settings of each kind have."""
        names = ("id", "owner", "source", "group_id", "refuse_existing_data", "dead_letter", "exactly_once")
        return {name: getattr(self, name) for name in (*names, "stops_rolled_back")}
