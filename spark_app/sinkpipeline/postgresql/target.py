"""The table of rows, and the table of cells, as a start finds or makes them.

An id is made of the server's, the database's and the table's own: a table of the same name, or the same table in a
copy of the database, is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sinkpipeline.cells.kind import LetteredTarget
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.lost_topics import data_topic_lost
from sinkpipeline.core.ports import Creation, InDoubt, Letters, LetterTarget
from sinkpipeline.core.topics import Topic
from sinkpipeline.postgresql.client import AlreadyThere, Client, Work
from sinkpipeline.postgresql.order import take_order
from sinkpipeline.postgresql.settings import SinkSettings
from sinkpipeline.postgresql.soundness import check_kept, check_table
from sinkpipeline.postgresql.statements import CellStatements, TableStatements

_ID = (
    "SELECT s.system_identifier || '/' || d.oid || '/' || to_regclass(%s)::oid"
    " FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database()"
)
_KNOWN = "SELECT t FROM unnest(%s::text[]) AS t WHERE to_regtype(t) IS NOT NULL"
_COLUMNS = (
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid::bigint, a.atttypmod FROM pg_attribute AS a"
    " WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY(%s::text[])"
)
# Who may only insert may not look at a row: then a table that takes up room is one that holds data.
_MAY_SELECT = "SELECT has_table_privilege(%s::oid, 'SELECT')"
_TAKES_ROOM = (
    "SELECT sum(pg_relation_size(oid)) > 0 FROM (SELECT %s::oid::regclass AS oid"
    # Nothing, of a table that is not partitioned.
    " UNION SELECT relid FROM pg_partition_tree(%s::oid::regclass)) AS parts"
)
# That a commit waits for the disk, each transaction asks for itself.
_UNSAFE = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name"
_ROW_BYTES = 1_000_000_000
"""Of one value."""
TABLE_LIMITS = TopicLimits(partitions=1, message_bytes=_ROW_BYTES)


def _id(work: Work, name: str) -> str | None:
    [(found,)] = work.rows(_ID, (name,))
    return None if found is None else str(found)


def _kept_id(client: Client, name: str, label: str) -> str | None:
    with client.reading() as work:
        found = _id(work, name)
        if found is not None:
            check_kept(work, label, oid_of(found))
        return found


def oid_of(topic_id: str) -> str:
    return topic_id.rpartition("/")[2]


@dataclass(frozen=True)
class PostgresqlTarget(LetteredTarget):
    """The table of one sink."""

    settings: SinkSettings
    client: Client
    letters: LetterTarget | None = None

    @property
    def _statements(self) -> TableStatements:
        return TableStatements(self.settings.table, self.settings.progress_schema)

    def check_names(self) -> None:
        table, schema = self.settings.table, self.settings.progress_schema
        if table.schema == schema:
            raise SinkPipelineError(
                Reason.MANIFEST_INVALID,
                f"table {table.label} is in the schema of the progress",
                "name another schema for the table, or another progressSchema",
            )
        if self.letters is not None:
            self.letters.check_names()

    def describe(self, source: Mapping[str, str]) -> Topic | None:  # noqa: ARG002 - a table is not what is read
        table = self.settings.table
        with self.client.reading() as work:
            found = _id(work, self._statements.name)
            if found is None:
                return None
            asked = {each.name: each.type for each in table.columns}
            known = [each for (each,) in work.rows(_KNOWN, (list(asked.values()),))]
            # Only the server knows what a text such as timestamp(3) is, and to_regtype keeps no modifier.
            types = dict(zip(known, work.types("SELECT " + ", ".join(f"NULL::{each}" for each in known)), strict=True))
            config = {
                f"column {name}": asked[name] if types.get(asked[name]) == (oid, modifier) else is_there
                for name, is_there, oid, modifier in work.rows(_COLUMNS, (oid_of(found), list(asked)))
            }
            [(readable,)] = work.rows(_MAY_SELECT, (oid_of(found),))
            if readable:
                [(holds_data,)] = work.rows(self._statements.any_row)
            else:
                [(holds_data,)] = work.rows(_TAKES_ROOM, (oid_of(found), oid_of(found)))
        return Topic(
            name=table.label,
            id=found,
            partitions=1,
            replication_factor=1,
            config=MappingProxyType(config),
            holds_data=holds_data,
        )

    def id(self) -> str | None:
        with self.client.reading() as work:
            return _id(work, self._statements.name)

    def kept_id(self) -> str | None:
        """Likewise; of a table that keeps what it takes. A partition that does not may be attached at any time.

        Raises:
            SinkPipelineError: SinkRefused, SinkUnreachable.
        """
        return _kept_id(self.client, self._statements.name, self.settings.table.label)

    def create(self, there: Topic | None = None) -> Creation:  # noqa: ARG002 - it is one table
        return _created(self.client, (self._statements.create,), lambda: self.describe({}))

    def take(self, target: Topic, place: Topic, letters: Letters) -> None:
        """Every statement of a commit is tried on no row: what is missing is told at the start."""
        if self.letters is not None:
            self.letters.take(letters)
        statements = TableStatements(self.settings.table, self.settings.progress_schema, oid_of(target.id))
        with self.client.reading() as work:
            check_kept(work, place.name, oid_of(place.id))
            check_table(work, self.settings, statements.oid)
        take_order(self.client, self.settings, statements, target.id)
        with self.client.reading() as work:
            for statement in statements.checks:
                work.rows(statement)

    def limits_of(self, target: Topic) -> TopicLimits:  # noqa: ARG002 - as any table
        return TABLE_LIMITS

    def limits(self) -> TopicLimits | None:
        return None if self.id() is None else TABLE_LIMITS

    def durability(self) -> Durability | None:
        with self.client.reading() as work:
            return Durability.AT_RISK if unsafe_settings(work) else Durability.COMMITTED

    def lost(self, what: str) -> SinkPipelineError:
        return data_topic_lost(self.settings.table.label, what, self.settings.data.called)

    def delete(self, target: str) -> None:
        """With what orders its changes."""
        statements = TableStatements(self.settings.table, self.settings.progress_schema, oid_of(target))
        with self.client.reading() as work:
            if _id(work, statements.name) is None:
                return
            # Nobody makes it another one between the look and the end of it.
            work.run(f"LOCK TABLE {statements.name} IN ACCESS EXCLUSIVE MODE")
            if _id(work, statements.name) != target:
                raise SinkPipelineError(
                    Reason.TOPICS_CHANGED,
                    f"table {self.settings.table.label} was dropped or re-created",
                    "nothing; it is tried again",
                )
            work.run(f"DROP TABLE {statements.name}")
            if statements.is_ordered:
                work.run(f"DROP TABLE IF EXISTS {statements.order_table}")


def unsafe_settings(work: Work) -> list[str]:
    """The server's settings by which a crash of its machine takes what it has acknowledged, or damages it."""
    return [name for (name,) in work.rows(_UNSAFE)]


