"""What each of the two Kafka clients is told, that it may log in with tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sinkpipeline.kafka.connection import Connection, Oauthbearer, Sasl
from sinkpipeline.spark.source import security_options, with_allowed_endpoints

URL = "https://idp.example.org/token"
SECRET = "correct $horse of {staple}"


@pytest.fixture
def connection(tmp_path: Path) -> Connection:
    (tmp_path / "secret").write_text(SECRET)
    tokens = Oauthbearer(
        token_endpoint_url=URL,
        client_id='a "client"',
        client_secret_file=str(tmp_path / "secret"),
        scope="kafka api://shop/.default",
        extensions=(("logicalCluster", "lkc-1"), ("poolId", "pool-1")),
        ca_file="/ca.crt",
    )
    return Connection(bootstrap_servers="kafka:9092", sasl=tokens)


def test_librdkafka(connection: Connection) -> None:
    config = connection.client_config()
    assert config["security.protocol"] == "SASL_PLAINTEXT"
    assert config["sasl.mechanism"] == "OAUTHBEARER"
    assert config["sasl.oauthbearer.method"] == "oidc"
    assert config["sasl.oauthbearer.client.secret"] == SECRET
    assert config["sasl.oauthbearer.scope"] == "kafka+api%3A%2F%2Fshop%2F.default"
    assert config["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1,poolId=pool-1"
    assert config["https.ca.location"] == "/ca.crt"
    assert "ssl.ca.location" not in config


def test_librdkafka_is_told_where_the_authorities_of_the_machine_are(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own curl looks where another distribution has them."""
    assert isinstance(connection.sasl, Oauthbearer)
    without = replace(connection, sasl=replace(connection.sasl, ca_file=None))
    bundle = tmp_path / "bundle.crt"
    bundle.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert without.client_config()["https.ca.location"] == str(bundle)


def test_java(connection: Connection, tmp_path: Path) -> None:
    options = security_options(connection)
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == URL
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        r'clientId="a \042client\042" '
        f'clientSecret="${{directory:{tmp_path}:secret}}" scope="kafka api://shop/.default" '
        'extension_logicalCluster="lkc-1" extension_poolId="pool-1" '
        'ssl.truststore.type="PEM" ssl.truststore.location="/ca.crt";'
    )
    assert "kafka.ssl.truststore.location" not in options
    assert SECRET not in str(options)


def test_executors_may_ask_the_endpoint_of_the_manifest_alone(connection: Connection) -> None:
    option = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={URL}"
    name = "spark.executor.extraJavaOptions"
    assert with_allowed_endpoints({}, connection) == {name: option}
    assert with_allowed_endpoints({name: "-Xss4m"}, connection) == {name: f"-Xss4m {option}"}
    by_password = Sasl(mechanism="PLAIN", username="u", password_file="/f")
    assert with_allowed_endpoints({"a": "b"}, Connection(bootstrap_servers="k:1", sasl=by_password)) == {"a": "b"}
