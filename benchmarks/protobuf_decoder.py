"""Framed Protobuf to columns, in Python: what a stage before the expressions would do. See `protobuf_stage`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

FRAME = b"\0\0\0\0\7"
MORE = 128
"""The bit of a byte of a varint that says that another one follows."""
PATH = b"\2\2"
"""Of the second message in the file: how many steps, and which; each a zigzag varint."""
ARROW = pa.schema(
    [
        *(("id", pa.int64()), ("customer", pa.string()), ("country", pa.string()), ("amount", pa.float64())),
        *(("at", pa.int64()), ("note", pa.string())),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int32())]))),
        *(("error", pa.string()), ("offset", pa.int64())),
    ]
)

_Field = descriptor_pb2.FieldDescriptorProto
_PLAIN = {
    "id": _Field.TYPE_INT64,
    "customer": _Field.TYPE_STRING,
    "country": _Field.TYPE_STRING,
    "amount": _Field.TYPE_DOUBLE,
    "at": _Field.TYPE_INT64,
    "note": _Field.TYPE_STRING,
}


def descriptor() -> bytes:
    """What a compiler makes of a file with the messages Other, and Order with its Line."""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(_PLAIN.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    # As `optional string note`: whether it is there is told.
    order.oneof_decl.add(name="_note")
    order.field[-1].oneof_index, order.field[-1].proto3_optional = 0, True
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    line.field.add(name="n", number=2, type=_Field.TYPE_INT32, label=_Field.LABEL_OPTIONAL)
    repeated = order.field.add(name="lines", number=7, type=_Field.TYPE_MESSAGE, label=_Field.LABEL_REPEATED)
    repeated.type_name = ".shop.Order.Line"
    return bytes(file.SerializeToString())


@lru_cache(maxsize=256)
def message_of(frame: bytes, path: tuple[int, ...]) -> Any:
    """The class of a message, once in a worker; each frame would have a descriptor of its own."""
    if frame != FRAME:
        raise ValueError("a schema that is not known")
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto.FromString(descriptor())
    pool.Add(file)
    kind = file.message_type[path[0]]
    names = [file.package, kind.name]
    for each in path[1:]:
        kind = kind.nested_type[each]
        names.append(kind.name)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(".".join(names)))


def zigzag(value: bytes, at: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & (MORE - 1)) << shift
        if byte < MORE:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def decoded(value: bytes) -> Any:
    steps, at = zigzag(value, len(FRAME))
    path = []
    for _ in range(steps):
        step, at = zigzag(value, at)
        path.append(step)
    return message_of(value[: len(FRAME)], tuple(path) or (0,)).FromString(value[at:])


def stage(batches: Iterable[Any]) -> Iterator[Any]:
    """Values to columns, as `DataFrame.mapInArrow` has it."""
    for batch in batches:
        rows: list[tuple[Any, ...]] = []
        for value in batch["value"].to_pylist():
            try:
                order = decoded(value)
            except (DecodeError, IndexError, ValueError):
                rows.append(
                    (None, None, None, None, None, None, None, "MalformedProtobuf: the value is not of its schema")
                )
                continue
            note = order.note if order.HasField("note") else None
            lines = [{"sku": each.sku, "n": each.n} for each in order.lines]
            rows.append((order.id, order.customer, order.country, order.amount, order.at, note, lines, None))
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), ARROW.types, strict=False)]
        yield pa.RecordBatch.from_arrays([*columns, batch["offset"]], schema=ARROW)
