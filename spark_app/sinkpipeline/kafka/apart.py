"""That no sink writes where the source reads, as the clusters say: one can have several addresses. Only describes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from sinkpipeline.core.crossing import Place, Role, SourcePlaces, Use, check_sinks, check_source
from sinkpipeline.core.topic_ids import ids_of
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.settings import SinkSettings, SourceSettings

ONE = "one"
"""In place of the id of a cluster that is reached by one connection, and so need not be asked for it."""


class Claims:
    """The topics of the sinks of this process, by the ids that their starts have found. For several threads."""

    def __init__(self) -> None:
        self._uses: dict[str, tuple[Use, ...]] = {}
        self._lock = threading.Lock()

    def take(self, sink: SinkSettings, ids: Mapping[Role, str | None]) -> None:
        """Takes the topics for a sink, in place of those that it had.

        Raises:
            SinkPipelineError: ManifestInvalid where another sink has one of them.
        """
        self.take_uses(sink.id.sink, tuple(uses_of(sink, None, ids)))

    def take_uses(self, sink: str, uses: tuple[Use, ...]) -> None:
        """Likewise."""
        with self._lock:
            others = [use for name, taken in self._uses.items() if name != sink for use in taken]
            check_sinks(uses, others)
            self._uses[sink] = uses


def uses_of(
    sink: SinkSettings, cluster: str | None, ids: Mapping[Role, str | None] = MappingProxyType({})
) -> Iterator[Use]:
    """The topics of a sink, with the ids of those that are known."""
    data = ids.get(Role.DATA)
    several = ids_of(data) or {}
    uses = [(Role.DATA, name, several.get(name) if sink.data.parts else data) for name in sink.data_names]
    uses.append((Role.PROGRESS, sink.progress.name, ids.get(Role.PROGRESS)))
    if sink.dead_letter is not None:
        uses.append((Role.DEAD, sink.dead_letter.topic.name, ids.get(Role.DEAD)))
    servers = sink.connection.bootstrap_servers
    for role, name, topic_id in uses:
        yield Use(sink=sink.id.sink, role=role, place=Place(name=name, cluster=cluster, id=topic_id, servers=servers))


def places_of(
    source: SourceSettings, cluster: str | None, ids: Mapping[str, str] = MappingProxyType({})
) -> SourcePlaces:
    return SourcePlaces(reads=source.reads, cluster=cluster, servers=source.connection.bootstrap_servers, ids=ids)


def check_apart(sinks: Iterable[SinkSettings], clusters: Mapping[Connection, str | None]) -> None:
    """Compares all topics of a pipeline by their names, as far as it is known which clusters they are on.

    Raises:
        SinkPipelineError: ManifestInvalid.
    """
    before: list[Use] = []
    for sink in sinks:
        uses = list(uses_of(sink, clusters.get(sink.connection)))
        check_source(places_of(sink.source, clusters.get(sink.source.connection)), uses)
        check_sinks(uses, before)
        before += uses


def check_names_apart(sink: SinkSettings, source_admin: Admin, admin: Admin) -> None:
    """Compares the topics of one sink with the source by their names, also those that don't exist yet.

    Raises:
        SinkPipelineError: ManifestInvalid.
    """
    if admin is source_admin:
        clusters: dict[Connection, str | None] = {sink.source.connection: ONE, sink.connection: ONE}
    else:
        clusters = {sink.source.connection: source_admin.cluster().id, sink.connection: admin.cluster().id}
    check_apart([sink], clusters)


def check_ids_apart(sink: SinkSettings, source: Mapping[str, str], ids: Mapping[Role, str | None]) -> None:
    """Compares the topics of one sink with the source by their ids.

    Raises:
        SinkPipelineError: ManifestInvalid.
    """
    check_source(places_of(sink.source, None, source), uses_of(sink, None, ids))
