"""The border where the client's errors become ours."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException

from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.kafka.connection import REQUEST_TIMEOUT_S

P = ParamSpec("P")
T = TypeVar("T")

_AGAIN_AFTER_S = 0.1
_PASSING = (Reason.BROKER_UNREACHABLE, Reason.KAFKA_ERROR)

_UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._NOENT,  # no leader is known, as after a lost connection
        KafkaError._DESTROY_BROKER,  # likewise
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
_OF_A_SECRET = re.compile(r"\b(ssl|sasl)\.")
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_RECORD = _TOO_LARGE | {
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_MSG,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._INVALID_DIFFERENT_RECORD,  # another one of the same batch
}


def error_of(exception: KafkaException | KafkaError) -> KafkaError:
    error = exception.args[0] if isinstance(exception, KafkaException) else exception
    if not isinstance(error, KafkaError):
        raise TypeError(f"not a Kafka error: {error!r}")
    return error


def is_record_error(error: KafkaError) -> bool:
    """Whether the broker or the client refuses a record for what it is: a retry would be refused again."""
    return error.code() in _RECORD


def verdict_of(error: KafkaError) -> Verdict:
    """What a record error says of its record."""
    if error.code() in _TOO_LARGE:
        kind = ErrorClass.RECORD_TOO_LARGE
    elif error.code() == KafkaError.INVALID_TIMESTAMP:
        kind = ErrorClass.INVALID_TIMESTAMP
    else:
        kind = ErrorClass.RECORD_REFUSED
    return Verdict(kind, error.str(), error.name())


def is_authorization_error(error: KafkaError) -> bool:
    return error.code() in _UNAUTHORIZED


def is_refused_log_in(error: KafkaError) -> bool:
    """Whether a broker refused who we are, or we refused who it is."""
    return error.code() in _UNAUTHENTICATED and not _was_cut_off(error)


def _was_cut_off(error: KafkaError) -> bool:
    """Whether a broker that went away in the middle of a log-in is told as if it had refused it."""
    return "handshake failed: Local:" in error.str() or "Disconnected" in error.str()


def translate(
    exception: KafkaException | KafkaError,
    doing: str,
    bootstrap_servers: str,
    otherwise: Reason = Reason.KAFKA_ERROR,
    *,
    needs: str = "a right on it",
) -> SinkPipelineError:
    """Our error for the client's: `doing` says what failed, in words that follow "while"; `needs` names the right."""
    error = error_of(exception)
    code, text = error.code(), error.str()
    if code == KafkaError._SSL:
        return SinkPipelineError(
            Reason.AUTHENTICATION_FAILED,
            f"no TLS connection to {bootstrap_servers} while {doing}: {text}",
            "check auth.tls, the Secrets it names, and bootstrapServers",
        )
    if is_refused_log_in(error):
        return SinkPipelineError(
            Reason.AUTHENTICATION_FAILED,
            f"{bootstrap_servers} refused our credentials while {doing}: {text}",
            "check auth.tls and auth.sasl, and the Secrets they name",
        )
    if code in _UNAUTHORIZED:
        return SinkPipelineError(
            Reason.AUTHORIZATION_FAILED,
            f"{needs} is not granted, while {doing}: {text}",
            "grant it to the principal; docs/rights.md lists all that is needed",
        )
    if code in _UNREACHABLE or code in _UNAUTHENTICATED:
        return SinkPipelineError(
            Reason.BROKER_UNREACHABLE,
            f"no answer from {bootstrap_servers} while {doing}: {text}",
            "check that the brokers run and that bootstrapServers names them as this machine reaches them",
        )
    return SinkPipelineError(otherwise, f"Kafka failed while {doing}: {text}", "look at the broker's log for the cause")


def made(kind: Callable[[dict[str, Any]], T], config: dict[str, Any]) -> T:
    """A client of that kind.

    Raises:
        SinkPipelineError: SecretInvalid, ManifestInvalid: what the client refuses comes from a Secret or the manifest.
    """
    try:
        return kind(config)
    except KafkaException as exception:
        text = error_of(exception).str().strip()
        if _OF_A_SECRET.search(text):
            raise SinkPipelineError(
                Reason.SECRET_INVALID, f"the Kafka client refuses its credentials: {text}", "check the Secrets of auth"
            ) from exception
        raise SinkPipelineError(
            Reason.MANIFEST_INVALID, f"the Kafka client refuses its settings: {text}", "correct kafka.properties"
        ) from exception


def repeated(ask: Callable[P, T]) -> Callable[P, T]:
    """Asks again where a connection was lost on the way, a leader moved, or a broker doesn't know a new topic yet.

    The client doesn't; so one reset connection would end a batch, and count as a failure of its sink. Only for what may
    be asked twice.
    """

    @wraps(ask)
    def ask_again(*args: P.args, **kwargs: P.kwargs) -> T:
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                return ask(*args, **kwargs)
            except SinkPipelineError as error:
                if error.reason not in _PASSING or time.monotonic() > deadline:
                    raise
            time.sleep(_AGAIN_AFTER_S)

    return ask_again
