"""What one PostgreSQL sink is told: where its server is, its table, how rows get there. Holds no secret."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from sinkpipeline.cells.settings import CellSinkSettings
from sinkpipeline.core.tls import Tls
from sinkpipeline.core.topics import TopicRequest


@dataclass(frozen=True, kw_only=True)
class Connection:
    """One database, and as whom."""

    servers: str
    """host:port, several separated by commas: the one that takes writes is used."""
    database: str
    user: str
    password_file: str | None = None
    tls: Tls | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """Of the table."""

    name: str
    type: str
    """As SQL spells it, such as numeric(10,2)."""


@dataclass(frozen=True, kw_only=True)
class Upsert:
    """A row replaces the one with its key."""

    key: tuple[str, ...]
    deletes: bool = False
    """Whether a row may say that the one with its key goes."""
    order_type: str | None = None
    """Of what orders the changes of a key, so that an older one never replaces a newer one; None: the last commit."""
    order_by: str = ""
    """What that is, on one line: numbers of another one are no older and no newer."""
    order_kind: str = ""
    """Whether it is a number or a time, whose microseconds are the numbers; empty where nobody has asked Spark."""
    keeps: bool = False
    """Whether a row may say which of its columns stay as they are in the table."""

    @property
    def order_key(self) -> str:
        """All by which numbers can be compared, on one line."""
        return f"{self.order_by} (a {self.order_kind})" if self.order_kind else self.order_by


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, and how rows get into it."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    upsert: Upsert | None = None
    """None: rows are appended."""

    @property
    def label(self) -> str:
        """For a person, and by which it is requested."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class SinkSettings(CellSinkSettings):
    """One PostgreSQL sink."""

    connection: Connection
    table: Table
    progress_schema: str = "sinkpipeline"

    @property
    def data(self) -> TopicRequest:
        """Its columns are what can differ from the manifest."""
        columns = {f"column {each.name}": each.type for each in self.table.columns}
        config = MappingProxyType(columns)
        return TopicRequest(name=self.table.label, called="table", config=config, progress_beside=True)
