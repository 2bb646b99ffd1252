"""Kafka in the suite of all kinds, with a sink whose rows name one of several topics."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from typing_extensions import override

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.sinks.contract import RowBatch
from support.conformance.of_kafka import KafkaSink
from support.kafka import topics

LETTERS = "abc"
"""A row names one of these topics, whatever the sink's list has."""


class SeveralTopicsSink(KafkaSink):
    """Each row goes by its partition and offset; a list of fewer topics has dead letters."""

    points = ("starting-after-a-data-topic",)
    removal_points = ("removal-after-a-data-topic",)

    letters_of_list: str = LETTERS

    @property
    @override
    def settings(self) -> SinkSettings:
        found = super().settings
        parts = tuple(replace(found.data, name=self.named(each)) for each in self.letters_of_list)
        return replace(found, data=TopicRequest(name=", ".join(each.name for each in parts), parts=parts))

    def named(self, letter: str) -> str:
        return f"{self.data}-{letter}"

    @property
    def all_named(self) -> list[str]:
        """Those of the list."""
        return [self.named(each) for each in self.letters_of_list]

    @property
    @override
    def arguments(self) -> list[str]:
        return [*super().arguments, self.letters_of_list]

    @classmethod
    @override
    def again(cls, *arguments: str) -> KafkaSink:
        *given, letters = arguments
        found = super().again(*given)
        found.letters_of_list = letters  # type: ignore[attr-defined]
        return found

    @override
    def batch(self, partition: SourcePartition, offsets: range) -> RowBatch:
        named: list[str | None] = [self.named(LETTERS[(partition.partition + each) % len(LETTERS)]) for each in offsets]
        return replace(super().batch(partition, offsets), target_topics=named)

    @override
    def delivered(self) -> Counter[tuple[int, int]]:
        """Each in the topic that it names."""
        found: Counter[tuple[int, int]] = Counter()
        for letter in LETTERS:
            for each in self._there(self.named(letter)):
                partition, offset = map(int, each.split(":"))
                assert LETTERS[(partition + offset) % len(LETTERS)] == letter, f"{each} in {letter}"
                found[partition, offset] += 1
        return found

    def _there(self, topic: str) -> list[str]:
        if topics.topic_id(self.direct, topic) is None:
            return []
        return [each.text.strip() for each in topics.read_committed(self.direct, topic)]

    @override
    def delete(self) -> None:
        """One of them."""
        topics.delete_topic(self.direct, self.named("b"))

    @override
    def recreate(self) -> None:
        for each in self.all_named:
            topics.recreate_topic(self.direct, each)

    @override
    def empty(self) -> None:
        for each in self.all_named:
            _, end = topics.offsets(self.direct, each)
            if end:
                topics.delete_records(self.direct, each, end)

    @override
    def limit(self) -> None:
        for each in self.all_named:
            self._limit(each)
