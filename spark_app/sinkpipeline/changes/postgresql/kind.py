"""PostgreSQL, as a stage reads it: what `changes.ports.Kind` names."""

from __future__ import annotations

from sinkpipeline.changes.postgresql.beside import copy_table
from sinkpipeline.changes.postgresql.exported import copy
from sinkpipeline.changes.postgresql.foreseen import foresee
from sinkpipeline.changes.postgresql.reader import Reader
from sinkpipeline.changes.postgresql.start import begin, check

__all__ = ["begin", "check", "connect", "copy", "copy_table", "foresee"]

connect = Reader
