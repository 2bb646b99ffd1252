"""The dead letter: a record that could not be delivered, byte for byte, with headers that say what happened to it.

    the source's own headers ... │ version identity sink stage error.class error.code reason source.* redrives
                                 └ each with the prefix `sinkpipeline.dlq.`

Names, stages and error classes stand here alone: the runtime, the sinks and whoever reads dead letters share them.
`source.topic`, `source.partition` and `source.offset` together identify a dead letter of a sink.
"""

from __future__ import annotations

import enum
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.records import Headers, Row

VERSION = 1
PREFIX = "sinkpipeline.dlq."

_VERSION, _IDENTITY, _SINK, _STAGE = (f"{PREFIX}{name}" for name in ("version", "identity", "sink", "stage"))
_CLASS, _CODE, _REASON = (f"{PREFIX}{name}" for name in ("error.class", "error.code", "reason"))
_TOPIC, _PARTITION, _OFFSET, _TIMESTAMP = (
    f"{PREFIX}source.{name}" for name in ("topic", "partition", "offset", "timestamp")
)
_REDRIVES = f"{PREFIX}redrives"

MAX_REASON_BYTES = 255
_CUT = "…"
_NO_REASON = "no reason was given"
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that steer a terminal, hide or turn text around, break lines, or are no characters."""


class Stage(str, enum.Enum):
    """Where on its way a record failed."""

    DECODE = "decode"
    TRANSFORM = "transform"
    SERIALIZE = "serialize"
    WRITE = "write"


class ErrorClass(str, enum.Enum):
    """Why a record can't be delivered: a closed set. The word before the colon of a row's `error`."""

    NULL_VALUE = "NullValue"
    INVALID_UTF8 = "InvalidUtf8"
    MALFORMED_JSON = "MalformedJson"
    WRONG_TYPE = "WrongType"
    MISSING_FIELD = "MissingField"
    MALFORMED_CSV = "MalformedCsv"
    MALFORMED_AVRO = "MalformedAvro"
    MALFORMED_PROTOBUF = "MalformedProtobuf"
    SHORT_FRAME = "ShortFrame"
    WRONG_MAGIC_BYTE = "WrongMagicByte"
    UNKNOWN_SCHEMA = "UnknownSchema"
    INCOMPATIBLE_SCHEMA = "IncompatibleSchema"
    NO_ROW = "NoRow"
    EVALUATION_FAILED = "EvaluationFailed"
    ENCODING_FAILED = "EncodingFailed"
    TOO_MANY_ROWS = "TooManyRows"
    UNAVAILABLE_VALUE = "UnavailableValue"
    TOPIC_NOT_DECLARED = "TopicNotDeclared"
    PARTITION_OUT_OF_RANGE = "PartitionOutOfRange"
    INVALID_HEADER = "InvalidHeader"
    SUBJECT_INVALID = "SubjectInvalid"
    RECORD_TOO_LARGE = "RecordTooLarge"
    INVALID_TIMESTAMP = "InvalidTimestamp"
    RECORD_REFUSED = "RecordRefused"

    @property
    def stage(self) -> Stage:
        match self:
            case ErrorClass.EVALUATION_FAILED | ErrorClass.TOO_MANY_ROWS | ErrorClass.UNAVAILABLE_VALUE:
                return Stage.TRANSFORM
            case ErrorClass.TOPIC_NOT_DECLARED:
                return Stage.TRANSFORM
            case (
                ErrorClass.ENCODING_FAILED
                | ErrorClass.PARTITION_OUT_OF_RANGE
                | ErrorClass.INVALID_HEADER
                | ErrorClass.SUBJECT_INVALID
            ):
                return Stage.SERIALIZE
            case ErrorClass.RECORD_TOO_LARGE | ErrorClass.INVALID_TIMESTAMP | ErrorClass.RECORD_REFUSED:
                return Stage.WRITE
            case _:
                return Stage.DECODE

    def error(self, detail: str) -> str:
        """The text of a row's `error`; `detail` never holds contents of the record."""
        return f"{self.value}: {detail}"


@dataclass(frozen=True)
class Verdict:
    """That one record can't be delivered, however often it is tried, and why."""

    error_class: ErrorClass
    text: str
    """For people; never contents of the record."""
    code: str = ""
    """The word of whoever refused it, such as Kafka's MSG_SIZE_TOO_LARGE; empty where that was us."""

    @classmethod
    def of(cls, error: str) -> Verdict:
        """The verdict of a row's `error`; ValueError if the text names no class."""
        word, _, detail = error.partition(":")
        return cls(ErrorClass(word), detail.strip())


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """A record as it stands in the source."""

    partition: SourcePartition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    """Milliseconds; -1 where it has none. A broker takes any number: a producer's least date is far below 0."""


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A record that one sink could not deliver, and why."""

    sink: SinkId
    verdict: Verdict
    record: SourceRecord
    redrives: int = 0
    """How often it was tried again, and failed again; no header where it never was."""


class NotADeadLetter(ValueError):
    """A record without an envelope, or with one that this version doesn't know."""


