"""`make soak KIND=debezium`: a table follows the changes of another one, while everything is killed.

Changes are made in a table by SQL, and said by envelopes as Debezium writes them, some of them twice, as it does when
it was killed itself. Driver, JVM, workers and server are killed while they are delivered. In the end the server
compares both tables, row by row.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psycopg
import yaml
from rich.console import Console
from typing_extensions import override

from deployed.cluster import ROOT
from servers.postgresql import DATABASE, SUPERUSER
from soak.changes import COLUMNS, Changes, Message
from soak.faults import Driver, Fault
from soak.outcome import Judged, Outcome, Say
from soak.sql_faults import FaultySql, SqlFaults
from soak.tables import differences, faulty_sql, number
from soak.topics import PATIENT
from support.app.command import BY_TASKS, App
from support.debezium import connect_schema
from support.kafka.streams import Verdict
from support.kafka.topics import create_topic, produce
from support.waiting import wait_until
from support.worlds.faults import FaultyKafka, faulty_kafka

EXAMPLE: Final = ROOT / "examples" / "orders-debezium.yaml"
TOPIC: Final = "shop.public.orders"
PARTITIONS: Final = 3
SOURCE, TARGET = "origin", "orders"
"""The tables."""
BATCHES: Final = 6
"""For what is made between two kills, so that each comes while something is delivered."""
_MIN_BATCH: Final = 10
_MIN_KEYS: Final = 20
AGAIN: Final = 40
"""So many changes Debezium says once more."""
_IN_ONE: Final = 1_000
"""Changes, in a transaction of the source."""
DELIVERY_S: Final = 900.0
POINT_S: Final = 60.0
"""A start takes long: a quarter of a minute of a core goes into its plan."""


class Kills(SqlFaults):
    """Only those, of whoever delivers and of the server."""

    point_s = POINT_S

    def __init__(self, seed: int, faulty: FaultyKafka, driver: Driver, sql: FaultySql, source: Source) -> None:
        super().__init__(seed, faulty, driver, sql)
        self._source = source

    @property
    @override
    def handled(self) -> tuple[int, int]:
        return self._source.said, 0

    @override
    def deck(self) -> Sequence[Fault]:
        return [
            self.driver_killed,
            self.spark_killed,
            self.worker_killed,
            self.worker_killed_at_a_point,
            self.worker_killed_at_a_point,
            self.worker_outlives_its_driver,
            self.server_killed,
            self.server_killed_at_a_commit,
            self.server_killed_within_a_commit,
            self.everything_killed,
        ]


class Source:
    """A table and its changes, in the database and in a topic."""

    def __init__(self, seed: int, keys: int, sql: FaultySql, servers: str) -> None:
        self.changes = Changes(seed, keys)
        self.made = 0
        self.said = 0
        """How many records are to be delivered: all but tombstones."""
        self._sql = sql
        self._servers = servers
        self._schema = connect_schema("postgresql-orders")
        self._last: list[Message] = []
        create_topic(servers, TOPIC, partitions=PARTITIONS)
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        with sql.session() as session:
            session.execute(f"CREATE TABLE {SOURCE} ({columns})".encode())

    def change(self, count: int) -> None:
        """Makes changes, and then says them, behind some that were said before."""
        messages = self._last[-AGAIN:]
        with self._sql.session() as session:
            for first in range(0, count, _IN_ONE):
                with session.transaction(), session.pipeline():
                    for each in self.changes.next(min(_IN_ONE, count - first)):
                        session.execute(each.sql.format(table=SOURCE).encode(), each.values)
                        messages += each.messages
        self._say(messages)
        self._last = messages
        self.made += count

    def _say(self, messages: Sequence[Message]) -> None:
        """Those of a key in one partition."""
        for partition in range(PARTITIONS):
            records = [
                (b'{"id":%d}' % each.key, each.wrapped(self._schema))
                for each in messages
                if zlib.crc32(b"%d" % each.key) % PARTITIONS == partition
            ]
            produce(self._servers, TOPIC, records, partition=partition, compression="lz4")
            self.said += sum(value is not None for _, value in records)


def least_changes(kills: int) -> int:
    """So that each kill comes while something is delivered."""
    return (max(kills, 0) + 1) * BATCHES * _MIN_BATCH


def soak(changes: int, kills: int, seed: int, directory: Path, console: Console) -> Outcome:
    outcome = Outcome(seed)
    say = outcome.sayer(console)
    parts = [changes * (each + 1) // (kills + 1) - changes * each // (kills + 1) for each in range(kills + 1)]
    with ExitStack() as stack:
        faulty = stack.enter_context(faulty_kafka())
        sql = stack.enter_context(faulty_sql())
        source = Source(seed, max(_MIN_KEYS, changes // 10), sql, faulty.direct)
        driver = Driver(App(directory, manifest_of(faulty, sql, max(_MIN_BATCH, parts[0] // BATCHES))))
        stack.callback(driver.close)
        faults = Kills(seed, faulty, driver, sql, source)
        try:
            say(f"seed {seed}: {changes:,} changes and {kills} kills")
            for part in parts[:-1]:
                before = source.said
                source.change(part)
                say(f"{source.made:,} changes are made")
                kill_once(faults, before, outcome, say)
            source.change(parts[-1])
            say(f"{source.made:,} changes are made; waiting until all are delivered")
            wait_until(faults.is_quiet, "all is delivered", DELIVERY_S, poll_s=0.5)
            driver.stop()
        except AssertionError as error:
            outcome.problems.append(f"{error}\n{driver.run.stderr}")
        finally:
            sql.heal()
        outcome.kills, outcome.starts, outcome.ends = faults.kills, driver.starts, driver.ends
        compare(outcome, source, sql)
    if outcome.kills.total() < kills:
        outcome.problems.append(f"only {outcome.kills.total()} of {kills} kills hit somebody")
    outcome.judge()
    return outcome


def kill_once(faults: Kills, said: int, outcome: Outcome, say: Say) -> None:
    """While the part that was made last, behind so many records, is being delivered."""
    driver, before = faults.driver, faults.kills.total()

    def is_on_its_way() -> bool:
        driver.look()
        return driver.app.rows_delivered() > said

    wait_until(is_on_its_way, "some of it is delivered", DELIVERY_S)
    while faults.kills.total() == before and not faults.is_quiet():
        fault = faults.next()
        say(f"{fault.__name__.replace('_', ' ')}, with {driver.app.rows_delivered():,} records delivered")
        fault()
        outcome.faults[fault.__name__] += 1
        driver.look()


def manifest_of(faulty: FaultyKafka, sql: FaultySql, batch: int) -> dict[str, Any]:
    """The example, with the servers of this machine."""
    document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    spec = document["spec"]
    spec["source"]["kafka"] |= {"bootstrapServers": faulty.servers, "topics": [TOPIC]}
    spec["trigger"] = {"interval": "0s", "maxOffsetsPerTrigger": batch}
    spec |= {"failurePolicy": PATIENT, "spark": BY_TASKS}
    postgresql = spec["sinks"][0]["postgresql"]
    postgresql |= {"servers": sql.servers, "database": DATABASE, "auth": {"username": SUPERUSER}}
    postgresql["table"]["name"] = TARGET
    return document


def compare(outcome: Outcome, source: Source, sql: FaultySql) -> None:
    """Both tables by the server, and their number by what we know without it."""
    try:
        with sql.session() as session:
            rows, verdict = compared(session)
    except psycopg.Error as error:
        outcome.problems.append(f"the tables can't be compared: {error}")
        return
    outcome.judged = [Judged("the table that follows", rows, verdict, exact=True)]
    if rows != len(source.changes.rows):
        outcome.problems.append(f"the source has {rows} rows, and should have {len(source.changes.rows)}")
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(source.changes.counts.items()))
    outcome.notes.append(f"{source.made:,} changes ({counts}), {source.said:,} records said, {rows:,} rows compared")


def compared(session: psycopg.Connection[Any]) -> tuple[int, Verdict]:
    """Row by row, with all columns; and how many there should be."""
    names = ", ".join(COLUMNS)
    these, those = (f"SELECT {names} FROM {each}" for each in (SOURCE, TARGET))  # noqa: S608 - of ours alone
    verdict = Verdict(
        duplicates=number(session, f"SELECT count(*) - count(DISTINCT id) FROM {TARGET}"),  # noqa: S608 - likewise
        missing=number(session, differences(these, those)),
        foreign=number(session, differences(those, these)),
        disorder=0,
    )
    return number(session, f"SELECT count(*) FROM {SOURCE}"), verdict  # noqa: S608 - likewise
