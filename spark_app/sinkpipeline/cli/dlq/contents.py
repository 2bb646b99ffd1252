"""A dead-letter topic, read as a whole for a person: without payloads, which may be many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.redrive import PENDING, Foreign, Ledger, Letter, LetterId
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.dead_letter_log import DeadLetterLog, Extent
from sinkpipeline.kafka.settings import SinkSettings


@dataclass
class Contents:
    """All that is committed."""

    topic: Topic
    extents: list[Extent]
    letters: list[Letter]
    foreign: list[Foreign]
    ledgers: list[Ledger]

    def state(self, letter: Letter) -> str:
        """What became of it; `Pending` where nothing did."""
        return self.ledgers[letter.id.partition].outcome(letter.letter.sink, letter.id.offset) or PENDING

    def notes(self, sinks: frozenset[SinkId]) -> Iterator[str]:
        """What a list of these sinks' letters doesn't say."""
        others = Counter(str(each.letter.sink) for each in self.letters if each.letter.sink not in sinks)
        if others:
            told = ", ".join(f"{sink}: {number}" for sink, number in sorted(others.items()))
            yield f"{self.topic.name} has letters of other sinks too ({told})"
        if self.foreign:
            first = self.foreign[0]
            yield (
                f"{self.topic.name} has {len(self.foreign)} records that are no dead letters, the first is "
                f"{first.id}: {first.why}"
            )
        hidden = sum(each.high - each.stable for each in self.extents)
        if hidden:
            yield f"open transactions hide up to {hidden} more records of {self.topic.name}"


def read_contents(sink: SinkSettings, topic: Topic, *, lenient: bool = True) -> Contents:
    """Raises SinkPipelineError as the reads of `DeadLetterLog`."""
    with DeadLetterLog(sink.connection, topic, sink.group_id, lenient=lenient) as log:
        extents = log.extents()
        contents = Contents(topic, extents, [], [], [Ledger(topic.id, each.low) for each in extents])
        for partition, (extent, ledger) in enumerate(zip(extents, contents.ledgers, strict=True)):
            for found in log.read_on(ledger, partition, extent.stable):
                if isinstance(found, Foreign):
                    contents.foreign.append(found)
                else:
                    contents.letters.append(_without_payload(found))
    return contents


def read_letter(sink: SinkSettings, topic: Topic, wanted: LetterId) -> tuple[Letter | Foreign | None, str]:
    """One record of the topic with its payload, None where there is none; and the state of a letter."""
    with DeadLetterLog(sink.connection, topic, sink.group_id, lenient=True) as log:
        extent = log.extents()[wanted.partition]
        if not extent.low <= wanted.offset < extent.stable:
            return None, PENDING
        ledger = Ledger(topic.id, wanted.offset)
        record = None
        for found in log.read_on(ledger, wanted.partition, extent.stable):
            if found.id == wanted:
                record = found
    state = None if not isinstance(record, Letter) else ledger.outcome(record.letter.sink, wanted.offset)
    return record, state or PENDING


def _without_payload(found: Letter) -> Letter:
    record = replace(found.letter.record, key=None, value=None, headers=None)
    return replace(found, letter=replace(found.letter, record=record))
