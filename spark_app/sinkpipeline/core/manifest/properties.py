"""Which client properties a manifest may set, and why not the others.

Allowed is what tunes throughput, latency and connections. Refused is what would change which records are delivered or
how often, what the manifest has a field for, and credentials: those stand in Secrets. Values are checked, never shown.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sinkpipeline.core.manifest.base import StringMap
from sinkpipeline.core.manifest.problems import Fault, fault_error


@dataclass(frozen=True)
class Values:
    """The values that a property may have."""

    pattern: str
    """Of the whole value."""
    right: str
    """As an imperative."""


_COUNT = Values(r"[0-9]{1,10}", 'use a whole number in quotes, such as "1000"')
_COUNT_OR_DEFAULT = Values(r"-1|[0-9]{1,10}", 'use a whole number in quotes, or "-1" for the default')
_MILLISECONDS = Values(r"[0-9]{1,6}(\.[0-9]{1,3})?", 'use a number of milliseconds in quotes, such as "5"')
_BOOLEAN = Values(r"true|false", 'use "true" or "false", in quotes')
_WORD = Values(r"[A-Za-z0-9._-]{1,249}", "use 1 to 249 of a-z, A-Z, 0-9, ., _ and -")


def _one_of(*values: str) -> Values:
    return Values("|".join(map(re.escape, values)), f"use {', '.join(values[:-1])} or {values[-1]}")


_CODEC = _one_of("none", "gzip", "snappy", "lz4", "zstd")
_DNS_LOOKUP = _one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")

SOURCE: Mapping[str, Values] = {
    "client.dns.lookup": _DNS_LOOKUP,
    "client.rack": _WORD,
    "connections.max.idle.ms": _COUNT,
    "default.api.timeout.ms": _COUNT,
    "fetch.max.bytes": _COUNT,
    "fetch.max.wait.ms": _COUNT,
    "fetch.min.bytes": _COUNT,
    "max.partition.fetch.bytes": _COUNT,
    "max.poll.records": _COUNT,
    "metadata.max.age.ms": _COUNT,
    "receive.buffer.bytes": _COUNT_OR_DEFAULT,
    "reconnect.backoff.max.ms": _COUNT,
    "reconnect.backoff.ms": _COUNT,
    "request.timeout.ms": _COUNT,
    "retry.backoff.max.ms": _COUNT,
    "retry.backoff.ms": _COUNT,
    "send.buffer.bytes": _COUNT_OR_DEFAULT,
    "session.timeout.ms": _COUNT,
    "socket.connection.setup.timeout.max.ms": _COUNT,
    "socket.connection.setup.timeout.ms": _COUNT,
}
"""Properties of the Java consumer, which is Spark's Kafka source."""

SINK: Mapping[str, Values] = {
    "batch.num.messages": _COUNT,
    "batch.size": _COUNT,
    "broker.address.family": _one_of("any", "v4", "v6"),
    "client.dns.lookup": _DNS_LOOKUP,
    "client.rack": _WORD,
    "compression.codec": _CODEC,
    "compression.level": _COUNT_OR_DEFAULT,
    "compression.type": _CODEC,
    "connections.max.idle.ms": _COUNT,
    "linger.ms": _MILLISECONDS,
    "metadata.max.age.ms": _COUNT,
    "queue.buffering.max.kbytes": _COUNT,
    "queue.buffering.max.messages": _COUNT,
    "queue.buffering.max.ms": _MILLISECONDS,
    "reconnect.backoff.max.ms": _COUNT,
    "reconnect.backoff.ms": _COUNT,
    "request.timeout.ms": _COUNT,
    "socket.connection.setup.timeout.ms": _COUNT,
    "socket.keepalive.enable": _BOOLEAN,
    "socket.nagle.disable": _BOOLEAN,
    "socket.receive.buffer.bytes": _COUNT,
    "socket.send.buffer.bytes": _COUNT,
    "topic.metadata.refresh.interval.ms": _COUNT_OR_DEFAULT,
}
"""Properties of librdkafka's producer. Without socket.timeout.ms, which librdkafka ties to transaction.timeout.ms."""

_AUTH = "use auth beside properties; credentials stand in Secrets"
_OFFSETS = "leave it out: progress is kept in the progress topic, not in a consumer group"
_DELIVERY = "leave it out: spec.sinks[].deliveryGuarantee decides it"

_ELSEWHERE = (
    (r"sasl\..*|ssl\..*|security\..*|enable\.ssl\..*|.*(password|secret|token|credential|jaas).*", _AUTH),
    (r"bootstrap\.servers|metadata\.broker\.list", "use bootstrapServers beside properties"),
    (r"group\.id", "use spec.source.kafka.groupIdPrefix"),
    (r"group\..*|.*auto\.commit.*|.*offset\.store.*|partition\.assignment\.strategy", _OFFSETS),
    (r"auto\.offset\.reset", "use spec.source.kafka.startingOffsets"),
    (r"isolation\.level", "use spec.source.kafka.isolationLevel"),
    (r"check\.crcs", "leave it out: a damaged record must be noticed"),
    (r"partitioner.*|.*sticky\.partitioning.*", "use spec.sinks[].kafka.partitioner"),
    (
        r"message\.max\.bytes|max\.request\.size",
        'use max.message.bytes of the topic ("topic.config"): the limit follows it',
    ),
    (
        r"(request\.required\.)?acks|enable\.(gapless\.guarantee|idempotence)|transaction(al)?\..*|max\.in\.flight.*",
        _DELIVERY,
    ),
    (r"(message\.send\.max\.)?retries|(delivery|message|socket)\.timeout\.ms|delivery\.report.*", _DELIVERY),
    (r"allow\.auto\.create\.topics", "leave it out: topics are created from spec.sinks[].kafka.topic only"),
    (r"client\.id", "leave it out: it names the pipeline's identity"),
    (r".*(serializer|interceptor).*", "use spec.decode and spec.transform"),
)


def source_properties(properties: StringMap) -> StringMap:
    return _checked(properties, SOURCE)


def sink_properties(properties: StringMap) -> StringMap:
    return _checked(properties, SINK)


def _checked(properties: StringMap, allowed: Mapping[str, Values]) -> StringMap:
    faults = []
    for name, value in properties.items():
        values = allowed.get(name)
        if values is None:
            faults.append(Fault(_remedy(name, allowed), "is not an allowed property", (name,)))
        elif not re.fullmatch(values.pattern, value):
            faults.append(Fault(values.right, "has a value that it can't have", (name,)))
    if faults:
        raise fault_error(faults)
    return properties


def _remedy(name: str, allowed: Mapping[str, Values]) -> str:
    for pattern, remedy in _ELSEWHERE:
        if re.fullmatch(pattern, name, re.IGNORECASE):
            return remedy
    closest = difflib.get_close_matches(name[:80], allowed, n=1)
    return f"did you mean {closest[0]}?" if closest else f"allowed are {', '.join(allowed)}"
