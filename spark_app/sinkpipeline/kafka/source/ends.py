"""Where the source ends, for whoever reads it: looked at again and again while a driver runs.

`SINKPIPELINE_OPEN_TRANSACTION_S` is for tests of the whole command: how long a transaction of the source may be open.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping

from sinkpipeline.core.held_back import PATIENCE_S, Held, HeldBack, held_back, look
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.settings import SourceSettings
from sinkpipeline.kafka.source.views import source_topics

_LOG = logging.getLogger("sinkpipeline.source")

_PATIENCE_S = float(os.environ.get("SINKPIPELINE_OPEN_TRANSACTION_S", PATIENCE_S))


class SourceEnds:
    """The end offsets of one source, and what its open transactions hold back. Of one thread."""

    def __init__(self, source: SourceSettings, admin: Admin, patience_s: float = _PATIENCE_S) -> None:
        self._source = source
        self._admin = admin
        self._patience_s = patience_s
        self._held: Mapping[SourcePartition, Held] = {}
        self.held_back: HeldBack | None = None
        """By the last look; None where the source is read up to its high watermarks: nothing is held back."""

    def read(self) -> dict[SourcePartition, int]:
        """Looks again: up to where each partition is read.

        Raises:
            SinkPipelineError: as Admin.
        """
        partitions = [
            SourcePartition(name, number)
            for name, topic in source_topics(self._source, self._admin).items()
            for number in range(topic.partitions)
        ]
        if not self._source.read_committed:
            return self._admin.end_offsets(partitions, read_committed=False)
        # First: what is committed between the two looks is then held back by nothing.
        high = self._admin.end_offsets(partitions, read_committed=False)
        stable = self._admin.end_offsets(partitions, read_committed=True)
        now = time.monotonic()
        self._held = look(self._held, stable, high, now)
        self._tell(held_back(self._held, now, self._source.connection.bootstrap_servers, self._patience_s))
        return stable

    def _tell(self, found: HeldBack) -> None:
        was_open = self.held_back is not None and self.held_back.open_transaction is not None
        self.held_back = found
        if found.open_transaction is not None and not was_open:
            hanging = found.open_transaction
            name = "SourceTransactionOpen"
            _LOG.warning("%s: %s (%s)", name, hanging.message, hanging.remedy, extra={"reason": name})
        elif found.open_transaction is None and was_open:
            _LOG.info("the transactions of the source that were open for too long have ended")
