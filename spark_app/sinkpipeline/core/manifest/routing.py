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
    data: tuple[str, ...]
    """Several only of a sink that names topics."""
    progress: str | None
    """None of a sink that is no topic."""
    dead: str | None

    several: bool = False

    def fault(self, section: str, right: str, wrong: str, name: str | None = None) -> Fault:
        """`name`: of the data topic, which is one of several perhaps."""
        at: tuple[str | int, ...] = (section,)
        if section == "topic" and self.several:
            at = ("topics", self.data.index(name) if name in self.data else 0)
        return Fault(right, wrong, ("sinks", self.index, "kafka", *at, "name"))

    def topics_of(self, role: Role) -> tuple[str, ...]:
        if role is Role.DATA:
            return self.data
        found = self.progress if role is Role.PROGRESS else self.dead
        return () if found is None else (found,)

    def fault_beside(self, role: Role, wrong: str, name: str) -> Fault:
        """Of a topic that another sink uses for something else."""
        if role is Role.DEAD:
            return self.dead_fault(wrong)
        return self.fault("topic", "keep rows and progress in different topics", wrong, name)

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
            () if sink.kafka is None else tuple(each.name for each in sink.kafka.data_topics),
            None if sink.kafka is None else sink.kafka.progress_topic.name,
            None if sink.dead_letter is None else sink.dead_letter.topic.name,
            sink.kafka is not None and sink.kafka.topics is not None,
        )
        for index, sink in enumerate(sinks)
    ]
    how = "is a source topic too" if source.topics is not None else "matches the source's topicPattern"
    for route in routes:
        if route.connection.shares_a_broker_with(source.connection):
            for name in filter(source.reads, route.data):
                yield route.fault("topic", "write to a topic that is not read: this would never end", how, name)
            if route.progress is not None and source.reads(route.progress):
                yield route.fault("progressTopic", "keep progress in a topic that is not read", how)
            if route.dead is not None and source.reads(route.dead):
                yield route.dead_fault(how)
        if route.progress in route.data:
            right = "keep rows and progress in different topics"
            yield route.fault("topic", right, "is the progress topic too", route.progress)
        if route.dead in route.data:
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
            if who_moves(role, other_role) is not role:
                continue
            for name in route.topics_of(role):
                if name not in other.topics_of(other_role):
                    continue
                if role is other_role and other.index < route.index:
                    wrong = f'is the topic of sink "{other.name}" too'
                    yield route.fault("topic", "give each sink its own topic", wrong, name)
                elif role is not other_role and name not in route.topics_of(other_role):
                    # Else it was told that the sink's own topics are one.
                    yield route.fault_beside(role, f'is the {_CALLED[other_role]} of sink "{other.name}"', name)
