"""What a compiled schema has: messages, their columns, and whether records of another schema can be read with them."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message as Value

from sinkpipeline.core.quoting import quoted
from sinkpipeline.protobuf.compiler import NotProtobuf, files_of

Path = tuple[int, ...]
"""Of a message in its file: its place among the messages of the file, then among those that are nested, ..."""

TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_F = FieldDescriptor
MOST_FIELDS = 10_000
"""Of a message, and of those within it."""
MOST_LEVELS = 100
"""Of messages within messages; the library reads no value that has more."""
_TOO_DEEP = f"its messages are within each other on more than {MOST_LEVELS} levels"

COLUMNS: Mapping[int, str] = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), "INT"),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), "BIGINT"),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), "BIGINT"),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), "DECIMAL(20, 0)"),
    _F.TYPE_FLOAT: "FLOAT",
    _F.TYPE_DOUBLE: "DOUBLE",
    _F.TYPE_BOOL: "BOOLEAN",
    _F.TYPE_STRING: "STRING",
    _F.TYPE_ENUM: "STRING",
    _F.TYPE_BYTES: "BINARY",
}
"""What a value of a field's type is, but for messages: Spark's DDL."""
_MESSAGES = (_F.TYPE_MESSAGE, _F.TYPE_GROUP)
_READ_AS: Mapping[int, frozenset[int]] = {
    _F.TYPE_INT64: frozenset({_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_BOOL, _F.TYPE_ENUM}),
    _F.TYPE_INT32: frozenset({_F.TYPE_BOOL, _F.TYPE_ENUM}),
    _F.TYPE_UINT64: frozenset({_F.TYPE_UINT32, _F.TYPE_BOOL}),
    _F.TYPE_UINT32: frozenset({_F.TYPE_BOOL}),
    _F.TYPE_SINT64: frozenset({_F.TYPE_SINT32}),
    _F.TYPE_BYTES: frozenset({_F.TYPE_STRING}),
    _F.TYPE_STRING: frozenset({_F.TYPE_BYTES}),
    _F.TYPE_ENUM: frozenset({_F.TYPE_INT32}),
}
"""By the reader's type: those of a writer that mean the same value. Protobuf reads more, with other values."""


@dataclass(frozen=True)
class Message:
    """A message of a compiled schema."""

    files: bytes
    """A FileDescriptorSet, whose last file is the schema."""
    name: str
    """In full, such as shop.Order."""

    def to_text(self) -> str:
        """As a plan has it."""
        return json.dumps({"message": self.name, "files": base64.b64encode(self.files).decode()})

    @classmethod
    def from_text(cls, text: str) -> Message:
        document = json.loads(text)
        return cls(base64.b64decode(document["files"]), document["message"])

    @property
    def kind(self) -> type[Value]:
        """What reads values, once in a process: closed enums are numbers in it.

        A parser sets aside the numbers that a closed enum (of proto2) does not know, and nobody would hear of them.
        """
        return _kind(self, opened=True)

    @property
    def descriptor(self) -> Descriptor:
        """As the schema has it.

        Raises:
            NotProtobuf: it can't be used.
        """
        return _kind(self, opened=False).DESCRIPTOR


def message_of(files: bytes, name: str | None) -> Message:
    """The message of that name; None: the first one in the schema.

    Raises:
        NotProtobuf: there is none.
    """
    found = paths_of(files)
    if not found:
        raise NotProtobuf("the schema has no message")
    if name is None:
        return Message(files, next(iter(found)))
    if name not in found:
        raise NotProtobuf(f"the schema has no message {name}; it has {_some(list(found))}")
    return Message(files, name)


def paths_of(files: bytes) -> dict[str, frozenset[Path]]:
    """Where each message of the schema stands in it, by its full name; in their order.

    A map, and a group, have hidden messages beside those that are nested. Confluent's serializers in Java don't count
    them, those that go by descriptors do (Python, Go), so a message may have several paths. One that means two messages
    is left out.
    """
    schema = files_of(files)[-1]
    package = f"{schema.package}." if schema.package else ""
    ways = [dict(_paths(schema, package, (), counted=each)) for each in ("all", "no maps", "neither")]
    meant: dict[Path, set[str]] = defaultdict(set)
    for way in ways:
        for name, path in way.items():
            meant[path].add(name)
    return {
        name: frozenset(way[name] for way in ways if name in way and len(meant[way[name]]) == 1) for name in ways[0]
    }


