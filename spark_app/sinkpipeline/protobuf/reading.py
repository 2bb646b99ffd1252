"""Values to columns, in a Python worker: many at once, a list for each field, as Arrow has them.

A value of a topic with a registry has, behind its frame, the path of its message in the writer's file: how many steps,
and each of them, as zigzag varints; a single 0 for the first message (Confluent's wire format).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Value

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.protobuf.messages import COLUMNS, Message, Path, is_map, is_special, is_timestamp, is_wrapper

RESULT = "result"
ERROR = "error"
CHUNK_BYTES = 1024 * 1024
"""Of values that are read at once: each of their bytes may become an object of Python."""

MOST_CELLS = 1_000_000
"""Of lists and maps: elements, times the fields of each. Two bytes of a value can be an element of a thousand."""

_MORE = 0x80
_LONGEST_VARINT = 10
_LEAST_S, _MOST_S, _NANOS = -62_135_596_800, 253_402_300_799, 1_000_000_000
"""The seconds that a google.protobuf.Timestamp may have: of the years 1 to 9999."""

_MALFORMED = ErrorClass.MALFORMED_PROTOBUF.error("the value is not of its writer's schema")
_CUT_PATH = ErrorClass.MALFORMED_PROTOBUF.error("the value ends within the path of its message, or has none")
_TOO_WIDE = ErrorClass.MALFORMED_PROTOBUF.error(f"its lists and maps have more than {MOST_CELLS:,} fields")
_NO_COLUMN = ErrorClass.MALFORMED_PROTOBUF.error("a field has a value that its column can't hold")

_F = FieldDescriptor
_ARROW: Mapping[str, pa.DataType] = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DECIMAL(20, 0)": pa.decimal128(20, 0),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
}
"""By the words of `COLUMNS`."""

Column = Callable[[Sequence[Any]], pa.Array]
"""From values of one field to their column; None is null."""


class _Refused(Exception):
    """One value can't be read; its text is the row's error."""


@dataclass(frozen=True)
class Reader:
    """Reads values with one message. Goes to the workers with the plan."""

    message: Message
    paths: Mapping[bytes, frozenset[Path]] | None = None
    """By frame: where the message stands in the writer's file; None: values have neither frame nor path."""

    def __call__(self, frames: Sequence[bytes | None], bodies: Sequence[bytes | None]) -> pa.StructArray:
        """STRUCT<result, error>: `result` has the columns of the message. Both are null where the body is.

        Args:
            frames: looked at only where there are paths.
            bodies: what follows the frame.
        """
        found = [self._chunk(frames[begin:end], bodies[begin:end]) for begin, end in _chunks(bodies)]
        return pa.concat_arrays(found) if found else self._chunk((), ())

    def _chunk(self, frames: Sequence[bytes | None], bodies: Sequence[bytes | None]) -> pa.StructArray:
        values: list[Any] = []
        errors: list[str | None] = []
        kind = self.message.kind
        for frame, body in zip(frames, bodies, strict=True):
            try:
                values.append(None if body is None else self._value(kind, frame, body))
                errors.append(None)
            except _Refused as refused:
                values.append(None)
                errors.append(str(refused))
        result = _built(_struct(self.message), values, errors)
        return pa.StructArray.from_arrays([result, pa.array(errors, pa.string())], names=[RESULT, ERROR])

    def _value(self, kind: type[Value], frame: bytes | None, body: bytes) -> Value:
        at = 0 if self.paths is None else self._behind_path(frame or b"", body)
        try:
            value = kind.FromString(body[at:] if at else body)
        except DecodeError as error:
            raise _Refused(_MALFORMED) from error
        if not value.IsInitialized():
            # Of proto2. Its parser takes a message without a required field for one.
            missing = ", ".join(value.FindInitializationErrors()[:3])
            raise _Refused(ErrorClass.MISSING_FIELD.error(f"required, and absent: {missing}"))
        return value

    def _behind_path(self, frame: bytes, body: bytes) -> int:
        """Where the message begins."""
        for prefix in self._prefixes.get(frame, ()):
            if body.startswith(prefix):
                return len(prefix)
        if not _is_path(body):
            raise _Refused(_CUT_PATH)
        detail = f"the value is of another message than {self.message.name}"
        raise _Refused(ErrorClass.INCOMPATIBLE_SCHEMA.error(detail))

    @cached_property
    def _prefixes(self) -> Mapping[bytes, tuple[bytes, ...]]:
        """By frame: how values begin."""
        found = (self.paths or {}).items()
        return {frame: tuple(each for path in paths for each in _written(path)) for frame, paths in found}


def _built(column: Column, values: list[Any], errors: list[str | None]) -> pa.Array:
    """The column of these values; one that has none is null, and has an error: it is found by halves."""
    try:
        return column(values)
    except _NO_VALUE as error:
        if len(values) > 1:
            half = len(values) // 2
            head, tail = errors[:half], errors[half:]
            parts = [_built(column, values[:half], head), _built(column, values[half:], tail)]
            errors[:] = [*head, *tail]
            return pa.concat_arrays(parts)
        errors[0] = _TOO_WIDE if isinstance(error, _TooWide) else _NO_COLUMN
        return column([None])


class _TooWide(ValueError):
    """There is more in the lists of values than is read at once."""


