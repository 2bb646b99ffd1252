"""Purification: what can be checked against the brokers before a pipeline is created, leaving nothing behind.

Everything here describes or observes. What passes can still fail later; then the sink's status says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sinkpipeline.core.crossing import Role, Use, check_sinks, check_source
from sinkpipeline.core.durability import as_requested, durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.finding import Finding
from sinkpipeline.core.letter_topics import DeadLetterDecision, decide_dead_letters
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.retention import keeps_ms, too_old
from sinkpipeline.core.topics import Beginning, Topic, TopicDecision, TopicRequest, check_progress_topic
from sinkpipeline.kafka.admin import Admin, Cluster
from sinkpipeline.kafka.apart import check_apart, places_of, uses_of
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.data_topics import describe_data, gathered
from sinkpipeline.kafka.diagnosis import connect
from sinkpipeline.kafka.producers import PlainProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings, SourceSettings
from sinkpipeline.kafka.source.source import KafkaSource
from sinkpipeline.kafka.source.views import source_topics
from sinkpipeline.kafka.views import describe
from sinkpipeline.sinks.foreseen import begins, foreseen

_PREFLIGHT_S = 5.0


@dataclass(frozen=True)
class Preflight:
    """What a person should be warned of before a run, and which sinks can't be reached."""

    warnings: tuple[str, ...]
    unreached: Mapping[str, SinkPipelineError]
    """By sink."""


def preflight(source: Connection, sinks: Sequence[SinkSettings]) -> Preflight:
    """Connects to the source and to the sinks.

    Raises:
        SinkPipelineError: BrokerUnreachable within seconds, AuthenticationFailed: of the source; ManifestInvalid.
    """
    for sink in sinks:
        _check_properties(sink)
    found = {source: connect(Admin(source), _PREFLIGHT_S)}
    errors = {}
    for connection in dict.fromkeys(sink.connection for sink in sinks if sink.connection != source):
        try:
            found[connection] = connect(Admin(connection), _PREFLIGHT_S)
        except SinkPipelineError as error:
            errors[connection] = error
    check_apart(sinks, {connection: cluster.id for connection, cluster in found.items()})
    unreached = {sink.id.sink: errors[sink.connection] for sink in sinks if sink.connection in errors}
    return Preflight(tuple(_one_of_several(found)), unreached)


def purify(sinks: Iterable[SinkSettings]) -> Iterator[Finding]:
    """Checks each sink: connection, rights, source topics, the topics that exist, observed progress."""
    before: list[Use] = []
    unreached: dict[Connection, SinkPipelineError] = {}
    for sink in sinks:
        try:
            yield _purify(sink, before, unreached)
        except SinkPipelineError as error:
            yield Finding(sink.id, None, error)


def _reach(admin: Admin, unreached: dict[Connection, SinkPipelineError]) -> Cluster:
    """A cluster that could not be reached for one sink is not waited for again for another one."""
    if admin.connection in unreached:
        raise unreached[admin.connection]
    try:
        return connect(admin, _PREFLIGHT_S)
    except SinkPipelineError as error:
        unreached[admin.connection] = error
        raise


def _purify(sink: SinkSettings, before: list[Use], unreached: dict[Connection, SinkPipelineError]) -> Finding:
    """`before`: the topics of the sinks before it, to which its own are added; `unreached`: likewise, clusters."""
    _check_properties(sink)
    source_admin, admin = Admin(sink.source.connection), Admin(sink.connection)
    found = {sink.source.connection: _reach(source_admin, unreached)}
    found[sink.connection] = cluster = _reach(admin, unreached)
    brokers = cluster.brokers
    # Before anything is asked of topics: a topic that isn't there yet would make the loop.
    check_source(places_of(sink.source, found[sink.source.connection].id), uses_of(sink, cluster.id))
    topics = source_topics(sink.source, source_admin)
    uses = list(uses_of(sink, cluster.id, _ids(sink, admin)))
    check_source(places_of(sink.source, None, {name: topic.id for name, topic in topics.items()}), uses)
    check_sinks(uses, before)
    before += uses
    check_readable(topics, source_admin)
    data = describe_data(admin, sink.data)
    there = {} if data is None else {each.name: each for each in data.parts or (data,)}
    for name in there:
        _require(admin, name, ("WRITE",))
    progress_topic = describe(admin, sink.progress.name)
    progress = Progress()
    if progress_topic is not None:
        check_progress_topic(progress_topic)
        _require(admin, progress_topic.name, ("READ", "WRITE"))
        with ProgressLog(sink.connection, sink.progress.name, sink.group_id) as log:
            progress = log.observe(sink.id)
    source = {name: topic.id for name, topic in topics.items()}
    port = KafkaSource(sink.source, sink.group_id, source_admin)
    decision = foreseen(sink, port, source, data=data, place=progress_topic, progress=progress)
    dead_letter_topic, dead_letters = _dead_letters(sink.dead_letter, admin)
    told = begins(port, decision)
    for request, create in (
        *((each, decision.create_data and each.name not in there) for each in sink.data.each),
        (sink.progress, decision.create_progress),
        *(() if sink.dead_letter is None else ((sink.dead_letter.topic, dead_letters.create),)),
    ):
        if create:
            _check_creation(request, admin, brokers)
    kept = [there.get(each.name) or as_requested(each) for each in sink.data.each]
    old = list(_too_old(kept, port, decision))
    kept.append(progress_topic or as_requested(sink.progress))
    if dead_letter_topic is not None or dead_letters.create:
        kept += [dead_letter_topic or as_requested(each.topic) for each in (sink.dead_letter,) if each is not None]
    # One broker alone is for trying things out, and has no other replicas to give.
    fears = [fear for topic in kept for fear in durability(topic)] if brokers > 1 else []
    warnings = (*decision.drift, *dead_letters.drift, *old, *fears, *_one_of_several(found))
    return Finding(sink.id, decision, None, warnings, begins=told, creates_dead_letters=dead_letters.create)


