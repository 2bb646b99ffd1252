"""A table follows a table of a MariaDB or MySQL server, by the command: driver, stage and server are killed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.core.status import condition_of
from support.app.command import BY_TASKS, App
from support.changes.binlog import ORDERS, ROOTS, SERVERS, BinlogLab
from support.changes.binlog_load import Load, insert
from support.changes.lab import LOGICAL
from support.changes.oracle import check_rows
from support.runs.keeper import KEEPER
from support.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kafka,
    pytest.mark.timeout(900),
]

COLUMNS = {"id": "bigint", "note": "text"}


class Lab(BinlogLab):
    """Whose stage is a command's."""

    @property
    @override
    def stage(self) -> str:
        return f"test.{self.name.replace('_', '-')}/source.{self.kind}"


@pytest.fixture(params=[*SERVERS])
def lab(kafka: LocalKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BinlogLab]:
    kind = request.param
    if ROOTS[kind]() is None:
        pytest.skip(f"no server: make {kind}")
    with SERVERS[kind](settings={"max-binlog-size": "1048576"}) as server:
        found = Lab(server, kafka.bootstrap_servers, tmp_path / "lab")
        found.sql(ORDERS)
        yield found


def following(lab: BinlogLab, sinks: list[dict[str, Any]], **parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sinkpipeline.io/v1alpha1",
        "kind": "SinkPipeline",
        "metadata": {"name": lab.name.replace("_", "-"), "namespace": "test"},
        "spec": {
            "source": lab.as_source(**{"startingPosition": "Snapshot", **parts}),
            "decode": {"format": "change", "schema": "id BIGINT NOT NULL, note STRING"},
            "trigger": {"interval": "0s", "maxOffsetsPerTrigger": 700},
            "failurePolicy": {"backoff": {"initial": "200ms", "max": "1s"}},
            "spark": BY_TASKS,
            "sinks": sinks,
        },
    }


def source_rows(lab: BinlogLab) -> list[tuple[Any, ...]]:
    return lab.sql("SELECT id, note FROM orders ORDER BY id")


@pytest.mark.spark
@pytest.mark.thorough("starts Spark; tests/binlog has the stage, tests/spark/test_changes the rows")
@pytest.mark.thorough("the other server; test_the_change_topic_is_enough has both", after=2)
@pytest.mark.parametrize("begins", ["Snapshot", "IncrementalSnapshot"])
def test_a_table_follows_a_table(lab: BinlogLab, begins: str, tmp_path: Path) -> None:
    logical = KEEPER.get("logical", lambda: LocalPostgresql(settings=LOGICAL))
    sink = {
        "name": "copy",
        "postgresql": {
            "servers": logical.address,
            "database": DATABASE,
            "auth": {"username": SUPERUSER},
            "table": {"name": lab.name, "columns": COLUMNS, "primaryKey": ["id"]},
            "progressSchema": f"{lab.name}_progress",
            "writeMode": "Upsert",
            "deleteWhen": "op = 'd'",
            "orderBy": "position.lsn",
        },
    }
    app = App(tmp_path, following(lab, [sink], startingPosition=begins))
    insert(lab, 0, 500, 60)
    dice = random.Random(1)

    def copied() -> list[tuple[Any, ...]]:
        import psycopg  # noqa: PLC0415 - where it is asked

        with psycopg.connect(host="127.0.0.1", port=logical.port, user=SUPERUSER, dbname=DATABASE) as session:
            if session.execute("SELECT to_regclass(%s)", (lab.name,)).fetchone() == (None,):
                return []
            return session.execute(f"SELECT id, note FROM {lab.name} ORDER BY id".encode()).fetchall()

    with Load(lab, rows=8_000, seed=4, pause_s=1.0) as load:
        for number in range(3):
            with app.start() as driver:
                driver.eventually(lambda: app.status().get("source", {}).get("state") == "Running", "the stage reads")
                if number % 2:
                    [stage] = driver.eventually(driver.stage, "a stage lives")
                    stage.kill()
                elif number:
                    lab.server.kill()
                    lab.server.start()
                driver.until_rows(1 + number)
                if dice.random() < 0.5:
                    driver.kill_driver()
                else:
                    driver.kill()
        load.join()
    with app.start() as driver:
        wait_until(lambda: copied() == source_rows(lab), "the copy is the source", 240)
        driver.eventually(lambda: app.status()["source"].get("lagBytes") == 0, "nothing is left to read")
        source = app.status()["source"]
        assert (source["state"], "slot" in source) == ("Running", False)
        assert source["position"].startswith(f"{lab.server.log}.0")
        assert driver.terminate() == 0, driver.stderr
    assert len(source_rows(lab)) > 1_000
    if begins == "Snapshot":
        assert lab.check_copy("orders") > 0
    else:
        assert check_rows(lab.expected(), lab.found()) > 0


@pytest.mark.thorough("the other server; tests/binlog has both", after=1)
def test_the_change_topic_is_enough(lab: BinlogLab, tmp_path: Path) -> None:
    """In `make test`: it needs no Spark, and has the command, its stage and its status on the real servers."""
    insert(lab, 50_000, 7)
    document = following(lab, [], startingPosition="IncrementalSnapshot")
    document["spec"]["decode"] = {"format": "raw"}
    app = App(tmp_path, document)
    looked = app.call("validate", "-f", str(app.manifest))
    assert looked.returncode == 0, looked.stderr
    assert f"source: starts for the first time, at {lab.server.log}.000001:" in looked.stdout
    assert f"source: reads the rows of {lab.name}.orders while the stream goes on" in looked.stdout
    with app.start() as driver:
        driver.eventually(lambda: app.status().get("source", {}).get("state") == "Running", "the stage reads")
        assert condition_of(app.status(), "Ready")["status"] == "True"
        insert(lab, 0, 100)
        driver.eventually(lambda: app.status()["source"].get("changes", 0) >= 107, "all is read")
        driver.eventually(lambda: "incrementalSnapshot" not in app.status()["source"], "and the rows that were there")
        assert not driver.jvm(), "there is no Spark"
        driver.kill()
    insert(lab, 1_000, 50)
    app.run_until_idle()
    assert check_rows(lab.expected(), lab.found()) == 7
    status = app.status()
    assert (status["sinks"], status["phase"], status["source"]["changes"]) == ([], "Completed", 157)
    # Another server for those who read it, which has the same transactions.
    if lab.kind == "mariadb":
        lab.sql("SET GLOBAL server_id = 5")
    else:
        lab.server.kill()
        (lab.server.directory / "data/auto.cnf").unlink()
        lab.server.start()
    looked = app.call("validate", "-f", str(app.manifest))
    assert (looked.returncode, "has taken over" in looked.stdout) == (0, True), looked
    insert(lab, 2_000, 10)
    app.run_until_idle()
    status = app.status()
    assert (status["phase"], status["source"]["changes"]) == ("Completed", 167)
    assert "+" in status["source"]["position"] or lab.kind == "mysql"
    lab.server.begin_log_anew()
    looked = app.call("validate", "-f", str(app.manifest), "-o", "json")
    assert looked.returncode == 3, looked.stderr
    [problem] = json.loads(looked.stdout)["problems"]
    assert (problem["path"], problem["reason"]) == (f"spec.source.{lab.kind}", "SourceRolledBack")
