"""Layer 1 of failures: what an error of Kafka or of Spark means to us. One table; what is not in it may pass by itself.

The reason decides: whether a sink tries again, whether that counts towards its circuit, and the exit code
(`core.errors`). The remedy is the row's own, as `NotEnoughReplicas` and a broken network ask for different hands.

Sources: Kafka's protocol guide (error codes, retriable or not); librdkafka's rdkafka.h for the names that begin with an
underscore, which are the client's own; Spark's error conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One row of the table: errors that mean the same, and what a person can do about them."""

    reason: Reason
    remedy: str
    codes: tuple[str, ...] = ()
    """Kafka's, by the names that librdkafka has for them."""
    exceptions: tuple[str, ...] = ()
    """The Java client's, by class, as they stand in Spark's errors."""
    spark: tuple[str, ...] = ()
    """Classes, error conditions or words of Spark and of its JVM."""
    record: ErrorClass | None = None
    """Where one record is refused for what it is: what its dead letter says. The reason is for a sink without any."""


_RIGHTS = "grant it to the principal; docs/rights.md lists all that is needed"
_CREDENTIALS = "check auth.tls and auth.sasl, and the Secrets they name"
_CONFIGURED = "correct the brokers' configuration, or what the manifest asks for"
_LEAVE_OUT = "give the sink a deadLetter, or leave such records out with transform.where"

