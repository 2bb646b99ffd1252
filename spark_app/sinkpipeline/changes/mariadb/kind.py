"""MariaDB, as a stage reads it: what `changes.ports.Kind` names."""

from __future__ import annotations

from sinkpipeline.changes.mariadb.copying import copy
from sinkpipeline.changes.mariadb.foreseen import foresee
from sinkpipeline.changes.mariadb.reader import Reader
from sinkpipeline.changes.mariadb.start import begin, check

__all__ = ["begin", "check", "connect", "copy", "foresee"]

connect = Reader
