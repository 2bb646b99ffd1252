"""Consumer groups: those of others, which are looked at, and ours, which nobody joins."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka.admin import ATTEMPT_S, Admin
from sinkpipeline.kafka.errors import repeated


class Groups(Admin):
    """The consumer groups of one cluster."""

    @repeated
    def state(self, group: str) -> str | None:
        """The state of a consumer group, in capitals, whatever its protocol is; None where the brokers list none."""
        found = self._result(
            self._client.list_consumer_groups(request_timeout=ATTEMPT_S), "listing consumer groups", _of_group(group)
        )
        states = {each.group_id: each.state for each in found.valid}
        if group not in states and found.errors:
            # A broker did not answer, and the group may be its: that it is not in the list says nothing.
            raise self._translate(found.errors[0], "listing consumer groups", _of_group(group))
        return states[group].name if group in states else None

    @repeated
    def offsets(self, group: str) -> dict[SourcePartition, int]:
        """All offsets that a consumer group has committed."""
        # Stable: with rows that somebody has committed by a transaction, its offsets may be on their way.
        asked = self._client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=ATTEMPT_S
        )[group]
        found = self._result(asked, f"reading the offsets of consumer group {group}", _of_group(group))
        for each in found.topic_partitions:
            if each.error is not None:
                raise self._translate(KafkaException(each.error), f"reading the offsets of {group}", _of_group(group))
        return {
            SourcePartition(each.topic, each.partition): each.offset
            for each in found.topic_partitions
            if each.offset >= 0
        }

    @repeated
    def commit(self, group: str, offsets: Mapping[SourcePartition, int]) -> None:
        """Commits offsets as a group without members does."""
        asked = [ClientPartition(each.topic, each.partition, offset) for each, offset in offsets.items()]
        future = self._client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, asked)], request_timeout=ATTEMPT_S
        )[group]
        doing = f"committing the offsets of consumer group {group}"
        for each in self._result(future, doing, f"Read on group {group}").topic_partitions:
            if each.error is not None:
                raise self._translate(KafkaException(each.error), doing, f"Read on topic {each.topic}")


def _of_group(group: str) -> str:
    return f"Describe on group {group}"
