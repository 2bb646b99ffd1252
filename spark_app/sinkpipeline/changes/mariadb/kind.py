"""MariaDB, as a stage reads it: what `changes.ports.Kind` names."""

from __future__ import annotations

from sinkpipeline.changes.binlog.beside import copy_table_of
from sinkpipeline.changes.binlog.copying import copy
from sinkpipeline.changes.binlog.foreseen import foresee_of
from sinkpipeline.changes.binlog.reader import connect_as
from sinkpipeline.changes.binlog.start import begin, check
from sinkpipeline.changes.mariadb.dialect import DIALECT

__all__ = ["begin", "check", "connect", "copy", "copy_table", "foresee"]

connect = connect_as(DIALECT)
foresee = foresee_of(DIALECT)
copy_table = copy_table_of(DIALECT)
