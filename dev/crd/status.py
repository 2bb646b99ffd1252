"""The schema of `status`: what `sinkpipeline.core.status` renders, and what the operator adds to it."""

from __future__ import annotations

from typing import Any

from sinkpipeline.core.documents import (
    MAX_CONDITIONS,
    MAX_PARTITIONS,
    MAX_SINKS,
    MAX_TABLE,
    MAX_TABLES,
    MAX_TOPICS,
    PLACE,
    REASON,
    SLOT,
)
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.lookups import MAX_ORIGIN
from sinkpipeline.core.manifest.names import MAX_RESOURCE_NAME
from sinkpipeline.core.manifest.sinks import KINDS, DeliveryGuarantee
from sinkpipeline.core.manifest.sinks import MAX_TOPICS as MAX_DATA_TOPICS
from sinkpipeline.core.status import SinkState
from sinkpipeline.core.tally import MAX_CLASSES, MAX_WORD, WORD

Schema = dict[str, Any]

PHASES = ("Pending", "Starting", "Running", "Degraded", "Suspended", "Failed", "Deleting")

_MAX_MESSAGE = 32_768
_MAX_PLACE = 220


def text(description: str, longest: int = 253, **more: Any) -> Schema:
    return {"description": description, "type": "string", "maxLength": longest, **more}


def count(description: str, least: int = 0) -> Schema:
    return {"description": description, "type": "integer", "format": "int64", "minimum": least}


def time(description: str) -> Schema:
    return {"description": description, "type": "string", "format": "date-time"}


def one_of(description: str, *values: str) -> Schema:
    return {"description": description, "type": "string", "enum": list(values)}


def mapping(description: str, required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
    }


def named(description: str, key: str, most: int, items: Schema) -> Schema:
    return {
        "description": description,
        "type": "array",
        "maxItems": most,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": items,
    }


CONDITION = mapping(
    "One aspect of the resource, by Kubernetes' API conventions.",
    ("type", "status", "lastTransitionTime", "reason", "message"),
    type=text("The aspect.", 316, minLength=1),
    status=one_of("Whether it is so; Unknown changes nothing.", "True", "False", "Unknown"),
    observedGeneration=count("The generation of the spec that this is about."),
    lastTransitionTime=time("When status became what it is."),
    reason=text(
        "Why, in one CamelCase word; docs/errors.md has those of errors.",
        1024,
        minLength=1,
        pattern=REASON,
    ),
    message=text("The facts, for a person.", _MAX_MESSAGE),
)

_COUNTS = {
    "rowsDelivered": "Rows delivered since the first start or the last reset.",
    "deadLettered": "Records that went to the dead-letter topic.",
    "dropped": "Records that could not be delivered and were dropped because the manifest says so.",
    "lost": "Source offsets that the source no longer had and that were skipped because the manifest says so.",
    "lag": "Source offsets between the frontier and the end offsets; absent while unknown.",
}

_FRONTIER = mapping(
    "Where one source topic is read next.",
    ("topic", "next"),
    topic=text("The source topic.", 249, minLength=1),
    topicId=text("The id that the cluster gave it; null while unknown.", 64, nullable=True),
    next={
        "description": "The next offset of every partition; the index is the partition.",
        "type": "array",
        "maxItems": MAX_PARTITIONS,
        "x-kubernetes-list-type": "atomic",
        "items": count("The next offset that is not yet handled."),
    },
)

_DEAD_LETTERS = mapping(
    "How many records could not be delivered for one reason.",
    ("class", "stage", "count", "dropped"),
    **{"class": text("The error class; docs/manifest.md lists them.", MAX_WORD, pattern=f"^{WORD}$")},
    stage=text("Where on its way such a record fails: decode, transform, serialize, write.", 16, minLength=1),
    count=count("Records that went to the dead-letter topic."),
    dropped=count("Records that could not go there either, and were dropped because the manifest says so."),
)

_CIRCUIT = mapping(
    "Present while its circuit is open.",
    ("openedAt",),
    openedAt=time("When it opened."),
    configHash=text("It is open while this is the configuration's hash.", 64),
)

_ERROR = mapping(
    "What is wrong, while something is.",
    ("reason", "message", "remedy"),
    reason=text("The error, in one CamelCase word; see docs/errors.md.", 1024),
    message=text("The facts.", _MAX_MESSAGE),
    remedy=text("What to do about it.", _MAX_MESSAGE),
)

