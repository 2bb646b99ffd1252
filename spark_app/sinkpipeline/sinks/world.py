"""The topics that a start found: whether they are still the same ones, and still hold what comes next."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Ports
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import is_within
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.topic_ids import changed
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.looks import agreed
from sinkpipeline.sinks.starting import StartedSink

_LOG = logging.getLogger("sinkpipeline.sink")

_NEW_TOPICS_EVERY_S = 5.0
"""How often it is looked whether more topics match a topicPattern."""


class World:
    """Source, data and progress topics of one start.

    Raises (all methods):
        Restart: the next start has to look at it.
        SinkPipelineError: BrokerUnreachable and the like.
    """

    def __init__(self, ports: Ports, started: StartedSink) -> None:
        self._ports = ports
        self._started = started
        self._topics_read_at = time.monotonic()

    def check(self, *, delivered: bool) -> None:
        """Compares the ids of source, data and progress topics with those of the start.

        Args:
            delivered: whether any row was delivered into the data topic.

        Raises:
            SinkPipelineError: SourceTopicMissing, SourceRecreated, DataTopicLost.
        """
        agreed(lambda: self._check_ids(delivered=delivered), self._ports.renew_clients)

    def look_for_topics(self) -> None:
        """Of a topicPattern: Spark reads the topics of the start. A later one needs a new start, which notes its id."""
        if time.monotonic() - self._topics_read_at < _NEW_TOPICS_EVERY_S:
            return
        self._topics_read_at = time.monotonic()
        if self._ports.source.has_others(self._started.source):
            raise Restart("a new topic matches topicPattern")

    def check_retained(self, frontier: Mapping[SourcePartition, PartitionProgress]) -> None:
        """Compares the source's offsets with the frontier. The tasks may be ahead of it, so the next start decides."""
        source = self._ports.source
        beginnings, ends = source.beginnings(frontier), source.ends(frontier, readable=False)
        for partition, state in sorted(frontier.items()):
            low, high = beginnings[partition], ends[partition]
            if not is_within(state.next, low, high):
                raise Restart(f"the source has offsets {low} to {high} of {partition}, the frontier is {state.next}")

    def counted(self, progress: Progress) -> Progress:
        """With what the target's store counts by now; what it counted before where it has lost some of that since."""
        try:
            now = self._ports.target.counted()
        except SinkPipelineError as error:
            _LOG.debug("%s: what its store counts is not known: %s", self._ports.settings.id, error)
            return progress
        return progress if now is None else replace(progress, counted=max(now, progress.counted or 0))

    def _check_ids(self, *, delivered: bool) -> None:
        found = self._ports.ids(tuple(self._started.source))
        for name, topic_id in self._started.source.items():
            if found.source[name] is None:
                raise SinkPipelineError(
                    Reason.SOURCE_TOPIC_MISSING,
                    f"source topic {name} was deleted while it was read",
                    "leave it out of source.kafka; or create it, and say where to go on with `sinkpipeline reset`",
                )
            if found.source[name] != topic_id:
                raise SinkPipelineError(
                    Reason.SOURCE_RECREATED,
                    f"source topic {name} was deleted and created again while it was read",
                    "its offsets mean other records now; say where to go on with `sinkpipeline reset`",
                )
        if found.target != self._started.data_topic.id:
            if delivered:
                what = changed(self._started.data_topic.id, found.target)
                raise self._ports.target.lost(f"it was {what} while rows were delivered into it")
            raise Restart("the data topic changed before a row was delivered")
        if found.place != self._started.progress_topic.id:
            raise Restart("the progress topic was deleted or re-created")
