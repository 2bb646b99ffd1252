"""How a pipeline runs: its trigger, its patience with failures, what deletion means, and its Spark resources.

Refused in `spark.conf`: what the driver owns because delivery depends on it, what the manifest has a field for, what
the image fixes, and credentials.
"""

import enum
import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import INT32_MAX, Bounds, JsonObject, Part, StringMap
from sinkpipeline.core.manifest.durations import Duration, PositiveDuration
from sinkpipeline.core.manifest.names import FunctionName, JavaClass, Memory, SqlType
from sinkpipeline.core.manifest.problems import Fault, fault_error, refuse, refuse_repeated

Count = Annotated[int, Field(ge=1, le=INT32_MAX)]


class Trigger(Part):
    """When a micro-batch begins and how large it gets."""

    interval: Duration = Duration(1000)
    """The shortest time between the beginnings of two micro-batches, such as 1m30s; at most 8760h."""
    max_offsets_per_trigger: Annotated[int, Field(ge=1)] = 1_000_000
    """The most source offsets of a micro-batch, over all partitions."""


class Backoff(Part):
    """How long to wait after a failure: the initial time, doubled with each further one, up to the longest."""

    initial: PositiveDuration = Duration(5_000)
    """How long to wait after the first failure; at most `max`. Each further failure doubles it."""
    max: PositiveDuration = Duration(300_000)
    """The longest time to wait."""

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.initial > self.max:
            refuse(
                "use an initial backoff of at most the longest one",
                f"is {self.initial}, longer than max, {self.max}",
                ("initial",),
            )
        return self


class FailurePolicy(Part):
    """For each sink's batches, and for the driver's own deaths."""

    max_consecutive_failures: Count = 5
    """After this many failures without a healthy time between them, a sink's circuit opens: the sink is Failed, and not
    tried again, until the spec or restartNonce changes. Its progress is kept."""
    backoff: Backoff = Backoff()
    """How long to wait after a failure."""
    reset_after: PositiveDuration = Duration(600_000)
    """How long a sink must be healthy before its failures are forgotten."""


class DeletionPolicy(str, enum.Enum):
    RETAIN = "Retain"
    DELETE = "Delete"


_IMAGE = "leave it out: the image fixes it"
_JARS = "leave it out: jars and packages are in the image, or in one on top of it; a run from a file has --jars"
_FIELD = "use spec.spark.{} instead"

SMALL_BATCHES = "spark.sinkpipeline.smallBatches.maxOffsets"
"""Ours, not Spark's: the most offsets of a batch that the driver delivers itself; 0 where tasks deliver all."""
_SMALL_BATCHES = r"[0-9]{1,4}|[1-4][0-9]{4}|50000"

SPARK_OPTION = r"spark\.[A-Za-z0-9._-]{1,200}"

_MEANING = r"spark\.sql\.(ansi\..*|variable\..*|timestampType|legacy\.timeParserPolicy|parser\.escapedStringLiterals)"
OWNED = (
    (
        r".*(secret|password|token|access[.]?key|credential).*|spark\.kafka\.clusters\..*",
        "leave it out: credentials stand in Secrets, under auth of the source and of each sink",
    ),
    (r"spark\.app\.(name|id)", "leave it out: the pipeline's identity names the application"),
    (r"spark\.(master|submit\..*)", "leave it out: it follows from where the pipeline runs"),
    (
        r"spark\.speculation.*",
        "leave it out: two attempts of one task would fence each other",
    ),
    (
        r"spark\.task\.(maxFailures|cpus)",
        "leave it out: a fenced task must be able to try again, on the one core it has",
    ),
    (
        r"spark\.python\.(daemon\.module|worker\.module|use\.daemon|worker\.reuse)",
        "leave it out: workers keep producers",
    ),
    (r"spark\.scheduler\..*", "leave it out: every sink has its own pool"),
    (
        r"spark\.sql\.streaming\..*",
        "leave it out: every start has a checkpoint of its own, progress is in the progress topic",
    ),
    (r"spark\.sql\.execution\.arrow\.(pyspark\.)?enabled", "leave it out: rows travel as Arrow batches"),
    (
        r"spark\.sql\.(caseSensitive|(legacy\.)?avro\..*)",
        "leave it out: names and times are read and written in one way",
    ),
    (_MEANING, "leave it out: an expression gives the same for a record wherever and whenever it is evaluated"),
    (r"spark\.driver\.cores", _FIELD.format("driver.cores")),
    (r"spark\.driver\.memory", _FIELD.format("driver.memory")),
    (r"spark\.executor\.cores", _FIELD.format("executor.cores")),
    (r"spark\.executor\.memory", _FIELD.format("executor.memory")),
    (r"spark\.executor\.instances", _FIELD.format("executor.instances")),
    (r"spark\.jars(\..*)?|spark\.pyspark\..*|spark\.files|spark\.archives", _JARS),
    (r"spark\.kubernetes\.(.*\.)?image(\..*|Pull.*)?", _IMAGE),
    (
        r"spark\.kubernetes\.(namespace|context|authenticate\..*|driver\.pod\.name|(.*\.)?podTemplate.*)",
        "leave it out: the operator decides it",
    ),
)
"""Options that are refused, as patterns of whole names in any case, and what to do instead."""


