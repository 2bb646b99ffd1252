"""JSON Schema of what Spark's `to_json` writes."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

DRAFT = "http://json-schema.org/draft-07/schema#"

_PLAIN: dict[type[DataType], dict[str, Any]] = {
    BooleanType: {"type": "boolean"},
    ByteType: {"type": "integer"},
    ShortType: {"type": "integer"},
    IntegerType: {"type": "integer"},
    LongType: {"type": "integer"},
    FloatType: {"type": "number"},
    DoubleType: {"type": "number"},
    DecimalType: {"type": "number"},
    StringType: {"type": "string"},
    BinaryType: {"type": "string", "contentEncoding": "base64"},
    DateType: {"type": "string", "format": "date"},
    TimestampType: {"type": "string", "format": "date-time"},
    TimestampNTZType: {"type": "string"},
}


class NoJsonSchema(ValueError):
    """A type that JSON Schema has nothing for; its text says which."""


def json_schema(struct: StructType, title: str) -> dict[str, Any]:
    """The schema of a struct.

    No object has other properties than these: so a registry takes one more for compatible. Fields that are null are not
    written, and need not be there.

    Raises:
        NoJsonSchema: of a type of it.
    """
    return {"$schema": DRAFT, "title": title, **_object(struct)}


def _object(struct: StructType) -> dict[str, Any]:
    required = [each.name for each in struct.fields if not each.nullable]
    return {
        "type": "object",
        "properties": {each.name: _property(each) for each in struct.fields},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _property(field: StructField) -> dict[str, Any]:
    try:
        return _of(field.dataType)
    except NoJsonSchema as error:
        raise NoJsonSchema(f"field {field.name}: {error}") from error


def _of(kind: DataType) -> dict[str, Any]:
    match kind:
        case StructType():
            return _object(kind)
        case ArrayType():
            return {"type": "array", "items": _element(kind.elementType, nullable=kind.containsNull)}
        case MapType(keyType=StringType()):
            return {"type": "object", "additionalProperties": _element(kind.valueType, nullable=kind.valueContainsNull)}
        case _:
            found = _PLAIN.get(type(kind))
            if found is None:
                raise NoJsonSchema(f"JSON Schema has nothing for {kind.simpleString()}")
            return found


def _element(kind: DataType, *, nullable: bool) -> dict[str, Any]:
    """Where null is written as null."""
    return {"oneOf": [{"type": "null"}, _of(kind)]} if nullable else _of(kind)
