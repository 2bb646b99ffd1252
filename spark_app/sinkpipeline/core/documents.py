"""What a driver tells, as types: those that write it, and those by which whoever hears it checks the whole of it.

A driver runs users' expressions, and its answer crosses a network: one that has another shape than these types tells
nothing at all. The bounds are those of the resource's `.status`, so that the API server takes what is believed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from sinkpipeline.core.lookups import MAX_ORIGIN
from sinkpipeline.core.tally import MAX_CLASSES, MAX_WORD, WORD
from sinkpipeline.core.texts import shortened

MAX_COUNT = 2**63 - 1
MAX_SINKS = 64
MAX_TOPICS = 10_000
MAX_PARTITIONS = 100_000
MAX_CONDITIONS = 32
MAX_TABLES = 512
MAX_REASON = 128
"""Characters of a reason: an event takes no more."""
REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
PLACE = r"^([0-9A-F]{1,8}/[0-9A-F]{1,8}|[^\x00-\x1f:/]{1,180}\.[0-9]{6,10}(\+[1-9][0-9]{0,9})?:[0-9]{1,10})$"
"""In PostgreSQL's log, or in a binary log of MariaDB or MySQL, where `+5` is of a server that has taken over."""
SLOT = r"^[a-z0-9_]{1,63}$"
"""The name of a replication slot."""
MAX_TABLE = 256
"""Characters of a table's name with its schema's; PostgreSQL's have at most 63 bytes each."""

_MAX_EXECUTORS = 2**31 - 1
_TIME = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z")
_OF_A_FRONTIER = frozenset({"epoch", "rowsDelivered", "deadLettered", "dropped", "lost"})
_SHOWN_PROBLEMS = 3
_SHOWN_CHARACTERS = 300

T = TypeVar("T", bound=Mapping[str, Any])


