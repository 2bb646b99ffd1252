"""What we ask of a cluster and of its topics; every call has a deadline, and every answer is one of our types."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Creation
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.kafka.connection import REQUEST_TIMEOUT_S, Connection
from sinkpipeline.kafka.errors import asked_once, error_of, made, repeated, translate
from sinkpipeline.kafka.log_in import LogIn

T = TypeVar("T")

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""How a broker without topic ids spells the id of every topic."""

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics of Kafka's own, which Spark's source leaves out."""
_EARLIEST = OffsetSpec.earliest()
_LATEST = OffsetSpec.latest()
_NONE_YET = -1
"""The offset of a moment that no record has come to."""
_NOT_GRANTED = (KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG, KafkaError.INVALID_REQUEST)
"""How brokers answer that let nobody set a part of a topic's configuration."""
_VISIBLE_DEADLINE_S = 30.0
_IN_DOUBT_S = 5.0
"""For a creation without an answer."""
_POLL_S = 0.05
ATTEMPT_S = 3.0
"""Of one attempt: the client would wait for a broker that is gone, and not ask another one."""
_REFUSAL_S = 1.0
"""A refused log-in is told within half a second: after this time it is worth asking for."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a cluster says of itself."""

    id: str | None
    """The same by whatever address it was reached; None where the brokers have none."""
    brokers: int


