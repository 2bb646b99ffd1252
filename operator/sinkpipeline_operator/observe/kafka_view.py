"""What Kafka says of pipelines whose driver does not answer.

It is looked at in threads of its own, so that a cluster that is dead holds up no reconciliation, and told from what was
found last. Each cluster, with the token endpoint that it is asked with, has a lane of these threads, and a circuit: one
that is silent holds up no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import Self

from sinkpipeline.changes.settings import StageSettings
from sinkpipeline.core.changes.dropping import Kept
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import SinkPipeline
from sinkpipeline.core.memory import memory_of
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.status import Condition, SinkReport, SinkState, condition_of, render
from sinkpipeline.core.topics import Memory
from sinkpipeline.kinds import opened
from sinkpipeline.kinds.leaving import kept_in_database, stage_removal
from sinkpipeline.kinds.looking import cluster_of, inspect, place_of_stage
from sinkpipeline.kinds.resolve import SinkSettings, resolve_sinks, resolve_stage
from sinkpipeline.sinks.removal import KeptTopic, SinkRemoval
from sinkpipeline_operator.child import remedies
from sinkpipeline_operator.child.waits import Wait
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.lanes import Lanes
from sinkpipeline_operator.observe.kafka_clients import KafkaClients
from sinkpipeline_operator.observe.secret_files import SecretFiles

_LOG = logging.getLogger("sinkpipeline.operator")

_THREADS = 8
_EACH = 2
"""Threads that wait for one cluster."""
_SLOW_REMOVAL_S = 10.0
_REMOVE_AGAIN_S = 5.0
_TOLD = (
    "frontier", "rowsDelivered", "deadLettered", "dropped", "lost", "lag", "heldBack", "deadLetters",
    "lastProgressTime", "epoch", "dataTopicId", "dataTopics", "progressTopicId", "mayBeDuplicated",
    "rolledBack",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of one pipeline."""

    ref: Ref
    pipeline: SinkPipeline
    config_hash: str
    status: Mapping[str, Any]
    secrets: Mapping[str, Mapping[str, str]]
    """By name, the data of the Secrets that it refers to, in base64."""
    cluster: str

    @property
    def lane(self) -> frozenset[tuple[str, str | None]]:
        """Whom it has to wait for: all clusters, each with the endpoint that gives tokens for it.

        A token endpoint that hangs holds up those alone who name it, and not all pipelines of the same brokers.
        """
        spec = self.pipeline.spec
        connections = (spec.reads.connection, *(self.pipeline.connection(sink) for sink in spec.sinks))
        return frozenset((each.bootstrap_servers, each.token_endpoint_url) for each in connections)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What a pipeline's manifest says, with the files of its Secrets."""

    sinks: Sequence[SinkSettings]
    stage: StageSettings | None = None
    """What reads a database; None where records come from Kafka."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was found; of brokers that do not answer only that."""

    config_hash: str
    at: float
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of `status.sinks`, by name."""
    topics: Condition
    source: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `status.source`."""
    other_owner: bool = False
    """Whether the progress of a sink belongs to another pipeline."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """How the removal of a pipeline's sinks stands."""

    done: bool
    error: SinkPipelineError | None = None
    """Of the last attempt, also while the next one is on its way."""
    doomed: tuple[str, ...] | None = None
    """The data topics that are to be deleted, before anything is; None where nobody has looked."""
    is_slow: bool = False
    """Whether it has been on its way for longer than brokers that answer take."""
    kept: tuple[KeptTopic, ...] = ()
    kept_in_database: tuple[Kept, ...] = ()
    """A slot and a publication that stay."""


def wait_of(removal: Removal, pipeline: Ref, servers: str | None) -> Wait:
    """What the resource waits for meanwhile, and how it goes without.

    Args:
        removal: how it stands.
        pipeline: whose.
        servers: the brokers; None where nobody knows them.
    """
    error, alone = removal.error, remedies.without_topics(pipeline)
    if error is not None:
        message = str(error) if alone in str(error) else f"{error}; {alone}"
        return Wait(reason=error.reason.value, message=message, alarm=True, needs_person=not error.reason.retry)
    doing = "removing the pipeline's progress, and the data topics that it created"
    if not removal.is_slow or servers is None:
        return Wait(reason="RemovingTopics", message=doing)
    return Wait(
        reason="KafkaNotAnswering",
        message=f"{doing}: {servers} has not answered so far; {alone}",
        alarm=True,
    )


