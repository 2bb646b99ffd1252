"""What one pipeline does to one source record: decode, filter, select. Built from the manifest, run by Spark."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinkpipeline.core.schemas import Known

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
