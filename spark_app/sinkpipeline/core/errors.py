"""The one table of reasons: what each means for the exit code and for a retry, and the error that carries one.

A reason is the same CamelCase word in code, in a condition, in an event, in a metric and in the docs. An error carries
the facts (`message`) and what a person can do about them (`remedy`). It pickles, because Spark's Python workers hand
theirs to the driver.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from typing_extensions import override


class ExitCode(enum.IntEnum):
    """Exit codes of the driver and of the `sinkpipeline` command; the operator acts on them."""

    DONE = 0
    FAILED = 1
    MANIFEST = 2
    REFUSED = 3
    SUPERSEDED = 4


@dataclass(frozen=True)
class _Consequence:
    exit_code: ExitCode
    retry: bool
    """Whether the driver tries again by itself, with backoff. After a refusal it waits until somebody changes
    something."""
    heals: bool = False
    """Whether a refusal can go away without a change of the manifest, because a right is granted or a topic is
    created."""
    counted: bool = True
    """Whether a failure counts towards the circuit. An outage of the cluster does not count: otherwise it would open
    the circuits of all sinks of that cluster, and each would need a person."""


_MANIFEST = _Consequence(ExitCode.MANIFEST, retry=False)
_REFUSED = _Consequence(ExitCode.REFUSED, retry=False)
_HEALS = _Consequence(ExitCode.REFUSED, retry=False, heals=True)
_TRANSIENT = _Consequence(ExitCode.FAILED, retry=True)
_OUTAGE = _Consequence(ExitCode.FAILED, retry=True, counted=False)
_SUPERSEDED = _Consequence(ExitCode.SUPERSEDED, retry=False)


class Reason(str, enum.Enum):
    """Every reason an error can have."""

    # The manifest or its expressions are wrong.
    USAGE_INVALID = "UsageInvalid"
    MANIFEST_INVALID = "ManifestInvalid"
    NOT_SERVED = "NotServed"
    EXPRESSION_INVALID = "ExpressionInvalid"
    # Refused: something outside of the manifest has to change.
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason, not a secret
    SECRET_INVALID = "SecretInvalid"  # noqa: S105 - likewise
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    AUTHORIZATION_FAILED = "AuthorizationFailed"
    SOURCE_TOPIC_MISSING = "SourceTopicMissing"
    SOURCE_DATA_LOST = "SourceDataLost"
    SOURCE_RECREATED = "SourceRecreated"
    SOURCE_ROLLED_BACK = "SourceRolledBack"
    SOURCE_UNSUITABLE = "SourceUnsuitable"
    SLOT_LOST = "SlotLost"
    PUBLICATION_MISSING = "PublicationMissing"
    TRANSACTION_TOO_LARGE = "TransactionTooLarge"
    DATA_TOPIC_LOST = "DataTopicLost"
    DATA_TOPIC_REMOVED = "DataTopicRemoved"
    DATA_TOPIC_NOT_EMPTY = "DataTopicNotEmpty"
    TOPIC_CREATION_FAILED = "TopicCreationFailed"
    TOPIC_IDS_UNAVAILABLE = "TopicIdsUnavailable"
    PROGRESS_TOPIC_INVALID = "ProgressTopicInvalid"
    PROGRESS_CORRUPT = "ProgressCorrupt"
    PROGRESS_REGRESSED = "ProgressRegressed"
    PROGRESS_LOST = "ProgressLost"
    SINK_ROLLED_BACK = "SinkRolledBack"
    PROGRESS_VERSION_UNKNOWN = "ProgressVersionUnknown"
    NOTHING_TO_RESET = "NothingToReset"
    POSITIONS_REFUSED = "PositionsRefused"
    FRONTIER_MOVED = "FrontierMoved"
    LOG_FILE_INVALID = "LogFileInvalid"
    STATUS_FILE_INVALID = "StatusFileInvalid"
    IDENTITY_IN_USE = "IdentityInUse"
    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    LOOKUP_INVALID = "LookupInvalid"
    LOOKUP_NOT_UNIQUE = "LookupNotUnique"
    SCHEMA_NOT_FOUND = "SchemaNotFound"
    SCHEMA_UNSUPPORTED = "SchemaUnsupported"
    SCHEMA_REFUSED = "SchemaRefused"
    TOO_MANY_SCHEMAS = "TooManySchemas"
    RECORD_UNDECODABLE = "RecordUndecodable"
    RECORD_REFUSED = "RecordRefused"
    DEAD_LETTER_FAILED = "DeadLetterFailed"
    KAFKA_REFUSED = "KafkaRefused"
    SINK_REFUSED = "SinkRefused"
    CIRCUIT_OPEN = "CircuitOpen"
    # A newer driver holds the sink.
    SUPERSEDED = "Superseded"
    # These may pass by themselves.
    BROKER_UNREACHABLE = "BrokerUnreachable"
    SINK_UNREACHABLE = "SinkUnreachable"
    SINK_FULL = "SinkFull"
    SINK_UNDER_REPLICATED = "SinkUnderReplicated"
    SOURCE_SLOW = "SourceSlow"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    SLOT_BUSY = "SlotBusy"
    SCHEMA_REGISTRY_UNREACHABLE = "SchemaRegistryUnreachable"
    PROGRESS_UNREADABLE = "ProgressUnreadable"
    DEAD_LETTERS_UNREADABLE = "DeadLettersUnreadable"
    FENCED_REPEATEDLY = "FencedRepeatedly"
    TRANSACTION_FAILED = "TransactionFailed"
    KAFKA_ERROR = "KafkaError"
    TOPICS_CHANGED = "TopicsChanged"
    BATCH_FAILED = "BatchFailed"
    STAGE_FAILED = "StageFailed"
    SPARK_FAILED = "SparkFailed"
    INTERNAL_ERROR = "InternalError"

    @property
    def exit_code(self) -> ExitCode:
        return _consequence(self).exit_code

    @property
    def retry(self) -> bool:
        return _consequence(self).retry

    @property
    def heals(self) -> bool:
        return _consequence(self).heals

    @property
    def counted(self) -> bool:
        return _consequence(self).counted


def _consequence(reason: Reason) -> _Consequence:
    match reason:
        case Reason.USAGE_INVALID | Reason.MANIFEST_INVALID | Reason.NOT_SERVED | Reason.EXPRESSION_INVALID:
            return _MANIFEST
        case Reason.SUPERSEDED:
            return _SUPERSEDED
        case (
            Reason.BROKER_UNREACHABLE
            | Reason.SINK_UNREACHABLE
            | Reason.SINK_FULL
            | Reason.SINK_UNDER_REPLICATED
            | Reason.SOURCE_SLOW
            | Reason.SOURCE_UNREACHABLE
            | Reason.SLOT_BUSY
            | Reason.SCHEMA_REGISTRY_UNREACHABLE
        ):
            return _OUTAGE
        case (
            Reason.AUTHENTICATION_FAILED
            | Reason.AUTHORIZATION_FAILED
            | Reason.SOURCE_TOPIC_MISSING
            | Reason.SOURCE_UNSUITABLE
            | Reason.PUBLICATION_MISSING
            | Reason.TOPIC_CREATION_FAILED
            | Reason.TOPIC_IDS_UNAVAILABLE
            | Reason.PROGRESS_TOPIC_INVALID
            | Reason.POSITIONS_REFUSED
            | Reason.IDENTITY_IN_USE
            | Reason.RECORD_REFUSED
            | Reason.KAFKA_REFUSED
            | Reason.SINK_REFUSED
            | Reason.CONFIG_MAP_NOT_FOUND
            | Reason.LOOKUP_INVALID
            | Reason.LOOKUP_NOT_UNIQUE
            | Reason.SCHEMA_NOT_FOUND
            | Reason.SCHEMA_UNSUPPORTED
            | Reason.SCHEMA_REFUSED
        ):
            return _HEALS
        case (
            Reason.PROGRESS_UNREADABLE
            | Reason.DEAD_LETTERS_UNREADABLE
            | Reason.FENCED_REPEATEDLY
            | Reason.TRANSACTION_FAILED
            | Reason.KAFKA_ERROR
            | Reason.TOPICS_CHANGED
            | Reason.BATCH_FAILED
            | Reason.STAGE_FAILED
            | Reason.SPARK_FAILED
            | Reason.INTERNAL_ERROR
        ):
            return _TRANSIENT
        case _:
            return _REFUSED


class SinkPipelineError(Exception):
    """An error with its reason, the facts and the remedy; its text is `REASON: message (remedy)`."""

    def __init__(self, reason: Reason, message: str, remedy: str) -> None:
        super().__init__(reason, message, remedy)
        self.reason = reason
        self.message = message
        self.remedy = remedy

    @override
    def __str__(self) -> str:
        return f"{self.reason.value}: {self.message} ({self.remedy})"

    def to_dict(self) -> dict[str, str]:
        """The shape of `status.sinks[].error` and of a task's receipt."""
        return {"reason": self.reason.value, "message": self.message, "remedy": self.remedy}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> SinkPipelineError:
        return cls(Reason(value["reason"]), str(value["message"]), str(value["remedy"]))
