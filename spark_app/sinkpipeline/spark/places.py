"""Where values of some types are in a record's columns, nested ones too, and whether any of them passes a test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    Test = Callable[[Column], Column]
    """Of one value, which may be null."""


@dataclass(frozen=True)
class Place:
    """Where values of one type are, in what was asked of."""

    path: str
    """Such as `lines[].price`; `{}` are the values of a map, `{key}` its keys."""
    kind: DataType
    _holds: Callable[[Test, Column], Column]

    def any(self, value: Column, test: Test) -> Column:
        """BOOLEAN: whether any value here passes; `value` is of the type that was asked of."""
        return self._holds(test, value)


def places(kind: DataType, wanted: tuple[type[DataType], ...]) -> Iterator[Place]:
    """All places of the wanted types within a type."""
    for each in _places(kind, wanted):
        yield replace(each, path=each.path.removeprefix("."))


def _places(kind: DataType, wanted: tuple[type[DataType], ...]) -> Iterator[Place]:
    if isinstance(kind, wanted):
        yield Place("", kind, _itself)
        return
    match kind:
        case StructType():
            for each in kind.fields:
                yield from _within(each.dataType, wanted, f".{each.name}", partial(in_field, each.name))
        case ArrayType():
            yield from _within(kind.elementType, wanted, "[]", in_elements)
        case MapType():
            yield from _within(kind.keyType, wanted, "{key}", in_keys)
            yield from _within(kind.valueType, wanted, "{}", in_values)
        case _:
            return


def _within(
    kind: DataType, wanted: tuple[type[DataType], ...], path: str, outer: Callable[[Test, Column], Column]
) -> Iterator[Place]:
    for each in _places(kind, wanted):
        yield Place(f"{path}{each.path}", each.kind, partial(_nested, outer, each))


def _nested(outer: Callable[[Test, Column], Column], inner: Place, test: Test, value: Column) -> Column:
    return outer(lambda each: inner.any(each, test), value)


def _itself(test: Test, value: Column) -> Column:
    return test(value)


def in_field(name: str, test: Test, struct: Column) -> Column:
    return test(struct.getField(name))


def in_elements(test: Test, array: Column) -> Column:
    return F.exists(array, lambda each: test(each))  # noqa: PLW0108 - Spark counts a lambda's parameters


def in_keys(test: Test, entries: Column) -> Column:
    return in_elements(test, F.map_keys(entries))


def in_values(test: Test, entries: Column) -> Column:
    return in_elements(test, F.map_values(entries))


def let(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)` with the value computed once; Spark has no other way to name one inside an expression."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def written_type(kind: DataType, wanted: tuple[type[DataType], ...]) -> DataType | None:
    """The part of a type in which values of the wanted types are, as JSON is read to have them as they are written.

    None where there are none.
    """
    match kind:
        case DecimalType():
            # A text would have a number's digits after it was a DOUBLE.
            return VariantType() if isinstance(kind, wanted) else None
        case DateType() | TimestampType() | TimestampNTZType():
            return StringType() if isinstance(kind, wanted) else None
        case ArrayType():
            of = written_type(kind.elementType, wanted)
            return None if of is None else ArrayType(of)
        case MapType():
            of = written_type(kind.valueType, wanted)
            return None if of is None else MapType(kind.keyType, of)
        case StructType():
            fields = [(each.name, written_type(each.dataType, wanted)) for each in kind.fields]
            kept = [StructField(name, of) for name, of in fields if of is not None]
            return StructType(kept) if kept else None
        case _:
            return None


def field_name(number: int) -> str:
    """Of a field of a line, as it is read as a text."""
    return f"c{number}"