@dataclass(frozen=True)
class PostgresqlPlace:
    """The table of cells, which all sinks of a database may share."""

    schema: str
    client: Client

    @property
    def _statements(self) -> CellStatements:
        return CellStatements(self.schema)

    def describe(self, source: Mapping[str, str]) -> Topic | None:  # noqa: ARG002 - a table is not what is read
        found = self.id()
        return None if found is None else self._topic(found)

    def id(self) -> str | None:
        with self.client.reading() as work:
            return _id(work, self._statements.name)

    def kept_id(self) -> str | None:
        """As of a target."""
        return _kept_id(self.client, self._statements.name, f"{self.schema}.progress")

    def create(self) -> Creation:
        with self.client.reading() as work:
            [(has_schema,)] = work.rows("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", (self.schema,))
        # To make one where there is one takes the right to make any.
        statements = self._statements.create[1:] if has_schema else self._statements.create
        return _created(self.client, statements, lambda: self.describe({}))

    def _topic(self, found: str) -> Topic:
        return Topic(name=f"{self.schema}.progress", id=found, partitions=1, replication_factor=1)


def _created(client: Client, statements: tuple[str, ...], look: Callable[[], Topic | None]) -> Creation:
    """Whoever is asked twice, and answers once, may have made it for somebody else."""
    trouble: InDoubt | None = None
    is_ours = True
    try:
        with client.transaction() as work:
            for statement in statements:
                work.create(statement)
    except AlreadyThere:
        is_ours = False
    except InDoubt as doubt:
        trouble, is_ours = doubt, False
    there = look()
    if there is None:
        fact = "it is gone again" if trouble is None else str(trouble)
        raise (None if trouble is None else trouble.told) or _not_created(fact) from trouble
    return Creation(topic=there, is_ours=is_ours)


def _not_created(fact: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.TOPICS_CHANGED, f"a table was not created: {fact}", "nothing; it is tried again")
