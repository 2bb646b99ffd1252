"""What one pipeline does to one source record: decode, filter, select. Built from the manifest, run by Spark."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal

from sinkpipeline.core.schemas import Known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinkpipeline.core.manifest import SinkPipeline

DecodeFormat = Literal["json", "avro", "csv", "text", "raw"]
OnNull = Literal["DeadLetter", "PassThrough"]


@dataclass(frozen=True)
class RowSelect:
    """Spark SQL expressions of `spec.transform.select`; what is None keeps the source record's own."""

    key: str | None = None
    value: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    partition: str | None = None


@dataclass(frozen=True)
class RowPlan:
    """`spec.decode` and `spec.transform` of a pipeline, the same for all of its sinks.

    `schema` has the record's columns: for `json` and `csv` as DDL, for `avro` the reader's schema as JSON, absent for
    `text` and `raw`, and of `avro` with a registry until that was asked. ValueError otherwise.
    """

    decode_format: DecodeFormat
    schema: str | None = None
    on_null: OnNull = "DeadLetter"
    where: str | None = None
    select: RowSelect = field(default_factory=RowSelect)
    delimiter: str = ","
    """Between the fields of `csv`."""
    known: Known | None = None
    """The writers' schemas that are known, where values are framed; of `json` only frames are looked at."""

    def __post_init__(self) -> None:
        has_schema = self.decode_format not in ("text", "raw")
        from_registry = self.decode_format == "avro" and self.known is not None
        if has_schema == (self.schema is None) and not (from_registry and self.schema is None):
            raise ValueError(
                f"decode format {self.decode_format} {'needs a' if self.schema is None else 'has no'} schema"
            )

    def expressions(self) -> Iterator[tuple[str, str]]:
        """Every expression that is set, as (path in the manifest, SQL text)."""
        if self.where is not None:
            yield "spec.transform.where", self.where
        for name in (each.name for each in fields(self.select)):
            text = getattr(self.select, name)
            if text is not None:
                yield f"spec.transform.select.{name}", text


def row_plan(pipeline: SinkPipeline) -> RowPlan:
    """What happens to one record, from the manifest."""
    decode, transform = pipeline.spec.decode, pipeline.spec.transform
    select, registry = transform.select, decode.schema_registry
    return RowPlan(
        decode_format=decode.format.value,
        schema=decode.schema_text,
        on_null=decode.on_null.value,
        delimiter="," if decode.csv is None else decode.csv.delimiter,
        known=None if registry is None else Known(id_bytes=registry.id_format.size),
        where=transform.where,
        select=RowSelect()
        if select is None
        else RowSelect(
            key=select.key,
            value=select.value,
            headers=select.headers,
            timestamp=select.timestamp,
            partition=select.partition,
        ),
    )