def reason_of(text: str) -> str:
    """1 to 255 bytes of UTF-8 from any text, on one line, without characters that do something to who prints them."""
    plain = " ".join("".join(" " if unicodedata.category(each) in _HARMFUL else each for each in text).split())
    if not plain:
        return _NO_REASON
    encoded = plain.encode()
    if len(encoded) <= MAX_REASON_BYTES:
        return plain
    return encoded[: MAX_REASON_BYTES - len(_CUT.encode())].decode(errors="ignore") + _CUT


def encode(letter: DeadLetter) -> Row:
    """The record for the dead-letter topic, which has a time of its own: the source's may be what was refused.

    A header's name is sent as a C string: of one with a NUL only this is altered, where the client would cut it off.
    """
    record, verdict = letter.record, letter.verdict
    envelope = {
        _VERSION: str(VERSION),
        _IDENTITY: letter.sink.identity,
        _SINK: letter.sink.sink,
        _STAGE: verdict.error_class.stage.value,
        _CLASS: verdict.error_class.value,
        _CODE: verdict.code,
        _REASON: reason_of(verdict.text),
        _TOPIC: record.partition.topic,
        _PARTITION: str(record.partition.partition),
        _OFFSET: str(record.offset),
        _TIMESTAMP: str(record.timestamp),
        **({_REDRIVES: str(letter.redrives)} if letter.redrives else {}),
    }
    own = [(name.replace("\0", "\N{REPLACEMENT CHARACTER}"), content) for name, content in record.headers or ()]
    return record.value, record.key, -1, 0, [*own, *((name, text.encode()) for name, text in envelope.items())]


def parse(value: bytes | None, key: bytes | None, headers: Headers) -> DeadLetter:
    """The dead letter in a record of a dead-letter topic.

    The envelope begins at the last header that names a version: a dead letter may be of a record that was one. Headers
    that are not known are passed over behind it, and are the source's own before it.

    Raises:
        NotADeadLetter: there is no envelope, it is incomplete, or of another version.
    """
    headers = headers or []
    begin = max((at for at, (name, _) in enumerate(headers) if name == _VERSION), default=None)
    if begin is None:
        raise NotADeadLetter(f"the record has no header {_VERSION}")
    envelope = _Envelope(headers[begin:])
    version = envelope.text(_VERSION)
    if version != str(VERSION):
        raise NotADeadLetter(f"the envelope is of version {reason_of(version)}, known is {VERSION}")
    try:
        found = DeadLetter(
            sink=SinkId(envelope.text(_IDENTITY), envelope.text(_SINK)),
            verdict=Verdict(ErrorClass(envelope.text(_CLASS)), envelope.text(_REASON), envelope.text(_CODE)),
            record=SourceRecord(
                partition=SourcePartition(envelope.text(_TOPIC), envelope.number(_PARTITION, most=2**31 - 1)),
                offset=envelope.number(_OFFSET),
                key=key,
                value=value,
                headers=headers[:begin] or None,
                timestamp=envelope.number(_TIMESTAMP, least=-(2**63)),
            ),
            redrives=envelope.number(_REDRIVES) if _REDRIVES in envelope else 0,
        )
        stage = Stage(envelope.text(_STAGE))
    except NotADeadLetter:
        raise
    except ValueError as error:
        raise NotADeadLetter(f"the envelope can't be read: {reason_of(str(error))}") from error
    if stage is not found.verdict.error_class.stage:
        raise NotADeadLetter(f"the envelope contradicts itself: {found.verdict.error_class.value} in {stage.value}")
    return found


class _Envelope:
    """The headers from the version on; of a name that comes twice the first is ours."""

    def __init__(self, headers: Sequence[tuple[str, str | bytes | None]]) -> None:
        self._contents: dict[str, str | bytes | None] = {}
        for name, content in headers:
            self._contents.setdefault(name, content)

    def __contains__(self, name: str) -> bool:
        return name in self._contents

    def text(self, name: str) -> str:
        content = self._contents.get(name)
        if content is None:
            raise NotADeadLetter(f"the envelope has no {name}")
        try:
            return content if isinstance(content, str) else content.decode()
        except UnicodeDecodeError as error:
            raise NotADeadLetter(f"{name} is not UTF-8") from error

    def number(self, name: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """Raises ValueError too."""
        found = int(self.text(name))
        if not least <= found <= most:
            raise ValueError(f"{name} is {found}")
        return found
