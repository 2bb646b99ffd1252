"""What `make soak` counts by SQL is seen where it is wrong."""

from __future__ import annotations

import pytest

from servers.postgresql import bin_directory
from soak.changes import COLUMNS, Changes
from soak.following import SOURCE, TARGET, compared
from soak.tables import PLACES, expect, faulty_sql, judge_appended, judge_merged
from support.kafka.streams import EXACTLY_ONCE, Verdict

pytestmark = [
    pytest.mark.skipif(bin_directory() is None, reason="no PostgreSQL server: make postgresql"),
    pytest.mark.thorough("counts of longer tests than this one"),
]


def verdict(*, duplicates: int = 0, missing: int = 0, foreign: int = 0) -> Verdict:
    return Verdict(duplicates, missing, foreign, disorder=0)


def test_two_tables_are_compared_row_by_row() -> None:
    changes = Changes(1, 50)
    with faulty_sql() as sql, sql.session() as session:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        session.execute(f"CREATE TABLE {SOURCE} ({columns})".encode())
        for each in changes.next(500):
            session.execute(each.sql.format(table=SOURCE).encode(), each.values)
        session.execute(f"CREATE TABLE {TARGET} AS SELECT * FROM {SOURCE}".encode())
        assert compared(session) == (len(changes.rows), EXACTLY_ONCE)
        first = f"(SELECT min(id) FROM {TARGET} WHERE price IS NOT NULL)"
        session.execute(f"UPDATE {TARGET} SET price = price + 1 WHERE id = {first}".encode())
        assert compared(session)[1] == verdict(missing=1, foreign=1)
        session.execute(f"DELETE FROM {TARGET} WHERE id = (SELECT max(id) FROM {TARGET})".encode())
        assert compared(session)[1] == verdict(missing=2, foreign=1)
        session.execute(f"INSERT INTO {TARGET} SELECT * FROM {TARGET} WHERE id = {first}".encode())
        assert compared(session)[1] == verdict(duplicates=1, missing=2, foreign=2)


def test_records_are_counted() -> None:
    names = {f"{partition}:{offset}" for partition in range(2) for offset in range(3 * PLACES)}
    with faulty_sql() as sql, sql.session() as session:
        expect(session, names)
        session.execute("CREATE TABLE appended AS SELECT part, off FROM expected")
        session.execute(
            f"CREATE TABLE merged AS SELECT part, off % {PLACES} AS place, off FROM expected "
            f"WHERE off >= {2 * PLACES} AND off % 10 <> 0".encode()
        )
        assert judge_appended(session) == EXACTLY_ONCE
        count, found = judge_merged(session)
        assert (0 < count < 2 * PLACES, found) == (True, EXACTLY_ONCE)
        session.execute("INSERT INTO appended SELECT * FROM appended WHERE off = 3 AND part = 0")
        session.execute("INSERT INTO appended VALUES (9, 9)")
        session.execute("DELETE FROM appended WHERE off = 5")
        assert judge_appended(session) == verdict(duplicates=1, missing=2, foreign=1)
        session.execute(f"UPDATE merged SET off = off - {PLACES} WHERE off = {2 * PLACES + 1} AND part = 0".encode())
        assert judge_merged(session) == (count, verdict(missing=1, foreign=1))
