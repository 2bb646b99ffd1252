"""A cluster that tests and people can install the operator on, and what they must know of it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typing_extensions import Self

from servers.control_plane import Cluster

ROOT: Final = Path(__file__).parents[2]
DIRECTORY: Final = ROOT / "build" / "cluster"
_FILE: Final = "target.json"


@dataclass(frozen=True)
class Target:
    kind: str
    """`given`, `kind` or `local`."""
    kubeconfig: str
    kafka_host: str
    """An address of this machine that pods reach: brokers of tests listen there."""
    registry: str = "localhost"
    """Where the cluster has our images from."""

    @property
    def cluster(self) -> Cluster:
        return Cluster(Path(self.kubeconfig), DIRECTORY)

    def save(self) -> None:
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        (DIRECTORY / _FILE).write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls) -> Self | None:
        """That of the last `make cluster`; None where it was ended."""
        try:
            return cls(**json.loads((DIRECTORY / _FILE).read_text()))
        except FileNotFoundError:
            return None
