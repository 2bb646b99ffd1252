"""PostgreSQL's client: the one place for it. Transactions, and what their errors mean to us.

before COMMIT was sent   the server ends what was open: it doesn't count, for certain
from then on             it counts or not, where no answer came
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt, RecordRefused
from sinkpipeline.postgresql.libpq import parameters
from sinkpipeline.postgresql.session import ANY_WAITS, Asking, Session
from sinkpipeline.postgresql.settings import Connection
from sinkpipeline.postgresql.sqlstates import (
    READ_ONLY,
    Meaning,
    full_remedy,
    lock_remedy,
    meaning,
    meaning_of_connecting,
    of_each_attempt,
    outage_remedy,
)

_LOG = logging.getLogger("sinkpipeline.postgresql")
C = TypeVar("C", bound=psycopg.Connection[Any])

SILENCE_S = 30
"""After which a connection whose other end says nothing at all is given up, on either side."""
LOCK_TIMEOUT_MS = 30_000
IDLE_TIMEOUT_MS = 60_000
"""A writer that is frozen in a transaction must let go of its cell."""

_KNOWS_LINE = frozenset({"22", "23", "P0"})
"""Classes of what is found out while a line is read, or its row is put into an index."""
_CHECK_VIOLATION = "23514"
NO_PARTITION = "no partition of table"
"""By which the verdict on a row begins that the table is not partitioned for."""
_ALREADY_THERE = frozenset({"42P06", "42P07", "23505", "42710"})
"""Of a creation; the third where two create at once."""

_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {lock}; "
    "SET LOCAL idle_in_transaction_session_timeout = {idle}; "
    # Of a machine that is gone within a COPY the server waits for rows, and by default asks after two hours.
    "SET LOCAL tcp_keepalives_idle = {silence}; SET LOCAL tcp_keepalives_interval = {silence}; "
    "SET LOCAL tcp_keepalives_count = 2; "
    # What a text means, and which rows are there, is not for a role's defaults to say.
    "SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO, MDY'; SET LOCAL intervalstyle = 'postgres'; "
    "SET LOCAL array_nulls = on; SET LOCAL xmloption = content; SET LOCAL row_security = off; "
    # An answer to a commit says that it is on the disk, whatever a role's default is. And who answers: behind a pooler,
    # or an address that moves, another server may.
    "SELECT pg_postmaster_start_time()::text, current_setting('transaction_read_only'),"
    " CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END,"
    # Servers before 17 have no such setting. It would end whatever takes long, again and again.
    " CASE WHEN current_setting('transaction_timeout', true) <> '0'"
    " THEN set_config('transaction_timeout', '0', true) END"
)
_LOG_IN = "check auth of the sink, its Secrets, and the server's pg_hba.conf"
_CERTIFICATE = "name the authority of the server's certificate: auth.tls.caSecretRef of the sink"


class AlreadyThere(Exception):
    """Somebody has created what was to be created."""


class Work:
    """What is done in one transaction."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self._cursor = cursor
        self.has_rows = False
        """Whether there are rows in it that what fails may be about."""

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a statement answers."""
        return self._cursor.execute(statement.encode(), tuple(parameters) or None).fetchall()

    def types(self, statement: str) -> list[tuple[int, int]]:
        """Of the columns that a statement answers with, the type's oid and its modifier, such as a length; -1: none."""
        result = self._cursor.execute(statement.encode()).pgresult
        return [] if result is None else [(result.ftype(at), result.fmod(at)) for at in range(result.nfields)]

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """How many rows a statement was about."""
        return self._cursor.execute(statement.encode(), tuple(parameters) or None).rowcount

    def create(self, statement: str) -> None:
        """Raises AlreadyThere."""
        try:
            self._cursor.execute(statement.encode())
        except psycopg.Error as error:
            if error.sqlstate in _ALREADY_THERE:
                raise AlreadyThere from error
            raise

    def copy(self, statement: str, lines: bytes, into: str) -> int:
        """Copies lines into a table of this name; how many rows that made.

        Raises:
            RecordRefused: `index` is that of the line.
        """
        self.has_rows = True
        try:
            with self._cursor.copy(statement.encode()) as copy:
                copy.write(lines)
        except psycopg.Error as error:
            if error.sqlstate is None or meaning(error.sqlstate) is not Meaning.RECORD:
                raise
            raise RecordRefused(_verdict(error), index=_index(error, into)) from error
        return self._cursor.rowcount


