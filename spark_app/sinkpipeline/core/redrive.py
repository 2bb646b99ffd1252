"""Redriving dead letters: which of them are pending, and the record that says which are not.

    letter 0 │ letter 1 │ letter 2 │ redrive record: 0 and 2 were delivered │ letter 3      one partition, in log order

A redrive record stands in the partition whose letters it settles, behind them, and is written in one transaction with
what became of them. So retention and DeleteRecords take a letter before its record, and a topic that is deleted loses
both: nothing is delivered twice because something was forgotten.
"""

from __future__ import annotations

import enum
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from sinkpipeline.core.deadletter import PREFIX, DeadLetter, ErrorClass, NotADeadLetter, Stage, parse, reason_of
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.records import Headers, Row

VERSION = 1
HEADER = f"{PREFIX}redriven"
"""Its content is the version."""

Span = tuple[int, int]
"""The first offset and the last."""
_SPAN_BYTES = 42
_FRAME_BYTES = 700
"""More than a record needs beside its spans: identity and sink have at most 253 and 63 characters."""


class Outcome(str, enum.Enum):
    """What became of a letter that was redriven."""

    DELIVERED = "Delivered"
    FILTERED = "Filtered"
    DEAD_LETTERED = "DeadLettered"
    RETURNED = "Returned"
    """To its source topic."""
    REPEATED = "Repeated"
    """Another letter of the same record was settled: a crash had repeated it."""


PENDING = "Pending"


def redrive_of(sink: SinkId) -> SinkId:
    """The sink that redrives another one's letters, with transactional ids of its own: no user's name holds a dot."""
    return SinkId(sink.identity, f"{sink.sink}.redrive")