class KafkaView:
    """Usable from several threads; use it in a `with`."""

    def __init__(self, *, every_s: float, tell: Callable[[Ref], None]) -> None:
        """`tell`: is called when there is something new to be told of a pipeline."""
        self._every_s = every_s
        self._tell = tell
        self._found: dict[Ref, Found] = {}
        self._removals: dict[Ref, Removal] = {}
        self._removing_since: dict[Ref, float] = {}
        self._removed_at: dict[Ref, float] = {}
        """When an attempt ended last."""
        self._asked: set[Ref] = set()
        self._lock = threading.Lock()
        self._lanes = Lanes("kafka", threads=_THREADS, each=_EACH)
        self._clients = KafkaClients()
        self._files = SecretFiles()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lanes.close()
        self._files.close()

    def of(self, question: Question) -> Found | None:
        """What was found last, of this configuration; looks again in the background where that is old."""
        with self._lock:
            found = self._found.get(question.ref)
            if found is not None and found.config_hash != question.config_hash:
                found = None
            age_s = float("inf") if found is None else time.monotonic() - found.at
            if age_s >= self._every_s and question.ref not in self._asked:
                self._asked.add(question.ref)
                self._lanes.submit(question.lane, lambda: self._look(question))
        # What is much older may be of before a driver that has run since.
        return found if age_s < 2 * self._every_s else None

    def remove(self, question: Question, announced: Collection[str] | None) -> Removal:
        """Removes the pipeline's sinks for good, in the background: how that stands.

        After an error it is tried again when it is asked for again, and some seconds have passed.

        Args:
            question: about the pipeline.
            announced: the data topics of whose deletion people were told; no other is deleted. None: it is only looked
                which ones that would be.
        """
        ref, now = question.ref, time.monotonic()
        with self._lock:
            removal = self._removals.get(ref, Removal(done=False))
            if removal.done or (announced is None and removal.doomed is not None):
                return removal
            since = self._removing_since.setdefault(ref, now)
            waited = removal.error is None or now - self._removed_at.get(ref, float("-inf")) >= _REMOVE_AGAIN_S
            if ref not in self._asked and waited:
                self._asked.add(ref)
                names = None if announced is None else frozenset(announced)
                self._lanes.submit(question.lane, lambda: self._remove(question, names))
        return replace(removal, is_slow=now - since >= _SLOW_REMOVAL_S)

    def look_anew(self, ref: Ref) -> None:
        """What was found was of before somebody has reset a sink."""
        with self._lock:
            self._found.pop(ref, None)

    def forget_removal(self, ref: Ref) -> None:
        """The pipeline of that name is there and stays: what was removed was another one's."""
        with self._lock:
            self._removals.pop(ref, None)

    def forget(self, ref: Ref) -> None:
        with self._lock:
            self._found.pop(ref, None)
            self._removals.pop(ref, None)
            self._removing_since.pop(ref, None)
            self._removed_at.pop(ref, None)
        self._files.forget(ref)

    def _remove(self, question: Question, announced: frozenset[str] | None) -> None:
        try:
            with self.opened(question) as settings:
                removal = self._removal(settings, announced)
        except SinkPipelineError as error:
            removal = Removal(done=False, error=error)
        except Exception as error:  # noqa: BLE001 - a thread's last resort: told, and tried again
            _LOG.exception("%s: removing its sinks failed by a bug", question.ref)
            bug = SinkPipelineError(Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}", "please report this")
            removal = Removal(done=False, error=bug)
        with self._lock:
            self._removals[question.ref] = removal
            self._removed_at[question.ref] = time.monotonic()
            self._asked.discard(question.ref)
        self._tell(question.ref)

    def _removal(self, settings: Opened, announced: frozenset[str] | None) -> Removal:
        with ExitStack() as stack:
            sinks: list[SinkRemoval] = []
            stages: list[SinkRemoval] = []
            if settings.stage is not None:
                # First: while its database is away, nothing at all is removed.
                admin = self._clients.admin(settings.stage.kafka)
                stages = [stage_removal(settings.stage, admin, announced)]
                sinks += stages
            for sink in settings.sinks:
                ports = stack.enter_context(opened(sink, self._clients.admin(cluster_of(sink))))
                sinks.append(SinkRemoval(ports=ports, announced=announced))
            if announced is None:
                return Removal(done=False, doomed=tuple(name for each in sinks for name in _doomed(each)))
            kept = tuple(stays for each in sinks if (stays := _carried_out(each)) is not None)
            in_database = tuple(each for stage in stages for each in kept_in_database(stage))
            return Removal(done=True, kept=kept, kept_in_database=in_database)

    @contextmanager
    def opened(self, question: Question) -> Iterator[Opened]:
        """All settings, with the pipeline as the owner of the progress; their files are there meanwhile.

        Raises:
            SinkPipelineError: as `resolve_sinks`; NotServed, where it would take our own credentials.
        """
        if question.pipeline.logs_in_as_its_pods:
            # The address is the manifest's. Whoever listens there would have a token of ours.
            raise SinkPipelineError(
                Reason.NOT_SERVED,
                "the operator does not log in to Amazon MSK: only the drivers' pods have the pipeline's role",
                f"nothing while a driver runs; {remedies.without_topics(question.ref)}",
            )
        owner = Owner(cluster=question.cluster, name=str(question.ref))
        with self._files.written(question.ref, question.secrets) as directory:
            yield Opened(
                sinks=[replace(each, owner=owner) for each in resolve_sinks(question.pipeline, directory)],
                stage=resolve_stage(question.pipeline, directory, owner),
            )

    def _look(self, question: Question) -> None:
        try:
            found = self._find(question)
            with self._lock:
                before, self._found[question.ref] = self._found.get(question.ref), found
            if before is None or replace(before, at=found.at) != found:
                self._tell(question.ref)
        except Exception:  # noqa: BLE001 - a thread's last resort: the next look tries again
            _LOG.exception("%s: looking at Kafka failed by a bug", question.ref)
        finally:
            with self._lock:
                self._asked.discard(question.ref)

    def _find(self, question: Question) -> Found:
        pipeline = question.pipeline
        try:
            with self.opened(question) as settings:
                reports = [self._report(sink, _memory(question, sink.id.sink)) for sink in settings.sinks]
                # The database itself is not asked: whoever looks at its slot needs a connection for each look.
                source = None if settings.stage is None else place_of_stage(settings.stage, self._clients.admin)
        except SinkPipelineError as error:
            unknown = Condition("Unknown", error.reason.value, error.message)
            return Found(config_hash=question.config_hash, at=time.monotonic(), topics=unknown)
        if source == {}:
            # Its first start creates what the sinks read: that it is missing is no fault yet.
            reports = [_before_its_source(each) for each in reports]
        document = render(reports, identity=pipeline.identity, generation=None, previous=None, now_ms=0)
        topics = condition_of(document, "TopicsReady")
        unreachable = next((each.error for each in reports if each.error is not None and each.error.reason.retry), None)
        if topics["status"] == "Unknown" and unreachable is not None:
            topics = {**topics, "reason": unreachable.reason.value, "message": unreachable.message}
        return Found(
            config_hash=question.config_hash,
            at=time.monotonic(),
            sinks={
                sink["name"]: {key: sink[key] for key in _TOLD if key in sink}
                for sink in document["sinks"]
                if sink.get("frontier")
            },
            topics=Condition(topics["status"], topics["reason"], _with_remedies(topics, reports, question.ref)),
            source=source or {},
            other_owner=any(each.error and each.error.reason is Reason.IDENTITY_IN_USE for each in reports),
        )

    def _report(self, sink: SinkSettings, memory: Memory | None) -> SinkReport:
        try:
            for connection in dict.fromkeys((sink.source.connection, cluster_of(sink))):
                self._clients.check(connection)
        except SinkPipelineError as error:
            return SinkReport(name=sink.id.sink, exactly_once=sink.exactly_once, state=SinkState.SUSPENDED, error=error)
        return inspect(sink, memory, self._clients.admin)


