"""A PostgreSQL database, as a stage reads it: looked at, held, read in order, and told how far that counts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence

from sinkpipeline.changes.ports import Ended, Event, Look, TableSnapshot
from sinkpipeline.changes.postgresql import copying, look, making
from sinkpipeline.changes.postgresql.copying import CopiedTable
from sinkpipeline.changes.postgresql.exported import Exported
from sinkpipeline.changes.postgresql.stream import Stream
from sinkpipeline.changes.postgresql.wire import Busy, SqlFault, Wire, keepalive, message, refused
from sinkpipeline.changes.settings import DatabaseSettings
from sinkpipeline.core.changes.beginning import (
    Seen,
    SlotState,
    at_risk,
    publication_missing,
    retained_bytes,
)
from sinkpipeline.core.changes.incremental import Listed
from sinkpipeline.core.changes.lag import End
from sinkpipeline.core.changes.pgoutput import (
    NotUnderstood,
    Relation,
)
from sinkpipeline.core.changes.positions import Position, lsn_text
from sinkpipeline.core.changes.suitable import Facts, Table, check_readable, check_suitable, check_tables
from sinkpipeline.core.changes.values import Writer
from sinkpipeline.core.errors import Reason, SinkPipelineError

_TOLD_EVERY_S = 5.0
_BUSY_S = 30.0
_MANY = 1_000
"""Messages, which come within milliseconds where there are so many."""


def name_of(settings: DatabaseSettings) -> str:
    """Names the database, for people."""
    return f"PostgreSQL at {settings.connection.servers}, database {settings.connection.database}"


class Reader:
    """One connection that streams, and one for questions meanwhile; of one thread.

    Raises (all methods):
        SinkPipelineError: SourceUnreachable, and what their own docstrings name.
    """

    def __init__(self, settings: DatabaseSettings) -> None:
        """Connects.

        Raises:
            SinkPipelineError: also AuthenticationFailed, SourceUnsuitable, SecretNotFound.
        """
        self.settings = settings
        connection = settings.connection
        self.where = name_of(settings)
        self.skipped = 0
        """Changes that were read again, and are in the topic."""
        self.made_publication = False
        """Whether `prepare` has created it."""
        self.heard = 0
        """The newest LSN that the server has told."""
        self._role = connection.user
        self._confirmed = 0
        self._told_at = 0.0
        self._met: tuple[str, int] | None = None
        """The server that was looked at: its system identifier and timeline."""
        self._side: Wire | None = None
        self._wire = Wire(connection, self.where, replication=True)

    def close(self) -> None:
        for wire in (self._wire, self._side):
            if wire is not None:
                wire.close()

    def facts(self) -> Facts:
        """Raises SinkPipelineError: also SourceUnsuitable."""
        with self._told():
            found = look.facts(self._wire, self.settings.publication.name)
        check_suitable(found, self.where, failover=self.settings.slot.failover)
        return found

    def seen(self) -> Seen:
        with self._told():
            found = look.seen(self._wire, self.settings.slot.name, self.settings.publication.name)
        self._met = (found.identity.system, found.identity.timeline)
        return found

    def prepare(self, found: Seen) -> Seen:
        """For a first start: the publication is there, before the slot, and each of its tables tells its rows.

        Raises:
            SinkPipelineError: also PublicationMissing, SourceUnsuitable.
        """
        publication = self.settings.publication
        if not found.identity.publication:
            if not publication.create:
                raise publication_missing(f"{self.where}: publication {publication.name}")
            with self._told():
                named = look.named(self._wire, publication.tables)
            # Before it is made: from then on the server refuses what changes a table that does not suit.
            self.check_tables(named, is_there=False)
            with self._told():
                self.made_publication = making.create_publication(self._wire, publication, self.where)
            found = self.seen()
        with self._told():
            tables = look.tables(self._wire, publication.name)
        self.check_tables(tables)
        return found

    def check_tables(self, tables: Sequence[Table], *, is_there: bool = True) -> None:
        """That the tables of the publication tell their rows; `is_there`: whether it was created already.

        Raises:
            SinkPipelineError: SourceUnsuitable.
        """
        publishing = making.publishing_generated(self.settings.publication, is_there=is_there)
        check_tables(tables, self.where, publishing, require_full=self.settings.require_full)

    def tables(self, version: int) -> list[CopiedTable]:
        """Those of the publication, for a snapshot.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        with self._told():
            found = copying.tables(self._asking(), self.settings.publication.name, version)
        check_readable({each.name: each.unreadable for each in found}, self._role, self.where)
        return found

    def published(self) -> dict[str, Listed]:
        """The tables of the publication, as `look.published` has them."""
        with self._told():
            return look.published(self._asking(), self.settings.publication.name)

    def check_copied(self, version: int, names: Collection[str]) -> None:
        """That rows of these can be read while the stream goes on.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        with self._told():
            copying.check_beside(self._asking(), self.settings.publication.name, version, names, self._role, self.where)

    def drop_slot(self, state: SlotState) -> None:
        """Drops what is left of a snapshot that was given up; whoever reads it, or makes it, is ended.

        Raises:
            SinkPipelineError: also SlotBusy.
        """
        name = self.settings.slot.name
        with self._told():
            making.free(self._asking(), name, self.where)
            copying.drop_slot(self._asking(), name, state)
            left = look.slot_state(self._asking(), name)
        if left is not None:
            raise making.busy(self._asking(), name, self.where)

    def drop_publication(self) -> None:
        """Raises SinkPipelineError: also SourceUnsuitable."""
        making.drop_publication(self._asking(), self.settings.publication.name, self.where)

    def export(self, version: int) -> Exported:
        """Makes the slot, with a snapshot of the tables.

        Raises:
            SinkPipelineError: also SourceUnsuitable, SlotBusy.
        """
        # A server has few walsenders. The stream gets a connection of its own.
        self._wire.close()
        return Exported(self.settings, self.where, version)

    def create_slot(self, version: int) -> int:
        """Where it begins.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        return making.create_slot(self._wire, self.settings.slot, version, self.where, self._role)

    def hold(self) -> None:
        """Takes the slot, and begins to stream: the other reader is ended. The Kafka id must be taken before.

        Raises:
            SinkPipelineError: also SlotBusy, SlotLost, PublicationMissing.
        """
        slot = self.settings.slot.name
        deadline = time.monotonic() + _BUSY_S
        while True:
            with self._told():
                making.free(self._asking(), slot, self.where)
            self._connect_anew()
            try:
                self._wire.stream(slot, self.settings.publication.name)
            except Busy:
                if time.monotonic() > deadline:
                    raise making.busy(self._asking(), slot, self.where) from None
            else:
                return

    def _connect_anew(self) -> None:
        """A connection that was asked anything knows catalogs as they are now, and would decode by that."""
        version = self._wire.version
        self._wire.close()
        self._wire = Wire(self.settings.connection, self.where, replication=True, version=version)
        with self._told():
            met = look.server(self._wire)
        if met != self._met:
            raise SinkPipelineError(
                Reason.SOURCE_UNREACHABLE,
                f"{self.where}: another server answers than a moment ago",
                "nothing if a standby takes over just now: the stage looks again",
            )

    def look(self, place: Position) -> Look:
        """How the server and the slot stand."""
        slot, end = self.slot(), self.end()
        told = None
        if slot is not None:
            told = {
                "serverEnd": lsn_text(end.commit),
                "lagBytes": max(0, end.commit - place.commit),
                "retainedBytes": retained_bytes(slot, end.commit),
                "safeBytes": slot.safe_bytes,
                "slot": self.settings.slot.name,
                "timeline": self._met[1] if self._met else None,
                "atRisk": at_risk(slot, end.commit, self.settings.max_retained),
            }
        # A slot can't go while it is read: then somebody else's server answers.
        return Look(end=end, told=told, state=slot)

    def slot(self) -> SlotState | None:
        """As it is now; also while it is read."""
        with self._told():
            return look.slot_state(self._asking(), self.settings.slot.name)

    def end(self) -> End:
        """The server's end, and its clock."""
        with self._told():
            return look.end(self._asking())

    def placed(self, snapshot: TableSnapshot) -> Position:
        """A standby that takes over goes on with the same LSNs."""
        return snapshot.start

    def read(self, start: Position, wait_s: float) -> Iterator[Event]:
        """What comes, for ever; changes before `start` are passed over, and counted.

        Args:
            start: of the progress.
            wait_s: how often None comes where nothing else does.

        Raises:
            SinkPipelineError: also SlotLost, PublicationMissing.
        """
        wire = self._wire
        writer = Writer(self._key_of, large_as_text=self.settings.large_integers_as_text)
        stream = Stream(writer, start, self.where)
        received = 0
        while True:
            data = wire.receive()
            if data is None:
                self._tell_now_and_then()
                yield None
                wire.wait(wait_s)
                continue
            received += 1
            if received % _MANY == 0:
                # Also while much comes, or is passed over, the server must hear from us.
                self._tell_now_and_then()
            alive = keepalive(data)
            if alive is not None:
                self.heard = max(self.heard, alive[0])
                if alive[1]:
                    self._tell()
                yield stream.heard(alive[0])
                continue
            try:
                event = stream.event(*message(data))
            except NotUnderstood as error:
                raise SinkPipelineError(
                    Reason.INTERNAL_ERROR, f"{self.where}: {error}", "report it with the version of the server"
                ) from error
            self.skipped = stream.skipped
            if isinstance(event, Ended):
                self.heard = max(self.heard, event.end)
            yield event

    def confirm(self, upto: int) -> None:
        """Tells the server that nothing before `upto` is needed again. The progress that says so counts already."""
        if upto > self._confirmed:
            self._confirmed = upto
            self._tell()

    def _tell_now_and_then(self) -> None:
        if time.monotonic() - self._told_at > _TOLD_EVERY_S:
            self._tell()

    def _tell(self) -> None:
        # Only what was confirmed, never what was received: psycopg2 tells that by itself, and loses by it.
        self._wire.tell(self._confirmed)
        self._told_at = time.monotonic()

    def _key_of(self, relation: Relation) -> tuple[str, ...]:
        with self._told():
            return look.primary_key(self._asking(), relation.oid)

    def _asking(self) -> Wire:
        if self._side is None:
            self._side = Wire(self.settings.connection, self.where)
        return self._side

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SqlFault as fault:
            raise refused(fault, self.where, self._role) from fault
