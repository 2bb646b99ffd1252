"""The table of Kafka's and Spark's errors: what is retried, what counts, what waits for a person."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from sinkpipeline.core.causes import TABLE, UNKNOWN, of_a_record, of_kafka, of_spark
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason
from sinkpipeline.kafka.consumers import passes
from sinkpipeline.kafka.errors import is_refused_log_in, is_without_token, translate
from sinkpipeline.spark.query import spark_error

CODES = [code for cause in TABLE for code in cause.codes]
KNOWN = {name: number for name, number in vars(KafkaError).items() if isinstance(number, int)}

OUTAGE = [
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_TIMED_OUT",
    "_MSG_TIMED_OUT",
    "REQUEST_TIMED_OUT",
    "NETWORK_EXCEPTION",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "NOT_COORDINATOR",
    "NOT_CONTROLLER",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS",
]
TRANSIENT = [
    "KAFKA_STORAGE_ERROR",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_TOPIC_OR_PART",
    "INVALID_PRODUCER_EPOCH",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "TRANSACTION_ABORTABLE",
    # Of who asks for the offsets of a partition that isn't there.
    "_UNKNOWN_PARTITION",
    "UNKNOWN",
    "_FAIL",
]
PERMANENT = [
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "_SSL",
    "UNSUPPORTED_SASL_MECHANISM",
    "UNSUPPORTED_VERSION",
    "INVALID_TRANSACTION_TIMEOUT",
    "POLICY_VIOLATION",
    "UNSUPPORTED_COMPRESSION_TYPE",
]
RECORD = {
    "MSG_SIZE_TOO_LARGE": ErrorClass.RECORD_TOO_LARGE,
    "RECORD_LIST_TOO_LARGE": ErrorClass.RECORD_TOO_LARGE,
    "INVALID_TIMESTAMP": ErrorClass.INVALID_TIMESTAMP,
    "INVALID_RECORD": ErrorClass.RECORD_REFUSED,
    "_UNKNOWN_PARTITION": ErrorClass.RECORD_REFUSED,
}


@pytest.mark.parametrize("code", CODES)
def test_the_client_knows_every_code_by_that_name(code: str) -> None:
    assert KafkaError(KNOWN[code]).name() == code


def test_every_row_says_what_can_be_done_and_none_is_empty() -> None:
    for cause in (*TABLE, UNKNOWN):
        assert cause.remedy
        assert cause is UNKNOWN or cause.codes or cause.exceptions or cause.spark


@pytest.mark.parametrize(
    ("codes", "retry", "counted"), [(OUTAGE, True, False), (TRANSIENT, True, True), (PERMANENT, False, True)]
)
def test_what_is_retried_and_what_counts(codes: list[str], retry: bool, counted: bool) -> None:
    found = {code: of_kafka(code).reason for code in codes}
    assert {code: (reason.retry, reason.counted) for code, reason in found.items()} == dict.fromkeys(
        codes, (retry, counted)
    )


@pytest.mark.parametrize("code", CODES)
def test_only_what_one_record_is_refused_for_is_a_verdict(code: str) -> None:
    cause = of_a_record(code)
    assert cause is None or cause.reason is Reason.RECORD_REFUSED
    assert RECORD.get(code) in (None, cause and cause.record)
    assert of_kafka(code).record is None, "who doesn't produce has no record"


def error(code: str) -> KafkaError:
    return KafkaError(KNOWN[code], "its own words")


@pytest.mark.parametrize(
    ("code", "otherwise", "reason"),
    [
        ("UNKNOWN", Reason.KAFKA_ERROR, Reason.KAFKA_ERROR),
        ("UNKNOWN", Reason.PROGRESS_UNREADABLE, Reason.PROGRESS_UNREADABLE),
        ("INVALID_CONFIG", Reason.TOPIC_CREATION_FAILED, Reason.TOPIC_CREATION_FAILED),
        ("UNSUPPORTED_VERSION", Reason.KAFKA_ERROR, Reason.KAFKA_REFUSED),
        ("UNSUPPORTED_VERSION", Reason.PROGRESS_UNREADABLE, Reason.KAFKA_REFUSED),
        ("NOT_CONTROLLER", Reason.TOPIC_CREATION_FAILED, Reason.BROKER_UNREACHABLE),
        ("TOPIC_AUTHORIZATION_FAILED", Reason.PROGRESS_UNREADABLE, Reason.AUTHORIZATION_FAILED),
        # Of a read it says that an answer is broken, and not that a record is refused.
        ("INVALID_MSG", Reason.PROGRESS_UNREADABLE, Reason.PROGRESS_UNREADABLE),
    ],
)
def test_what_was_being_done_goes_before_what_may_pass(code: str, otherwise: Reason, reason: Reason) -> None:
    told = translate(error(code), "reading", "kafka:9092", otherwise)
    assert told.reason is reason
    assert "reading" in told.message
    assert "its own words" in told.message


def test_a_remedy_is_of_the_code() -> None:
    assert "min.insync.replicas" in translate(error("_MSG_TIMED_OUT"), "writing", "kafka:9092").remedy
    assert "deletes topics" in translate(error("_UNKNOWN_PARTITION"), "reading", "kafka:9092").remedy
    assert "transaction.max.timeout.ms" in translate(error("INVALID_TRANSACTION_TIMEOUT"), "x", "kafka:9092").remedy


JAVA = "org.apache.spark.SparkException: Job aborted\nCaused by: org.apache.kafka.common.errors.{}: why"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (JAVA.format("TimeoutException"), Reason.BROKER_UNREACHABLE),
        (JAVA.format("NotLeaderOrFollowerException"), Reason.BROKER_UNREACHABLE),
        (JAVA.format("UnsupportedVersionException"), Reason.KAFKA_REFUSED),
        (JAVA.format("TopicAuthorizationException"), Reason.AUTHORIZATION_FAILED),
        (JAVA.format("UnheardOfException"), None),
        # The cause is told last.
        (JAVA.format("TimeoutException") + "\n" + JAVA.format("UnsupportedVersionException"), Reason.KAFKA_REFUSED),
        # Not of Kafka: Spark has time-outs of its own, which are no outage of the cluster.
        ("java.util.concurrent.TimeoutException: Futures timed out", None),
        ("java.lang.OutOfMemoryError: Java heap space", Reason.BATCH_FAILED),
        ("Total size of serialized results of 4 tasks is bigger than spark.driver.maxResultSize", Reason.BATCH_FAILED),
        ("java.io.IOException: No space left on device", Reason.BATCH_FAILED),
    ],
)
def test_what_stands_in_an_error_of_spark(text: str, reason: Reason | None) -> None:
    cause = of_spark(text)
    assert (None if cause is None else cause.reason) is reason
    assert spark_error(RuntimeError(text)).reason is (reason or Reason.BATCH_FAILED)


def test_of_rows_that_could_not_be_fetched_the_cause_is_told_and_no_line_of_the_stack() -> None:
    text = (
        "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
        "awaitResult: \n\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)\n"
        "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure\n\tat org.apache.spark.X"
    )
    told = spark_error(RuntimeError(text)).message
    assert told == "Spark failed: org.apache.spark.SparkException: Job aborted due to stage failure"


_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token: "


@pytest.mark.parametrize(
    ("answer", "reason", "remedy"),
    [
        ('{"error": "invalid_client", "error_description": "x"}', Reason.AUTHENTICATION_FAILED, "clientSecretRef"),
        ('{"error":"unauthorized_client"}', Reason.AUTHENTICATION_FAILED, "clientSecretRef"),
        ('{"error":"invalid_scope"}', Reason.AUTHENTICATION_FAILED, "oauthbearer.scope"),
        ('{"error":"unsupported_grant_type"}', Reason.AUTHENTICATION_FAILED, "client credentials"),
        ('{"error":"server_error"}', Reason.BROKER_UNREACHABLE, "tokenEndpointUrl"),
        ("OAuth callback raised exception", Reason.BROKER_UNREACHABLE, "credentials of AWS"),
        ("SSL certificate problem: unable to get local issuer", Reason.AUTHENTICATION_FAILED, "caSecretRef"),
        (
            "error adding trust anchors from file: /etc/pki/tls/certs/ca-bundle.crt",
            Reason.AUTHENTICATION_FAILED,
            "SSL_CERT_FILE",
        ),
        ("Failed to connect to idp:443: Could not connect to server", Reason.BROKER_UNREACHABLE, "tokenEndpointUrl"),
        ("Could not resolve host: idp", Reason.BROKER_UNREACHABLE, "tokenEndpointUrl"),
        ("Server did not provide an error string", Reason.BROKER_UNREACHABLE, "tokenEndpointUrl"),
        ("<html>\n" + "maintenance\n" * 1000, Reason.BROKER_UNREACHABLE, "tokenEndpointUrl"),
        ("<html>our certificate has a page of its own</html>", Reason.BROKER_UNREACHABLE, "tokenEndpointUrl"),
    ],
)
def test_who_refuses_a_token_is_told_from_who_is_away(answer: str, reason: Reason, remedy: str) -> None:
    error = KafkaError(KafkaError._AUTHENTICATION, _NO_TOKEN + answer)
    told = translate(error, "connecting", "kafka:9092")
    assert told.reason is reason
    assert remedy in told.remedy
    assert len(told.message) < 400
    assert "\n" not in told.message
    assert is_refused_log_in(error) is not is_without_token(error)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ('{"kind":"Status","internal":"hidden words"}', "an answer that is no error of RFC 6749"),
        ('{"error":"hidden"}', "an answer that is no error of RFC 6749"),
        ('{"error":"invalid_client","error_description":"hidden words"}', "error invalid_client"),
        ("SSL\nhidden", "an answer that is no error of RFC 6749"),
        ("Could not resolve host: idp", "Could not resolve host: idp"),
    ],
)
def test_the_answer_of_a_token_endpoint_is_not_told(answer: str, told: str) -> None:
    """The manifest's author chooses the address, and may not reach it."""
    java = f"The response code 403 and error response {answer} was encountered reading the token endpoint"
    ours = translate(KafkaError(KafkaError._AUTHENTICATION, _NO_TOKEN + answer), "connecting", "kafka:9092")
    assert ours.message.endswith(f"while connecting: {told}")
    of_spark = spark_error(Exception(java))
    assert "hidden" not in str(of_spark)
    assert "HTTP 403, " in of_spark.message


