"""What the sinks of a pipeline read: topics of Kafka, also where they come from a database.

Refused: a change topic of which nobody says on which cluster it is; and topics of the stage that are also a sink's.
"""

from collections.abc import Iterator, Sequence

from sinkpipeline.core.manifest.decode import Decode, DecodeFormat
from sinkpipeline.core.manifest.kafka import KafkaConnection
from sinkpipeline.core.manifest.problems import Fault
from sinkpipeline.core.manifest.routing import connection_of
from sinkpipeline.core.manifest.sinks import Sink
from sinkpipeline.core.manifest.source import Database, KafkaSource, Source

_OF_CHANGES = (DecodeFormat.CHANGE, DecodeFormat.JSON, DecodeFormat.TEXT, DecodeFormat.RAW)


def topics_read(source: Source, sinks: Sequence[Sink]) -> KafkaSource:
    """Where sinks read: what the manifest says of Kafka, or the change topic of a database."""
    if source.kafka is not None:
        return source.kafka
    found = None if source.database is None else _cluster(source.database, sinks)
    if source.database is None or found is None:
        raise ValueError("the manifest's types let no source through without a cluster")
    topics = (source.database.changes.topic.name,)
    return KafkaSource(bootstrapServers=found.bootstrap_servers, auth=found.auth, topics=topics)


def _at(source: Source) -> tuple[str, ...]:
    return ("source", source.kind, "changes")


def _cluster(source: Database, sinks: Sequence[Sink]) -> KafkaConnection | None:
    """Of the change topic."""
    changes = source.changes
    if changes.bootstrap_servers is not None:
        return KafkaConnection(bootstrapServers=changes.bootstrap_servers, auth=changes.auth)
    for sink in sinks:
        if sink.kafka is not None and sink.kafka.bootstrap_servers is not None:
            return KafkaConnection(bootstrapServers=sink.kafka.bootstrap_servers, auth=sink.kafka.auth)
    return None


def reading_faults(source: Source, sinks: Sequence[Sink], decode: Decode) -> Iterator[Fault]:
    """What of a database as the source fits neither the sinks nor the decoding."""
    if source.database is None:
        return
    if _cluster(source.database, sinks) is None:
        wrong = "is missing, and no kafka sink has bootstrapServers"
        yield Fault("name the brokers of the change topic", wrong, (*_at(source), "bootstrapServers"))
        return
    if decode.format not in _OF_CHANGES:
        wrong = f"is {decode.format.value}, and a change topic holds JSON"
        yield Fault("use change; or json, text or raw for the records as they are", wrong, ("decode", "format"))
    yield from _shared_topics(source.database, topics_read(source, sinks), sinks, _at(source))


def _shared_topics(source: Database, read: KafkaSource, sinks: Sequence[Sink], at: tuple[str, ...]) -> Iterator[Fault]:
    """Rows or dead letters in the stage's progress topic, and rows among its dead letters."""
    changes = source.changes
    progress = changes.progress_topic.name
    dead = None if changes.dead_letter is None else changes.dead_letter.topic.name
    for sink in sinks:
        if not connection_of(read, sink).shares_a_broker_with(read.connection):
            continue
        data = () if sink.kafka is None else tuple(each.name for each in sink.kafka.data_topics)
        wrong = f'is a topic of sink "{sink.name}" too'
        if progress in data or (sink.dead_letter is not None and sink.dead_letter.topic.name == progress):
            yield Fault("keep progress in a topic of its own", wrong, (*at, "progressTopic", "name"))
        if dead is not None and (dead in data or (sink.kafka is not None and sink.kafka.progress_topic.name == dead)):
            yield Fault("give dead letters a topic of their own", wrong, (*at, "deadLetter", "topic", "name"))
