"""The topics that a start found: whether they are still the same ones, and still hold what comes next."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.topics import Topic, data_topic_lost
from sinkpipeline.kafka.looks import agreed
from sinkpipeline.kafka.starting import SinkStarter, StartedSink
from sinkpipeline.sinks.contract import Restart

_NEW_TOPICS_EVERY_S = 5.0
"""How often it is looked whether more topics match a topicPattern."""


class World:
    """Source, data and progress topics of one start.

    Raises (all methods):
        Restart: the next start has to look at it.
        SinkPipelineError: BrokerUnreachable and the like.
    """

    def __init__(self, starter: SinkStarter, started: StartedSink) -> None:
        self._settings = starter.settings
        self._starter = starter
        self._started = started
        self._topics_read_at = time.monotonic()

    def check(self, *, delivered: bool) -> None:
        """Compares the ids of source, data and progress topics with those of the start.

        Args:
            delivered: whether any row was delivered into the data topic.

        Raises:
            SinkPipelineError: SourceTopicMissing, SourceRecreated, DataTopicLost.
        """
        agreed(lambda: self._check_ids(delivered=delivered), self._starter.renew_clients)

    def look_for_topics(self) -> None:
        """Of a topicPattern: Spark reads the topics of the start. A later one needs a new start, which notes its id."""
        source = self._settings.source
        if source.pattern is None or time.monotonic() - self._topics_read_at < _NEW_TOPICS_EVERY_S:
            return
        self._topics_read_at = time.monotonic()
        found = set(filter(source.reads, self._starter.source_admin.topic_names()))
        if found - self._started.source.keys():
            raise Restart("a new topic matches topicPattern")

    def check_retained(self, frontier: Mapping[SourcePartition, PartitionProgress]) -> None:
        """Compares the source's offsets with the frontier. The tasks may be ahead of it, so the next start decides."""
        admin = self._starter.source_admin
        beginnings, ends = admin.beginning_offsets(frontier), admin.end_offsets(frontier, read_committed=False)
        for partition, state in sorted(frontier.items()):
            low, high = beginnings[partition], ends[partition]
            if not low <= state.next <= high:
                raise Restart(f"the source has offsets {low} to {high} of {partition}, the frontier is {state.next}")

    def _check_ids(self, *, delivered: bool) -> None:
        names = (self._settings.data.name, self._settings.progress.name)
        found, topics = self._describe(tuple(self._started.source), names)
        for name, topic_id in self._started.source.items():
            topic = found[name]
            if topic is None:
                raise SinkPipelineError(
                    Reason.SOURCE_TOPIC_MISSING,
                    f"source topic {name} was deleted while it was read",
                    "leave it out of source.kafka; or create it, and say where to go on with `sinkpipeline reset`",
                )
            if topic.id != topic_id:
                raise SinkPipelineError(
                    Reason.SOURCE_RECREATED,
                    f"source topic {name} was deleted and created again while it was read",
                    "its offsets mean other records now; say where to go on with `sinkpipeline reset`",
                )
        data, progress = topics[names[0]], topics[names[1]]
        if data is None or data.id != self._started.data_topic.id:
            if delivered:
                raise data_topic_lost(
                    names[0], f"it was {'deleted' if data is None else 're-created'} while rows were delivered into it"
                )
            raise Restart("the data topic changed before a row was delivered")
        if progress is None or progress.id != self._started.progress_topic.id:
            raise Restart("the progress topic was deleted or re-created")

    def _describe(
        self, source: tuple[str, ...], sink: tuple[str, ...]
    ) -> tuple[Mapping[str, Topic | None], Mapping[str, Topic | None]]:
        """The topics of the source and of the sink, by one question where both are of one cluster."""
        source_admin, admin = self._starter.source_admin, self._starter.admin
        if source_admin is admin:
            found = admin.topics((*source, *sink))
            return found, found
        return source_admin.topics(source), admin.topics(sink)