class Client:
    """One connection, made when it is needed and again after it broke; of one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: Session | None = None
        self.server = ""
        """Which one has answered last: since when it runs."""
        self.met = 0
        """How often a server was met: by a new session, or as another one answers on it, or the same one anew."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Work]:
        """All of what is done in it counts once it is left, or nothing.

        Raises:
            InDoubt: it may count or not; `aborted` where it does not.
            RecordRefused: a row is refused for what it is; `index` counts the rows of the COPY that said so.
            SinkPipelineError: SinkRefused, AuthenticationFailed.
        """
        committing, work = False, None
        try:
            with self._begun() as cursor:
                work = Work(cursor)
                yield work
                committing = True
                self._commit(cursor)
        except psycopg.Error as error:
            of_rows = work is not None and work.has_rows
            raise self._told(error, committing=committing, of_rows=of_rows) from error
        except BaseException:
            self._roll_back()
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[Work]:
        """Likewise, of what reads, or can be done again: nothing is in doubt.

        Raises:
            SinkPipelineError: SinkUnreachable, ...
        """
        try:
            with self.transaction() as work:
                yield work
        except InDoubt as doubt:
            raise doubt.told or SinkPipelineError(
                Reason.TRANSACTION_FAILED, f"{self._where}: {doubt}", "look at the server's log"
            ) from doubt

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(psycopg.Error):
                session.close()

    @property
    def _where(self) -> str:
        return f"PostgreSQL at {self._connection.servers}, database {self._connection.database}"

    def _begun(self) -> psycopg.Cursor[Any]:
        """In a transaction. What was kept may have ended meanwhile, and nothing was asked of it yet."""
        begin = _BEGIN.format(lock=LOCK_TIMEOUT_MS, idle=IDLE_TIMEOUT_MS, silence=SILENCE_S // 3).encode()
        is_new = self._session is None
        try:
            return self._begin(begin)
        except psycopg.OperationalError:
            if is_new or self._session is None or not self._session.closed or self._session.is_silent:
                raise
            return self._begin(begin)

    def _commit(self, cursor: psycopg.Cursor[Any]) -> None:
        if self._session is not None:
            self._session.is_committing = True
        cursor.execute(b"COMMIT")
        # Of what has failed before the server says ROLLBACK, and that is no error.
        if cursor.statusmessage != "COMMIT":
            raise InDoubt(f"the server says {cursor.statusmessage} to COMMIT", aborted=True)

    def _begin(self, statements: bytes) -> psycopg.Cursor[Any]:
        session = self._connected()
        session.is_committing = False
        cursor = session.execute(statements)
        while cursor.nextset():
            pass
        [(server, read_only, *_)] = cursor.fetchall()
        if read_only == "on":
            # A standby that may be behind: nothing that it has not yet is lost.
            self.close()
            raise psycopg.OperationalError(READ_ONLY)
        if server != self.server:
            self.server, self.met = server, self.met + 1
        return cursor

    def _connected(self) -> Session:
        if self._session is None or self._session.closed:
            # One that can't be made leaves none.
            self._session = None
            self._session = self._made(Session)
            self._session.another = lambda **here: self._made(Asking, **here)
            self.met += 1
        return self._session

    def _made(self, kind: type[C], **changes: Any) -> C:
        with parameters(self._connection, SILENCE_S, **changes) as found:
            return kind.connect(**found, autocommit=True, prepare_threshold=None)

    def _told(self, error: psycopg.Error, *, committing: bool, of_rows: bool) -> Exception:
        session = self._session
        lost = session is None or session.broken or session.closed
        if lost:
            self.close()
        else:
            self._roll_back()
        what = meaning_of_connecting(str(error)) if session is None else meaning(error.sqlstate, of_rows=of_rows)
        fact = f"{self._where}: {_summary(error, of_rows=of_rows)}"
        told = self._as_error(error, what, fact)
        silent = isinstance(error, errors.ConnectionTimeout) or (session is not None and session.is_silent)
        # A pooler answers too, where it has lost the server: only what a server says of its own work ends a doubt.
        unknown = committing and (lost or what in (Meaning.OUTAGE, Meaning.UNKNOWN))
        doubt = InDoubt(fact, aborted=not unknown, told=told, silent=silent)
        if lost and what not in (Meaning.CREDENTIALS, Meaning.REFUSED):
            doubt.told = told or _unreachable(error, fact)
            return doubt
        match what:
            case Meaning.RECORD:
                return RecordRefused(_verdict(error))
            case Meaning.CREDENTIALS | Meaning.REFUSED if told is not None and doubt.aborted:
                return told
            case _:
                return doubt

    def _as_error(self, error: psycopg.Error, what: Meaning, fact: str) -> SinkPipelineError | None:
        """Of what passes soon there is nothing to tell."""
        match what:
            case Meaning.OUTAGE:
                return _unreachable(error, fact)
            case Meaning.LOCKED:
                return SinkPipelineError(Reason.SINK_UNREACHABLE, fact, lock_remedy(of_standby=self._any_waits()))
            case Meaning.FULL:
                return SinkPipelineError(Reason.SINK_FULL, fact, full_remedy(error.sqlstate))
            case Meaning.CREDENTIALS:
                return SinkPipelineError(
                    Reason.AUTHENTICATION_FAILED,
                    fact,
                    _CERTIFICATE if "certificate verify failed" in fact else _LOG_IN,
                )
            case Meaning.REFUSED:
                return SinkPipelineError(
                    Reason.SINK_REFUSED,
                    fact,
                    f"correct the table or the manifest, or grant it to {self._connection.user}",
                )
            case _:
                return None

    def _any_waits(self) -> bool:
        """Whether a commit of ours waits for a standby, and holds what we wait for. Nothing is open."""
        if self._session is None:
            return False
        try:
            return self._session.execute(ANY_WAITS.encode()).fetchone() == (True,)
        except psycopg.Error:
            return False

    def _roll_back(self) -> None:
        """What can't be rolled back is closed: the server ends it then."""
        if self._session is None:
            return
        try:
            self._session.execute(b"ROLLBACK")
        except psycopg.Error as error:
            _LOG.debug("the connection is closed, as it can't be rolled back: %s", error)
            self.close()


def _condition(sqlstate: str) -> str:
    """Its name in PostgreSQL's table, such as not_null_violation."""
    try:
        return re.sub(r"(?<!^)(?=[A-Z])", "_", errors.lookup(sqlstate).__name__).lower()
    except KeyError:
        return sqlstate


def _unreachable(error: psycopg.Error, fact: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.SINK_UNREACHABLE, fact, outage_remedy(error.sqlstate, str(error)))


def _summary(error: psycopg.Error, *, of_rows: bool) -> str:
    """For a person, on one line. What the server says of a row may hold contents of it, and is not told."""
    if error.sqlstate is None:
        return of_each_attempt(str(error))
    if meaning(error.sqlstate, of_rows=of_rows) is Meaning.RECORD:
        return _verdict(error).text
    return f"{' '.join((error.diag.message_primary or '').split())} ({_condition(error.sqlstate)})"


def _verdict(error: psycopg.Error) -> Verdict:
    sqlstate, diagnosis = error.sqlstate or "", error.diag
    if sqlstate == _CHECK_VIOLATION and diagnosis.table_name and not diagnosis.constraint_name:
        # What no partition takes violates no constraint that has a name.
        text = f"{_condition(sqlstate)}: {NO_PARTITION} {diagnosis.schema_name}.{diagnosis.table_name} takes it"
        return Verdict(ErrorClass.RECORD_REFUSED, text, sqlstate)
    places = {"column": diagnosis.column_name, "constraint": diagnosis.constraint_name, "type": diagnosis.datatype_name}
    of = ", ".join(f"{what} {name}" for what, name in places.items() if name)
    return Verdict(ErrorClass.RECORD_REFUSED, _condition(sqlstate) + (f" of {of}" if of else ""), sqlstate)


def _index(error: psycopg.Error, into: str) -> int | None:
    """The row of the COPY, by `COPY table, line 3, column x: ...`, whose words are those of the server's language.

    None where it is not certain: the context quotes what a row holds, and a row that is too large for its page is
    found only when others were read behind it.
    """
    if (error.sqlstate or "")[:2] not in _KNOWS_LINE:
        return None
    line = rf"^COPY {re.escape(into)}, \S+ (\d+)(?:[,:] .*)?$"
    lines = re.findall(line, error.diag.context or "", re.MULTILINE)
    return int(lines[0]) - 1 if len(lines) == 1 else None
