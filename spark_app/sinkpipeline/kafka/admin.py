"""What we ask of a cluster and of its topics; every call has a deadline, and every answer is one of our types."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
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
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.kafka.connection import REQUEST_TIMEOUT_S, Connection
from sinkpipeline.kafka.errors import error_of, translate

T = TypeVar("T")

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""How a broker without topic ids spells the id of every topic."""

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_VISIBLE_DEADLINE_S = 30.0
_POLL_S = 0.05


class _LogIn:
    """A refused log-in reaches the caller of a request as a time-out; what went wrong is only told here."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def remember(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.error = error


class Admin:
    """One admin client of one cluster. Safe to share between threads.

    Every method raises SinkPipelineError: BrokerUnreachable, AuthenticationFailed, AuthorizationFailed or KafkaError,
    where its own docstring doesn't name more.
    """

    def __init__(self, connection: Connection) -> None:
        self._servers = connection.bootstrap_servers
        self._log_in = _LogIn()
        config = connection.client_config({"socket.timeout.ms": str(int(REQUEST_TIMEOUT_S * 1000))})
        config["error_cb"] = self._log_in.remember
        self._client = AdminClient(config)

    def _translate(
        self, exception: KafkaException, doing: str, otherwise: Reason = Reason.KAFKA_ERROR
    ) -> SinkPipelineError:
        self._client.poll(0)  # error callbacks are served only here
        return translate(self._log_in.error or exception, doing, self._servers, otherwise)

    def _result(self, future: Future[T], doing: str) -> T:
        try:
            # The client's own deadline is REQUEST_TIMEOUT_S; the margin only guards against a future that never ends.
            return future.result(REQUEST_TIMEOUT_S + 5)
        except KafkaException as exception:
            raise self._translate(exception, doing) from exception
        except TimeoutError as error:
            raise self._no_answer(doing) from error

    def _no_answer(self, doing: str) -> SinkPipelineError:
        return SinkPipelineError(
            Reason.BROKER_UNREACHABLE, f"no answer from {self._servers} while {doing}", "check that the brokers run"
        )

    def brokers(self, timeout_s: float = REQUEST_TIMEOUT_S) -> int:
        """The number of brokers: the cheapest proof that the cluster answers."""
        try:
            return len(self._client.list_topics(topic="", timeout=timeout_s).brokers)
        except KafkaException as exception:
            raise self._translate(exception, "connecting") from exception

    def topic_names(self) -> frozenset[str]:
        try:
            return frozenset(self._client.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
        except KafkaException as exception:
            raise self._translate(exception, "listing topics") from exception

    def topics(self, names: Collection[str]) -> dict[str, Topic | None]:
        """Describes topics by one request, without their configuration; None for a missing one.

        Raises:
            SinkPipelineError: also TopicIdsUnavailable.
        """
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S)
        found: dict[str, Topic | None] = {}
        for name, future in futures.items():
            try:
                description = future.result(REQUEST_TIMEOUT_S + 5)
            except TimeoutError as error:
                raise self._no_answer(f"describing topic {name}") from error
            except KafkaException as exception:
                if error_of(exception).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._translate(exception, f"describing topic {name}") from exception
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
        return found

    def denied(self, name: str, operations: Collection[str]) -> frozenset[str]:
        """Which of these operations (such as "READ") the principal may not do on a topic that exists."""
        future = self._client.describe_topics(
            TopicCollection([name]), include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
        )[name]
        description = self._result(future, f"reading our rights on topic {name}")
        allowed = {operation.name for operation in description.authorized_operations or ()}
        return frozenset(operations) - allowed

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The effective configuration of a topic."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        future = self._client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
        entries = self._result(future, f"reading the configuration of topic {name}")
        return MappingProxyType({key: entry.value for key, entry in entries.items() if entry.value is not None})

    def create_topic(self, request: TopicRequest) -> Topic:
        """Creates a topic and waits until it can be described; one that is there already is success.

        Raises:
            SinkPipelineError: also TopicCreationFailed.
        """
        new = NewTopic(
            request.name,
            num_partitions=-1 if request.partitions is None else request.partitions,
            replication_factor=-1 if request.replication_factor is None else request.replication_factor,
            config=dict(request.config),
        )
        future = self._client.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[request.name]
        try:
            future.result(REQUEST_TIMEOUT_S + 5)
        except TimeoutError as error:
            raise self._no_answer(f"creating topic {request.name}") from error
        except KafkaException as exception:
            code = error_of(exception).code()
            # A time-out is ambiguous: the description below tells the truth.
            if code not in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT):
                raise self._translate(
                    exception, f"creating topic {request.name}", Reason.TOPIC_CREATION_FAILED
                ) from exception
        deadline = time.monotonic() + _VISIBLE_DEADLINE_S
        while time.monotonic() < deadline:
            topic = self.topics([request.name])[request.name]
            if topic is not None:
                return topic
            time.sleep(_POLL_S)
        raise SinkPipelineError(
            Reason.TOPIC_CREATION_FAILED,
            f"topic {request.name} was created, but {self._servers} does not show it after {_VISIBLE_DEADLINE_S:.0f} s",
            "look at the controller's log",
        )

    def beginning_offsets(self, partitions: Collection[SourcePartition]) -> dict[SourcePartition, int]:
        return self._offsets(partitions, _EARLIEST, read_committed=False)

    def end_offsets(
        self, partitions: Collection[SourcePartition], *, read_committed: bool
    ) -> dict[SourcePartition, int]:
        """The end offsets: the last stable offset, or the high watermark without `read_committed`."""
        return self._offsets(partitions, _LATEST, read_committed=read_committed)

    def _offsets(
        self, partitions: Collection[SourcePartition], spec: OffsetSpec, *, read_committed: bool
    ) -> dict[SourcePartition, int]:
        if not partitions:
            return {}
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        futures = self._client.list_offsets(
            {ClientPartition(each.topic, each.partition): spec for each in partitions},
            isolation_level=level,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return {
            SourcePartition(each.topic, each.partition): self._result(
                future, f"reading the offsets of {each.topic}"
            ).offset
            for each, future in futures.items()
        }