def _spark_conf(conf: StringMap) -> StringMap:
    faults = []
    for key, value in conf.items():
        owned = next((right for pattern, right in OWNED if re.fullmatch(pattern, key, re.IGNORECASE)), None)
        if owned is not None:
            faults.append(Fault(owned, "is not yours to set", (key,)))
        elif not re.fullmatch(SPARK_OPTION, key):
            faults.append(Fault("use a key that begins with spark.", "is no Spark option", (key,)))
        elif key == SMALL_BATCHES and not re.fullmatch(_SMALL_BATCHES, value):
            faults.append(
                Fault('use a number from "0" to "50000", in quotes', "has a value that it can't have", (key,))
            )
    if faults:
        raise fault_error(faults)
    return conf


MAX_TEMPLATE_BYTES = 32 * 1024
_IN_A_TEMPLATE = ("apiVersion", "kind", "metadata", "spec")


def _pod_template(template: JsonObject) -> JsonObject:
    if template.size > MAX_TEMPLATE_BYTES:
        refuse(f"use at most {MAX_TEMPLATE_BYTES} bytes, written as JSON", f"has {template.size} bytes")
    faults = [
        Fault("a pod template has metadata and spec", "is no part of a pod template", (key,))
        for key in template.to_dict()
        if key not in _IN_A_TEMPLATE
    ]
    if faults:
        raise fault_error(faults)
    return template


class Driver(Part):
    """What the driver gets."""

    cores: Count = 1
    """The driver's CPU cores."""
    memory: Memory = "1g"
    """The memory of the driver's JVM, in m (MiB) or g (GiB)."""


class Executor(Part):
    """What each executor gets."""

    instances: Count = 2
    """How many executors."""
    # 1, because with several cores per executor a partition moves to another Python worker in half of the batches, and
    # each move costs a new producer (about 70 ms); with one core it never moved.
    cores: Count = 1
    """An executor's CPU cores; with more than 1, source partitions move between Python workers, which costs latency."""
    memory: Memory = "2g"
    """The memory of an executor's JVM, in m (MiB) or g (GiB)."""


MAX_FUNCTIONS = 64


class JavaFunction(Part):
    """A function that expressions may call: a class of a jar, one of Spark's interfaces for it (UDF1 to UDF22)."""

    name: FunctionName
    """What expressions call it; none of Spark's own functions. Upper and lower case are the same."""
    class_name: JavaClass
    """The class, which must be in the image or in a jar of --jars; it implements one of
    org.apache.spark.sql.api.java.UDF0 to UDF22, and gives the same value for the same arguments."""
    returns: SqlType | None = None
    """The type of its value, such as STRING or ARRAY<BIGINT>; left out, what the class declares."""


def _distinct_functions(functions: tuple[JavaFunction, ...]) -> tuple[JavaFunction, ...]:
    refuse_repeated([each.name for each in functions], "give each function its own name", str.lower)
    return functions


class Spark(Part):
    """What Spark gets; image, version and service account are the operator's."""

    conf: Annotated[StringMap, Bounds(100, 4096), AfterValidator(_spark_conf)] = StringMap()
    """Spark options; not those that delivery depends on, that have a field of their own, or that hold credentials."""
    functions: (
        Annotated[
            tuple[JavaFunction, ...], Field(min_length=1, max_length=MAX_FUNCTIONS), AfterValidator(_distinct_functions)
        ]
        | None
    ) = None
    """Functions of jars that expressions may call."""
    driver: Driver = Driver()
    """The driver's resources."""
    executor: Executor = Executor()
    """The executors' resources."""
    template: Annotated[JsonObject, AfterValidator(_pod_template)] | None = None
    """A pod template (metadata, spec) for the pods of driver and executors; at most 32 KiB as JSON. A run from a file
    ignores it."""
