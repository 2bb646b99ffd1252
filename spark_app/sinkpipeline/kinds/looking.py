"""What can be seen of sinks while no driver runs, of whatever kinds. Everything here describes or observes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from sinkpipeline.core import starting
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.finding import Finding
from sinkpipeline.core.positions import describe as describe_positions
from sinkpipeline.core.status import SinkReport
from sinkpipeline.core.topics import Beginning, Memory, decide
from sinkpipeline.kafka import inspection
from sinkpipeline.kafka import purify as kafka
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kinds import letters_of, ports_of_a_table
from sinkpipeline.kinds.resolve import SinkSettings
from sinkpipeline.postgresql.look import check_reached, check_rights, check_schemas, fears, look
from sinkpipeline.postgresql.settings import SinkSettings as PostgresqlSettings


def preflight(sinks: Sequence[SinkSettings]) -> tuple[str, ...]:
    """Connects to the source and to the sinks; one sink that can't be reached is left to its own retries.

    Returns:
        What a person should be warned of before a run.

    Raises:
        SinkPipelineError: BrokerUnreachable within seconds, AuthenticationFailed: of the source, or of every sink;
            ManifestInvalid.
    """
    topics = [each for each in sinks if isinstance(each, KafkaSettings)]
    found = kafka.preflight(sinks[0].source.connection, topics)
    unreached = dict(found.unreached)
    for sink in sinks:
        if isinstance(sink, PostgresqlSettings):
            try:
                check_reached(sink)
            except SinkPipelineError as error:
                unreached[sink.id.sink] = error
    if len(unreached) == len(sinks):
        raise unreached[sinks[0].id.sink]
    return found.warnings


def purify(sinks: Sequence[SinkSettings]) -> Iterator[Finding]:
    """Checks each sink: connection, rights, source topics, what exists of its own, observed progress."""
    of_topics = {each.sink: each for each in kafka.purify(sink for sink in sinks if isinstance(sink, KafkaSettings))}
    for sink in sinks:
        if isinstance(sink, PostgresqlSettings):
            yield _purified(sink)
        else:
            yield of_topics[sink.id]


def _purified(sink: PostgresqlSettings) -> Finding:
    try:
        return _purify(sink)
    except SinkPipelineError as error:
        return Finding(sink.id, None, error, called="table")


def _purify(sink: PostgresqlSettings) -> Finding:
    source_admin = Admin(sink.source.connection)
    topics = kafka.readable_topics(sink.source, source_admin)
    ports = ports_of_a_table(sink, source_admin)
    with closing(ports.client):
        ports.target.check_names()
        check_schemas(ports)
        data, place, progress = look(ports)
        starting.check_owner(sink.id, progress.meta, sink.owner)
        starting.check_source(progress.meta if progress.exists else None, topics)
        ports.source.check_visible(progress.meta, topics)
        decision = decide(
            progress=progress,
            progress_topic=place,
            data_topic=data,
            data_request=sink.data,
            memory=None,
            source=topics,
            refuse_existing_data=sink.refuse_existing_data,
        )
        check_rights(ports, data, place)
        wanted = letters_of(sink)
        letters = kafka.purify_letters(None if wanted is None else wanted.wanted, sink.source.connection)
        warnings = (*decision.drift, *letters.drift, *fears(ports))
        begins: tuple[str, ...] = ()
        if ports.source.tells_positions and decision.beginning is Beginning.FIRST_START:
            view = ports.source.view()
            positions = ports.source.positions(view)
            # As a start would: offsets that the source does not have are refused here already.
            ports.source.planned({}, view, epoch=0, imported=positions.next)
            begins = tuple(describe_positions(positions))
    created = letters.create
    return Finding(sink.id, decision, None, warnings, begins=begins, creates_dead_letters=created, called="table")


def inspect(sink: SinkSettings, memory: Memory | None, admin_of: Callable[[Connection], Admin] = Admin) -> SinkReport:
    """Of a sink whose driver says nothing; an error is part of the report.

    Args:
        sink: its settings.
        memory: what the status remembers of it.
        admin_of: a client of a cluster, which somebody else may use too.
    """
    if isinstance(sink, KafkaSettings):
        return inspection.inspect(sink, memory, admin_of)
    source_admin = admin_of(sink.source.connection)

    def seen() -> inspection.Seen:
        ports = ports_of_a_table(sink, source_admin)
        with closing(ports.client):
            data, place, progress = look(ports)
        return inspection.Seen(data=data, place=place, progress=progress)

    return inspection.inspected(sink, memory, seen, source_admin)


def cluster_of(sink: SinkSettings) -> Connection:
    """Where its topics are; of a sink that is no topic, the source's."""
    if isinstance(sink, PostgresqlSettings):
        of_source: Connection = sink.source.connection
        return of_source
    return sink.connection
