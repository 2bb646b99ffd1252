"""What one pipeline does to one source record: decode, filter, select. Built from the manifest, run by Spark."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinkpipeline.core.manifest import Select, SinkPipeline

DecodeFormat = Literal["json", "raw"]
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
class RowPlan:
    """`spec.decode` of a pipeline, the same for all of its sinks, and the transform of one of them.

    `schema` is the DDL of the record's columns: present for `json`, absent for `raw`. ValueError otherwise.
    """

    decode_format: DecodeFormat
    schema: str | None = None
    on_null: OnNull = "DeadLetter"
    where: str | None = None
    select: RowSelect = field(default_factory=RowSelect)
    where_at: str = "spec.transform"
    """In which transform of the manifest `where` stands, and in which one `select`."""
    select_at: str = "spec.transform"

    def __post_init__(self) -> None:
        if (self.decode_format == "json") != (self.schema is not None):
            raise ValueError(
                f"decode format {self.decode_format} {'needs a' if self.schema is None else 'has no'} schema"
            )

    def expressions(self) -> Iterator[tuple[str, str]]:
        """Every expression that is set, as (path in the manifest, SQL text)."""
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


def rows_of(rows: RowPlan, pipeline: SinkPipeline, sink: str) -> RowPlan:
    """The plan of one sink: what it transforms itself stands in place of what the pipeline does."""
    index, own = next((at, each.transform) for at, each in enumerate(pipeline.spec.sinks) if each.name == sink)
    if own is None:
        return rows
    place = f"spec.sinks[{index}].transform"
    if own.where is not None:
        rows = replace(rows, where=own.where, where_at=place)
    if own.select is not None:
        rows = replace(rows, select=row_select(own.select), select_at=place)
    return rows


def rows_of_all(rows: RowPlan, pipeline: SinkPipeline) -> list[RowPlan]:
    """The plans of all sinks, in their order."""
    return [rows_of(rows, pipeline, sink.name) for sink in pipeline.spec.sinks]