@dataclass(frozen=True, order=True)
class LetterId:
    """A dead letter, within its topic."""

    partition: int
    offset: int

    @override
    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> LetterId:
        """Raises ValueError."""
        partition, colon, offset = text.partition(":")
        if not (colon and partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise ValueError(f"{text!r} is no id such as 0:120, a partition and an offset of the dead-letter topic")
        return cls(int(partition), int(offset))


@dataclass(frozen=True)
class Letter:
    """A dead letter where it stands."""

    id: LetterId
    at: int
    """When it was written, Unix milliseconds."""
    letter: DeadLetter


@dataclass(frozen=True)
class Foreign:
    """A record of the topic that is neither a letter nor a redrive record, or none that this release can read."""

    id: LetterId
    why: str


@dataclass(frozen=True, kw_only=True)
class RedriveRecord:
    """What one redrive of one sink has settled in its partition; a sentinel, with a nonce, settles nothing."""

    sink: SinkId
    topic_id: str
    """Offsets mean nothing in another topic, such as a re-created one, or a copy on another cluster."""
    run: str
    nonce: str | None = None
    settled: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    """Outcome to spans; one that this release does not know is settled all the same."""


Found = Letter | Foreign | RedriveRecord


def found_in(id_: LetterId, at: int, value: bytes | None, key: bytes | None, headers: Headers) -> Found:
    """What a record of a dead-letter topic is.

    A letter that has a redrive record's header of its own is one of a source record that had it.

    Raises:
        SinkPipelineError: ProgressVersionUnknown, ProgressCorrupt, where the record says what is settled, and it can't
            be understood.
    """
    try:
        return Letter(id_, at, parse(value, key, headers))
    except NotADeadLetter as error:
        version = dict(headers or ()).get(HEADER)
        has_envelope = any(name == f"{PREFIX}version" for name, _ in headers or ())
        if version is None or has_envelope:
            return Foreign(id_, str(error))
    return _redrive_record(id_, value)


def _redrive_record(id_: LetterId, value: bytes | None) -> RedriveRecord | Foreign:
    try:
        document = parse_json(value or b"")
        version = document["version"]
    except (ValueError, TypeError, KeyError):
        return Foreign(id_, f"it has the header {HEADER}, and is no redrive record of any release")
    if version != VERSION:
        raise SinkPipelineError(
            Reason.PROGRESS_VERSION_UNKNOWN,
            f"the redrive record {id_} is of version {reason_of(str(version))}, known is {VERSION}",
            "run the release that wrote it",
        )
    try:
        return RedriveRecord(
            sink=SinkId(document["identity"], document["sink"]),
            topic_id=str(document["topic"]),
            run=str(document["run"]),
            nonce=document.get("nonce"),
            settled={
                str(outcome): tuple(_span(each, id_.offset) for each in found)
                for outcome, found in document["settled"].items()
            },
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SinkPipelineError(
            Reason.PROGRESS_CORRUPT,
            f"the redrive record {id_} can't be understood: {reason_of(repr(error))}",
            "it is not known which letters it settles, so nothing was done: find out who wrote it. To go on, purge "
            "with --before-offset and the offset behind it, which deletes every letter before it too",
        ) from error


def _span(item: Any, end: int) -> Span:
    first, last = item
    if not (isinstance(first, int) and isinstance(last, int) and 0 <= first <= last < end):
        raise ValueError(f"span {item} in the record at {end}")
    return first, last


def spans(offsets: Iterable[int]) -> list[Span]:
    """Ascending offsets, those that follow each other taken together."""
    found: list[Span] = []
    for offset in offsets:
        if found and found[-1][1] + 1 == offset:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


def encode_sentinel(sink: SinkId, topic_id: str, run: str, nonce: str, partition: int) -> Row:
    return _encode(sink, topic_id, run, partition, {"nonce": nonce, "settled": {}})


def spans_of(outcomes: Mapping[int, Outcome]) -> dict[str, tuple[Span, ...]]:
    """By outcome. `outcomes` is by ascending offset."""
    found = {
        outcome.value: tuple(spans(offset for offset, each in outcomes.items() if each is outcome))
        for outcome in Outcome
    }
    return {outcome: each for outcome, each in found.items() if each}


def encode_spans(
    sink: SinkId,
    topic_id: str,
    run: str,
    outcomes: Mapping[str, Iterable[Span]],
    *,
    partition: int,
    most_bytes: int,
) -> list[Row]:
    """The records of one transaction, as many as a topic with this limit needs; `outcomes` as of `spans_of`."""
    most = max(1, (most_bytes - _FRAME_BYTES) // _SPAN_BYTES)
    found = [(outcome, span) for outcome, each in outcomes.items() for span in each]
    rows = []
    for begin in range(0, len(found), most):
        settled: dict[str, list[Span]] = {}
        for outcome, span in found[begin : begin + most]:
            settled.setdefault(outcome, []).append(span)
        rows.append(_encode(sink, topic_id, run, partition, {"settled": settled}))
    return rows


def _encode(sink: SinkId, topic_id: str, run: str, partition: int, more: Mapping[str, Any]) -> Row:
    document = {"version": VERSION, "identity": sink.identity, "sink": sink.sink, "topic": topic_id, "run": run}
    # No key: a topic that is compacted refuses it, instead of losing it to the next one.
    value = json.dumps({**document, **more}, separators=(",", ":")).encode()
    return value, None, partition, 0, [(HEADER, str(VERSION).encode())]


class Settled:
    """Which offsets of one partition are settled, and how; of what is named twice the last counts."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._outcomes: list[str] = []

    def add(self, span: Span, outcome: str) -> None:
        self._cut(span)
        at = bisect_left(self._firsts, span[0])
        self._insert(at, [(span, outcome)])

    def reopen(self, offset: int) -> None:
        """Pending again, until it is added anew."""
        self._cut((offset, offset))

    def outcome(self, offset: int) -> str | None:
        at = bisect_right(self._firsts, offset) - 1
        return self._outcomes[at] if at >= 0 and offset <= self._lasts[at] else None

    def _cut(self, span: Span) -> None:
        """Nothing is known of these any more."""
        first, last = span
        begin, end = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        if begin >= end:
            return
        left = [
            ((self._firsts[begin], first - 1), self._outcomes[begin]),
            ((last + 1, self._lasts[end - 1]), self._outcomes[end - 1]),
        ]
        del self._firsts[begin:end], self._lasts[begin:end], self._outcomes[begin:end]
        self._insert(begin, [each for each in left if each[0][0] <= each[0][1]])

    def _insert(self, at: int, found: Sequence[tuple[Span, str]]) -> None:
        self._firsts[at:at] = [first for (first, _), _ in found]
        self._lasts[at:at] = [last for (_, last), _ in found]
        self._outcomes[at:at] = [outcome for _, outcome in found]


class Ledger:
    """What the redrive records of one partition say, by sink; read from its beginning, in log order."""

    def __init__(self, topic_id: str, position: int) -> None:
        self._topic_id = topic_id
        self._settled: dict[SinkId, Settled] = {}
        self._runs: dict[SinkId, set[str]] = {}
        self.position = position
        """Everything below it was read."""

    def apply(self, record: RedriveRecord) -> None:
        if record.topic_id != self._topic_id:
            return
        self._runs.setdefault(record.sink, set()).add(record.run)
        settled = self._settled.setdefault(record.sink, Settled())
        for outcome, found in record.settled.items():
            for span in found:
                settled.add(span, outcome)

    def reopen(self, sink: SinkId, offset: int) -> None:
        """What became of a letter is gone: it is pending, until a record that is applied from here on settles it."""
        if sink in self._settled:
            self._settled[sink].reopen(offset)

    def outcome(self, sink: SinkId, offset: int) -> str | None:
        """What became of a letter; None while it is pending."""
        settled = self._settled.get(sink)
        return None if settled is None else settled.outcome(offset)

    def runs(self, sink: SinkId) -> frozenset[str]:
        return frozenset(self._runs.get(sink, ()))


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which letters; what is empty or None doesn't matter."""

    sinks: frozenset[SinkId]
    ids: frozenset[LetterId] = frozenset()
    stages: frozenset[Stage] = frozenset()
    classes: frozenset[ErrorClass] = frozenset()
    since: int | None = None
    """Unix milliseconds of when the letter was written; `since` is included, `until` is not."""
    until: int | None = None
    source_topic: str | None = None

    def matches(self, found: Letter) -> bool:
        error_class = found.letter.verdict.error_class
        return (
            found.letter.sink in self.sinks
            and (not self.ids or found.id in self.ids)
            and (not self.stages or error_class.stage in self.stages)
            and (not self.classes or error_class in self.classes)
            and (self.since is None or found.at >= self.since)
            and (self.until is None or found.at < self.until)
            and self.source_topic in (None, found.letter.record.partition.topic)
        )


MOST_LETTERS = 5_000
MOST_BYTES = 8 * 1024 * 1024


def chunks(
    letters: Iterable[Letter], *, most: int = MOST_LETTERS, most_bytes: int = MOST_BYTES
) -> Iterator[list[Letter]]:
    """Letters of one partition, in order, so many at a time as are made rows of together.

    No two of a chunk are of the same source offset: by that a row is matched to its letter.
    """
    chunk: list[Letter] = []
    sources: set[tuple[str, int, int]] = set()
    size = 0
    for each in letters:
        record = each.letter.record
        source = (record.partition.topic, record.partition.partition, record.offset)
        if chunk and (len(chunk) >= most or size >= most_bytes or source in sources):
            yield chunk
            chunk, sources, size = [], set(), 0
        chunk.append(each)
        sources.add(source)
        size += len(record.key or b"") + len(record.value or b"")
    if chunk:
        yield chunk
