"""The frame that names a record's schema: stripped by Spark's own expressions, see `core.schemas`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from sinkpipeline.core.deadletter import ErrorClass, reason_of
from sinkpipeline.core.schemas import GUID_FRAME, HEADER, PENDING, Known, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

_REST = 2**31 - 1


def frame(value: Column, headers: Column, id_bytes: int, *, paths: bool) -> Column:
    """BINARY: the frame, or what stands in its place; null for a null value.

    With Protobuf the path of a message (`paths`) follows a frame, in the header too.
    """
    given = _given(headers)
    if paths:
        given = _cut(given, id_bytes)
    return F.when(value.isNotNull(), F.coalesce(given, _cut(value, id_bytes)))


def body(value: Column, headers: Column, framed: Column, *, paths: bool) -> Column:
    """BINARY: what follows the frame, a path too; `framed` is the column that holds what `frame` gave."""
    given, behind = _given(headers), F.octet_length(framed) + 1
    whole = F.concat(given.substr(behind, F.lit(_REST)), value) if paths else value
    return F.when(given.isNotNull(), whole).otherwise(value.substr(behind, F.lit(_REST)))


def frame_error(framed: Column, id_bytes: int) -> Column:
    """STRING: why a frame, which is not null, is none; else null."""
    size = F.octet_length(framed)
    wrong = (size > 0) & ~_begins(framed, 0) & ~_begins(framed, 1)
    right = F.when(_begins(framed, 1), GUID_FRAME).otherwise(1 + id_bytes)
    return F.when(
        wrong, _error(ErrorClass.WRONG_MAGIC_BYTE, "the value does not begin with the magic byte 0 or 1")
    ).when(size != right, _error(ErrorClass.SHORT_FRAME, "the value ends within the id of its schema"))


def undecodable(error: Column, framed: Column, known: Known) -> Column:
    """`error`, and why values whose frame is one cannot be decoded: there is no schema, or none of use."""
    if known.unusable:
        # One look for all, so that they cost a good row next to nothing.
        why = F.lit(None).cast("string")
        for each in known.unusable:
            why = F.when(framed == literal(each.frame), incompatible(each.frame, each.misfit or "")).otherwise(why)
        error = error.when(framed.isin(*(literal(each.frame) for each in known.unusable)), why)
    if known.missing:
        unknown = ErrorClass.UNKNOWN_SCHEMA.error("the registry has no schema with the id in the value")
        error = error.when(framed.isin(*(literal(each) for each in sorted(known.missing))), F.lit(unknown))
    return error


def incompatible(frame: bytes, why: str) -> Column:
    return F.lit(ErrorClass.INCOMPATIBLE_SCHEMA.error(reason_of(f"the writer's schema, {name_of(frame)}: {why}")))


def pending_error(framed: Column) -> Column:
    """STRING: that the value is not decoded yet, and what its frame is."""
    return F.concat(F.lit(PENDING), F.hex(framed))


def known_error(framed: Column, known: Known) -> Column:
    """STRING: why a value, which is not null, is refused for its frame, or isn't decoded yet; null if that is known."""
    error = undecodable(frame_error(framed, known.id_bytes), framed, known)
    writers = framed.isin(*(literal(each.frame) for each in known.writers)) if known.writers else F.lit(False)
    return error.when(~writers, pending_error(framed))


def literal(content: bytes) -> Column:
    return F.expr(_text(content))


def _text(content: bytes) -> str:
    return f"X'{content.hex()}'"


def among(framed: Column, frames: Iterable[bytes]) -> Column:
    """BOOLEAN: whether it is one of these; for what is rarely asked, and made by one call however many they are."""
    return F.array_contains(F.expr(f"array({', '.join(map(_text, frames))})"), framed)


def _given(headers: Column) -> Column:
    """The frame in a header; the last one counts, as for Kafka's own clients."""
    return F.try_element_at(F.filter(headers, lambda each: each.getField("key") == HEADER), F.lit(-1)).getField("value")


def _cut(content: Column, id_bytes: int) -> Column:
    """As much of the beginning as a frame has."""
    whole = F.substring(content, 1, GUID_FRAME)
    return F.when(_begins(content, 1), whole).otherwise(F.substring(content, 1, 1 + id_bytes))


def _begins(content: Column, byte: int) -> Column:
    return F.substring(content, 1, 1) == literal(bytes([byte]))


def _error(kind: ErrorClass, detail: str) -> Column:
    return F.lit(kind.error(detail))
