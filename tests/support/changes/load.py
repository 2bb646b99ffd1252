"""Transactions that run at once, of all sizes, with rollbacks: what a database under load writes."""

from __future__ import annotations

import random
import threading
from contextlib import suppress

import psycopg
from typing_extensions import Self

from support.changes.lab import Lab

_SIZES = (1, 1, 3, 20, 200, 1_500)
_AT_ONCE = (1, 10, 500)


class Load:
    """Two writers, until `close`, or until each has written so many rows. A server that is away is waited for."""

    def __init__(self, lab: Lab, *, rows: int, seed: int = 1, pause_s: float = 0.0) -> None:
        """`pause_s`: between the transactions of a writer."""
        self._lab = lab
        self._rows = rows
        self._pause_s = pause_s
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
        written, base = 0, 10_000_000 * (number + 1)
        while written < self._rows and not self._stopping.is_set():
            with suppress(psycopg.OperationalError), self._lab.connected(autocommit=False) as session:
                while written < self._rows and not self._stopping.is_set():
                    size = chance.choice(_SIZES)
                    self._transaction(session, chance, base, written, size)
                    written += size
                    self._stopping.wait(self._pause_s)
            self._stopping.wait(0.05)

    @staticmethod
    def _transaction(
        session: psycopg.Connection[object], chance: random.Random, base: int, first: int, size: int
    ) -> None:
        done = 0
        while done < size:
            count = min(size - done, chance.choice(_AT_ONCE))
            what = chance.random()
            low = base + first + done
            if what < 0.75 or first < 100:
                session.execute(
                    "INSERT INTO orders SELECT g, lpad(g::text, 60, 'x') FROM generate_series(%s::bigint, %s::bigint)"
                    " AS g ON CONFLICT DO NOTHING",
                    (low, low + count - 1),
                )
            elif what < 0.9:
                where = (base + max(0, first - count), base + first)
                session.execute("UPDATE orders SET note = note || 'u' WHERE id BETWEEN %s AND %s", where)
            elif what < 0.95:
                key = base + chance.randrange(first)
                session.execute("UPDATE orders SET id = -id WHERE id = %s", (key,))
            else:
                session.execute("DELETE FROM orders WHERE id = %s", (base + chance.randrange(first),))
            if chance.random() < 0.1:
                session.execute("SAVEPOINT s")
                session.execute("INSERT INTO orders VALUES (%s, 'never')", (-low - 5_000_000_000,))
                session.execute("ROLLBACK TO s")
            done += count
        if chance.random() < 0.07:
            session.rollback()
        else:
            session.commit()
