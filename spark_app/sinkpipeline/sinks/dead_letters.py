"""From a row that can't be delivered to the record for the dead-letter topic, as the source has it."""

from __future__ import annotations

import logging
from dataclasses import replace

from sinkpipeline.core.deadletter import DeadLetter, SourceRecord, Verdict, encode
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import HeadersUnreadable, LetterSettings, NoDeadLetter
from sinkpipeline.core.records import Row, batch_size
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.worker import Worker

_LOG = logging.getLogger("sinkpipeline.sink")

_MOST_TOLD = 5


class DeadLetters:
    """The dead letters of one source partition of one batch."""

    def __init__(self, plan: BatchPlan, settings: LetterSettings, partition: SourcePartition, worker: Worker) -> None:
        self._plan = plan
        self.most_bytes = plan.letter_limits.message_bytes
        self._partition = partition
        self._box = plan.kind.letter_box(plan, worker)
        self._source = plan.kind.reader(plan, partition)
        self._topic_is_fine = False
        self._topic_failure: NoDeadLetter | None = None
        self._told = 0
        self.topic = self._box.name
        self.drop = settings.drop

    def row(self, batch: RowBatch, index: int, verdict: Verdict) -> Row:
        """The dead letter of one record.

        Raises:
            NoDeadLetter: it can't be written, now or later.
            SinkPipelineError: TopicsChanged, BrokerUnreachable, ...
        """
        self._check_topic()
        row = encode(self._letter(batch, index, verdict))
        value, key, _, _, headers = row
        size, most = batch_size(value, key, headers), self.most_bytes
        if size > most:
            raise NoDeadLetter(
                f"with its envelope it has {size} bytes, and topic {self.topic} takes {most}",
                f"raise max.message.bytes of {self.topic}",
            )
        return row

    def refused(self, verdict: Verdict) -> NoDeadLetter:
        """Kafka refused the dead letter."""
        return NoDeadLetter(f"{self.topic} refused it: {verdict.text}", f"look at the configuration of {self.topic}")

    def dropped(self, offset: int, verdict: Verdict, failure: NoDeadLetter) -> None:
        """Logs a record that goes for good; of many only the first ones, all are counted."""
        self._told += 1
        if self._told <= _MOST_TOLD:
            why = verdict.error_class.error(verdict.text)
            _LOG.warning("%s: dropped offset %d (%s): %s", self._partition, offset, why, failure.fact)

    def are_refused(self) -> bool:
        """Whether the topic, looked at again, takes none; what a look at it raises otherwise, is raised."""
        self.look_again()
        try:
            self._check_topic()
        except NoDeadLetter:
            return True
        return False

    def look_again(self) -> None:
        """Something went wrong: the topic may not be what it was."""
        self._topic_is_fine = False
        self._topic_failure = None

    def close(self) -> None:
        self._source.close()
        if self._told > _MOST_TOLD:
            _LOG.warning("%s: dropped %d records", self._partition, self._told)

    def _check_topic(self) -> None:
        """Asks before the first dead letter: what a producer is told of a missing topic, it is told late."""
        if self._topic_is_fine:
            return
        if self._topic_failure is None:
            self._topic_failure = self._box.failure()
        if self._topic_failure is not None:
            raise self._topic_failure
        self._topic_is_fine = True

    def _letter(self, batch: RowBatch, index: int, verdict: Verdict) -> DeadLetter:
        try:
            record = self._record(batch, index)
        except HeadersUnreadable as unreadable:
            # Rather a letter without them than none: what the source holds nobody can mend.
            record = unreadable.record
            verdict = replace(verdict, text=f"{verdict.text}; a header's name is not UTF-8, so all are left out")
        return DeadLetter(sink=self._plan.settings.id, verdict=verdict, record=record)

    def _record(self, batch: RowBatch, index: int) -> SourceRecord:
        offset = batch.offsets[index]
        own = batch.source_record(self._partition, index)
        if own is not None:
            return own
        record = self._source.read(offset)
        if record is None:
            raise NoDeadLetter(
                f"the source has no record at offset {offset} any more, and the row is not what it was",
                "lengthen the retention of the source topic",
            )
        return record