def _too_old(data: Iterable[Topic], source: KafkaSource, decision: TopicDecision) -> Iterator[str]:
    """Of a first start: later ones go on where rows came through that were as old."""
    limited = [(topic, kept) for topic in data if (kept := keeps_ms(topic)) is not None]
    if decision.beginning is not Beginning.FIRST_START or not limited:
        return
    now, view = int(time.time() * 1000), source.view()
    imported = source.positions(view).next if source.tells_positions else {}
    begin = {each: state.next for each, state in source.planned({}, view, epoch=0, imported=imported).items()}
    ends = source.ends(begin, readable=True)
    for topic, kept in limited:
        yield from too_old(topic, begin, source.positions_at(dict.fromkeys(begin, now - kept), ends))


def readable_topics(source: SourceSettings, admin: Admin) -> dict[str, str]:
    """The source's topics, with their ids, once it was reached and may be read.

    Raises:
        SinkPipelineError: BrokerUnreachable, AuthenticationFailed, AuthorizationFailed, SourceTopicMissing.
    """
    connect(admin, _PREFLIGHT_S)
    topics = source_topics(source, admin)
    check_readable(topics, admin)
    return {name: topic.id for name, topic in topics.items()}


def check_readable(topics: Iterable[str], admin: Admin) -> None:
    """Raises SinkPipelineError: AuthorizationFailed."""
    for name in topics:
        _require(admin, name, ("READ",))


def _check_creation(request: TopicRequest, admin: Admin, brokers: int) -> None:
    if (request.replication_factor or 1) > brokers:
        raise SinkPipelineError(
            Reason.TOPIC_CREATION_FAILED,
            f"topic {request.name} can't have replication factor {request.replication_factor}: there "
            f"{'is' if brokers == 1 else 'are'} {brokers} broker{'s' if brokers > 1 else ''}",
            "lower replicationFactor, or add brokers",
        )
    admin.check_creation(request)


def purify_letters(wanted: DeadLetterSettings | None, connection: Connection) -> DeadLetterDecision:
    """What a start does about the dead-letter topic of a sink that is no topic.

    Raises:
        SinkPipelineError: BrokerUnreachable, AuthorizationFailed, TopicCreationFailed.
    """
    admin = Admin(connection)
    brokers = connect(admin, _PREFLIGHT_S).brokers
    _, decision = _dead_letters(wanted, admin)
    if wanted is not None and decision.create:
        _check_creation(wanted.topic, admin, brokers)
    return decision


def _dead_letters(wanted: DeadLetterSettings | None, admin: Admin) -> tuple[Topic | None, DeadLetterDecision]:
    if wanted is None:
        return None, DeadLetterDecision(create=False)
    topic = describe(admin, wanted.topic.name)
    if topic is not None:
        _require(admin, topic.name, ("WRITE",))
    return topic, decide_dead_letters(topic, wanted.topic, auto_create=wanted.auto_create)


def _check_properties(sink: SinkSettings) -> None:
    """The client knows which values its properties can have; a task would be told too late."""
    PlainProducer(sink.connection, sink.properties).close()


def _ids(sink: SinkSettings, admin: Admin) -> dict[Role, str | None]:
    found = admin.topics([use.place.name for use in uses_of(sink, None)])
    topics = {use.role: found[use.place.name] for use in uses_of(sink, None)}
    topics[Role.DATA] = gathered(sink.data, found)
    return {role: None if topic is None else topic.id for role, topic in topics.items()}


def _one_of_several(clusters: Mapping[Connection, Cluster]) -> Iterator[str]:
    """Told before a run, because nobody sees it until that broker is down."""
    for connection, cluster in clusters.items():
        if cluster.brokers > 1 and "," not in connection.bootstrap_servers:
            yield (
                f"bootstrapServers {connection.bootstrap_servers} names one of {cluster.brokers} brokers: "
                "while that one is down nothing can start; name at least two"
            )


def _require(admin: Admin, topic: str, operations: tuple[str, ...]) -> None:
    denied = admin.denied(topic, operations)
    if denied:
        raise SinkPipelineError(
            Reason.AUTHORIZATION_FAILED,
            f"{' and '.join(each.capitalize() for each in sorted(denied))} on topic {topic} is not granted",
            "grant it to the principal; docs/rights.md lists all that is needed",
        )
