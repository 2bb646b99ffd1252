"""The `SinkPipeline` manifest: its types, and the parser that refuses whatever this version can't keep."""

from sinkpipeline.core.manifest.base import JsonObject, StringMap
from sinkpipeline.core.manifest.decode import Decode, DecodeFormat, OnNull, Select, Transform
from sinkpipeline.core.manifest.durations import Duration, parse_duration
from sinkpipeline.core.manifest.kafka import (
    Auth,
    CertificateRef,
    KafkaConnection,
    Sasl,
    SaslMechanism,
    SecretRef,
    Tls,
)
from sinkpipeline.core.manifest.model import API_VERSION, KIND, Metadata, OwnerReference, SinkPipeline, Spec
from sinkpipeline.core.manifest.operation import (
    Backoff,
    DeletionPolicy,
    Driver,
    Executor,
    FailurePolicy,
    Spark,
    Trigger,
)
from sinkpipeline.core.manifest.parse import parse_manifest
from sinkpipeline.core.manifest.problems import ManifestError, Problem
from sinkpipeline.core.manifest.sinks import (
    DEFAULT_PROGRESS_TOPIC,
    DataTopic,
    DeadLetter,
    DeadLetterTopic,
    DeliveryGuarantee,
    KafkaSink,
    OnExistingData,
    OnFailure,
    Partitioner,
    ProgressTopic,
    Sink,
)
from sinkpipeline.core.manifest.source import (
    IsolationLevel,
    KafkaSource,
    OnDataLoss,
    Source,
    StartFrom,
    StartingOffsets,
)

__all__ = [
    "API_VERSION",
    "DEFAULT_PROGRESS_TOPIC",
    "KIND",
    "Auth",
    "Backoff",
    "CertificateRef",
    "DataTopic",
    "DeadLetter",
    "DeadLetterTopic",
    "Decode",
    "DecodeFormat",
    "DeletionPolicy",
    "DeliveryGuarantee",
    "Driver",
    "Duration",
    "Executor",
    "FailurePolicy",
    "IsolationLevel",
    "JsonObject",
    "KafkaConnection",
    "KafkaSink",
    "KafkaSource",
    "ManifestError",
    "Metadata",
    "OnDataLoss",
    "OnExistingData",
    "OnFailure",
    "OnNull",
    "OwnerReference",
    "Partitioner",
    "Problem",
    "ProgressTopic",
    "Sasl",
    "SaslMechanism",
    "SecretRef",
    "Select",
    "Sink",
    "SinkPipeline",
    "Source",
    "Spark",
    "Spec",
    "StartFrom",
    "StartingOffsets",
    "StringMap",
    "Tls",
    "Transform",
    "Trigger",
    "parse_duration",
    "parse_manifest",
]
