"""A small table that records are looked up in: `transform.lookups`."""

import enum
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.names import (
    ColumnName,
    ConfigMapKey,
    ConfigMapName,
    Delimiter,
    Expression,
    FilePath,
    InlineTable,
    TableColumn,
    TableSchema,
)
from sinkpipeline.core.manifest.problems import Fault, fault_error, refuse

MAX_LOOKUPS = 8


class ConfigMapRef(Part):
    """One key of a ConfigMap."""

    name: ConfigMapName
    """The ConfigMap, in the namespace of the SinkPipeline."""
    key: ConfigMapKey
    """The key of the ConfigMap whose value is used."""


class TableSource(Part):
    """Where the lines of a table are: exactly one of these. At most 1 MiB."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    config_map_ref: ConfigMapRef | None = None
    """A key of a ConfigMap; for a run from a file, of --config-maps-dir."""
    file: FilePath | None = None
    """A file where the driver runs: of its image, of a volume of spark.template, or of this machine."""
    inline: InlineTable | None = None
    """The lines themselves; at most 16384 bytes."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if [self.config_map_ref, self.file, self.inline].count(None) != 2:  # noqa: PLR2004 - of three
            refuse("give exactly one of configMapRef, file and inline", "does not have exactly one of them")
        return self


class TableFormat(str, enum.Enum):
    CSV = "csv"
    JSON = "json"


class TableCsv(Part):
    """How a line of a table is cut into fields."""

    delimiter: Delimiter = ","
    """What stands between two fields: one character."""
    header: bool = False
    """Whether the first line has the names of the columns; they must be those of schema, in its order."""


class Lookup(Part):
    """A small table, fixed for a driver's run, of which each row of a record finds one row or none."""

    name: ColumnName
    """The column that holds what was found, a STRUCT of the table's columns; null where nothing was."""
    key: TableColumn
    """The column of the table that is looked in: STRING, DATE or of integers, unique and never null."""
    equals: Expression
    """A Spark SQL expression of what is looked for, of the type of the key; null finds nothing. At most 16384 bytes."""
    format: TableFormat
    """What a line of the table is: csv or json."""
    schema_text: TableSchema = Field(alias="schema")
    """The table's columns, a Spark DDL schema such as `id BIGINT NOT NULL, name STRING`. At most 4096 bytes."""
    csv: TableCsv | None = None
    """For csv: how a line is cut into fields; left out, at commas, and there is no header."""
    from_: TableSource = Field(alias="from")
    """Where the table is."""

    @model_validator(mode="after")
    def _csv_fits_format(self) -> Self:
        if self.csv is not None and self.format is not TableFormat.CSV:
            refuse("remove it, or use format csv", "has no meaning for format json", ("csv",))
        return self


def distinct_lookups(lookups: tuple[Lookup, ...]) -> tuple[Lookup, ...]:
    """Names of columns are not case sensitive."""
    names: dict[str, int] = {}
    faults = [
        Fault("give each a name of its own: capitals and small letters are the same", None, (index, "name"))
        for index, each in enumerate(lookups)
        if names.setdefault(each.name.lower(), index) != index
    ]
    if faults:
        raise fault_error(faults)
    return lookups


Lookups = Annotated[tuple[Lookup, ...], Field(max_length=MAX_LOOKUPS), AfterValidator(distinct_lookups)]


def config_maps_of(lookups: Iterable[Lookup] | None) -> list[ConfigMapRef]:
    """Those that tables are in."""
    return [each.from_.config_map_ref for each in lookups or () if each.from_.config_map_ref is not None]