_NO_VALUE = (pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def _chunks(bodies: Sequence[bytes | None]) -> list[tuple[int, int]]:
    """Where chunks of about `CHUNK_BYTES` begin and end."""
    found: list[tuple[int, int]] = []
    begin = size = 0
    for place, body in enumerate(bodies):
        size += len(body or b"")
        if size >= CHUNK_BYTES:
            found.append((begin, place + 1))
            begin, size = place + 1, 0
    return [*found, (begin, len(bodies))] if begin < len(bodies) else found


def _written(path: Path) -> tuple[bytes, ...]:
    """A path as serializers write it; that of the first message also in short."""
    whole = b"".join(map(_zigzag, (len(path), *path)))
    return (b"\0", whole) if path == (0,) else (whole,)


def _zigzag(number: int) -> bytes:
    """Of a number that is not negative."""
    number, found = number << 1, bytearray()
    while number >= _MORE:
        found.append(number & ~_MORE & 0xFF | _MORE)
        number >>= 7
    return bytes((*found, number))


def _is_path(body: bytes) -> bool:
    """Whether a value begins with a path, of whatever message."""
    try:
        steps, at = _number(body, 0)
        for _ in range(min(steps, len(body))):
            _, at = _number(body, at)
    except IndexError:
        return False
    return 0 <= steps <= len(body)


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag, and where the next one begins.

    Raises:
        IndexError: it does not end.
    """
    number = 0
    for step in range(_LONGEST_VARINT):
        byte = content[at + step]
        number |= (byte & ~_MORE) << 7 * step
        if byte < _MORE:
            return (number >> 1) ^ -(number & 1), at + step + 1
    raise IndexError


@lru_cache(maxsize=64)
def _struct(message: Message) -> Column:
    return _fields(message.descriptor)


def _message(kind: Descriptor) -> Column:
    """Of values of a message, or None."""
    if is_timestamp(kind):
        return _timestamps
    if is_wrapper(kind):
        wrapped = _scalar(kind.fields[0])
        return lambda values: wrapped([None if each is None else each.value for each in values])
    return _fields(kind)


def _fields(kind: Descriptor) -> Column:
    """Likewise, field by field."""
    names = [each.name for each in kind.fields]
    columns = [_field(each) for each in kind.fields]

    def build(values: Sequence[Any]) -> pa.Array:
        missing = pa.array([each is None for each in values], pa.bool_())
        return pa.StructArray.from_arrays([column(values) for column in columns], names=names, mask=missing)

    return build


def _field(field: FieldDescriptor) -> Column:
    """Of values of the message that has the field, or None."""
    read: Callable[[Any], Any] = attrgetter(field.name)
    if is_map(field):
        return _map(field, read)
    if field.is_repeated:
        element, width = _one(field), _width(field)
        return lambda values: _list(values, read, element, width)
    one, name = _one(field), field.name
    if field.has_presence:
        return lambda values: one([None if each is None or not each.HasField(name) else read(each) for each in values])
    return lambda values: one([None if each is None else read(each) for each in values])


def _one(field: FieldDescriptor) -> Column:
    return _scalar(field) if field.message_type is None else _message(field.message_type)


def _width(field: FieldDescriptor) -> int:
    """How many columns a value of it is, at least; what is in lists within it is counted there."""
    kind = field.message_type
    if kind is None or is_special(kind):
        return 1
    return 1 + sum(1 if each.is_repeated else _width(each) for each in kind.fields)


def _check_width(elements: int, width: int) -> None:
    if elements * width > MOST_CELLS:
        raise _TooWide


def _list(values: Sequence[Any], read: Callable[[Any], Any], element: Column, width: int) -> pa.Array:
    lists = [() if each is None else read(each) for each in values]
    _check_width(sum(map(len, lists)), width)
    offsets = pa.array(accumulate(map(len, lists), initial=0), pa.int32())
    return pa.ListArray.from_arrays(offsets, element([each for one in lists for each in one]))


def _map(field: FieldDescriptor, read: Callable[[Any], Any]) -> Column:
    key, value = (_one(field.message_type.fields_by_name[each]) for each in ("key", "value"))
    width = _width(field)

    def build(values: Sequence[Any]) -> pa.Array:
        # Sorted: a record that is read again gives the same row.
        maps = [() if each is None else sorted(read(each).items(), key=lambda entry: entry[0]) for each in values]
        _check_width(sum(map(len, maps)), width)
        offsets = pa.array(accumulate(map(len, maps), initial=0), pa.int32())
        keys, items = ([entry[place] for one in maps for entry in one] for place in (0, 1))
        return pa.MapArray.from_arrays(offsets, key(keys), value(items))

    return build


def _scalar(field: FieldDescriptor) -> Column:
    kind = _ARROW[COLUMNS[field.type]]
    if field.type == _F.TYPE_ENUM:
        names = {each.number: each.name for each in reversed(field.enum_type.values)}
        # A number without a name is of a newer schema.
        return lambda values: pa.array(
            [None if each is None else names.get(each) or str(each) for each in values], kind
        )
    if pa.types.is_decimal(kind):
        return lambda values: pa.array([None if each is None else Decimal(each) for each in values], kind)
    return lambda values: pa.array(values, kind)


_MICROS = pa.timestamp("us", tz="UTC")


def _timestamps(values: Sequence[Any]) -> pa.Array:
    """Microseconds: what is finer is cut off.

    Raises:
        ValueError: it is none that Protobuf allows.
    """
    found: list[int | None] = []
    for each in values:
        if each is None:
            found.append(None)
            continue
        seconds, nanos = each.seconds, each.nanos
        if not (_LEAST_S <= seconds <= _MOST_S and 0 <= nanos < _NANOS):
            raise ValueError("no time")
        found.append(seconds * 1_000_000 + nanos // 1_000)
    return pa.array(found, pa.int64()).cast(_MICROS)
