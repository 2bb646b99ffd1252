"""Spark's Kafka source as we use it, and the ranges of its batches."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.causes import NO_TOKEN
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.token_causes import REFUSED_TOKEN, of_token
from sinkpipeline.kafka.connection import Connection, MskIam, Oauthbearer, Sasl, SaslLogIn
from sinkpipeline.kafka.settings import SourceSettings
from sinkpipeline.spark.java import EXECUTORS_JAVA_OPTIONS, java_options

_REFUSAL = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+(?:Authorization|Authentication))Exception: (.*)")
_TIMEOUTS = ("request.timeout.ms", "default.api.timeout.ms")
_FETCH_MAX_WAIT = "fetch.max.wait.ms"

_SETTINGS = re.compile(r"org\.apache\.kafka\.common\.config\.ConfigException: (Invalid value .*)")
_SECURITY = "org.apache.kafka.common.security"
_ALLOWED_ENDPOINTS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""A system property: without it the Java client of Kafka 4 asks no token endpoint, whatever its settings say."""

_MSK = "software.amazon.msk.auth.iam"
_MSK_HANDLER = f"{_MSK}.IAMClientCallbackHandler"

_DIRECTORY_PROVIDER = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"


def read_stream(
    spark: SparkSession,
    source: SourceSettings,
    group_id_prefix: str,
    frontier: Mapping[SourcePartition, PartitionProgress],
    max_offsets_per_trigger: int,
    patience_s: float,
) -> DataFrame:
    """The stream that begins at `frontier`, which must name every partition of the source, and no other.

    `patience_s`: how long a task waits for the next records, before it fails.
    """
    _prepare(spark, source.connection)
    options = source_options(source, group_id_prefix, frontier, max_offsets_per_trigger, patience_s)
    return spark.readStream.format("kafka").options(**options).load()


def source_options(
    source: SourceSettings,
    group_id_prefix: str,
    frontier: Mapping[SourcePartition, PartitionProgress],
    max_offsets_per_trigger: int,
    patience_s: float,
) -> dict[str, str]:
    """What Spark's Kafka source is told."""
    return {
        **_options(source, group_id_prefix, patience_s),
        # Of a topicPattern too: Java would read it in its own way, and never finish with some. The driver looks itself
        # whether more topics match.
        "subscribe": ",".join(sorted({partition.topic for partition in frontier})),
        "startingOffsets": _offsets_json({partition: state.next for partition, state in frontier.items()}),
        "maxOffsetsPerTrigger": str(max_offsets_per_trigger),
    }


def read_batch(
    spark: SparkSession,
    source: SourceSettings,
    group_id_prefix: str,
    ranges: Mapping[SourcePartition, OffsetRange],
    patience_s: float,
) -> DataFrame:
    """What stands in these ranges now, and nothing else; otherwise as `read_stream`."""
    partitions: dict[str, list[int]] = {}
    for partition in sorted(ranges):
        partitions.setdefault(partition.topic, []).append(partition.partition)
    options = {
        **_options(source, group_id_prefix, patience_s),
        "assign": json.dumps(partitions),
        "startingOffsets": _offsets_json({partition: part.start for partition, part in ranges.items()}),
        "endingOffsets": _offsets_json({partition: part.end for partition, part in ranges.items()}),
    }
    _prepare(spark, source.connection)
    return spark.read.format("kafka").options(**options).load()


