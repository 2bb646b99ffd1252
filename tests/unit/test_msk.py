"""Log-in to Amazon MSK: what each client is told, and the tokens of AWS' own signer, where it is (`make test-msk`)."""

from __future__ import annotations

import base64
import logging
import sys
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.tls import Tls
from sinkpipeline.kafka.connection import Connection, MskIam
from sinkpipeline.kafka.msk import signed_token, token_callback
from sinkpipeline.kafka.resolve import resolve_source
from sinkpipeline.spark.source import security_options, with_allowed_endpoints
from support.resource.manifests import KAFKA, changed, smallest

AUTH = {"tls": {}, "sasl": {"mechanism": "AWS_MSK_IAM", "awsMskIam": {"region": "eu-central-1"}}}
KEY, SECRET, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", "the-session"


@pytest.fixture
def connection() -> Connection:
    return resolve_source(parse_manifest(changed(smallest(), ((*KAFKA, "auth"), AUTH))), None).connection


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of nobody, in the environment alone."""
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="`make test-msk` has it")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)


def test_the_connection_has_a_region_and_no_secret(connection: Connection) -> None:
    assert connection.sasl == MskIam(region="eu-central-1")
    assert connection.tls == Tls()
    assert connection.security_protocol == "SASL_SSL"


def test_without_the_signer_it_is_told_what_to_install(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(SinkPipelineError) as refused:
        connection.client_config()
    assert refused.value.reason is Reason.NOT_SERVED
    assert "pip install 'aws-msk-iam-sasl-signer-python" in refused.value.remedy


def test_java_has_a_mechanism_of_its_own(connection: Connection) -> None:
    options = security_options(connection)
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.sasl.mechanism"] == "AWS_MSK_IAM"
    assert options["kafka.sasl.jaas.config"] == "software.amazon.msk.auth.iam.IAMLoginModule required;"
    assert (
        options["kafka.sasl.client.callback.handler.class"] == "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    )
    assert with_allowed_endpoints({"spark.a": "b"}, connection) == {"spark.a": "b"}


@pytest.mark.usefixtures("credentials")
def test_a_token_is_a_signed_url_that_ends_after_a_quarter_of_an_hour() -> None:
    token, ends = signed_token("eu-central-1")
    assert not set(token) & set("+/=")
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.eu-central-1.amazonaws.com", "/")
    asked = {name: value for name, [value] in parse_qs(url.query).items()}
    assert asked["Action"] == "kafka-cluster:Connect"
    assert asked["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"
    assert asked["X-Amz-Credential"].startswith(f"{KEY}/")
    assert asked["X-Amz-Credential"].endswith("/eu-central-1/kafka-cluster/aws4_request")
    assert asked["X-Amz-SignedHeaders"] == "host"
    assert asked["X-Amz-Security-Token"] == SESSION
    assert len(asked["X-Amz-Signature"]) == 64
    assert int(asked["X-Amz-Expires"]) <= 900
    assert 800 < ends - time.time() <= 901
    assert SECRET not in url.geturl()


@pytest.mark.usefixtures("credentials")
def test_who_has_no_credentials_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """At once; and a client that had some is not told by its own library."""
    renew = token_callback("eu-central-1")
    renew("")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(SinkPipelineError) as refused:
        token_callback("eu-central-1")
    assert refused.value.reason is Reason.AUTHENTICATION_FAILED
    assert "service account" in refused.value.remedy
    with caplog.at_level(logging.WARNING, "sinkpipeline.kafka"), pytest.raises(SinkPipelineError):
        renew("")
    assert "no new token: AuthenticationFailed" in caplog.text
