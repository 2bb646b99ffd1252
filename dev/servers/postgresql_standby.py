"""A standby of a PostgreSQL server on this machine, for tests: a base backup of it, which replicates from then on."""

from __future__ import annotations

from typing import Final

import psycopg
from typing_extensions import override

from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql, bin_directory
from servers.waiting import wait_for

_CAUGHT_UP_S: Final = 30.0
_PROMOTION_S: Final = 60


STANDBY: Final = "standby"


def has_program(name: str) -> bool:
    """Whether PostgreSQL's programs for clients are there too, such as pg_basebackup."""
    found = bin_directory()
    return found is not None and (found / name).exists()


class LocalStandby(LocalPostgresql):
    """A standby of `primary`, which it reaches at `through`: a proxy's port, say. It may be behind (asynchronous).

    With `slots`, of PostgreSQL 17 and newer, it takes over logical slots that are made for that. The primary knows it
    by the physical slot `STANDBY`.
    """

    def __init__(self, primary: LocalPostgresql, through: int | None = None, *, slots: bool = False) -> None:
        super().__init__()
        self._primary = primary
        self._through = through or primary.port
        self._slots = slots

    @override
    def _initialize(self) -> None:
        of = f"host={HOST} port={self._through} user={SUPERUSER} application_name=standby sslmode=disable"
        how = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        if self._slots:
            # Which slots there are, it asks of a database.
            of += f" dbname={DATABASE}"
            how += ["--create-slot", f"--slot={STANDBY}"]
        self.run("pg_basebackup", "-D", str(self._data), "-d", of, *how)
        if self._slots:
            with (self._data / "postgresql.conf").open("a") as file:
                # Its own setting would wait for a standby that it does not have.
                file.write("hot_standby_feedback = on\nsync_replication_slots = on\nsynchronized_standby_slots = ''\n")

    def catch_up(self) -> None:
        """Until it has all that its primary has by now."""
        primary = psycopg.connect(host=HOST, port=self._primary.port, user=SUPERUSER, dbname=DATABASE, autocommit=True)
        with primary:
            # The end of a record: behind that of what was flushed may come the head of a page, which nobody sends yet.
            [(end,)] = primary.execute("SELECT pg_create_restore_point('now')").fetchall()
            primary.execute("SELECT pg_logical_emit_message(true, 'flushed', '')")
        with psycopg.connect(host=HOST, port=self.port, user=SUPERUSER, dbname=DATABASE, autocommit=True) as session:
            wait_for(
                lambda: session.execute("SELECT pg_last_wal_replay_lsn() >= %s", (end,)).fetchone() == (True,),
                "the standby has caught up",
                _CAUGHT_UP_S,
            )

    def promote(self) -> None:
        """It is a primary from here on."""
        with psycopg.connect(host=HOST, port=self.port, user=SUPERUSER, dbname=DATABASE, autocommit=True) as session:
            session.execute("SELECT pg_promote(true, %s)", (_PROMOTION_S,))
