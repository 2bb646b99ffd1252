"""Connections to the server whose changes are read, and what their errors mean: the one place for psycopg here.

A connection of the replication protocol answers SQL too, until its stream begins. But what it was asked it remembers: a
server decodes then by catalogs as they are now, where it should go by those of the time.
"""

from __future__ import annotations

import contextlib
import re
import select
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import generators, pq

from sinkpipeline.core.changes.pgoutput import NotUnderstood
from sinkpipeline.core.changes.positions import lsn_text
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.postgresql.libpq import parameters
from sinkpipeline.postgresql.session import Session
from sinkpipeline.postgresql.settings import Connection
from sinkpipeline.postgresql.silence import answers
from sinkpipeline.postgresql.sqlstates import Meaning, meaning, meaning_of_connecting, of_each_attempt

SILENCE_S = 30
_QUIET_S = 15.0
"""A server that says nothing for so long, although it was asked to, is asked on another connection."""
_OPTIONS = (
    # What a text means is not for a role's defaults to say.
    "-c datestyle=ISO,MDY -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=3 -c bytea_output=hex "
    "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 "
    # Rows that a policy would hide are no reason for a table that lacks them: it is told.
    "-c row_security=off "
    # From 18 on a stream goes over changes with a warning.
    "-c client_min_messages=warning"
)
_LATER_LIMITS = {140000: "idle_session_timeout", 170000: "transaction_timeout"}
"""Of sessions, since which version: a server refuses whom it is asked for one that it doesn't know."""
_STATUS = struct.Struct(">cQQQqB")
_KEEPALIVE = struct.Struct(">cQqB")
_HEAD = 25
"""Of what carries a message of the plugin: its kind, two LSNs and a time."""
_EPOCH_S = 946_684_800

_NO_REPLICATION = re.compile(
    r"must be (superuser or )?(a )?replication role|permission denied to start WAL sender|unsupported startup parameter"
)
_NO_SENDER = re.compile(r"max_wal_senders|standby connections exceeds")
_PASSED_OVER = ("WARNING", "55000")
"""What a server from 18 on says where the publication was missing when a change was made. The older ones end the
stream with an error."""


class Busy(Exception):
    """Somebody else reads the slot."""


