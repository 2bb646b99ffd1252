"""A table follows a table of a database, by the command: its driver and its stage are killed, and both are one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from readers.changes import lsn_of
from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.core.status import condition_of
from support.app.command import BY_TASKS, App
from support.changes.lab import LOGICAL, Lab
from support.kafka.topics import progress_truth
from support.runs.keeper import KEEPER
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

COLUMNS = {
    "id": "bigint",
    "name": "text",
    "price": "numeric(10,2)",
    "at": "timestamp with time zone",
    "day": "date",
    "flag": "boolean",
    "raw": "bytea",
    "big": "text",
}
SCHEMA = (
    "id BIGINT NOT NULL, name STRING NOT NULL, price DECIMAL(10,2), at TIMESTAMP, day DATE, flag BOOLEAN, raw BINARY, "
    "big STRING"
)
LARGE = "a value that is stored out of line " * 80


@pytest.fixture(scope="module")
def logical() -> LocalPostgresql:
    return KEEPER.get("logical", lambda: LocalPostgresql(settings=LOGICAL))


@pytest.fixture
def lab(kafka: LocalKafka, logical: LocalPostgresql, tmp_path: Path) -> Iterator[Lab]:
    found = Lab(logical, kafka.bootstrap_servers, tmp_path / "lab")
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    found.sql(
        f"CREATE TABLE orders ({columns}, PRIMARY KEY (id))",
        "ALTER TABLE orders ALTER big SET STORAGE EXTERNAL",
        "CREATE TABLE others (nr int PRIMARY KEY)",
    )
    yield found
    found.close()


def following(lab: Lab, **postgresql: Any) -> dict[str, Any]:
    """`orders` of the lab's database, followed by a table of its name in another database of that server."""
    return {
        "apiVersion": "sinkpipeline.io/v1alpha1",
        "kind": "SinkPipeline",
        "metadata": {"name": lab.name.replace("_", "-"), "namespace": "test"},
        "spec": {
            "source": lab.as_source(
                **{"publication": {"name": lab.name, "tables": ["public.orders", "public.others"]}, **postgresql}
            ),
            "decode": {"format": "change", "schema": SCHEMA, "change": {"tables": ["public.orders"]}},
            "trigger": {"interval": "0s", "maxOffsetsPerTrigger": 700},
            "failurePolicy": {"backoff": {"initial": "200ms", "max": "1s"}},
            "spark": BY_TASKS,
            "sinks": [
                {
                    "name": "copy",
                    "postgresql": {
                        "servers": lab.server.address,
                        "database": DATABASE,
                        "auth": {"username": SUPERUSER},
                        "table": {"name": lab.name, "columns": COLUMNS, "primaryKey": ["id"]},
                        "progressSchema": f"{lab.name}_progress",
                        "writeMode": "Upsert",
                        "deleteWhen": "op = 'd'",
                        "orderBy": "position.lsn",
                    },
                }
            ],
        },
    }


def rows(lab: Lab, database: str, table: str) -> list[tuple[Any, ...]]:
    columns = ", ".join(f"{name}::text" for name in COLUMNS)
    with lab.connected(database) as session:
        if session.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
            return []
        return session.execute(f"SELECT {columns} FROM {table} ORDER BY id".encode()).fetchall()


def check_same(lab: Lab, deadline_s: float) -> None:
    """That the copy becomes what the source is."""

    def is_same() -> bool:
        return rows(lab, lab.name, "orders") == rows(lab, DATABASE, lab.name)

    try:
        wait_until(is_same, "the copy is the source", deadline_s)
    except AssertionError:
        source, copy = (set(rows(lab, *each)) for each in ((lab.name, "orders"), (DATABASE, lab.name)))
        raise AssertionError(f"missing {sorted(source - copy)[:3]}, too many {sorted(copy - source)[:3]}") from None