_SINK = mapping(
    "What is known of one sink.",
    ("name", "state", "guarantee"),
    name=text("The sink's name.", 63, minLength=1),
    state=one_of("Failed needs a person: its circuit is open, or it was refused.", *(each.value for each in SinkState)),
    guarantee=one_of("The delivery guarantee.", *(each.value for each in DeliveryGuarantee)),
    kind=one_of("Where its rows go, as the manifest calls it.", *KINDS),
    durability=one_of(
        "What becomes of rows that were acknowledged, as the sink's last start found it: Committed (one machine that "
        "crashes takes none of them), AsHeldBySink (it may, and their progress with them), AtRisk (it may), "
        "ServerWindow (AtLeastOnce: what is sent again within duplicateWindow is stored once). Absent while unknown, "
        "and of AtLeastOnce without such a window.",
        *(each.value for each in Durability),
    ),
    duplicateWindow=text("For so long the target knows a row that is sent again, such as 2m.", MAX_WORD, minLength=1),
    required={
        "description": "false: Ready does not depend on this sink. Absent if it does.",
        "type": "boolean",
    },
    **{name: count(description) for name, description in _COUNTS.items()},
    heldBack=count(
        "Source offsets beyond the lag that open transactions of the source hold back; absent while unknown, and where "
        "the source is read uncommitted."
    ),
    openTransaction=mapping(
        "Present while a transaction of the source has been open for so long that brokers should have aborted it.",
        ("message", "remedy"),
        message=text("The facts.", _MAX_MESSAGE),
        remedy=text("What to do about it.", _MAX_MESSAGE),
    ),
    deadLetters=named(
        "deadLettered and dropped by error class, those that are not 0.", "class", MAX_CLASSES, _DEAD_LETTERS
    ),
    lastProgressTime=time("When progress was last committed."),
    epoch=count("How often the sink was reset."),
    dataTopicId=text("The id of the data topic; null while unknown.", 64, nullable=True),
    dataTopics=named(
        "Of a sink with several data topics: each with its id, in place of dataTopicId.",
        "topic",
        MAX_DATA_TOPICS,
        mapping("A data topic.", ("topic", "topicId"), topic=text("The topic.", 249), topicId=text("Its id.", 64)),
    ),
    progressTopicId=text("The id of the progress topic; null while unknown.", 64, nullable=True),
    mayBeDuplicated=count(
        "The rows of at most this many records were delivered twice, because a lost progress topic was restored from "
        "the status."
    ),
    rolledBack=count(
        "This many rows were delivered again, because the sink had lost them with their progress. Until a reset."
    ),
    counted=count(
        "What the sink's store counted of all that was ever written into the target when this was last looked at: "
        "last_seq of a stream of NATS, entries-added of one of Redis. Absent for other kinds."
    ),
    proved={
        "description": "Whether it has shown that it delivers, since the driver started or it last had to be tried "
        "again: a batch was committed, or there was nothing to deliver and an executor that would. Absent while no "
        "driver tells.",
        "type": "boolean",
    },
    stillSince=time(
        "Since when records wait and nothing is delivered, by the driver's clock: no task runs, or one "
        "has run for two hours, and the frontier stands still. Absent otherwise, and while no executor is registered."
    ),
    frontier=named("The next source offset not yet handled, topic by topic.", "topic", MAX_TOPICS, _FRONTIER),
    circuit=_CIRCUIT,
    error=_ERROR,
)

_SOURCE = mapping(
    "What reads the changes of a database; absent where records come from Kafka.",
    ("state",),
    state=one_of("Failed needs a person. While it is Failed the driver ends.", *(each.value for each in SinkState)),
    slot=text("The replication slot; absent where the database has no such thing.", 63, pattern=SLOT),
    position=text(
        "Everything that the database committed before this is in the change topic: an LSN of PostgreSQL, or a file of "
        "a binary log, of MariaDB or MySQL, and a place in it.",
        _MAX_PLACE,
        pattern=PLACE,
    ),
    index=count(
        "Up to which change of the transaction that was committed there: of PostgreSQL, how many; of MariaDB and "
        "MySQL, a million times the number of its event, and the number of the row in it."
    ),
    changes=count("Changes written into the change topic since the first start."),
    deadLettered=count("Changes that went to the dead-letter topic, as the change topic doesn't take them."),
    dropped=count("Changes that could not go there either, and were dropped because the manifest says so."),
    serverEnd=text("Where the database's log ended at the stage's last look.", _MAX_PLACE, pattern=PLACE),
    lagBytes=count(
        "Bytes of the database's log, of all tables, between the position and its end. Absent while nobody looks."
    ),
    lagSeconds=count(
        "For how many seconds, at most, a change has waited that is not in the change topic, by the database's clock "
        "at the stage's last look; 0 if nothing was missing then. Absent while it is unknown."
    ),
    retainedBytes=count("Bytes of its log that the database keeps for the slot. Absent while nobody looks."),
    safeBytes=count(
        "Bytes that it may write until it gives the slot up; absent if it has no limit, and while nobody looks."
    ),
    timeline=count("The timeline of the database that is read."),
    atRisk=text(
        "Why the slot or the log may be lost soon, or the slot holds too much; absent otherwise.", _MAX_MESSAGE
    ),
    snapshot=mapping(
        "How far the tables have been read; absent once that is complete.",
        phase=one_of("TakingBack: what an attempt before has written is deleted again.", "TakingBack", "Reading"),
        epoch=count("How often it began anew."),
        table=text("The table that is read.", MAX_TABLE),
        tablesDone=count("Tables that were read."),
        tables=count("Tables in all."),
        rows=count("Rows that were read."),
        estimatedRows=count("Rows in all, as the database estimates them."),
    ),
    incrementalSnapshot=mapping(
        "How far tables have been read whose rows come beside the stream; absent once that is complete.",
        table=text("The table that is read.", MAX_TABLE),
        tablesWaiting=count("Tables whose rows are not all read, this one among them."),
        rows=count("Rows that were read."),
        waitsFor=text("Why the next rows can't be read yet; absent while nothing is in the way.", _MAX_MESSAGE),
    ),
    circuit=_CIRCUIT,
    error=_ERROR,
)