class SqlFault(Exception):
    """A statement of ours was refused: its SQLSTATE tells why."""

    def __init__(self, sqlstate: str, text: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate
        self.text = text


class Wire:
    """One connection; of one thread."""

    def __init__(
        self, connection: Connection, where: str, *, replication: bool = False, version: int | None = None
    ) -> None:
        """Connects.

        Args:
            connection: to where.
            where: names the database, for people.
            replication: whether it is of the replication protocol.
            version: of the server, where nothing may be asked before the stream: by it no limit of time holds.

        Raises:
            SinkPipelineError: SourceUnreachable, AuthenticationFailed, SourceUnsuitable, SecretNotFound.
        """
        self._where = where
        self._role = connection.user
        more: dict[str, Any] = {"replication": "database"} if replication else {}
        options = " ".join([_OPTIONS, *(f"-c {name}=0" for name in _limits(version))])
        try:
            with parameters(connection, SILENCE_S, options=options, **more) as found:
                # By the simple protocol, the only one that a connection for replication understands.
                self._session = Session.connect(**found, autocommit=True, cursor_factory=psycopg.ClientCursor)
        except psycopg.Error as error:
            raise self._not_connected(error) from error
        self._session.another = _no_other
        self._passed_over: str | None = None
        """What the server has said of changes that it does not tell."""
        self.version = self._session.info.server_version
        self._poll = select.poll()
        self._poll.register(self._session.fileno(), select.POLLIN)
        self._heard_at = time.monotonic()
        if version is None:
            self._set_no_limits()

    def close(self) -> None:
        self._session.pgconn.finish()

    def _set_no_limits(self) -> None:
        try:
            with told(self._where, self._role):
                for name in _limits(self.version):
                    self.rows(f"SET {name} = 0")
        except BaseException:
            self.close()
            raise

    @property
    def cancel(self) -> Callable[[], None]:
        """Ends what the server is asked; for any thread."""
        return self._session.pgconn.get_cancel().cancel

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a statement answers.

        Raises:
            SqlFault
            SinkPipelineError: SourceUnreachable.
        """
        try:
            cursor = self._session.execute(statement.encode(), tuple(parameters) or None)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._fault(error) from error

    def command(self, text: str) -> list[list[str]]:
        """What a command of the replication protocol answers, as texts; nothing where the stream began.

        Raises:
            SqlFault
            SinkPipelineError: SourceUnreachable.
        """
        pgconn = self._session.pgconn
        try:
            pgconn.send_query(text.encode())
            [result, *_] = self._session.wait(generators.execute(pgconn))
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)
        except psycopg.Error as error:
            raise self._fault(error) from error
        return [
            [(result.get_value(row, column) or b"").decode(errors="replace") for column in range(result.nfields)]
            for row in range(result.ntuples)
        ]

    def literal(self, text: str) -> str:
        """As a statement has it."""
        return pq.Escaping(self._session.pgconn).escape_literal(text.encode()).decode()

    def copied(self, statement: str, wait_s: float) -> Iterator[bytes | None]:
        """Each line that a COPY ... TO STDOUT tells; None where nothing has come for so long.

        Raises:
            SqlFault
            SinkPipelineError: SourceUnreachable.
        """
        pgconn = self._session.pgconn
        get = pgconn.get_copy_data
        self._heard_at = time.monotonic()
        try:
            pgconn.send_query(statement.encode())
            pgconn.flush()
            # A server may look, or sort, for as long as it takes until the first line.
            while pgconn.is_busy():
                self.wait(wait_s)
                yield None
            begun = pgconn.get_result()
            if begun is not None and begun.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(begun)
            while True:
                size, data = get(1)
                if size > 0:
                    yield bytes(data)
                elif size == 0:
                    self.wait(wait_s)
                    yield None
                else:
                    break
            while (result := pgconn.get_result()) is not None:
                if result.status == pq.ExecStatus.FATAL_ERROR:
                    raise psycopg.errors.error_from_result(result)
        except psycopg.Error as error:
            raise self._fault(error) from error

    def stream(self, slot: str, publication: str) -> None:
        """Begins to read: from where the slot was confirmed. From then on only `receive` and `tell` may be used.

        Raises:
            Busy
            SinkPipelineError: SlotLost, PublicationMissing, SourceUnsuitable, SourceUnreachable.
        """
        self._session.add_notice_handler(self._hear)
        names = publication.replace('"', '""')
        literal = f'"{names}"'.replace("'", "''")
        try:
            self.command(
                f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(0)} '
                f"(proto_version '1', publication_names '{literal}')"
            )
        except SqlFault as fault:
            raise self._no_stream(fault) from fault
        self._heard_at = time.monotonic()

    def receive(self) -> memoryview | None:
        """What has come and was not received yet; None where nothing has.

        Raises:
            SinkPipelineError: SourceUnreachable, SlotLost, PublicationMissing.
        """
        try:
            size, data = self._session.pgconn.get_copy_data(1)
            if self._passed_over is not None:
                raise self._no_publication(self._passed_over)
            if size > 0:
                return data
            if size == 0:
                return None
            result = self._session.pgconn.get_result()
            if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)
        except psycopg.Error as error:
            fault = self._fault(error)
            if isinstance(fault, SqlFault) and fault.sqlstate == "42704":
                # The slot is held: it is not what does not exist.
                raise self._no_publication(fault.text) from error
            raise (self._no_stream(fault) if isinstance(fault, SqlFault) else fault) from error
        raise self._unreachable("the server ended the stream")

    def _hear(self, said: psycopg.errors.Diagnostic) -> None:
        if (said.severity_nonlocalized, said.sqlstate) == _PASSED_OVER:
            self._passed_over = " ".join((said.message_primary or "").split())

    def wait(self, seconds: float) -> None:
        """Until something comes, or for so long.

        Raises:
            SinkPipelineError: SourceUnreachable.
        """
        try:
            if self._poll.poll(seconds * 1000):
                self._session.pgconn.consume_input()
                self._heard_at = time.monotonic()
        except psycopg.Error as error:
            raise self._fault(error) from error
        if time.monotonic() - self._heard_at > _QUIET_S:
            info = self._session.info
            # One that decodes a large transaction says nothing for long, but answers others.
            if info.hostaddr and not answers(info.hostaddr, info.port):
                raise self._unreachable("the server says nothing any more")
            self._heard_at = time.monotonic()

    def tell(self, confirmed: int) -> None:
        """Tells the server that nothing below `confirmed` is needed again, and asks it for a sign; 0 tells nothing.

        Raises:
            SinkPipelineError: SourceUnreachable.
        """
        micros = int((time.time() - _EPOCH_S) * 1e6)
        pgconn = self._session.pgconn
        try:
            pgconn.put_copy_data(_STATUS.pack(b"r", confirmed, confirmed, confirmed, micros, 1))
            pgconn.flush()
        except psycopg.Error as error:
            raise self._fault(error) from error

    def _fault(self, error: psycopg.Error) -> Exception:
        sqlstate = error.sqlstate
        # A session that gave up has been closed, whatever the server would have said.
        if sqlstate is None or sqlstate[:2] in ("08", "57") or self._session.pgconn.status != pq.ConnStatus.OK:
            return self._unreachable(_one_line(error))
        return SqlFault(sqlstate, f"{_one_line(error)} (SQLSTATE {sqlstate})")

    def _no_stream(self, fault: SqlFault) -> Exception:
        match fault.sqlstate:
            case "55006":
                return Busy(fault.text)
            case "42704" | "55000":
                return SinkPipelineError(
                    Reason.SLOT_LOST,
                    f"{self._where}: {fault.text}",
                    "look at pg_replication_slots of the server; what is gone with a slot can't be read any more",
                )
            case _:
                return refused(fault, self._where, self._role)

    def _no_publication(self, text: str) -> SinkPipelineError:
        return SinkPipelineError(
            Reason.PUBLICATION_MISSING,
            f"{self._where}: {text}: it is younger than the changes that come next, or was dropped",
            "create the publication before the slot; for this one it is too late, so make the slot anew and go "
            "on under another spec.identity",
        )

    def _unreachable(self, text: str) -> SinkPipelineError:
        return SinkPipelineError(
            Reason.SOURCE_UNREACHABLE,
            f"{self._where}: {text}",
            "nothing if the server restarts, or another stage took over; else check that it runs and that servers "
            "names it as this machine reaches it",
        )

    def _not_connected(self, error: psycopg.Error) -> SinkPipelineError:
        text = of_each_attempt(str(error))
        fact = f"{self._where}: {text}"
        if _NO_REPLICATION.search(text):
            remedy = (
                f'run ALTER ROLE "{self._role}" REPLICATION (Amazon RDS: GRANT rds_replication TO "{self._role}"); and '
                "name the server itself, as a pooler has no replication protocol"
            )
            return SinkPipelineError(Reason.SOURCE_UNSUITABLE, fact, remedy)
        if _NO_SENDER.search(text):
            remedy = "raise max_wal_senders of the server, and restart it; or end one of those in pg_stat_replication"
            return SinkPipelineError(Reason.SOURCE_UNSUITABLE, fact, remedy)
        match meaning_of_connecting(text):
            case Meaning.CREDENTIALS:
                remedy = "check auth of the source, its Secrets, and the server's pg_hba.conf"
                return SinkPipelineError(Reason.AUTHENTICATION_FAILED, fact, remedy)
            case Meaning.REFUSED:
                remedy = "name a database that is there, and which the role may connect to"
                return SinkPipelineError(Reason.SOURCE_UNSUITABLE, fact, remedy)
            case _:
                return self._unreachable(text)


def _limits(version: int | None) -> list[str]:
    """Settings of a server of that version that would end a session which waits, or decodes, for long."""
    return [name for since, name in _LATER_LIMITS.items() if version is not None and version >= since]


def refused(fault: SqlFault, where: str, role: str) -> SinkPipelineError:
    """What a refusal means that is none of the slot's."""
    fact = f"{where}: {fault.text}"
    match meaning(fault.sqlstate):
        case Meaning.REFUSED if fault.sqlstate == "53400":
            remedy = "raise max_replication_slots of the server, and restart it; or drop a slot that nobody reads"
            return SinkPipelineError(Reason.SOURCE_UNSUITABLE, fact, remedy)
        case Meaning.REFUSED:
            return SinkPipelineError(Reason.SOURCE_UNSUITABLE, fact, f"grant it to role {role}, or do it yourself")
        case _:
            return SinkPipelineError(Reason.SOURCE_UNREACHABLE, fact, "look at the server's log")


@contextlib.contextmanager
def told(where: str, role: str) -> Iterator[None]:
    """What becomes of refusals, and of what can't be read."""
    try:
        yield
    except SqlFault as fault:
        raise refused(fault, where, role) from fault
    except NotUnderstood as error:
        raise SinkPipelineError(
            Reason.INTERNAL_ERROR, f"{where}: {error}", "report it with the version of the server"
        ) from error


def keepalive(data: memoryview) -> tuple[int, bool] | None:
    """Of a keepalive, up to where everything was sent, and whether an answer is wanted; None of anything else."""
    if data[0] != ord("k"):
        return None
    _, wal, _, wants = _KEEPALIVE.unpack(data)
    return wal, bool(wants)


def message(data: memoryview) -> tuple[bytes, bytes]:
    """The plugin's message in what was received, and the LSN of the record that it is of, as `lsn_bytes` has it."""
    # Bytes are cut in half the time that a view takes.
    whole = bytes(data)
    return whole[_HEAD:], whole[1:9]


def _one_line(error: psycopg.Error) -> str:
    return " ".join((error.diag.message_primary or str(error)).split())


def _no_other(**_: Any) -> Any:
    raise psycopg.OperationalError("a reader commits nothing")