def columns_of(message: Message) -> str:
    """The columns of a message, as Spark's DDL.

    Scalars, BIGINT for uint32, DECIMAL(20, 0) for uint64; enums as their names; messages as STRUCT, but
    google.protobuf.Timestamp as TIMESTAMP, and its wrappers as what they wrap.

    Raises:
        NotProtobuf: a message holds itself, or has no field, too many, or one that can't be read.
    """
    fields = list(message.descriptor.fields)
    if not fields:
        raise NotProtobuf(f"message {message.name} has no field")
    _check_size(message.descriptor, (), [MOST_FIELDS])
    return ", ".join(f"{quoted(each.name)} {_of_field(each)}" for each in fields)


def _check_size(kind: Descriptor, above: tuple[str, ...], left: list[int]) -> None:
    """Few lines of a schema have millions of columns, where each message has the next one twice.

    Raises:
        NotProtobuf
    """
    if kind.full_name in above:
        raise NotProtobuf(f"message {kind.full_name} holds itself, in message {above[-1]}")
    if len(above) == MOST_LEVELS:
        raise NotProtobuf(_TOO_DEEP)
    left[0] -= len(kind.fields)
    taken = next((each.name for each in kind.fields if hasattr(Value, each.name)), None)
    if taken is not None:
        raise NotProtobuf(f"message {kind.full_name} has a field {taken}, a name that Python's Protobuf needs itself")
    if left[0] < 0:
        raise NotProtobuf(f"its messages have more than {MOST_FIELDS} fields, one within the other")
    for each in kind.fields:
        if each.message_type is not None and not is_special(each.message_type):
            _check_size(each.message_type, (*above, kind.full_name), left)


def misfit(reader: Message, writer: Message) -> str | None:
    """Why a record of the writer's message may have other values for the reader; None where each value is the same.

    Protobuf itself reads on: a field of another type is left out, or read as another number.
    """
    return _misfit(reader.descriptor, writer.descriptor, "", set())


def is_wrapper(kind: Descriptor) -> bool:
    """Of Google's: a schema may have a message of its own by that name."""
    return kind.full_name in _WRAPPERS and [(each.name, each.number) for each in kind.fields] == [("value", 1)]


def is_timestamp(kind: Descriptor) -> bool:
    """Likewise."""
    fields = [(each.name, each.type) for each in kind.fields]
    return kind.full_name == TIMESTAMP and fields == [("seconds", _F.TYPE_INT64), ("nanos", _F.TYPE_INT32)]


def is_special(kind: Descriptor) -> bool:
    """Whether a value of it is one value of a column."""
    return is_timestamp(kind) or is_wrapper(kind)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@lru_cache(maxsize=256)
def _kind(message: Message, *, opened: bool) -> type[Value]:
    # A pool of its own: other schemas may have messages of the same names.
    pool = descriptor_pool.DescriptorPool()
    closed = _closed_enums(_kind(message, opened=False).DESCRIPTOR) if opened else frozenset()
    try:
        for each in files_of(message.files):
            _open(each.message_type, closed)
            pool.Add(each)
        kind: type[Value] = message_factory.GetMessageClass(pool.FindMessageTypeByName(message.name))
    except (TypeError, KeyError) as error:
        raise NotProtobuf(f"the schema can't be used: {error}") from error
    except RecursionError as error:
        # The library makes their classes one within the other.
        raise NotProtobuf(_TOO_DEEP) from error
    return kind


def _closed_enums(kind: Descriptor) -> frozenset[str]:
    """The full names of those that the message has, and those within it."""
    found: set[str] = set()
    seen: set[str] = set()
    left = [kind]
    while left:
        one = left.pop()
        if one.full_name in seen:
            continue
        seen.add(one.full_name)
        for each in one.fields:
            if each.message_type is not None:
                left.append(each.message_type)
            elif each.enum_type is not None and each.enum_type.is_closed:
                found.add(f".{each.enum_type.full_name}")
    return frozenset(found)


