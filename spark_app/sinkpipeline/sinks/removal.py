"""Removing a sink for good: what `deletionPolicy: Delete` asks for.

A removal begins like a start (steps 0 to 5, `sinks/takeover.py`), so that no driver and no late task can write any
more. Then it deletes the data topic, but only if all of this is so: a start of this sink created the topic, the topic
is still that one, and no other sink that keeps its progress in the same topic has delivered into it. Last, it
tombstones all of the sink's progress records in one transaction. If it is killed in between, the next attempt finds
everything that is still to be done. Source topics and progress topics are never deleted: others read and write them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Hold, Ledger
from sinkpipeline.core.progress import Meta, Progress
from sinkpipeline.core.removal import why_kept
from sinkpipeline.core.topic_ids import ids_of, joined
from sinkpipeline.sinks import failpoints
from sinkpipeline.sinks.takeover import SinkTakeover

_LOG = logging.getLogger("sinkpipeline.removal")


@dataclass(frozen=True)
class KeptTopic:
    """A data topic that stays."""

    name: str
    why: str


@dataclass(kw_only=True)
class SinkRemoval(SinkTakeover):
    """Removes one sink. It can be repeated: the second time there is nothing left to do."""

    announced: frozenset[str] | None = None
    """The data topics whose deletion was announced by an event; None: no announcement is needed."""

    def carry_out(self) -> KeptTopic | None:
        """Does it.

        Returns:
            The data topic, if it stays; None if it was deleted, now or by an earlier attempt.

        Raises:
            SinkPipelineError: IdentityInUse where the progress is somebody else's, Superseded, TopicsChanged where a
                deletion was not announced, and as the reads.
        """
        return self._repeat(self._attempt)

    def _attempt(self) -> KeptTopic | None:
        topic = self._ledger.place()
        if topic is None:
            return self._unknown()
        self._look(topic)
        with self._hold() as hold:
            progress = self._read(hold, topic)
            if _is_empty(progress):
                kept = self._unknown()
            else:
                epoch = 0 if progress.meta is None else progress.meta.epoch
                meta = self._announce(progress.meta, epoch=epoch, source={})
                progress = self._take_over(hold, topic, progress, meta, progress.partitions)
                kept = self._delete_data_topic(hold, meta)
                failpoints.failpoint("removal-before-tombstones")
                hold.remove(progress)
                _LOG.info("%s: its progress is removed", self.settings.id)
        hold.close()
        return kept

    def doomed(self) -> tuple[str, ...]:
        """The data topics that a removal would delete, as far as can be seen while others write.

        Writes nothing, and fences nobody.

        Raises:
            SinkPipelineError: IdentityInUse where the progress is somebody else's, and as the reads.
        """
        found = self.target.id()
        if found is None or self._ledger.place() is None:
            return ()
        metas = self._ledger.metas()
        meta = metas.get(self.settings.id.meta_key)
        self._meet(meta)
        if meta is None:
            return ()
        stay = self._kept(found, meta, metas)
        return tuple(sorted(each for each in self._topics(found) if each not in stay))

    def _unknown(self) -> KeptTopic | None:
        """A data topic of which no progress tells: it was there before, or the progress was lost."""
        found = self.target.id()
        if found is None:
            return None
        return KeptTopic(
            ", ".join(sorted(self._topics(found))), "nothing says that this pipeline created it: it has no progress"
        )

    def _topics(self, found: str) -> dict[str, str]:
        """Those that are there, with their ids."""
        return ids_of(found) or {self.settings.data.name: found}

    def _kept(self, found: str, meta: Meta, metas: Mapping[str, Meta | None]) -> dict[str, str]:
        """Which of them stay, and why."""
        reasons = {name: why_kept(self.settings.id, each, meta, metas) for name, each in self._topics(found).items()}
        return {name: why for name, why in reasons.items() if why is not None}

    def _delete_data_topic(self, hold: Hold, meta: Meta) -> KeptTopic | None:
        """Deletes it, or says why it stays. Other producers of the topic are not seen: a cluster does not tell."""
        found = self.target.id()
        if found is None:
            return None
        stay = self._kept(found, meta, hold.metas())
        for kept, why in stay.items():
            _LOG.info("%s: data topic %s stays: %s", self.settings.id, kept, why)
        doomed = {each: topic_id for each, topic_id in self._topics(found).items() if each not in stay}
        untold = sorted(doomed.keys() - self.announced) if self.announced is not None else []
        if untold:
            raise SinkPipelineError(
                Reason.TOPICS_CHANGED,
                f"data topic {', '.join(untold)} would be deleted, and the event that tells of a deletion has not "
                "named it yet",
                "nothing; an event names it first, and then it is deleted",
            )
        for name, topic_id in sorted(doomed.items()):
            _LOG.info("%s: data topic %s is deleted", self.settings.id, name)
            # One after the other: whoever is killed in between has deleted what was announced, and nothing else.
            self.target.delete(topic_id if ids_of(found) is None else joined({name: topic_id}) or "")
            failpoints.failpoint("removal-after-a-data-topic")
        return _told(stay)

    @override
    @property
    def _ledger(self) -> Ledger:
        return self.ports.ledger.with_faults()


def _told(stay: Mapping[str, str]) -> KeptTopic | None:
    if not stay:
        return None
    why = set(stay.values())
    told = why.pop() if len(why) == 1 else "; ".join(f"{name}: {each}" for name, each in stay.items())
    return KeptTopic(", ".join(stay), told)


def _is_empty(progress: Progress) -> bool:
    return progress.meta is None and not progress.partitions and not progress.faults
