"""What the design has and this version doesn't serve yet, by name.

A field that is ignored is a promise that is broken silently, so each of these is refused with its own words. What gets
served leaves this table and enters the model.
"""

from collections.abc import Mapping

_KINDS = (
    *("amqp", "azureEventHubs", "cassandra", "clickhouse", "delta", "elasticsearch", "file", "files", "gcs", "http"),
    *("hudi", "iceberg", "jdbc", "kinesis", "mariadb", "mongodb", "mqtt", "mysql", "nats", "opensearch", "postgres"),
    *("postgresql", "pubsub", "pulsar", "rabbitmq", "redis", "redpanda", "s3", "snowflake", "sql"),
)
_SERVED = ("nats", "postgresql", "redis")
"""As sinks."""
_DATABASES = ("postgresql", "mariadb", "mysql")
"""As sources."""
_ONE_PIPELINE_PER_SHAPE = "use spec.decode for all sinks, or another SinkPipeline"
_STATEFUL = "use row-by-row expressions in where and select"
_JOIN = "use lookups for a table of at most 1 MiB; streams are not joined"
_SCHEMA_REGISTRY = "give spec.decode.schemaRegistry, or the schema in spec.decode.schema"
_OPERATOR_DEFAULT = "remove it: the operator's default is used"

_FIELDS: Mapping[str, str] = {
    "spec.spark.image": _OPERATOR_DEFAULT,
    "spec.spark.serviceAccount": _OPERATOR_DEFAULT,
    "spec.spark.version": _OPERATOR_DEFAULT,
    "spec.sinks[].decode": _ONE_PIPELINE_PER_SHAPE,
    **{
        f"spec.sinks[].kafka.{name}": "use transform.select of the sink"
        for name in ("headers", "key", "timestamp", "value")
    },
    **{
        f"spec.decode.{name}": _SCHEMA_REGISTRY
        for name in (
            "avro",
            "protobuf",
            "registry",
            "schemaId",
            "schemaRegistryUrl",
            "subject",
        )
    },
    **{
        f"{transform}.{name}": _STATEFUL
        for transform in ("spec.transform", "spec.sinks[].transform")
        for name in ("aggregate", "dropDuplicates", "groupBy", "watermark", "window")
    },
    **{f"{transform}.join": _JOIN for transform in ("spec.transform", "spec.sinks[].transform")},
    **{
        f"spec.source.{kind}": "use spec.source.kafka, spec.source.postgresql, spec.source.mariadb or spec.source.mysql"
        for kind in _KINDS
        if kind not in _DATABASES
    },
    **{f"spec.source.{kind}.onDataLoss": "remove it: a loss stops the stage" for kind in _DATABASES},
    **{f"spec.sinks[].{kind}": "use a kafka, nats, postgresql or redis sink" for kind in _KINDS if kind not in _SERVED},
}

_VALUES: Mapping[tuple[str, str], str] = {
    **{
        ("spec.decode.format", name): "use json, avro, protobuf, csv, text, raw, debezium or change"
        for name in ("xml",)
    },
}

_PARENTS_OF_KINDS = ("spec.source", "spec.sinks[]")


def unserved_field(shape: str) -> str | None:
    """What to do instead, if a field of this shape isn't served yet."""
    return _FIELDS.get(shape)


def unserved_value(shape: str, value: object) -> str | None:
    """What to do instead, if this value of the field isn't served yet."""
    return _VALUES.get((shape, value.lower())) if isinstance(value, str) else None


def is_unserved_kind(shape: str) -> bool:
    """Whether this is a kind of source or sink that stands where `kafka` would."""
    parent, _, name = shape.rpartition(".")
    return parent in _PARENTS_OF_KINDS and name in _KINDS and shape in _FIELDS