def test_what_java_tells_of_a_token_that_it_was_refused() -> None:
    java = "java.io.IOException: The response code {} and error response {} was encountered reading the token endpoint"
    refused = spark_error(Exception(java.format(401, '{"invalid_client" - "Invalid client"}')))
    away = spark_error(Exception(java.format(404, "<html>")))
    silent = spark_error(
        Exception("LoginException: An internal error occurred while retrieving token from callback handler")
    )
    expired = spark_error(
        Exception('org.apache.kafka.common.errors.SaslAuthenticationException: {"status":"invalid_token"}')
    )
    assert refused.reason is Reason.AUTHENTICATION_FAILED
    assert "clientSecretRef" in refused.remedy
    assert [each.reason for each in (away, silent, expired)] == [Reason.BROKER_UNREACHABLE] * 3


def test_a_token_that_brokers_refuse_is_a_log_in_that_they_refuse() -> None:
    error = KafkaError(KafkaError._AUTHENTICATION, 'SASL authentication error: {"status":"invalid_token"}')
    assert is_refused_log_in(error)
    assert not is_without_token(error)
    assert passes(error), "it may have expired: a new client decides"
    assert translate(error, "connecting", "kafka:9092").reason is Reason.AUTHENTICATION_FAILED


def test_a_request_whose_connection_was_refused_does_not_say_why() -> None:
    bare = KafkaError(KafkaError._AUTHENTICATION, "FindCoordinator response error: Local: Authentication failure")
    assert passes(bare), "the event of the connection decides"
    refused = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed")
    assert not passes(refused)
