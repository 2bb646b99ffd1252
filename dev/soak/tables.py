"""`make soak KIND=postgresql`: into tables of a PostgreSQL server.

A broker and a server, each behind a proxy, the real command with an `Append` and an `Upsert` sink, a source that never
stops. The server itself counts, by SQL, what should be in its tables and what is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from rich.console import Console

from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from servers.sql_proxy import SqlProxy
from soak.faults import Driver
from soak.feeder import Feeder
from soak.outcome import Judged, Outcome
from soak.sql_faults import FaultySql, TableFaults
from soak.storm import storm
from soak.topics import PARTITIONS, fed, with_letters
from support.app.command import BY_TASKS, App
from support.kafka.streams import Verdict
from support.worlds.faults import faulty_kafka

PLACES: Final = 97
"""Of a partition; its records are changes of these, in turns."""
DELETES: Final = 10
"""Every so manieth record deletes."""
# As the feeder's bad values want it: what can't be transformed, and what only the server refuses.
PART: Final = (
    "CASE CAST(value AS STRING) WHEN 'astray' THEN 99999 WHEN 'zero' THEN CAST(1 DIV (length(value) - 4) AS INT) "
    "ELSE kafka.partition END"
)


@contextmanager
def faulty_sql(settings: dict[str, str] | None = None) -> Iterator[FaultySql]:
    with LocalPostgresql(settings=settings) as server, SqlProxy(server.port) as proxy:
        yield FaultySql(server, proxy)


def soak(seconds: float, seed: int, directory: Path, console: Console) -> Outcome:
    outcome = Outcome(seed)
    with ExitStack() as stack:
        faulty = stack.enter_context(faulty_kafka())
        sql = stack.enter_context(faulty_sql())
        feeder = Feeder(faulty.direct, "soak-in", PARTITIONS, seed)
        document = fed(
            faulty,
            feeder,
            spark=BY_TASKS,
            sinks=[
                with_letters(table(sql, "appended", {"part": PART, "off": "kafka.offset"})),
                with_letters(
                    table(
                        sql,
                        "merged",
                        {"part": PART, "place": f"kafka.offset % {PLACES}", "off": "kafka.offset"},
                        writeMode="Upsert",
                        deleteWhen=f"kafka.offset % {DELETES} = 0",
                        orderBy="kafka.offset",
                    )
                ),
            ],
        )
        driver = Driver(App(directory, document))
        stack.callback(driver.close)

        def heal() -> None:
            faulty.heal()
            sql.heal()

        faults = TableFaults(seed, faulty, driver, sql, ["appended", "merged"], feeder)
        storm(outcome, seconds, faults, feeder, heal, outcome.sayer(console))
        good, bad = feeder.handled
        try:
            with sql.session() as session:
                expect(session, feeder.expected)
                outcome.judged = [
                    Judged("Append", good, judge_appended(session), exact=True),
                    Judged("Upsert", *judge_merged(session), exact=True),
                ]
        except psycopg.Error as error:
            outcome.problems.append(f"the rows can't be counted: {error}")
        outcome.judged += [
            # On another server than the rows: repeated where somebody was killed in between.
            Judged(f"{name}, dead letters", bad, feeder.judge_letters(f"{sink}-dead"), exact=False)
            for name, sink in (("Append", "appended"), ("Upsert", "merged"))
        ]
    outcome.judge()
    return outcome


def table(sql: FaultySql, name: str, columns: Mapping[str, str], **postgresql: Any) -> dict[str, Any]:
    """A sink of numbers; an `Upsert` has the first two as its key."""
    types = {each: "smallint" if each == "part" else "bigint" for each in columns}
    key = {"primaryKey": [*types][:2]} if "writeMode" in postgresql else {}
    return {
        "name": name,
        "transform": {"select": {"columns": dict(columns)}},
        "postgresql": {
            "servers": sql.servers,
            "database": DATABASE,
            "auth": {"username": SUPERUSER},
            "table": {"name": name, "columns": types, **key},
            **postgresql,
        },
    }


def expect(session: psycopg.Connection[Any], names: Iterable[str]) -> None:
    """The records that should have arrived, for the server to compare."""
    session.execute("CREATE TEMPORARY TABLE expected (part smallint, off bigint)")
    with session.cursor().copy("COPY expected FROM STDIN") as copy:
        for name in names:
            copy.write_row(name.split(":"))


def judge_appended(session: psycopg.Connection[Any]) -> Verdict:
    """A table has no order."""
    return Verdict(
        duplicates=number(session, "SELECT count(*) - count(DISTINCT (part, off)) FROM appended"),
        missing=number(session, differences("SELECT part, off FROM expected", "SELECT part, off FROM appended")),
        foreign=number(
            session, differences("SELECT DISTINCT part, off FROM appended", "SELECT part, off FROM expected")
        ),
        disorder=0,
    )


def judge_merged(session: psycopg.Connection[Any]) -> tuple[int, Verdict]:
    """Of each place its last record counts, unless that deletes; and how many there should be."""
    newest = (
        f"SELECT part, off % {PLACES} AS place, max(off) AS off FROM expected GROUP BY 1, 2 "  # noqa: S608 - our own
        f"HAVING max(off) % {DELETES} <> 0"
    )
    merged = "SELECT part, place, off FROM merged"
    verdict = Verdict(
        # Its key is unique.
        duplicates=0,
        missing=number(session, differences(newest, merged)),
        foreign=number(session, differences(merged, newest)),
        disorder=0,
    )
    return number(session, f"SELECT count(*) FROM ({newest}) AS newest"), verdict  # noqa: S608 - of ours alone


def differences(these: str, those: str) -> str:
    """How many rows of a query are not those of another one."""
    return f"SELECT count(*) FROM ({these} EXCEPT ALL {those}) AS different"  # noqa: S608 - both are ours


def number(session: psycopg.Connection[Any], statement: str) -> int:
    [row] = session.execute(statement.encode()).fetchall()
    return int(row[0])
