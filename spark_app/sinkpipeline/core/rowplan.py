"""What one pipeline does to one source record: decode, filter, select. Built from the manifest, run by Spark."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

from sinkpipeline.core.encoding import Encoding, encodings_of
from sinkpipeline.core.schemas import Known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinkpipeline.core.manifest import Select, SinkPipeline

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
class RowPlan:
    """`spec.decode` of a pipeline, the same for all of its sinks, and the transform of one of them.

    `schema` has the record's columns: for `json` and `csv` as DDL, for `avro` the reader's schema as JSON, absent for
    `text` and `raw`, and with a registry until that was asked. ValueError otherwise.
    """

    decode_format: DecodeFormat
    schema: str | None = None
    on_null: OnNull = "DeadLetter"
    where: str | None = None
    select: RowSelect = field(default_factory=RowSelect)
    delimiter: str = ","
    """Between the fields of `csv`."""
    known: Known | None = None
    """The writers' schemas that are known, where values are framed."""
    where_at: str = "spec.transform"
    """In which transform of the manifest `where` stands, and in which one `select`."""
    select_at: str = "spec.transform"
    encodings: tuple[Encoding, ...] = ()
    """Of parts of `select`, each a STRUCT there."""

    def __post_init__(self) -> None:
        has_schema = self.decode_format not in ("text", "raw")
        from_registry = self.known is not None and self.known.asked
        if has_schema == (self.schema is None) and not (from_registry and self.schema is None):
            raise ValueError(
                f"decode format {self.decode_format} {'needs a' if self.schema is None else 'has no'} schema"
            )

    def expressions(self) -> Iterator[tuple[str, str, str]]:
        """Every expression that is set, as (path in the manifest, SQL text, what it is for)."""
        if self.where is not None:
            yield f"{self.where_at}.where", self.where, "where"
        encoded = {each.part for each in self.encodings}
        for name in (each.name for each in fields(self.select)):
            text = getattr(self.select, name)
            if text is not None:
                yield f"{self.select_at}.select.{name}", text, "encoded" if name in encoded else name


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


def row_plan(pipeline: SinkPipeline) -> RowPlan:
    """What happens to one record, from the manifest; of a sink with a transform of its own, `rows_of` it."""
    decode, transform = pipeline.spec.decode, pipeline.spec.transform
    registry = decode.schema_registry
    return RowPlan(
        decode_format=decode.format.value,
        schema=decode.schema_text,
        on_null=decode.on_null.value,
        delimiter="," if decode.csv is None else decode.csv.delimiter,
        known=None if registry is None else Known(id_bytes=registry.id_format.size, asked=decode.asks_registry),
        where=transform.where,
        select=row_select(transform.select),
    )


def rows_of(rows: RowPlan, pipeline: SinkPipeline, sink: str) -> RowPlan:
    """The plan of one sink, with its encodings: what it transforms itself stands in place of what the pipeline does."""
    index, of_sink = next((at, each) for at, each in enumerate(pipeline.spec.sinks) if each.name == sink)
    own, place = of_sink.transform, f"spec.sinks[{index}]"
    rows = replace(rows, encodings=encodings_of(of_sink.kafka, place))
    if own is None:
        return rows
    if own.where is not None:
        rows = replace(rows, where=own.where, where_at=f"{place}.transform")
    if own.select is not None:
        rows = replace(rows, select=row_select(own.select), select_at=f"{place}.transform")
    return rows


def rows_of_all(rows: RowPlan, pipeline: SinkPipeline) -> list[RowPlan]:
    """The plans of all sinks, in their order."""
    return [rows_of(rows, pipeline, sink.name) for sink in pipeline.spec.sinks]
