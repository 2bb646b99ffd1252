"""The schema of `status`: what `sinkpipeline.core.status` renders, and what the operator adds to it."""

from __future__ import annotations

from typing import Any

from sinkpipeline.core.manifest.names import MAX_RESOURCE_NAME
from sinkpipeline.core.manifest.sinks import DeliveryGuarantee
from sinkpipeline.core.status import SinkState
from sinkpipeline.core.tally import MAX_CLASSES, MAX_WORD, WORD

Schema = dict[str, Any]

PHASES = ("Pending", "Starting", "Running", "Degraded", "Suspended", "Failed", "Deleting")

_MAX_SINKS = 64
_MAX_TOPICS = 10_000
_MAX_PARTITIONS = 100_000
_MAX_MESSAGE = 32_768


def _text(description: str, longest: int = 253, **more: Any) -> Schema:
    return {"description": description, "type": "string", "maxLength": longest, **more}


def _count(description: str) -> Schema:
    return {"description": description, "type": "integer", "format": "int64", "minimum": 0}


def _time(description: str) -> Schema:
    return {"description": description, "type": "string", "format": "date-time"}


def _one_of(description: str, *values: str) -> Schema:
    return {"description": description, "type": "string", "enum": list(values)}


def _mapping(description: str, required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
    }


def _named(description: str, key: str, most: int, items: Schema) -> Schema:
    return {
        "description": description,
        "type": "array",
        "maxItems": most,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": items,
    }


_CONDITION = _mapping(
    "One aspect of the resource, by Kubernetes' API conventions.",
    ("type", "status", "lastTransitionTime", "reason", "message"),
    type=_text("The aspect.", 316, minLength=1),
    status=_one_of("Whether it is so; Unknown changes nothing.", "True", "False", "Unknown"),
    observedGeneration=_count("The generation of the spec that this is about."),
    lastTransitionTime=_time("When status became what it is."),
    reason=_text(
        "Why, in one CamelCase word; docs/errors.md has those of errors.",
        1024,
        minLength=1,
        pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    ),
    message=_text("The facts, for a person.", _MAX_MESSAGE),
)

_COUNTS = {
    "rowsDelivered": "Rows delivered since the first start or the last reset.",
    "deadLettered": "Records that went to the dead-letter topic.",
    "dropped": "Records that could not be delivered and were dropped because the manifest says so.",
    "lost": "Source offsets that the source no longer had and that were skipped because the manifest says so.",
    "lag": "Source offsets between the frontier and the end offsets; absent while unknown.",
}

_FRONTIER = _mapping(
    "Where one source topic is read next.",
    ("topic", "next"),
    topic=_text("The source topic.", 249, minLength=1),
    topicId=_text("The id that the cluster gave it; null while unknown.", 64, nullable=True),
    next={
        "description": "The next offset of every partition; the index is the partition.",
        "type": "array",
        "maxItems": _MAX_PARTITIONS,
        "x-kubernetes-list-type": "atomic",
        "items": _count("The next offset that is not yet handled."),
    },
)

_DEAD_LETTERS = _mapping(
    "How many records could not be delivered for one reason.",
    ("class", "stage", "count", "dropped"),
    **{"class": _text("The error class; docs/manifest.md lists them.", MAX_WORD, pattern=f"^{WORD}$")},
    stage=_text("Where on its way such a record fails: decode, transform, serialize, write.", 16, minLength=1),
    count=_count("Records that went to the dead-letter topic."),
    dropped=_count("Records that could not go there either, and were dropped because the manifest says so."),
)

