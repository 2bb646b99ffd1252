"""Which topics of one pipeline can't be the same.

Refused: a pipeline that reads what it writes (an endless loop), two sinks that write the same topic (every record
twice), rows or dead letters in a progress topic (compaction would delete them), dead letters among rows. Known here is
only what the manifest says: one cluster under two names is noticed by who connects (`core/crossing.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from sinkpipeline.core.crossing import Role, who_moves
from sinkpipeline.core.manifest.kafka import KafkaConnection
from sinkpipeline.core.manifest.problems import Fault
from sinkpipeline.core.manifest.sinks import Sink
from sinkpipeline.core.manifest.source import KafkaSource


def connection_of(source: KafkaSource, sink: Sink) -> KafkaConnection:
    """The sink's own cluster, or the source's, where the dead letters of a sink go that is no topic.

    The source's credentials are never offered to a cluster that the sink names itself.
    """
    if sink.kafka is None:
        return source.connection
    if sink.kafka.bootstrap_servers is not None:
        return KafkaConnection(bootstrapServers=sink.kafka.bootstrap_servers, auth=sink.kafka.auth)
    return KafkaConnection(bootstrapServers=source.bootstrap_servers, auth=sink.kafka.auth or source.auth)


@dataclass(frozen=True)
class _Route:
    index: int
    name: str
    connection: KafkaConnection
    data: str | None
    progress: str | None
    """None of a sink that is no topic."""
    dead: str | None

    def fault(self, section: str, right: str, wrong: str) -> Fault:
        return Fault(right, wrong, ("sinks", self.index, "kafka", section, "name"))

    def topic_of(self, role: Role) -> str | None:
        return {Role.DATA: self.data, Role.PROGRESS: self.progress, Role.DEAD: self.dead}[role]

    def fault_beside(self, role: Role, wrong: str) -> Fault:
        """Of a topic that another sink uses for something else."""
        if role is Role.DEAD:
            return self.dead_fault(wrong)
        return self.fault("topic", "keep rows and progress in different topics", wrong)

    def dead_fault(self, wrong: str) -> Fault:
        return Fault(_APART, wrong, ("sinks", self.index, "deadLetter", "topic", "name"))


_APART = "give dead letters a topic of their own"
_CALLED = {Role.DATA: "topic", Role.PROGRESS: "progress topic", Role.DEAD: "dead-letter topic"}


def routing_faults(source: KafkaSource, sinks: Sequence[Sink]) -> Iterator[Fault]:
    """Every rule that a pair of source and sink, or a pair of sinks, breaks."""
    routes = [
        _Route(
            index,
            sink.name,
            connection_of(source, sink),
            None if sink.kafka is None else sink.kafka.topic.name,
            None if sink.kafka is None else sink.kafka.progress_topic.name,
            None if sink.dead_letter is None else sink.dead_letter.topic.name,
        )
        for index, sink in enumerate(sinks)
    ]
    how = "is a source topic too" if source.topics is not None else "matches the source's topicPattern"
    for route in routes:
        if route.connection.shares_a_broker_with(source.connection):
            if route.data is not None and source.reads(route.data):
                yield route.fault("topic", "write to a topic that is not read: this would never end", how)
            if route.progress is not None and source.reads(route.progress):
                yield route.fault("progressTopic", "keep progress in a topic that is not read", how)
            if route.dead is not None and source.reads(route.dead):
                yield route.dead_fault(how)
        if route.data is not None and route.data == route.progress:
            yield route.fault("topic", "keep rows and progress in different topics", "is the progress topic too")
        if route.dead is not None and route.dead == route.data:
            yield route.dead_fault("is the sink's data topic too")
        if route.dead is not None and route.dead == route.progress:
            yield route.dead_fault("is the progress topic too")
        yield from _pair_faults(route, routes)
    yield from _table_faults(sinks)
    yield from _stream_faults(sinks)


def _table_faults(sinks: Sequence[Sink]) -> Iterator[Fault]:
    for index, sink in enumerate(sinks):
        for other in sinks[:index]:
            if sink.postgresql is None or other.postgresql is None:
                continue
            if sink.postgresql.is_same_table(other.postgresql):
                wrong = f'is the table of sink "{other.name}" too'
                yield Fault("give each sink its own table", wrong, ("sinks", index, "postgresql", "table", "name"))


def _stream_faults(sinks: Sequence[Sink]) -> Iterator[Fault]:
    for index, sink in enumerate(sinks):
        for other in sinks[:index]:
            if sink.nats is not None and other.nats is not None and sink.nats.is_same_stream(other.nats):
                wrong = f'is the stream of sink "{other.name}" too'
                yield Fault("give each sink its own stream", wrong, ("sinks", index, "nats", "stream", "name"))
            if sink.redis is not None and other.redis is not None and sink.redis.is_same_stream(other.redis):
                wrong = f'is the stream of sink "{other.name}" too'
                yield Fault("give each sink its own stream", wrong, ("sinks", index, "redis", "stream", "key"))


def _pair_faults(route: _Route, routes: Sequence[_Route]) -> Iterator[Fault]:
    for other in routes:
        if other.index == route.index or not route.connection.shares_a_broker_with(other.connection):
            continue
        for role, other_role in product(Role, Role):
            name = route.topic_of(role)
            if name is None or name != other.topic_of(other_role) or who_moves(role, other_role) is not role:
                continue
            if role is other_role and other.index < route.index:
                yield route.fault("topic", "give each sink its own topic", f'is the topic of sink "{other.name}" too')
            elif role is not other_role and name != route.topic_of(other_role):
                # Else it was told that the sink's own topics are one.
                yield route.fault_beside(role, f'is the {_CALLED[other_role]} of sink "{other.name}"')
