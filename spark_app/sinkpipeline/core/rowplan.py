"""What one pipeline does to one source record: decode, explode, filter, select. From the manifest, run by Spark."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

from sinkpipeline.core.schemas import Known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinkpipeline.core.manifest import Explode, Select, SinkPipeline

DecodeFormat = Literal["json", "avro", "csv", "text", "raw"]
OnNull = Literal["DeadLetter", "PassThrough"]


@dataclass(frozen=True)
class RowSelect:
    """Spark SQL expressions of `select`; what is None keeps the source record's own."""

    key: str | None = None
    value: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    partition: str | None = None


@dataclass(frozen=True)
class RowExplode:
    """`explode`: a record gives a row for each element of an array."""

    array: str
    column: str
    """Has the element."""
    position: str | None = None
    """The column that has its place in the array, from 0."""
    most_rows: int = 1_000


@dataclass(frozen=True)
class RowPlan:
    """`spec.decode` of a pipeline, the same for all of its sinks, and the transform of one of them.

    `schema` has the record's columns: for `json` and `csv` as DDL, for `avro` the reader's schema as JSON, absent for
    `text` and `raw`, and of `avro` with a registry until that was asked. ValueError otherwise.
    """

    decode_format: DecodeFormat
    schema: str | None = None
    on_null: OnNull = "DeadLetter"
    explode: RowExplode | None = None
    where: str | None = None
    select: RowSelect = field(default_factory=RowSelect)
    delimiter: str = ","
    """Between the fields of `csv`."""
    known: Known | None = None
    """The writers' schemas that are known, where values are framed; of `json` only frames are looked at."""
    where_at: str = "spec.transform"
    """In which transform of the manifest `where` stands, and in which one `select`, and `explode`."""
    select_at: str = "spec.transform"
    explode_at: str = "spec.transform"

    def __post_init__(self) -> None:
        has_schema = self.decode_format not in ("text", "raw")
        from_registry = self.decode_format == "avro" and self.known is not None
        if has_schema == (self.schema is None) and not (from_registry and self.schema is None):
            raise ValueError(
                f"decode format {self.decode_format} {'needs a' if self.schema is None else 'has no'} schema"
            )

    def expressions(self) -> Iterator[tuple[str, str]]:
        """Every expression of `where` and `select` that is set, as (path in the manifest, SQL text)."""
        if self.where is not None:
            yield f"{self.where_at}.where", self.where
        for name in (each.name for each in fields(self.select)):
            text = getattr(self.select, name)
            if text is not None:
                yield f"{self.select_at}.select.{name}", text


def row_select(select: Select | None) -> RowSelect:
    """From the manifest."""
    if select is None:
        return RowSelect()
    return RowSelect(
        key=select.key,
        value=select.value,
        headers=select.headers,
        timestamp=select.timestamp,
        partition=select.partition,
    )


def row_explode(explode: Explode | None) -> RowExplode | None:
    """Likewise."""
    if explode is None:
        return None
    return RowExplode(
        array=explode.array,
        column=explode.as_,
        position=explode.position_as,
        most_rows=explode.max_rows_per_record,
    )


def row_plan(pipeline: SinkPipeline) -> RowPlan:
    """What happens to one record, from the manifest; of a sink with a transform of its own, `rows_of` it."""
    decode, transform = pipeline.spec.decode, pipeline.spec.transform
    registry = decode.schema_registry
    return RowPlan(
        decode_format=decode.format.value,
        schema=decode.schema_text,
        on_null=decode.on_null.value,
        delimiter="," if decode.csv is None else decode.csv.delimiter,
        known=None if registry is None else Known(id_bytes=registry.id_format.size),
        explode=row_explode(transform.explode),
        where=transform.where,
        select=row_select(transform.select),
    )


def rows_of(rows: RowPlan, pipeline: SinkPipeline, sink: str) -> RowPlan:
    """The plan of one sink: what it transforms itself stands in place of what the pipeline does."""
    index, own = next((at, each.transform) for at, each in enumerate(pipeline.spec.sinks) if each.name == sink)
    if own is None:
        return rows
    place = f"spec.sinks[{index}].transform"
    if own.explode is not None:
        rows = replace(rows, explode=row_explode(own.explode), explode_at=place)
    if own.where is not None:
        rows = replace(rows, where=own.where, where_at=place)
    if own.select is not None:
        rows = replace(rows, select=row_select(own.select), select_at=place)
    return rows


def rows_of_all(rows: RowPlan, pipeline: SinkPipeline) -> list[RowPlan]:
    """The plans of all sinks, in their order."""
    return [rows_of(rows, pipeline, sink.name) for sink in pipeline.spec.sinks]