def _timestamp(text: str) -> str:
    try:
        # strptime alone would take other shapes too, and fewer digits.
        datetime.strptime(text if _TIME.fullmatch(text) else "", "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        raise ValueError("not a time such as 2026-01-31T10:00:00Z") from None
    return text


def _each_once(key: str) -> Callable[[list[T]], list[T]]:
    def check(items: list[T]) -> list[T]:
        if len({each[key] for each in items}) < len(items):
            raise ValueError(f"two entries have the same {key}")
        return items

    return check


Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Time = Annotated[str, AfterValidator(_timestamp)]
Text = str
"""As long as the whole may be: whoever shows it cuts it."""
Word = Annotated[str, Field(min_length=1, max_length=MAX_REASON, pattern=REASON)]
Id = Annotated[str, Field(max_length=64)]
TopicId = Annotated[str, Field(min_length=1, max_length=64)]
"""None where it is not known: an empty one could not be gone on from."""
Name = Annotated[str, Field(min_length=1, max_length=63)]
State = Literal["Starting", "Running", "Suspended", "Retrying", "Failed"]
Guarantee = Literal["ExactlyOnce", "AtLeastOnce"]
SlotName = Annotated[str, Field(pattern=SLOT)]
Place = Annotated[str, Field(pattern=PLACE)]
Window = Annotated[str, Field(min_length=2, max_length=MAX_WORD)]

DeadLetters = TypedDict(
    "DeadLetters",
    {
        "class": Annotated[str, Field(max_length=MAX_WORD, pattern=f"^{WORD}$")],
        "stage": Annotated[str, Field(min_length=1, max_length=16)],
        "count": Count,
        "dropped": Count,
    },
)


class Frontier(TypedDict):
    topic: Annotated[str, Field(min_length=1, max_length=249)]
    topicId: NotRequired[TopicId | None]
    # A topic without partitions is none: whoever goes on from it would find nothing to go on from.
    next: Annotated[list[Count], Field(min_length=1, max_length=MAX_PARTITIONS)]


class Circuit(TypedDict):
    openedAt: Time
    configHash: NotRequired[Id]


class Error(TypedDict):
    reason: Word
    message: Text
    remedy: Text


class ShortError(TypedDict):
    """In last words, where texts may not fit."""

    reason: Word
    message: NotRequired[Text]
    remedy: NotRequired[Text]


class Hanging(TypedDict):
    message: Text
    remedy: Text


class DataTopic(TypedDict):
    topic: Annotated[str, Field(min_length=1, max_length=249)]
    topicId: TopicId


class SinkProgress(TypedDict, total=False):
    """What a sink's entry has of its progress."""

    rowsDelivered: Count
    deadLettered: Count
    dropped: Count
    lost: Count
    deadLetters: Annotated[list[DeadLetters], Field(max_length=MAX_CLASSES), AfterValidator(_each_once("class"))]
    frontier: Annotated[list[Frontier], Field(max_length=MAX_TOPICS), AfterValidator(_each_once("topic"))]
    lastProgressTime: Time
    epoch: Count
    dataTopicId: TopicId | None
    dataTopics: Annotated[list[DataTopic], Field(max_length=MAX_SINKS), AfterValidator(_each_once("topic"))]
    progressTopicId: TopicId | None
    mayBeDuplicated: Count
    rolledBack: Count
    counted: Count


class Sink(SinkProgress):
    """An entry of `sinks`."""

    name: Name
    state: State
    guarantee: Guarantee
    kind: NotRequired[Literal["kafka", "nats", "postgresql", "redis"]]
    durability: NotRequired[Literal["AsHeldBySink", "AtRisk", "Committed", "ServerWindow"]]
    duplicateWindow: NotRequired[Window]
    lag: NotRequired[Count]
    heldBack: NotRequired[Count]
    openTransaction: NotRequired[Hanging]
    circuit: NotRequired[Circuit]
    error: NotRequired[Error]
    proved: NotRequired[bool]
    stillSince: NotRequired[Time]


class SinkWords(SinkProgress):
    """Likewise, in last words."""

    name: Name
    state: State
    circuit: NotRequired[Circuit]
    error: NotRequired[ShortError]


def _whole(sink: T) -> T:
    """A frontier can only be gone on from together with what it belongs to: alone it is none."""
    if sink.keys() >= _OF_A_FRONTIER:
        return sink
    return cast(T, {key: value for key, value in sink.items() if key != "frontier"})


class SourcePlace(TypedDict, total=False):
    """Where a stage stands, as far as it is known."""

    position: Place
    index: Count
    changes: Count
    deadLettered: Count
    dropped: Count


class Snapshot(TypedDict, total=False):
    """How far the tables have been read."""

    phase: Literal["TakingBack", "Reading"]
    epoch: Count
    table: Annotated[str, Field(max_length=MAX_TABLE)]
    tablesDone: Count
    tables: Count
    rows: Count
    estimatedRows: Count


class IncrementalSnapshot(TypedDict):
    """How far tables have been read whose rows come beside the stream."""

    table: Annotated[str, Field(max_length=MAX_TABLE)]
    tablesWaiting: Count
    rows: Count
    waitsFor: NotRequired[Text]


class Source(SourcePlace):
    """What reads the changes of a database."""

    state: State
    slot: NotRequired[SlotName]
    serverEnd: NotRequired[Place]
    lagBytes: NotRequired[Count]
    lagSeconds: NotRequired[Count]
    retainedBytes: NotRequired[Count]
    safeBytes: NotRequired[Count]
    timeline: NotRequired[Count]
    atRisk: NotRequired[Text]
    snapshot: NotRequired[Snapshot]
    incrementalSnapshot: NotRequired[IncrementalSnapshot]
    circuit: NotRequired[Circuit]
    error: NotRequired[Error]


class SourceWords(SourcePlace):
    """Likewise, in last words."""

    state: State
    slot: NotRequired[SlotName]
    circuit: NotRequired[Circuit]
    error: NotRequired[ShortError]


class ConditionDocument(TypedDict):
    type: Annotated[str, Field(min_length=1, max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Word
    message: Text
    lastTransitionTime: Time
    observedGeneration: NotRequired[Count]


class ExecutorCounts(TypedDict):
    registered: Annotated[int, Field(ge=0, le=_MAX_EXECUTORS)]
    wanted: NotRequired[Annotated[int, Field(ge=0, le=_MAX_EXECUTORS)]]
    noneSince: NotRequired[Time]


class ReaderSchemaDocument(TypedDict):
    subject: NotRequired[Annotated[str, Field(max_length=512)]]
    version: NotRequired[Count]
    id: NotRequired[Count]
    fingerprint: Id


class LookupDocument(TypedDict):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    table: Annotated[str, Field(max_length=MAX_ORIGIN)]
    rows: Count
    fingerprint: Id


class Answer(TypedDict):
    """The body of `GET /status`, as far as whoever asks makes anything of it."""

    configHash: Annotated[str, Field(max_length=64)] | None
    run: Annotated[str, Field(max_length=64)]
    now: Time
    supervising: NotRequired[bool]
    identity: NotRequired[Annotated[str, Field(max_length=200)]]
    conditions: Annotated[list[ConditionDocument], Field(max_length=MAX_CONDITIONS), AfterValidator(_each_once("type"))]
    executors: NotRequired[ExecutorCounts]
    readerSchema: NotRequired[ReaderSchemaDocument]
    lookups: NotRequired[Annotated[list[LookupDocument], Field(max_length=MAX_TABLES)]]
    source: NotRequired[Source]
    sinks: Annotated[
        list[Annotated[Sink, AfterValidator(_whole)]], Field(max_length=MAX_SINKS), AfterValidator(_each_once("name"))
    ]


class Words(TypedDict):
    """The termination log of a driver."""

    reason: Word
    message: Text
    remedy: Text
    source: NotRequired[SourceWords]
    sinks: NotRequired[
        Annotated[
            list[Annotated[SinkWords, AfterValidator(_whole)]],
            Field(max_length=MAX_SINKS),
            AfterValidator(_each_once("name")),
        ]
    ]


_ANSWER = TypeAdapter(Answer)
_WORDS = TypeAdapter(Words)


def parse_answer(body: bytes) -> Answer:
    """Of what the types don't know nothing is left.

    Raises:
        ValueError: what is wrong with it, in one line.
    """
    return cast(Answer, _parsed(_ANSWER, body))


def parse_words(text: str) -> Words:
    """Likewise."""
    return cast(Words, _parsed(_WORDS, text.encode(errors="replace")))


def _parsed(adapter: TypeAdapter[Any], text: bytes) -> object:
    # pydantic has its own reader of JSON, which bounds the depth and refuses what is no Unicode. Python's raises
    # RecursionError, and lets lone surrogates through.
    try:
        return adapter.validate_json(text, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise ValueError(_in_one_line([(each["loc"], each["msg"]) for each in problems])) from None


def _in_one_line(problems: Sequence[tuple[Sequence[int | str], str]]) -> str:
    told = [f"{'.'.join(map(str, place)) or 'the document'}: {what}" for place, what in problems[:_SHOWN_PROBLEMS]]
    more = len(problems) - len(told)
    return shortened("; ".join(told) + (f"; and {more} more" if more else ""), _SHOWN_CHARACTERS)