STATUS: Schema = mapping(
    "What the operator observed; it alone writes it.",
    observedGeneration=count("The generation of the spec that this status is about; -1 before there is one.", -1),
    identity=text("What progress belongs to.", 200),
    phase=one_of("A summary of the conditions, for people.", *PHASES),
    conditions=named(
        "Ready (the summary), SpecValid, TopicsReady, SparkApplicationReady, SourceHealthy (of a database), "
        "SinksHealthy, Reconciling, Stalled (a person is needed), ExactlyOnce.",
        "type",
        MAX_CONDITIONS,
        CONDITION,
    ),
    totals=mapping(
        "The sums of all sinks.",
        sinksReady=text("How many sinks run and have shown that they deliver, of how many: 1/2.", 16),
        **{name: count(description) for name, description in _COUNTS.items()},
    ),
    sparkApplication=mapping(
        "The SparkApplication that runs the pipeline.",
        name=text("Its name.", MAX_RESOURCE_NAME + 11),
        state=text("Its applicationState.", 64),
        configHash=text("The hash of the configuration that it runs.", 64),
    ),
    executors=mapping(
        "The executors of the driver that runs; absent while no driver tells.",
        ("registered",),
        registered=count("How many are registered with the driver."),
        wanted=count("How many it asks for; absent where Spark asks for as many as there is work for."),
        noneSince=time("Since when none is registered while there is work for one, by the driver's clock."),
    ),
    readerSchema=mapping(
        "The Avro schema whose fields are the columns of the driver that runs; absent while no driver tells.",
        ("fingerprint",),
        subject=text("Its subject in the registry; absent where the manifest gives the schema.", 512),
        version=count("Its version of the subject."),
        id=count("Its id in the registry."),
        fingerprint=text("SHA-256 of the schema, in hexadecimal digits.", 64),
    ),
    lookups={
        "description": "The tables that records are looked up in, as the driver that runs has read them; absent while "
        "no driver tells.",
        "type": "array",
        "maxItems": MAX_TABLES,
        "x-kubernetes-list-type": "atomic",
        "items": mapping(
            "One table.",
            ("name", "table", "rows", "fingerprint"),
            name=text("The name of the lookup.", 64),
            table=text("Where it is.", MAX_ORIGIN),
            rows=count("How many rows it has."),
            fingerprint=text("SHA-256 of its content, in hexadecimal digits.", 64),
        ),
    },
    restarts=mapping(
        "Restarts of the driver.",
        consecutive=count("How often it died in a row; cleared after failurePolicy.resetAfter of health."),
        outages=count(
            "How often in a row it ended because it could not reach Kafka; these ends don't count as failures."
        ),
        total=count("How often it was started again."),
        lastTime=time("When it was last started again."),
        nextTime=time("When it will be started again, while that is waited for."),
        lastExitCode={
            "description": "The exit code of the driver that died last.",
            "type": "integer",
            "format": "int32",
        },
        lastReason=text("Why it died, in one CamelCase word.", 1024),
        lastMessage=text("Why it died, in its own words or by the state of its pod.", 32_768),
        lastUid=text("The uid of the SparkApplication whose death was counted last.", 63),
        lastConfigHash=text("The configuration that it ran; absent once its deaths are forgotten.", 63),
        lastNonce={
            "description": "The restartNonce that it was started for.",
            "type": "integer",
            "format": "int64",
        },
    ),
    source=_SOURCE,
    sinks=named("What is known of each sink.", "name", MAX_SINKS, _SINK),
)
# Before the operator has looked: by Kubernetes' conventions (kstatus) a resource without any status is done.
STATUS["default"] = {"observedGeneration": -1}