_SINK = _mapping(
    "What is known of one sink.",
    ("name", "state", "guarantee"),
    name=_text("The sink's name.", 63, minLength=1),
    state=_one_of(
        "Failed needs a person: its circuit is open, or it was refused.", *(each.value for each in SinkState)
    ),
    guarantee=_one_of("The delivery guarantee.", *(each.value for each in DeliveryGuarantee)),
    **{name: _count(description) for name, description in _COUNTS.items()},
    heldBack=_count(
        "Source offsets beyond the lag that open transactions of the source hold back; absent while unknown, and where "
        "the source is read uncommitted."
    ),
    openTransaction=_mapping(
        "Present while a transaction of the source has been open for so long that brokers should have aborted it.",
        ("message", "remedy"),
        message=_text("The facts.", _MAX_MESSAGE),
        remedy=_text("What to do about it.", _MAX_MESSAGE),
    ),
    deadLetters=_named(
        "deadLettered and dropped by error class, those that are not 0.", "class", MAX_CLASSES, _DEAD_LETTERS
    ),
    lastProgressTime=_time("When progress was last committed."),
    epoch=_count("How often the sink was reset."),
    dataTopicId=_text("The id of the data topic; null while unknown.", 64, nullable=True),
    progressTopicId=_text("The id of the progress topic; null while unknown.", 64, nullable=True),
    mayBeDuplicated=_count("At most so many rows were delivered twice since a lost progress topic was restored."),
    frontier=_named("The next source offset not yet handled, topic by topic.", "topic", _MAX_TOPICS, _FRONTIER),
    circuit=_mapping(
        "Present while the sink's circuit is open.",
        ("openedAt",),
        openedAt=_time("When it opened."),
        configHash=_text("It is open while this is the configuration's hash.", 64),
    ),
    error=_mapping(
        "What is wrong, while something is.",
        ("reason", "message", "remedy"),
        reason=_text("The error, in one CamelCase word; see docs/errors.md.", 1024),
        message=_text("The facts.", _MAX_MESSAGE),
        remedy=_text("What to do about it.", _MAX_MESSAGE),
    ),
)

STATUS: Schema = _mapping(
    "What the operator observed; it alone writes it.",
    observedGeneration=_count("The generation of the spec that this status is about."),
    identity=_text("What progress belongs to.", 200),
    phase=_one_of("A summary of the conditions, for people.", *PHASES),
    conditions=_named(
        "Ready (the summary), SpecValid, TopicsReady, SparkApplicationReady, SinksHealthy, Reconciling, Stalled (a "
        "person is needed), ExactlyOnce.",
        "type",
        32,
        _CONDITION,
    ),
    totals=_mapping(
        "The sums of all sinks.",
        sinksReady=_text("How many sinks run, of how many: 1/2.", 16),
        **{name: _count(description) for name, description in _COUNTS.items()},
    ),
    sparkApplication=_mapping(
        "The SparkApplication that runs the pipeline.",
        name=_text("Its name.", MAX_RESOURCE_NAME + 11),
        state=_text("Its applicationState.", 64),
        configHash=_text("The hash of the configuration that it runs.", 64),
    ),
    restarts=_mapping(
        "Restarts of the driver.",
        consecutive=_count("How often it died in a row; cleared after failurePolicy.resetAfter of health."),
        outages=_count("How often in a row it could not reach Kafka; that does not count as dying."),
        total=_count("How often it was started again."),
        lastTime=_time("When it was last started again."),
        nextTime=_time("When it will be started again, while that is waited for."),
        lastExitCode={
            "description": "The exit code of the driver that died last.",
            "type": "integer",
            "format": "int32",
        },
        lastReason=_text("Why it died, in one CamelCase word.", 1024),
        lastMessage=_text("What it said of that, or what its pod tells.", 32_768),
        lastUid=_text("The uid of the SparkApplication whose death was counted last.", 63),
        lastConfigHash=_text("The configuration that it ran; absent once its deaths are forgotten.", 63),
        lastNonce={
            "description": "The restartNonce that it was started for.",
            "type": "integer",
            "format": "int64",
        },
    ),
    sinks=_named("What is known of each sink.", "name", _MAX_SINKS, _SINK),
)
