"""Removing a sink for good: what `deletionPolicy: Delete` asks for.

A removal is a start (steps 0 to 5, `kafka/takeover.py`), so that no driver and no late task writes any more. Then the
data topic is deleted, only where a start of this sink created it and it is still that one; and last all of the sink's
records are tombstoned in one transaction. In this order whoever is killed in between finds everything that is still to
be done. Source topics and progress topics are never deleted: others read and write them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from typing_extensions import override

from sinkpipeline.core.progress import Meta, Progress
from sinkpipeline.kafka import failpoints
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.takeover import SinkTakeover

_LOG = logging.getLogger("sinkpipeline.removal")


@dataclass(frozen=True)
class KeptTopic:
    """A data topic that stays."""

    name: str
    why: str


@dataclass(kw_only=True)
class SinkRemoval(SinkTakeover):
    """Removes one sink; done as often as one likes."""

    def carry_out(self) -> KeptTopic | None:
        """Does it.

        Returns:
            The data topic, if it stays; None also where an earlier attempt has come that far.

        Raises:
            SinkPipelineError: IdentityInUse where the progress is somebody else's, Superseded, and as the reads.
        """
        return self._repeat(self._attempt)

    def _attempt(self) -> KeptTopic | None:
        topic = self._describe_progress_topic()
        if topic is None:
            return None
        kept = None
        self._look(topic)
        with self._hold(topic) as hold:
            progress = self._read(hold)
            if not _is_empty(progress):
                epoch = 0 if progress.meta is None else progress.meta.epoch
                meta = self._announce(progress.meta, epoch=epoch, source={})
                progress = self._take_over(hold, progress, meta, progress.partitions)
                kept = self._delete_data_topic(meta)
                failpoints.failpoint("removal-before-tombstones")
                keys = {self.settings.id.partition_key(each) for each in progress.partitions} | {*progress.faults}
                tombstones = sorted({*keys, self.settings.id.meta_key})
                hold.control.write(topic.name, [(key, None) for key in tombstones])
                _LOG.info("%s: its progress is removed", self.settings.id)
        hold.control.close()
        return kept

    def _delete_data_topic(self, meta: Meta) -> KeptTopic | None:
        name = self.settings.data.name
        topic = self.admin.topics([name])[name]
        if topic is None:
            return None
        if meta.created == topic.id:
            self.admin.delete_topic(name)
            _LOG.info("%s: data topic %s is deleted", self.settings.id, name)
            return None
        why = "somebody has created it again since"
        if meta.created is None:
            # A seed from the status doesn't know it: docs/design/0008.
            why = (
                "nothing says that this pipeline created it: it was there before, or its progress topic was lost and "
                "restored from the status, which does not remember who created the data topic"
            )
        _LOG.info("%s: data topic %s stays: %s", self.settings.id, name, why)
        return KeptTopic(name, why)

    @override
    def _log(self) -> ProgressLog:
        settings = self.settings
        return ProgressLog(settings.connection, settings.progress.name, settings.group_id, with_faults=True)


def _is_empty(progress: Progress) -> bool:
    return progress.meta is None and not progress.partitions and not progress.faults