class Load:
    """Changes of `orders`, in transactions of any size, some of which are rolled back."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self._lab = lab
        self._dice = random.Random(seed)
        self._keys: list[int] = []
        self._next = 0
        self.changes = 0

    def run(self, transactions: int) -> None:
        with self._lab.connected(autocommit=False) as session:
            for _ in range(transactions):
                keys, made = [*self._keys], 0
                for _ in range(self._dice.choice((1, 1, 2, 5, 20, 60))):
                    statement, values, counted = self._change()
                    session.execute(statement.encode(), values)
                    made += counted
                if self._dice.random() < 0.1:
                    session.rollback()
                    self._keys = keys
                else:
                    session.commit()
                    self.changes += made

    def run_in_bulk(self, changes: int) -> None:
        """At least so many, by statements that change up to some thousand rows each."""
        until = self.changes + changes
        with self._lab.connected(autocommit=False) as session:
            while self.changes < until:
                made = 0
                for _ in range(self._dice.choice((1, 1, 3))):
                    statement, values, each_counts = self._bulk(self._dice.choice((1, 10, 300, 3_000)))
                    made += session.execute(statement.encode(), values).rowcount * each_counts
                if self._dice.random() < 0.1:
                    session.rollback()
                else:
                    session.commit()
                    self.changes += made

    def _bulk(self, rows: int) -> tuple[str, tuple[Any, ...], int]:
        some = "id IN (SELECT id FROM orders {} ORDER BY md5(id::text || %s) LIMIT %s)"
        chosen = (str(self._dice.random()), rows)
        match self._dice.choice("iiudk"):
            case "i":
                first, self._next = self._next + 1, self._next + rows
                told = (
                    "INSERT INTO orders SELECT g, 'n' || g, g / 100.0, now(), current_date, g % 2 = 0, NULL, NULL "
                    "FROM generate_series(%s::int, %s::int) AS g"
                )
                return told.replace(" % 2", " %% 2"), (first, self._next), 1
            case "u":
                return f"UPDATE orders SET name = 'u' || %s, price = NULL WHERE {some.format('')}", ("x", *chosen), 1
            case "d":
                return f"DELETE FROM orders WHERE {some.format('')}", (chosen[0], rows // 3), 1
            case _:
                return f"UPDATE orders SET id = -id WHERE {some.format('WHERE id > 0')}", chosen, 2

    def _change(self) -> tuple[str, tuple[Any, ...], int]:
        dice = self._dice
        kind = dice.choice("iiiuuuubdk") if self._keys else "i"
        if kind == "i":
            self._next += 1
            self._keys.append(self._next)
            values = (self._next, f"n\t'\\{self._next}", dice.randint(-(10**9), 10**9) / 100, dice.random() < 0.5)
            raw, big = dice.randbytes(5), LARGE + str(dice.random()) if dice.random() < 0.5 else None
            told = "INSERT INTO orders VALUES (%s, %s, %s, now(), current_date, %s, %s, %s)"
            return told, (*values, raw, big), 1
        at = dice.randrange(len(self._keys))
        key = self._keys[at]
        match kind:
            case "u":
                return "UPDATE orders SET name = %s, price = NULL WHERE id = %s", (f"u{dice.random()}", key), 1
            case "b":
                return "UPDATE orders SET big = %s WHERE id = %s", (LARGE + str(dice.random()), key), 1
            case "d":
                del self._keys[at]
                return "DELETE FROM orders WHERE id = %s", (key,), 1
            case _:
                # Of a key that changes, the log has no value that is not written anew.
                self._next += 1
                self._keys[at] = self._next
                return "UPDATE orders SET id = %s, big = %s WHERE id = %s", (self._next, "moved", key), 2


@pytest.mark.thorough("starts Spark; tests/changes has the stage, tests/spark/test_changes the rows")
def test_a_table_follows_a_table_of_a_database(lab: Lab, tmp_path: Path) -> None:
    app, load = App(tmp_path, following(lab)), Load(lab, seed=18)
    with app.start() as driver:
        driver.eventually(lambda: app.status().get("source", {}).get("state") == "Running", "the stage reads")
        load.run(40)
        driver.until_rows(1)
        [stage] = driver.stage()
        stage.kill()
        load.run(40)
        driver.eventually(lambda: [each.pid for each in driver.stage() if each.pid != stage.pid], "another stage lives")
        lab.sql("INSERT INTO others SELECT generate_series(1, 500)")
        load.run(20)
        driver.kill_driver()
    load.run(40)
    with app.start() as driver:
        driver.until_state("Running")
        load.run(20)
        driver.kill()
    load.run(20)
    with app.start() as driver:
        check_same(lab, deadline_s=240)
        source = app.status()["source"]
        assert source["state"] == "Running"
        assert (source["slot"], source["timeline"]) == (lab.slot, 1)
        assert source["changes"] == load.changes + 500
        driver.eventually(lambda: app.status()["source"].get("lagBytes") == 0, "nothing is left to read")
        assert driver.terminate() == 0, driver.stderr
    assert app.status()["source"]["state"] == "Suspended"
    assert app.sink_status("copy")["rowsDelivered"] == load.changes
    assert load.changes > 1500
    key = f"sinkpipeline/v1/test.{lab.name.replace('_', '-')}/source.postgresql/p/postgresql/0"
    at = progress_truth(lab.servers, f"{lab.name}-progress")[key]["pos"]
    assert lab.slot_lsn() <= lsn_of(at[0]), "the slot follows the progress"


@pytest.mark.long("ten starts of Spark, and 200,000 changes")
def test_a_table_follows_200_000_changes_through_ten_kills(lab: Lab, tmp_path: Path) -> None:
    document = following(lab)
    document["spec"]["trigger"]["maxOffsetsPerTrigger"] = 5_000
    app, load = App(tmp_path, document), Load(lab, seed=46)

    def written() -> int:
        return int(app.status().get("source", {}).get("changes") or 0)

    def delivered() -> int:
        return int(app.sink_status("copy").get("rowsDelivered") or 0)

    for number in range(10):
        with app.start() as driver:
            driver.eventually(lambda: app.status().get("source", {}).get("state") == "Running", "the stage reads")
            before = delivered()
            load.run_in_bulk(20_000)
            driver.eventually(lambda old=before: delivered() > old, "rows arrive")
            [stage] = driver.stage()
            if number % 3 == 0:
                stage.kill()
                died = stage.pid
                driver.eventually(
                    lambda old=died: [each.pid for each in driver.stage() if each.pid != old], "another stage lives"
                )
            elif number % 3 == 1:
                driver.kill_driver()
            else:
                driver.kill()
    with app.start() as driver:
        check_same(lab, deadline_s=600)
        driver.eventually(lambda: written() == load.changes, "each change is in the topic once")
        assert driver.terminate() == 0, driver.stderr
    assert delivered() == load.changes
    assert load.changes >= 200_000


def test_the_change_topic_is_enough(lab: Lab, tmp_path: Path) -> None:
    """In `make test`: it needs no Spark, and has the command, its stage and its status on the real servers."""
    document = following(lab)
    document["spec"] |= {"sinks": [], "decode": {"format": "raw"}}
    app, load = App(tmp_path, document), Load(lab, seed=20)
    lab.sql(f"CREATE PUBLICATION {lab.name} FOR TABLE orders, others")
    looked = app.call("validate", "-f", str(app.manifest))
    assert looked.returncode == 0, looked.stderr
    assert "source: starts for the first time" in looked.stdout
    with app.start() as driver:
        driver.eventually(lambda: app.status().get("source", {}).get("state") == "Running", "the stage reads")
        assert condition_of(app.status(), "Ready")["status"] == "True"
        load.run(10)
        driver.eventually(lambda: app.status()["source"].get("changes", 0) >= load.changes, "all is read")
        assert not driver.jvm(), "there is no Spark"
        driver.kill()
    load.run(10)
    app.run_until_idle()
    places = [each.place for each in lab.found()]
    assert len(places) == len(set(places)) == load.changes
    status = app.status()
    assert (status["sinks"], status["phase"], status["source"]["changes"]) == ([], "Completed", load.changes)
    assert load.changes > 20
    for arguments in (
        ("dlq", "list"),
        ("progress",),
        ("preview",),
        ("reset", "--sink", "a", "--to", "earliest", "--yes"),
    ):
        refused = app.call(*arguments, "-f", str(app.manifest))
        assert (refused.returncode, "UsageInvalid: " in refused.stderr) == (2, True), refused.stderr


@pytest.mark.long("starts Spark; tests/changes has each end of a snapshot, tests/kube/test_with_spark a database")
def test_a_table_from_its_rows_on_until_its_slot_is_gone(lab: Lab, tmp_path: Path) -> None:
    app = App(tmp_path, following(lab, startingPosition="Snapshot"))
    lab.sql("INSERT INTO orders (id, name) VALUES (0, 'was there'), (1, 'too')")
    looked = app.call("validate", "-f", str(app.manifest))
    assert looked.returncode == 0, looked.stderr
    begins = "source: starts for the first time, with a snapshot of the tables; creates "
    assert f'{begins}CREATE PUBLICATION "{lab.name}"' in looked.stdout
    assert f"the stage creates topic {lab.topic} first" in looked.stdout
    app.run_until_idle()
    assert [each[:2] for each in rows(lab, DATABASE, lab.name)] == [("0", "was there"), ("1", "too")]
    lab.sql("DELETE FROM orders WHERE id = 0", "UPDATE orders SET name = 'one'")
    app.run_until_idle()
    assert [each[:2] for each in rows(lab, DATABASE, lab.name)] == [("1", "one")]
    lab.drop_slot()
    looked = app.call("validate", "-f", str(app.manifest), "-o", "json")
    assert looked.returncode == 3, looked.stderr
    [problem] = json.loads(looked.stdout)["problems"]
    assert (problem["path"], problem["reason"]) == ("spec.source.postgresql", "SlotLost")
    done = app.call("run", "-f", str(app.manifest), "--status-file", str(app.status_file), "--master", "local[2]")
    assert done.returncode == 3, done.stderr
    assert "SlotLost" in done.stderr
    status = app.status()
    assert status["source"]["error"]["reason"] == "SlotLost"
    assert next(each for each in status["conditions"] if each["type"] == "Ready")["status"] == "False"
