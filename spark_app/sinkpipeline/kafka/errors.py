"""The border where the client's errors become ours."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from sinkpipeline.core.errors import Reason, SinkPipelineError

_UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_CONTROLLER,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_UNAUTHENTICATED = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
_UNAUTHORIZED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_RECORD = _TOO_LARGE | {
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_MSG,
    KafkaError._UNKNOWN_PARTITION,
}


def error_of(exception: KafkaException | KafkaError) -> KafkaError:
    error = exception.args[0] if isinstance(exception, KafkaException) else exception
    if not isinstance(error, KafkaError):
        raise TypeError(f"not a Kafka error: {error!r}")
    return error


def is_record_error(error: KafkaError) -> bool:
    """Whether the broker or the client refuses a record for what it is: a retry would be refused again."""
    return error.code() in _RECORD


def translate(
    exception: KafkaException | KafkaError, doing: str, bootstrap_servers: str, otherwise: Reason = Reason.KAFKA_ERROR
) -> SinkPipelineError:
    """Our error for the client's: `doing` says what failed, in words that follow "while"."""
    error = error_of(exception)
    code, text = error.code(), error.str()
    if code in _UNAUTHENTICATED:
        return SinkPipelineError(
            Reason.AUTHENTICATION_FAILED,
            f"{bootstrap_servers} refused our credentials while {doing}: {text}",
            "check auth.tls and auth.sasl, and the Secrets they name",
        )
    if code in _UNAUTHORIZED:
        return SinkPipelineError(
            Reason.AUTHORIZATION_FAILED,
            f"the principal has no right to go on while {doing}: {text}",
            "grant the right; docs/rights.md lists those that are needed",
        )
    if code in _UNREACHABLE:
        return SinkPipelineError(
            Reason.BROKER_UNREACHABLE,
            f"no answer from {bootstrap_servers} while {doing}: {text}",
            "check that the brokers run and that bootstrapServers names them as this machine reaches them",
        )
    return SinkPipelineError(otherwise, f"Kafka failed while {doing}: {text}", "look at the broker's log for the cause")