def _offsets_json(offsets: Mapping[SourcePartition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(topics)


def _options(source: SourceSettings, group_id_prefix: str, patience_s: float) -> dict[str, str]:
    # The Java client waits so long for a leader that is gone before it looks for the new one: by default a minute. Ours
    # only together: the one may not be longer than the other.
    patience_ms = str(int(patience_s * 1000))
    timeouts = {} if set(_TIMEOUTS) & source.properties.keys() else dict.fromkeys(_TIMEOUTS, patience_ms)
    properties = {**timeouts, **source.properties}
    return {
        # Spark asks for the offsets twice with every poll; the client's default of 500 records makes that often.
        "kafka.max.poll.records": "10000",
        **{f"kafka.{name}": value for name, value in properties.items()},
        **security_options(source.connection),
        "kafka.bootstrap.servers": source.connection.bootstrap_servers,
        "kafka.isolation.level": "read_committed" if source.read_committed else "read_uncommitted",
        # A deleted source would come back empty, with the broker's defaults.
        "kafka.allow.auto.create.topics": "false",
        "groupIdPrefix": group_id_prefix,
        # What is lost is found and counted by us; false would skip it in silence.
        "failOnDataLoss": "true",
        # By default two minutes, and so eight until a batch without a leader for a partition has failed.
        "kafkaConsumer.pollTimeoutMs": patience_ms,
        "includeHeaders": "true",
    }


def broker_waits_s(source: SourceSettings) -> float:
    """For how long the source's brokers may hold back an answer, until there are `fetch.min.bytes` of records."""
    return int(source.properties.get(_FETCH_MAX_WAIT, "500")) / 1000


def security_options(connection: Connection) -> dict[str, str]:
    """The Java client's security settings. Secrets are read by the client from their files, not put into the plan."""
    options = {"kafka.security.protocol": connection.security_protocol}
    tls, sasl = connection.tls, connection.sasl
    if tls is not None and tls.ca_file is not None:
        options |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": tls.ca_file}
    if tls is not None and tls.certificate_file is not None and tls.key_file is not None:
        options |= {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": _file_reference(tls.certificate_file),
            "kafka.ssl.keystore.key": _file_reference(tls.key_file),
        }
    if sasl is not None:
        options |= {"kafka.sasl.mechanism": sasl.mechanism, **_log_in(sasl)}
    if any("${directory:" in value for value in options.values()):
        options |= {
            "kafka.config.providers": "directory",
            "kafka.config.providers.directory.class": _DIRECTORY_PROVIDER,
        }
    return options


def _log_in(sasl: SaslLogIn) -> dict[str, str]:
    if isinstance(sasl, Sasl):
        scram = sasl.mechanism.startswith("SCRAM")
        module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
        user = {"username": _quoted(sasl.username), "password": _file_reference(sasl.password_file)}
        return {"kafka.sasl.jaas.config": _jaas(module, user)}
    if isinstance(sasl, MskIam):
        return {
            "kafka.sasl.mechanism": "AWS_MSK_IAM",
            "kafka.sasl.jaas.config": f"{_MSK}.IAMLoginModule required;",
            "kafka.sasl.client.callback.handler.class": _MSK_HANDLER,
        }
    options = {
        "clientId": _quoted(sasl.client_id),
        "clientSecret": _file_reference(sasl.client_secret_file),
        **({} if sasl.scope is None else {"scope": _quoted(sasl.scope)}),
        **{f"extension_{name}": value for name, value in sasl.extensions},
        # The token endpoint's: those of the brokers stand outside.
        **({} if sasl.ca_file is None else {"ssl.truststore.type": "PEM", "ssl.truststore.location": sasl.ca_file}),
    }
    return {
        "kafka.sasl.jaas.config": _jaas("oauthbearer.OAuthBearerLoginModule", options),
        "kafka.sasl.oauthbearer.token.endpoint.url": sasl.token_endpoint_url,
        # The name that Kafka 4 has for it too; it had another one below .secured.
        "kafka.sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    return " ".join([f"{_SECURITY}.{module} required", *(f'{name}="{value}"' for name, value in options.items())]) + ";"


def with_allowed_endpoints(conf: Mapping[str, str], connection: Connection) -> dict[str, str]:
    """Spark's configuration by which the JVMs of executors may read by this connection."""
    if not isinstance(connection.sasl, Oauthbearer):
        return dict(conf)
    option = f"-D{_ALLOWED_ENDPOINTS}={connection.sasl.token_endpoint_url}"
    return {**conf, EXECUTORS_JAVA_OPTIONS: java_options(conf.get(EXECUTORS_JAVA_OPTIONS), option)}


def _prepare(spark: SparkSession, connection: Connection) -> None:
    """What the driver's own JVM needs, which on a cluster runs before we do.

    Raises:
        SinkPipelineError: NotServed, where it has no jar to log in with.
    """
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to it
    if isinstance(connection.sasl, Oauthbearer):
        jvm.java.lang.System.setProperty(_ALLOWED_ENDPOINTS, connection.sasl.token_endpoint_url)
    if isinstance(connection.sasl, MskIam):
        try:
            # As Kafka's client finds it, in the jars of --jars too.
            jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_MSK_HANDLER)
        except Py4JJavaError as error:
            fact = "auth.sasl.mechanism AWS_MSK_IAM needs the jar of aws-msk-iam-auth, which Spark doesn't have here"
            remedy = "give aws-msk-iam-auth-2.3.2-all.jar to --jars; for an image see docs/install.md#amazon-msk"
            raise SinkPipelineError(Reason.NOT_SERVED, fact, remedy) from error


def refusal_of(text: str) -> SinkPipelineError | None:
    """What the Java client says in the stack of an error of Spark: that it is refused, or refuses; else None."""
    settings = _SETTINGS.search(text)
    if settings is not None:
        return SinkPipelineError(
            Reason.MANIFEST_INVALID,
            f"Spark's Kafka client refuses the settings of the source: {settings[1].strip()}",
            "correct source.kafka.properties",
        )
    token = of_token(text)
    if token is not None:
        cause, answer = token
        fact = f"the token endpoint gave Spark no token for the brokers of the source: {answer}"
        return SinkPipelineError(cause.reason, fact, cause.remedy)
    if any(words in text for words in REFUSED_TOKEN):
        # Perhaps it has only expired, and there is no other one: our own client says so, where the sink starts again.
        return SinkPipelineError(
            NO_TOKEN.reason, "the brokers of the source refused Spark's token, or its way to show it", NO_TOKEN.remedy
        )
    found = _REFUSAL.search(text)
    if found is None:
        return None
    kind, what = found[1], found[2].strip()
    if kind.endswith("Authentication"):
        return SinkPipelineError(
            Reason.AUTHENTICATION_FAILED,
            f"the brokers of the source refused Spark's credentials: {what}",
            "check source.kafka.auth, and the Secrets it names",
        )
    topics = re.search(r"topics: \[(.*)\]", what)
    needs = f"Read on topic {topics[1]}" if topics is not None else "a right on the source"
    return SinkPipelineError(
        Reason.AUTHORIZATION_FAILED,
        f"{needs} is not granted, while Spark reads the source: {what}",
        "grant it to the principal; docs/rights.md lists all that is needed",
    )


def _file_reference(path: str) -> str:
    file = Path(path)
    return f"${{directory:{file.parent}:{file.name}}}"


def _quoted(text: str) -> str:
    """As it stands between double quotes for Java; a dollar sign could begin a reference to a file."""
    return "".join(
        f"\\{ord(each):03o}" if each in '"\\$' or (not each.isprintable() and each.isascii()) else each for each in text
    )


class Checkpoint:
    """A query's checkpoint directory, new for every query start: Spark's memory never competes with ours.

    Only read: by the time a batch is handed to us, its end offsets are written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def ranges(self, batch_id: int) -> dict[SourcePartition, OffsetRange]:
        """The source offsets of a batch.

        Raises:
            SinkPipelineError: SparkFailed where the files are not as Spark 4.0 and 4.1 write them.
        """
        ends = self._offsets(self.directory / "offsets" / str(batch_id), skip=2)
        if batch_id == 0:
            starts = self._offsets(self.directory / "sources" / "0" / "0", skip=1)
        else:
            starts = self._offsets(self.directory / "offsets" / str(batch_id - 1), skip=2)
        # A partition that appeared in this batch has no start here; the caller sets it under control first.
        return {partition: OffsetRange(starts.get(partition, -1), end) for partition, end in ends.items()}

    def _offsets(self, path: Path, *, skip: int) -> dict[SourcePartition, int]:
        try:
            document = json.loads(path.read_text().split("\n")[skip])
            return {
                SourcePartition(topic, int(partition)): int(offset)
                for topic, offsets in document.items()
                for partition, offset in offsets.items()
            }
        except (OSError, ValueError, IndexError, AttributeError) as error:
            raise SinkPipelineError(
                Reason.SPARK_FAILED, f"Spark's offset log {path} can't be read: {error}", "use the Spark that is pinned"
            ) from error
