"""What a database under load writes, and what becomes of those who read it meanwhile."""

from __future__ import annotations

import random
import signal
import threading
from contextlib import suppress
from typing import Any

import pymysql
from typing_extensions import Self

from sinkpipeline.core.cuts import CutPolicy
from support.changes.binlog import BinlogLab
from support.changes.lab import StageProcess
from support.waiting import wait_until

SMALL = CutPolicy(rows=40, bytes=1 << 20, seconds=0.2)
_UPDATE = "UPDATE orders SET note = left(concat(note, 'u'), 200) WHERE id BETWEEN %s AND %s"
INSERT = "INSERT INTO orders SELECT {first} + seq, repeat('x', {size}) FROM seq_1_to_{count}"


def insert(lab: BinlogLab, first: int, count: int, size: int = 10) -> None:
    """One transaction, whose rows are in several events where they are long."""
    lab.sql(INSERT.format(first=first, count=count, size=size))


class Load:
    """Transactions that run at once, of all sizes, with rollbacks; a server that is away is waited for."""

    def __init__(self, lab: BinlogLab, *, rows: int, seed: int = 1, pause_s: float = 0.0, base: int = 0) -> None:
        """`base`: keys are above it."""
        self._lab = lab
        self._rows = rows
        self._pause_s = pause_s
        self._base = base
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(number, random.Random(10 * seed + number)), daemon=True)
            for number in range(2)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stopping.set()
        self.join()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    @property
    def is_running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _write(self, number: int, chance: random.Random) -> None:
        written, base = 0, self._base + 10_000_000 * (number + 1)
        while written < self._rows and not self._stopping.is_set():
            with suppress(pymysql.Error, OSError), self._lab.connected(autocommit=False) as session:
                while written < self._rows and not self._stopping.is_set():
                    size = chance.choice((1, 1, 3, 20, 200, 1_500))
                    self._transaction(session, chance, base, written, size)
                    written += size
                    self._stopping.wait(self._pause_s)
            self._stopping.wait(0.05)

    @staticmethod
    def _transaction(session: Any, chance: random.Random, base: int, first: int, size: int) -> None:
        done = 0
        cursor = session.cursor()
        while done < size:
            count = min(size - done, chance.choice((1, 10, 500)))
            what, low = chance.random(), base + first + done
            if what < 0.75 or first < 100:
                cursor.execute(INSERT.format(first=low, count=count, size=60).replace("INSERT", "INSERT IGNORE"))
            elif what < 0.9:
                where = (base + max(0, first - count), base + first)
                cursor.execute(_UPDATE, where)
            elif what < 0.95:
                cursor.execute("UPDATE IGNORE orders SET id = -id WHERE id = %s", (base + chance.randrange(first),))
            else:
                cursor.execute("DELETE FROM orders WHERE id = %s", (base + chance.randrange(first),))
            if chance.random() < 0.1:
                cursor.execute("SAVEPOINT s")
                cursor.execute("INSERT INTO orders VALUES (%s, 'never')", (-low - 5_000_000_000,))
                cursor.execute("ROLLBACK TO s")
            done += count
        if chance.random() < 0.07:
            session.rollback()
        else:
            session.commit()


def claimed(lab: BinlogLab, stage: StageProcess, **how: Any) -> StageProcess:
    """A stage that holds its source, as its driver sees to it.

    One that was frozen and wakes up reads the log once more, as the same replica: the server then ends who reads it.
    """
    while not _holds(stage):
        assert stage.error["reason"] == "SourceUnreachable", stage.log
        stage = lab.start(cuts=SMALL, **how)
    return stage


def _holds(stage: StageProcess) -> bool:
    wait_until(lambda: stage.of("claimed") or stage.exit_code is not None, "the stage has claimed or ended")
    return stage.exit_code is None


def troubled(lab: BinlogLab, chance: random.Random, stage: StageProcess, rounds: int, **how: Any) -> StageProcess:
    """A stage after the other is killed, frozen or superseded, or its server is."""
    for number in range(rounds):
        stage = claimed(lab, stage, **how)
        threading.Event().wait(chance.uniform(0.05, 0.6))
        match number % 4:
            case 0 | 1:
                stage.kill()
            case 2:
                stage.signal(signal.SIGSTOP)
                frozen, stage = stage, claimed(lab, lab.start(cuts=SMALL, **how), **how)
                frozen.signal(signal.SIGCONT)
                assert frozen.wait() in (1, 4)
                continue
            case _:
                lab.server.kill()
                lab.server.start()
                stage.kill()
        stage = lab.start(cuts=SMALL, **how)
    return claimed(lab, stage, **how)
