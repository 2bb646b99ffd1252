"""The border where the client's errors become ours, by the table in `core.causes`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException

from sinkpipeline.core.causes import of_a_record, of_kafka
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.core.token_causes import NO_SIGNED_TOKEN, REFUSED_TOKEN, of_token
from sinkpipeline.kafka.connection import REQUEST_TIMEOUT_S
from sinkpipeline.kafka.ending import ending_elsewhere

P = ParamSpec("P")
T = TypeVar("T")

_AGAIN_AFTER_S = 0.1
_CUT_OFF = "_TRANSPORT"
_REFUSED_SOMEHOW = "response error: Local: Authentication failure"
_PASSING = (Reason.BROKER_UNREACHABLE, Reason.KAFKA_ERROR)

_OF_A_SECRET = re.compile(r"\b(ssl|sasl)\.")


def error_of(exception: KafkaException | KafkaError) -> KafkaError:
    error = exception.args[0] if isinstance(exception, KafkaException) else exception
    if not isinstance(error, KafkaError):
        raise TypeError(f"not a Kafka error: {error!r}")
    return error


def is_record_error(error: KafkaError) -> bool:
    """Whether the broker or the client refuses a record for what it is: a retry would be refused again."""
    return of_a_record(error.name()) is not None


def verdict_of(error: KafkaError) -> Verdict:
    """What a record error says of its record."""
    cause = of_a_record(error.name())
    return Verdict((cause and cause.record) or ErrorClass.RECORD_REFUSED, error.str(), error.name())


def is_refused_log_in(error: KafkaError) -> bool:
    """Whether a broker or the token endpoint refused who we are, or we refused who it is."""
    token = of_token(error.str())
    if token is not None:
        return token[0].reason is Reason.AUTHENTICATION_FAILED
    refused = of_kafka(error.name()).reason is Reason.AUTHENTICATION_FAILED
    # A request only says that its connection was refused. Why, another event says: it may be a token that came late.
    return refused and not _was_cut_off(error) and not error.str().endswith(_REFUSED_SOMEHOW)


def is_refused_token(error: KafkaError) -> bool:
    """Whether brokers refuse a token: for good, or as it has expired and there is no other one.

    Who has had a token for a while can't tell which. A new client can: it has none, or one that is refused.
    """
    return any(words in error.str() for words in REFUSED_TOKEN)


def is_without_token(error: KafkaError) -> bool:
    """Whether there was no token to log in with, and nobody has refused us one."""
    token = of_token(error.str())
    return token is not None and token[0].reason is not Reason.AUTHENTICATION_FAILED


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
    token = of_token(error.str())
    if token is not None:
        cause, answer = token
        refused = cause.reason is Reason.AUTHENTICATION_FAILED
        who = "the signer of AWS" if cause is NO_SIGNED_TOKEN else "the token endpoint"
        fact = f"{who} {'refused us' if refused else 'gave no token'} while {doing}: {answer}"
        return SinkPipelineError(cause.reason, f"no token for {bootstrap_servers}: {fact}", cause.remedy)
    cause, text = of_kafka(error.name()), error.str()
    if cause.reason is Reason.AUTHENTICATION_FAILED and error.code() != KafkaError._SSL and _was_cut_off(error):
        cause = of_kafka(_CUT_OFF)
    reason = cause.reason
    match reason:
        case Reason.AUTHENTICATION_FAILED if error.code() == KafkaError._SSL:
            fact = f"no TLS connection to {bootstrap_servers} while {doing}: {text}"
        case Reason.AUTHENTICATION_FAILED:
            fact = f"{bootstrap_servers} refused our credentials while {doing}: {text}"
        case Reason.AUTHORIZATION_FAILED:
            fact = f"{needs} is not granted, while {doing}: {text}"
        case Reason.BROKER_UNREACHABLE:
            fact = f"no answer from {bootstrap_servers} while {doing}: {text}"
        case _:
            # What was being done says more than that Kafka failed; but not where it would be tried again in vain.
            if otherwise is not Reason.KAFKA_ERROR and (reason.retry or not otherwise.retry):
                reason = otherwise
            fact = f"Kafka failed while {doing}: {text}"
    return SinkPipelineError(reason, fact, cause.remedy)


def made(kind: Callable[[dict[str, Any]], T], config: dict[str, Any]) -> T:
    """A client of that kind.

    Raises:
        SinkPipelineError: SecretInvalid, ManifestInvalid: what the client refuses comes from a Secret or the manifest.
    """
    if "oauth_cb" in config:
        kind = ending_elsewhere(kind)
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


@contextmanager
def asked_once() -> Iterator[None]:
    """For a request that follows from what was read before: that may hold no more by the time it is asked again.

    Raises:
        InDoubt: where `repeated` would ask again. Read again first.
    """
    try:
        yield
    except SinkPipelineError as error:
        if error.reason not in _PASSING:
            raise
        raise InDoubt(str(error), told=error) from error
