"""A connection to PostgreSQL that waits for no answer for ever.

the server answers nobody                        it is given up after seconds, with what was asked
a commit waits for a standby that does not come  likewise; the server itself would wait for ever, and holds our locks
the server works                                 it is waited for, for minutes
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from typing_extensions import override

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.postgresql.silence import answers, watched
from sinkpipeline.postgresql.sqlstates import WAITS_FOR_STANDBY

T = TypeVar("T")

ANSWER_S = 300.0
"""How long one answer is waited for. A server that is frozen keeps its connections, as its machine answers for it."""
_ASKED_S = 5
_WAITS = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep')"
ANY_WAITS = (
    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = current_user AND datname = current_database()"
    " AND wait_event = 'SyncRep')"
)
"""Whether a session of ours waits for a standby."""


class Asking(psycopg.Connection[Any]):
    """A connection for a question. A pooler may have taken it, and have no server for it."""

    @override
    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        return super().wait(gen, interval, _ASKED_S if timeout is None else timeout)


class Session(psycopg.Connection[Any]):
    """It is closed where it gives up."""

    is_silent = False
    is_committing = False
    another: Callable[..., Asking]
    """Makes a connection by what this one was made by, but for some of it."""

    @override
    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(watched(gen, self._ask), interval, ANSWER_S if timeout is None else timeout)
        except psycopg.Error as error:
            if error.sqlstate is None and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                # Nothing that it may still say is an answer to what is asked next.
                self.pgconn.finish()
            raise

    def _ask(self) -> None:
        info = self.info
        if info.hostaddr and not answers(info.hostaddr, info.port):
            self.is_silent = True
            raise psycopg.OperationalError(f"{info.host} says nothing any more")
        if self.is_committing and self._waits_for_standby():
            self.is_silent = True
            raise psycopg.OperationalError(f"{info.host}: {WAITS_FOR_STANDBY}")

    def _waits_for_standby(self) -> bool:
        """Asks the server on a connection of its own; false where that can't be had."""
        info = self.info
        here = {"host": info.host, "hostaddr": info.hostaddr, "port": info.port, "connect_timeout": _ASKED_S}
        try:
            with contextlib.closing(self.another(**here, target_session_attrs="any")) as other:
                return other.execute(_WAITS, (info.backend_pid,)).fetchone() == (True,)
        except (psycopg.Error, SinkPipelineError):
            return False