def _open(kinds: Any, closed: frozenset[str]) -> None:
    """Makes numbers of the fields of these enums."""
    for kind in kinds:
        for field in kind.field:
            if field.type_name in closed:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
                field.ClearField("type_name")
                field.ClearField("default_value")
        _open(kind.nested_type, closed)


def _paths(holder: Any, package: str, above: Path, *, counted: str) -> Iterator[tuple[str, Path]]:
    """Of the messages of a file, or of a message."""
    kinds = holder.message_type if above == () else holder.nested_type
    fields = () if above == () else holder.field
    of_groups = {each.type_name for each in fields if each.type == _F.TYPE_GROUP}
    place = 0
    for kind in kinds:
        is_group = f".{package}{kind.name}" in of_groups
        if (kind.options.map_entry and counted != "all") or (is_group and counted == "neither"):
            continue
        if not kind.options.map_entry:
            yield f"{package}{kind.name}", (*above, place)
        yield from _paths(kind, f"{package}{kind.name}.", (*above, place), counted=counted)
        place += 1


def _of_field(field: FieldDescriptor) -> str:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[each] for each in ("key", "value"))
        return f"MAP<{_of_value(key)}, {_of_value(value)}>"
    kind = _of_value(field)
    return f"ARRAY<{kind}>" if field.is_repeated else kind


def _of_value(field: FieldDescriptor) -> str:
    if field.type not in _MESSAGES:
        return COLUMNS[field.type]
    kind = field.message_type
    if is_timestamp(kind):
        return "TIMESTAMP"
    if is_wrapper(kind):
        return COLUMNS[kind.fields[0].type]
    fields = [f"{quoted(each.name)}: {_of_field(each)}" for each in kind.fields]
    if not fields:
        raise NotProtobuf(f"message {kind.full_name}, of field {field.name}, has no field")
    return f"STRUCT<{', '.join(fields)}>"


def _misfit(reader: Descriptor, writer: Descriptor, at: str, seen: set[tuple[str, str]]) -> str | None:
    pair = (reader.full_name, writer.full_name)
    if pair in seen:
        return None
    seen.add(pair)
    for field in reader.fields:
        other = writer.fields_by_number.get(field.number)
        if other is None:
            continue
        found = _misfit_of(field, other, f"{at}{field.name}", seen)
        if found is not None:
            return found
    return None


def _misfit_of(field: FieldDescriptor, other: FieldDescriptor, at: str, seen: set[tuple[str, str]]) -> str | None:
    if other.is_repeated and not field.is_repeated:
        return f"field {at} is repeated there, and one value here"
    here, there = _word(field), _word(other)
    if field.type in _MESSAGES and other.type == field.type and is_map(field) == is_map(other):
        if is_special(field.message_type) or is_special(other.message_type):
            same = field.message_type.full_name == other.message_type.full_name
            return None if same else f"field {at} is {there} there, and {here} here"
        return _misfit(field.message_type, other.message_type, f"{at}.", seen)
    if field.type == other.type and field.type not in _MESSAGES:
        return _misfit_of_enums(field, other, at)
    if other.type in _READ_AS.get(field.type, frozenset()):
        return None
    return f"field {at} is {there} there, and {here} here"


def _misfit_of_enums(field: FieldDescriptor, other: FieldDescriptor, at: str) -> str | None:
    if field.type != _F.TYPE_ENUM:
        return None
    # A number may have several names.
    here, there = _names(field), _names(other)
    for number in sorted(here.keys() & there.keys()):
        if not here[number] & there[number]:
            return f"field {at}: {number} is {min(there[number])} there, and {min(here[number])} here"
    return None


def _names(field: FieldDescriptor) -> dict[int, set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for each in field.enum_type.values:
        found[each.number].add(each.name)
    return found


_WORDS = {
    number: name.removeprefix("TYPE_").lower() for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}


def _word(field: FieldDescriptor) -> str:
    kind = _WORDS[field.type]
    if field.type in _MESSAGES:
        kind = f"{'group ' if field.type == _F.TYPE_GROUP else ''}{field.message_type.full_name}"
    return f"repeated {kind}" if field.is_repeated else kind


_NAMED = 10


def _some(names: list[str]) -> str:
    told = ", ".join(names[:_NAMED])
    return told if len(names) <= _NAMED else f"{told}, and {len(names) - _NAMED} more"