TABLE = (
    # What passes when the cluster is well again: waited for, however long it takes.
    Cause(
        reason=Reason.BROKER_UNREACHABLE,
        remedy="check that the brokers run and that bootstrapServers names them as this machine reaches them",
        codes=(
            "_TRANSPORT",
            "_ALL_BROKERS_DOWN",
            "_RESOLVE",
            "_TIMED_OUT",
            "_NOENT",  # no leader is known, as after a lost connection
            "_DESTROY_BROKER",  # likewise
            "_WAIT_COORD",
            "_UNKNOWN_BROKER",
            "REQUEST_TIMED_OUT",
            "BROKER_NOT_AVAILABLE",
            "NETWORK_EXCEPTION",
            "REBOOTSTRAP_REQUIRED",
        ),
        exceptions=("TimeoutException", "DisconnectException", "NetworkException", "BrokerNotAvailableException"),
    ),
    Cause(
        reason=Reason.BROKER_UNREACHABLE,
        remedy="nothing if brokers are being restarted; otherwise look for a partition without a leader",
        codes=(
            "LEADER_NOT_AVAILABLE",
            "NOT_LEADER_FOR_PARTITION",
            "REPLICA_NOT_AVAILABLE",
            "PREFERRED_LEADER_NOT_AVAILABLE",
            "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            "FENCED_LEADER_EPOCH",
            "UNKNOWN_LEADER_EPOCH",
            "OFFSET_NOT_AVAILABLE",
            "STALE_BROKER_EPOCH",
            "NOT_CONTROLLER",
            "NOT_COORDINATOR",
            "COORDINATOR_NOT_AVAILABLE",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "TRANSACTION_COORDINATOR_FENCED",
        ),
        exceptions=(
            "LeaderNotAvailableException",
            "NotLeaderOrFollowerException",
            "NotLeaderForPartitionException",
            "CoordinatorNotAvailableException",
            "CoordinatorLoadInProgressException",
            "NotCoordinatorException",
            "ReplicaNotAvailableException",
        ),
    ),
    Cause(
        # The client goes on by itself until then, and never tells why: NOT_ENOUGH_REPLICAS and the like reach nobody.
        reason=Reason.BROKER_UNREACHABLE,
        remedy="bring back the brokers that hold the topic's partitions: one has no leader, or fewer replicas in sync "
        "than min.insync.replicas asks for; or the way to them is too slow",
        codes=("_MSG_TIMED_OUT", "_TIMED_OUT_QUEUE"),
    ),
    Cause(
        # The client asks again, as this passes in a moment where it passes at all.
        reason=Reason.BROKER_UNREACHABLE,
        remedy="bring back the brokers that hold the partitions of the sink's topics: the end of the transaction "
        "before can't be written to one",
        codes=("CONCURRENT_TRANSACTIONS",),
    ),
    Cause(
        reason=Reason.SOURCE_SLOW,
        remedy="look for a partition without a leader, a quota of this client, or a slow link; fetch.min.bytes and "
        "max.partition.fetch.bytes in source.kafka.properties say how much is fetched at once",
        spark=("Cannot fetch record for offset",),
    ),
    # What may pass, and is tried a few times.
    Cause(
        reason=Reason.KAFKA_ERROR,
        remedy="look at the disks of the brokers",
        codes=("KAFKA_STORAGE_ERROR", "LOG_DIR_NOT_FOUND"),
        exceptions=("KafkaStorageException",),
    ),
    Cause(
        reason=Reason.KAFKA_ERROR,
        remedy="raise the quota of this client, or make trigger.maxOffsetsPerTrigger smaller",
        codes=("THROTTLING_QUOTA_EXCEEDED",),
        exceptions=("ThrottlingQuotaExceededException",),
    ),
    Cause(
        reason=Reason.KAFKA_ERROR,
        remedy="look for whoever deletes topics",
        codes=("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID", "_UNKNOWN_TOPIC"),
        exceptions=("UnknownTopicOrPartitionException", "UnknownTopicIdException", "InconsistentTopicIdException"),
    ),
    Cause(
        reason=Reason.KAFKA_ERROR,
        remedy="stop who writes in the name of that group; a transaction that it has left open ends by itself "
        "(its transaction.timeout.ms)",
        codes=("UNSTABLE_OFFSET_COMMIT",),
    ),
    Cause(
        # Of who asks for offsets; to who produces it says that the record names a partition that isn't there.
        reason=Reason.KAFKA_ERROR,
        remedy="nothing if the topic is new; otherwise look for whoever deletes topics and creates them again with "
        "fewer partitions",
        codes=("_UNKNOWN_PARTITION",),
    ),
    Cause(
        reason=Reason.TRANSACTION_FAILED,
        remedy="nothing if it happens only once; otherwise look for a second user of this transactional id",
        codes=(
            "_FENCED",
            "PRODUCER_FENCED",
            "INVALID_PRODUCER_EPOCH",
            "INVALID_PRODUCER_ID_MAPPING",
            "UNKNOWN_PRODUCER_ID",
            "INVALID_TXN_STATE",
            "TRANSACTION_ABORTABLE",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "DUPLICATE_SEQUENCE_NUMBER",
            "_GAPLESS_GUARANTEE",
        ),
    ),
    Cause(
        reason=Reason.BATCH_FAILED,
        remedy="give the executors more memory (spark.executor.memory), or make trigger.maxOffsetsPerTrigger smaller",
        spark=("java.lang.OutOfMemoryError", "UNABLE_TO_ACQUIRE_MEMORY", "SparkOutOfMemoryError"),
    ),
    Cause(
        # Of the tasks' reports. A batch that the driver collects is left to the tasks instead.
        reason=Reason.BATCH_FAILED,
        remedy="raise spark.driver.maxResultSize in spark.conf; its default here is 64m",
        spark=("spark.driver.maxResultSize",),
    ),
    Cause(
        reason=Reason.BATCH_FAILED,
        remedy="make room where Spark keeps its files (spark.local.dir)",
        spark=("No space left on device",),
    ),
    Cause(
        # Whatever the value is: no expression has seen the record yet.
        reason=Reason.RECORD_UNDECODABLE,
        remedy="look for a record whose timestamp is in nanoseconds or the like, and reset the sink to the offset "
        "after it; brokers refuse such records by the topic's message.timestamp.after.max.ms",
        spark=("KafkaRecordToRowConverter",),
    ),
    # What waits for a person.
    Cause(
        reason=Reason.AUTHENTICATION_FAILED,
        remedy=_CREDENTIALS,
        codes=("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"),
        exceptions=(
            "SaslAuthenticationException",
            "SslAuthenticationException",
            "UnsupportedSaslMechanismException",
            "IllegalSaslStateException",
        ),
    ),
    Cause(
        reason=Reason.AUTHENTICATION_FAILED,
        remedy="check auth.tls, the Secrets it names, and bootstrapServers",
        codes=("_SSL",),
    ),
    Cause(
        reason=Reason.AUTHORIZATION_FAILED,
        remedy=_RIGHTS,
        codes=(
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
            "CLUSTER_AUTHORIZATION_FAILED",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ),
        exceptions=(
            "TopicAuthorizationException",
            "GroupAuthorizationException",
            "ClusterAuthorizationException",
            "TransactionalIdAuthorizationException",
        ),
    ),
    Cause(
        reason=Reason.KAFKA_REFUSED,
        remedy="raise transaction.max.timeout.ms of the brokers to 60000 or more",
        codes=("INVALID_TRANSACTION_TIMEOUT",),
    ),
    Cause(
        reason=Reason.KAFKA_REFUSED,
        remedy="use brokers of Kafka 2.8 or newer, or those that inter.broker.protocol.version doesn't hold back",
        codes=("UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
        exceptions=("UnsupportedVersionException", "UnsupportedForMessageFormatException"),
    ),
    Cause(
        reason=Reason.KAFKA_REFUSED,
        remedy="use another compression.type in kafka.properties",
        codes=("UNSUPPORTED_COMPRESSION_TYPE", "_BAD_COMPRESSION"),
        exceptions=("UnsupportedCompressionTypeException",),
    ),
    Cause(
        reason=Reason.KAFKA_REFUSED,
        remedy=_CONFIGURED,
        codes=(
            "POLICY_VIOLATION",
            "INVALID_CONFIG",
            "INVALID_PARTITIONS",
            "INVALID_REPLICATION_FACTOR",
            "INVALID_REPLICA_ASSIGNMENT",
            "INVALID_REQUIRED_ACKS",
            "TOPIC_EXCEPTION",
            "TOPIC_DELETION_DISABLED",
            "SECURITY_DISABLED",
        ),
        exceptions=("PolicyViolationException", "InvalidTopicException"),
    ),
    # One record.
    Cause(
        reason=Reason.RECORD_REFUSED,
        remedy=f"raise max.message.bytes of the topic; or {_LEAVE_OUT}",
        codes=("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"),
        record=ErrorClass.RECORD_TOO_LARGE,
    ),
    Cause(
        reason=Reason.RECORD_REFUSED,
        remedy=f"widen message.timestamp.{{before,after}}.max.ms of the topic; or {_LEAVE_OUT}",
        codes=("INVALID_TIMESTAMP",),
        record=ErrorClass.INVALID_TIMESTAMP,
    ),
    Cause(
        reason=Reason.RECORD_REFUSED,
        remedy=_LEAVE_OUT,
        codes=(
            "INVALID_RECORD",
            "INVALID_MSG",
            "_UNKNOWN_PARTITION",
            "_INVALID_DIFFERENT_RECORD",  # another one of the same batch
        ),
        record=ErrorClass.RECORD_REFUSED,
    ),
)

NO_TOKEN = Cause(
    # Of a refusal Java's client says why, of anything else it doesn't.
    reason=Reason.BROKER_UNREACHABLE,
    remedy="check that the token endpoint runs, and that auth.sasl.oauthbearer.tokenEndpointUrl names it as this "
    "machine reaches it",
    spark=("retrieving token from callback handler",),
)
"""No token to log in with. An outage: it passes when the token endpoint is well again."""

UNKNOWN = Cause(reason=Reason.KAFKA_ERROR, remedy="look at the broker's log for the cause")

_EXCEPTION = re.compile(r"\borg\.apache\.kafka\.common\.errors\.(\w+)")


def _indexed(pairs: Iterable[tuple[str, Cause]]) -> Mapping[str, Cause]:
    index: dict[str, Cause] = {}
    for name, cause in pairs:
        if name in index:
            raise ValueError(f"{name} stands twice where it can mean one thing only")
        index[name] = cause
    return MappingProxyType(index)


_BY_CODE = _indexed((code, cause) for cause in TABLE if cause.record is None for code in cause.codes)
_OF_A_RECORD = _indexed((code, cause) for cause in TABLE if cause.record is not None for code in cause.codes)
_BY_EXCEPTION = _indexed((name, cause) for cause in TABLE for name in cause.exceptions)
_BY_WORDS = _indexed((words, cause) for cause in (*TABLE, NO_TOKEN) for words in cause.spark)


def of_kafka(code: str) -> Cause:
    """The row of an error code, by the client's name for it, such as LEADER_NOT_AVAILABLE; none that is of a record."""
    return _BY_CODE.get(code, UNKNOWN)


def of_a_record(code: str) -> Cause | None:
    """The row of an error code for who produces, such as MSG_SIZE_TOO_LARGE; None where it isn't of one record."""
    return _OF_A_RECORD.get(code)


def of_spark(text: str) -> Cause | None:
    """The row of an error of Spark, by the text with Java's stack; None where the table has none of what it names.

    Java tells causes last: the last exception of its Kafka client that is known is the one that began it.
    """
    known = [_BY_EXCEPTION[name] for name in _EXCEPTION.findall(text) if name in _BY_EXCEPTION]
    return known[-1] if known else next((cause for words, cause in _BY_WORDS.items() if words in text), None)
