"""`dlq redrive --to source` without Spark: records go back only where the pipeline reads them; what stays is told."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.cli.dlq.redriving import Done, foreseen, return_letters
from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Verdict, encode
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.redrive import Wanted
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.redrive import Redrive, Summary
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.kafka.survey import Survey
from support.kafka import topics
from support.sink.one_sink import OneSink
from support.sink.redrives import ALL_FINE

pytestmark = pytest.mark.kafka


@dataclass
class Returning:
    """A sink that has read several topics, and letters of their records."""

    sink: OneSink
    read_before: tuple[str, ...]
    read_now: tuple[str, ...]

    @property
    def settings(self) -> SinkSettings:
        letters = DeadLetterSettings(topic=TopicRequest(name=self.sink.dead))
        return self.sink.settings(source={"topics": self.read_now}, dead_letter=letters)

    def start(self) -> None:
        """Reads all of them once, so that its progress remembers them."""
        self.sink.start(source={"topics": self.read_before}, dead_letter=self.settings.dead_letter)

    def kill(self, topic: str, count: int) -> None:
        """Records of a topic become letters."""
        for offset in range(count):
            record = SourceRecord(
                partition=SourcePartition(topic, 0),
                offset=offset,
                key=b"k",
                value=b"%d of %s" % (offset, topic.encode()),
                headers=None,
                timestamp=int(time.time() * 1000),
            )
            verdict = Verdict(ErrorClass.WRONG_TYPE, "no number")
            value, key, _, _, headers = encode(DeadLetter(sink=self.sink.id, verdict=verdict, record=record))
            topics.produce_whole(self.sink.servers, self.sink.dead, [(value, key, headers or [], 0)])  # type: ignore[list-item]

    def redrive(self) -> tuple[Redrive, Survey]:
        found = Redrive(settings=self.settings, wanted=Wanted(sinks=frozenset({self.sink.id})), transform=ALL_FINE)
        survey = found.survey()
        assert survey is not None
        return found, survey

    def give_back(self) -> Done:
        redrive, survey = self.redrive()
        done = Done(survey)
        with suppress(SinkPipelineError):
            return_letters(redrive, survey, done, lambda _: None)
        return done

    def foreseen(self) -> list[str]:
        redrive, survey = self.redrive()
        return list(foreseen(redrive, survey, to_source=True))


def records_of(sink: OneSink, topic: str) -> int:
    return len(topics.read_committed(sink.servers, topic))


def started_with_another(sink: OneSink) -> tuple[Returning, str]:
    """Of two topics, both of which are read; and the name of the first one."""
    other = f"{sink.name}-a"
    topics.create_topic(sink.servers, other)
    both = Returning(sink, (other, sink.source), (other, sink.source))
    both.start()
    return both, other


@pytest.fixture
def sink(kafka: LocalKafka) -> OneSink:
    return OneSink(kafka.bootstrap_servers)


def test_what_nobody_reads_any_more_is_not_returned_and_stays_pending(sink: OneSink) -> None:
    """It would be lost: settled, so that no redrive takes it, and purged with those that were redriven."""
    legacy = f"{sink.name}-legacy"
    topics.create_topic(sink.servers, legacy, config={"retention.ms": "-1"})
    both = Returning(sink, (sink.source, legacy), (sink.source,))
    both.start()
    both.kill(legacy, 3)
    both.kill(sink.source, 2)
    [told] = both.foreseen()
    assert told.startswith(f"3 letters of {legacy} stay pending: the pipeline does not read that topic any more")
    assert both.give_back().summary == Summary(returned=2, pending=3)
    assert (records_of(sink, legacy), records_of(sink, sink.source)) == (0, 2)
    redrive, survey = both.redrive()
    assert survey.by_source == {legacy: 3}
    assert redrive.carry_out(survey) == Summary(delivered=3), "as the sentence says"
    assert both.foreseen() == []


def test_a_compacted_source_is_told_before(sink: OneSink) -> None:
    """What is returned stands behind newer records of its key."""
    one = Returning(sink, (sink.source,), (sink.source,))
    one.start()
    one.kill(sink.source, 1)
    topics.alter_topic(sink.servers, sink.source, {"cleanup.policy": "compact"})
    [told] = one.foreseen()
    assert told.startswith(f"topic {sink.source} is compacted: ")


def test_a_topic_of_which_there_is_nothing_to_return_holds_up_no_other(sink: OneSink) -> None:
    """It is gone, and the progress remembers it for ever."""
    both, gone = started_with_another(sink)
    topics.delete_topic(sink.servers, gone)
    both.kill(sink.source, 2)
    assert both.give_back().summary == Summary(returned=2)
    assert records_of(sink, sink.source) == 2


def test_what_was_not_reached_is_told_as_pending(sink: OneSink) -> None:
    """The first topic is another one than the letters are of, which ends all."""
    both, other = started_with_another(sink)
    topics.recreate_topic(sink.servers, other)
    both.kill(other, 1)
    both.kill(sink.source, 2)
    assert both.give_back().summary == Summary(pending=3)
    assert (records_of(sink, other), records_of(sink, sink.source)) == (0, 0)
