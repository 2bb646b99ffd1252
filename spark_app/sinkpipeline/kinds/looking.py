"""What can be seen of sinks while no driver runs, of whatever kinds. Everything here describes or observes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sinkpipeline.changes import kinds
from sinkpipeline.changes.ports import Foreseen
from sinkpipeline.changes.settings import sink_settings
from sinkpipeline.core.changes.told import place
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.finding import Finding
from sinkpipeline.core.starting import check_owner
from sinkpipeline.core.status import SinkReport
from sinkpipeline.core.topics import Memory
from sinkpipeline.kafka import inspection
from sinkpipeline.kafka import purify as kafka
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kinds import looking_at_cells
from sinkpipeline.kinds.resolve import SinkSettings

if TYPE_CHECKING:
    from sinkpipeline.changes.settings import StageSettings


def preflight(sinks: Sequence[SinkSettings]) -> tuple[str, ...]:
    """Connects to the source and to the sinks; one sink that can't be reached is left to its own retries.

    Returns:
        What a person should be warned of before a run.

    Raises:
        SinkPipelineError: BrokerUnreachable within seconds, AuthenticationFailed: of the source, or of every sink;
            ManifestInvalid.
    """
    if not sinks:
        return ()
    topics = [each for each in sinks if isinstance(each, KafkaSettings)]
    found = kafka.preflight(sinks[0].source.connection, topics)
    unreached = dict(found.unreached)
    for sink in sinks:
        if not isinstance(sink, KafkaSettings):
            try:
                looking_at_cells.check_reached(sink)
            except SinkPipelineError as error:
                unreached[sink.id.sink] = error
    if len(unreached) == len(sinks):
        raise unreached[sinks[0].id.sink]
    return found.warnings


def purify(sinks: Sequence[SinkSettings]) -> Iterator[Finding]:
    """Checks each sink: connection, rights, source topics, what exists of its own, observed progress."""
    of_topics = {each.sink: each for each in kafka.purify(sink for sink in sinks if isinstance(sink, KafkaSettings))}
    for sink in sinks:
        if not isinstance(sink, KafkaSettings):
            yield looking_at_cells.purify(sink)
        else:
            yield of_topics[sink.id]


def foresee_stage(stage: StageSettings) -> Foreseen:
    """What a start of the stage would find: the database, its slot, and the progress. Creates nothing."""
    return kinds.of(stage.database).foresee(stage)


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
    return inspection.inspected(sink, memory, lambda: looking_at_cells.seen(sink, source_admin), source_admin)


def place_of_stage(stage: StageSettings, admin_of: Callable[[Connection], Admin] = Admin) -> dict[str, Any]:
    """Where a stage stands while nobody runs it, as `status.source` has it; empty before its first start.

    Raises:
        SinkPipelineError: IdentityInUse where the progress is somebody else's, and as the reads.
    """
    sink = sink_settings(stage)
    _, progress = inspection.observed(sink, admin_of(sink.connection))
    check_owner(sink.id, progress.meta, sink.owner)
    state = progress.partitions.get(stage.database.partition)
    return {} if state is None else place(state)


def cluster_of(sink: SinkSettings) -> Connection:
    """Where its topics are; of a sink that is no topic, the source's."""
    if not isinstance(sink, KafkaSettings):
        of_source: Connection = sink.source.connection
        return of_source
    return sink.connection