def _doomed(removal: SinkRemoval) -> tuple[str, ...]:
    try:
        return removal.doomed()
    except SinkPipelineError as error:
        if error.reason is not Reason.IDENTITY_IN_USE:
            raise
        return ()


def _carried_out(removal: SinkRemoval) -> KeptTopic | None:
    """Somebody else's progress is none of ours, and no reason to leave what is: the other sinks are removed."""
    try:
        return removal.carry_out()
    except SinkPipelineError as error:
        if error.reason is not Reason.IDENTITY_IN_USE:
            raise
        return KeptTopic(removal.settings.data.name, error.message)


def _before_its_source(report: SinkReport) -> SinkReport:
    is_missing = report.error is not None and report.error.reason is Reason.SOURCE_TOPIC_MISSING
    return replace(report, error=None) if is_missing and report.progress is None else report


def _with_remedies(topics: Mapping[str, Any], reports: Iterable[SinkReport], ref: Ref) -> str:
    """What is wrong with the topics, and what a person types for it."""
    errors = [(each.name, each.error) for each in reports if each.error is not None]
    told = [
        f"{error.message} ({remedies.in_cluster(error.remedy, ref, name)})"
        for name, error in errors
        if error.message in topics["message"]
    ]
    return "; ".join(told) if topics["status"] == "False" and told else str(topics["message"])


def _memory(question: Question, sink: str) -> Memory | None:
    try:
        return memory_of(question.status, question.pipeline.identity, sink) if question.status.get("sinks") else None
    except SinkPipelineError:
        return None