class Admin:
    """One admin client of one cluster. Safe to share between threads.

    Every method raises SinkPipelineError: BrokerUnreachable, AuthenticationFailed, AuthorizationFailed or KafkaError,
    where its own docstring doesn't name more.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._servers = connection.bootstrap_servers
        self._log_in = LogIn(connection.sasl)
        config = connection.client_config({"socket.timeout.ms": str(int(REQUEST_TIMEOUT_S * 1000))})
        config["error_cb"] = self._log_in.remember
        # Else it connects to a broker that is gone without a pause, and so takes a whole core while it waits.
        config["enable.sparse.connections"] = False
        self._client = made(AdminClient, config)

    def _translate(
        self, exception: KafkaException, doing: str, needs: str, otherwise: Reason = Reason.KAFKA_ERROR
    ) -> SinkPipelineError:
        error = translate(exception, doing, self._servers, otherwise, needs=needs)
        if error.reason is Reason.KAFKA_ERROR:
            # A leader of a newer epoch refuses what the client goes on to ask by the older one.
            self._look_around()
        if error.reason is not Reason.BROKER_UNREACHABLE:
            return error
        refusal = self._refusal(doing)
        if refusal is None:
            self._look_around()
        return refusal or self._log_in.outage(error)

    def _refusal(self, doing: str) -> SinkPipelineError | None:
        """Whether there is no answer because we are refused, or have no token."""
        self._client.poll(0)  # error callbacks are served only here
        told = self._log_in.error
        return None if told is None else translate(told, doing, self._servers)

    def _answered(self) -> None:
        """What was wrong with a log-in before is over."""
        self._client.poll(0)
        self._log_in.forget()

    def _result(self, future: Future[T], doing: str, needs: str) -> T:
        try:
            # The client's own deadline is REQUEST_TIMEOUT_S; the margin only guards against a future that never ends.
            result = future.result(REQUEST_TIMEOUT_S + 5)
        except KafkaException as exception:
            raise self._translate(exception, doing, needs) from exception
        except TimeoutError as error:
            raise self._no_answer(doing) from error
        self._answered()
        return result

    def _look_around(self) -> None:
        """Learns who leads what: else the next attempt asks the same broker, which may have gone for good."""
        with contextlib.suppress(KafkaException):
            self._client.list_topics(timeout=ATTEMPT_S)

    def _no_answer(self, doing: str) -> SinkPipelineError:
        self._look_around()
        fact = f"no answer from {self._servers} while {doing}"
        return self._log_in.outage(SinkPipelineError(Reason.BROKER_UNREACHABLE, fact, "check that the brokers run"))

    def brokers(self, timeout_s: float = REQUEST_TIMEOUT_S) -> int:
        """The number of brokers."""
        return self.cluster(timeout_s).brokers

    def cluster(
        self, timeout_s: float = REQUEST_TIMEOUT_S, *, why: Callable[[], SinkPipelineError | None] = lambda: None
    ) -> Cluster:
        """Which cluster this is: the cheapest proof that it answers. A refusal is told at once.

        `why`: is asked why there is no answer.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                found = self._client.list_topics(topic="", timeout=max(0.1, min(left, _REFUSAL_S)))
            except KafkaException as exception:
                refusal = why() or self._refusal("connecting")
                outage = refusal is None or refusal.reason is Reason.BROKER_UNREACHABLE
                if not outage or left <= _REFUSAL_S:
                    told = refusal or self._log_in.outage(translate(exception, "connecting", self._servers))
                    raise told from exception
                time.sleep(_POLL_S)
            else:
                self._answered()
                return Cluster(id=found.cluster_id, brokers=len(found.brokers))

    @repeated
    def topic_names(self) -> frozenset[str]:
        """Every topic but the brokers' own, which a pattern of Spark's doesn't match either."""
        try:
            topics = self._client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        except KafkaException as exception:
            raise self._translate(exception, "listing topics", "Describe on the topics") from exception
        self._answered()
        return frozenset(topics) - INTERNAL

    @repeated
    def topics(self, names: Collection[str]) -> dict[str, Topic | None]:
        """Describes topics by one request, without their configuration; None for a missing one.

        Raises:
            SinkPipelineError: also TopicIdsUnavailable.
        """
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=ATTEMPT_S)
        found: dict[str, Topic | None] = {}
        for name, future in futures.items():
            try:
                description = future.result(REQUEST_TIMEOUT_S + 5)
            except TimeoutError as error:
                raise self._no_answer(f"describing topic {name}") from error
            except KafkaException as exception:
                if error_of(exception).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    needs = f"Describe on topic {name}"
                    raise self._translate(exception, f"describing topic {name}", needs) from exception
                found[name] = None
                continue
            topic_id = str(description.topic_id)
            if topic_id == _NO_ID or description.topic_id is None:
                raise SinkPipelineError(
                    Reason.TOPIC_IDS_UNAVAILABLE,
                    f"{self._servers} gives topic {name} no id: a re-created topic could not be told from the old one",
                    "use brokers of Kafka 2.8 or newer with topic ids",
                )
            found[name] = Topic(
                name=name,
                id=topic_id,
                partitions=len(description.partitions),
                replication_factor=len(description.partitions[0].replicas) if description.partitions else 0,
            )
        self._answered()
        return found

    @repeated
    def denied(self, name: str, operations: Collection[str]) -> frozenset[str]:
        """Which of these operations (such as "READ") the principal may not do on a topic that exists."""
        future = self._client.describe_topics(
            TopicCollection([name]), include_authorized_operations=True, request_timeout=ATTEMPT_S
        )[name]
        description = self._result(future, f"reading our rights on topic {name}", f"Describe on topic {name}")
        if description.authorized_operations is None:
            # Of a service that does not tell rights.
            return frozenset()
        return frozenset(operations) - {operation.name for operation in description.authorized_operations}

    @repeated
    def topic_config(self, name: str) -> Mapping[str, str]:
        """The effective configuration of a topic."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        future = self._client.describe_configs([resource], request_timeout=ATTEMPT_S)[resource]
        needs = f"DescribeConfigs on topic {name}"
        entries = self._result(future, f"reading the configuration of topic {name}", needs)
        return MappingProxyType({key: entry.value for key, entry in entries.items() if entry.value is not None})

    def check_creation(self, request: TopicRequest) -> None:
        """Whether the brokers would create a topic; nothing is created.

        Raises:
            SinkPipelineError: also TopicCreationFailed.
        """
        future = self._create(request, validate_only=True)
        try:
            future.result(REQUEST_TIMEOUT_S + 5)
        except TimeoutError as error:
            raise self._no_answer(f"asking for the creation of topic {request.name}") from error
        except KafkaException as exception:
            code = error_of(exception).code()
            if request.wishes and code in _NOT_GRANTED:
                self.check_creation(replace(request, wishes={}))
            elif code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._refused_creation(exception, request) from exception

    def _create(self, request: TopicRequest, *, validate_only: bool = False) -> Future[None]:
        new = NewTopic(
            request.name,
            num_partitions=-1 if request.partitions is None else request.partitions,
            replication_factor=-1 if request.replication_factor is None else request.replication_factor,
            config={**request.config, **request.wishes},
        )
        futures = self._client.create_topics([new], request_timeout=REQUEST_TIMEOUT_S, validate_only=validate_only)
        return futures[request.name]

    def _refused_creation(self, exception: KafkaException, request: TopicRequest) -> SinkPipelineError:
        needs = f"Create on topic {request.name}"
        return self._translate(exception, f"creating topic {request.name}", needs, Reason.TOPIC_CREATION_FAILED)

    @repeated
    def create_topic(self, request: TopicRequest) -> Creation:
        """Creates a topic and waits until it can be described; one that is there already is success.

        Raises:
            SinkPipelineError: also TopicCreationFailed, and TopicsChanged where it does not stay.
        """
        # A request that was lost is made once more, whatever time the first one took.
        return self._creation(request) or self._answered_creation(request)

    def create_topic_once(self, request: TopicRequest) -> Creation:
        """Likewise, of a topic for rows: where no answer came, it may have taken another driver's rows, and be gone.

        Raises:
            InDoubt: whether it was created is not known. Read the progress before asking again.
        """
        with asked_once():
            return self._answered_creation(request)

    def _answered_creation(self, request: TopicRequest) -> Creation:
        creation = self._creation(request)
        if creation is None:
            raise self._no_answer(f"creating topic {request.name}")
        return creation

    def _creation(self, request: TopicRequest) -> Creation | None:
        """None where no answer came, and nothing was created."""
        future = self._create(request)
        is_ours = in_doubt = False
        try:
            future.result(REQUEST_TIMEOUT_S + 5)
            is_ours = True
        except TimeoutError as error:
            raise self._no_answer(f"creating topic {request.name}") from error
        except KafkaException as exception:
            code = error_of(exception).code()
            if request.wishes and code in _NOT_GRANTED:
                return self._creation(replace(request, wishes={}))
            in_doubt = code in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
            if not in_doubt and code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._refused_creation(exception, request) from exception
        # After a time-out too, the description tells the truth.
        deadline = time.monotonic() + (_IN_DOUBT_S if in_doubt else _VISIBLE_DEADLINE_S)
        while time.monotonic() < deadline:
            topic = self.topics([request.name])[request.name]
            if topic is not None:
                return Creation(topic=topic, is_ours=is_ours)
            time.sleep(_POLL_S)
        if in_doubt:
            return None
        raise SinkPipelineError(
            Reason.TOPICS_CHANGED,
            f"topic {request.name} was created, but {self._servers} does not show it after {_VISIBLE_DEADLINE_S:.0f} s:"
            " somebody has deleted it again, or the brokers are behind their controller",
            "nothing; it is created again. If it stays so, look at the controller's log",
        )

    @repeated
    def delete_topic(self, name: str, topic_id: str) -> None:
        """Asks for a topic's deletion; one that is gone already is success.

        Kafka deletes by the name. So before each request it is looked whether another topic has it by now, also where
        the answer to the one before was lost.

        Raises:
            SinkPipelineError: TopicsChanged where another topic has the name, and what the cluster says.
        """
        topic = self.topics([name])[name]
        if topic is not None and topic.id != topic_id:
            raise SinkPipelineError(
                Reason.TOPICS_CHANGED,
                f"topic {name} was deleted and created again by somebody else while the sink was removed",
                "nothing; the removal looks again whose it is",
            )
        future = self._delete(name)
        try:
            future.result(REQUEST_TIMEOUT_S + 5)
        except TimeoutError as error:
            raise self._no_answer(f"deleting topic {name}") from error
        except KafkaException as exception:
            if error_of(exception).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._translate(exception, f"deleting topic {name}", f"Delete on topic {name}") from exception
        self._answered()

    def _delete(self, name: str) -> Future[None]:
        return self._client.delete_topics([name], request_timeout=REQUEST_TIMEOUT_S)[name]

    @repeated
    def delete_records(self, before: Mapping[SourcePartition, int]) -> None:
        """Deletes what is below these offsets; what is deleted already is success."""
        futures = self._client.delete_records(
            [ClientPartition(each.topic, each.partition, offset) for each, offset in before.items()],
            request_timeout=REQUEST_TIMEOUT_S,
            operation_timeout=REQUEST_TIMEOUT_S,
        )
        for each, future in futures.items():
            self._result(future, f"deleting records of {each.topic}", f"Delete on topic {each.topic}")

    def beginning_offsets(self, partitions: Collection[SourcePartition]) -> dict[SourcePartition, int]:
        return self._offsets(partitions, _EARLIEST, read_committed=False)

    def end_offsets(
        self, partitions: Collection[SourcePartition], *, read_committed: bool
    ) -> dict[SourcePartition, int]:
        """The end offsets: the last stable offset, or the high watermark without `read_committed`."""
        return self._offsets(partitions, _LATEST, read_committed=read_committed)

    @repeated
    def offsets_at(
        self, moments: Mapping[SourcePartition, int], ends: Mapping[SourcePartition, int], *, read_committed: bool
    ) -> dict[SourcePartition, int]:
        """Of each partition, the first record not older than a moment (Unix milliseconds), or else its end."""
        asked = {each: OffsetSpec.for_timestamp(moment) for each, moment in moments.items()}
        found = self._listed(asked, read_committed=read_committed, least=_NONE_YET)
        return {each: ends[each] if offset == _NONE_YET else min(offset, ends[each]) for each, offset in found.items()}

    @repeated
    def _offsets(
        self, partitions: Collection[SourcePartition], spec: OffsetSpec, *, read_committed: bool
    ) -> dict[SourcePartition, int]:
        return self._listed(dict.fromkeys(partitions, spec), read_committed=read_committed)

    def _listed(
        self, asked: Mapping[SourcePartition, OffsetSpec], *, read_committed: bool, least: int = 0
    ) -> dict[SourcePartition, int]:
        if not asked:
            return {}
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        futures = self._client.list_offsets(
            {ClientPartition(each.topic, each.partition): spec for each, spec in asked.items()},
            isolation_level=level,
            request_timeout=ATTEMPT_S,
        )
        found: dict[SourcePartition, int] = {}
        for each, future in futures.items():
            doing = f"reading the offsets of {each.topic}"
            offset = self._result(future, doing, f"Describe on topic {each.topic}").offset
            if offset < least:
                # So the client tells that the leader did not answer: a result like any other, with an offset of -1001.
                raise self._no_answer(doing)
            found[SourcePartition(each.topic, each.partition)] = offset
        return found
