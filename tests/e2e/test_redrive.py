"""`sinkpipeline dlq redrive` with Spark: after the cause was repaired each letter is delivered once, killed or not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from sinkpipeline.core.deadletter import parse
from support.app.command import COMMAND, App, Run, manifest
from support.app.command import sink as sink_of
from support.kafka import topics
from support.kafka.topics import Whole
from support.sink.dead_letters import Lettered
from support.sink.sql_letters import COUNT as ALL_IN_TABLE
from support.sink.sql_redrives import RedrivenSql

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(600)]

SEED = 20261122
COUNT = 10_000
FILTERED = 7
"""Every so many are dropped by `where`."""
STILL_BAD = 500
"""Every so many are no JSON."""


def records() -> list[Whole]:
    return [
        (
            b"no json" if n % STILL_BAD == 1 else json.dumps({"id": n}).encode(),
            f"k{n}".encode(),
            [("n", b"\xff")],
            1 + n,
        )
        for n in range(COUNT)
    ]


@pytest.mark.thorough("200 letters and kills, with Spark; tests/kafka/test_redrive has each point of a kill")
@pytest.mark.each_spark
def test_each_letter_once_also_when_it_is_killed(kafka: LocalKafka, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    # All were dead-lettered, for a reason that the manifest below has no more.
    task = Lettered(kafka.bootstrap_servers, records())
    # Rows have the records' times, and retention would take them.
    topics.alter_topic(task.servers, task.sink.data, {"retention.ms": "-1"})
    task.write(task.rows(range(COUNT), bad=range(COUNT)))
    document = manifest(
        task.servers,
        task.sink.name,
        [task.sink.source],
        identity=task.sink.name,
        decode={"format": "json", "schema": "id BIGINT NOT NULL"},
        transform={
            "where": f"id % {FILTERED} != 0",
            "select": {"value": "concat_ws('/', id, kafka.offset, unix_millis(kafka.timestamp))"},
        },
        sinks=[
            {
                **sink_of("out", topic=task.sink.data, progressTopic={"name": task.sink.progress}),
                "deadLetter": {"topic": {"name": task.sink.dead}},
            }
        ],
    )
    app = App(tmp_path, document)
    command = [str(COMMAND), "dlq", "redrive", "-f", str(app.manifest), "--log-file", str(app.log_file)]

    point = chance.choice(["redrive-before-commit", "redrive-after-commit"])
    app.arm(point)
    with Run(app, [*command, "--rate", "2000"]) as run:
        run.until_held(point)
        app.arm(point)
        app.release(point)
        run.eventually(lambda: not (app.failpoints / point).exists(), f"it comes to {point} again")
        run.kill()
    app.disarm()
    app.arm("redrive-after-commit")
    with Run(app, [*command, "--rate", "2000"]) as run:
        run.until_held("redrive-after-commit")
        os.kill(run.pid, signal.SIGTERM)
        app.disarm()
        assert run.wait() == 0, run.stderr
    done = app.call("dlq", "redrive", "-f", str(app.manifest), "--log-file", str(app.log_file), "-o", "json")
    assert done.returncode == 0, f"{done.stderr}\n{app.log_tail()}"
    assert json.loads(done.stdout)["delivered"] > 0, "both ended before all was done"

    again = {n for n in range(COUNT) if n % STILL_BAD == 1}
    expected = {n for n in range(COUNT) if n % FILTERED and n not in again}
    found = topics.read_committed(task.servers, task.sink.data)
    assert Counter(each.text for each in found) == Counter(f"{n}/{n}/{1 + n}" for n in expected)
    assert all(each.headers == [("n", b"\xff")] for each in found), "the source's own headers, and no envelope"
    letters = [
        parse(each.value, each.key, list(each.headers))
        for each in topics.read_committed(task.servers, task.sink.dead)
        if any(name == "sinkpipeline.dlq.redrives" for name, _ in each.headers)
    ]
    assert {letter.record.offset for letter in letters} == again
    # One that failed again before it was killed or stopped failed once more after that.
    assert {letter.redrives for letter in letters} <= {1, 2, 3}


@pytest.fixture
def table(kafka: LocalKafka, postgresql: LocalPostgresql) -> Iterator[RedrivenSql]:
    name = topics.unique("t").replace("-", "")
    found = RedrivenSql(postgresql.address, name=name, servers=kafka.bootstrap_servers, stem=topics.unique("sql"))
    found.create_schema()
    found.produce()
    found.kill(1, 2, 5)
    yield found
    found.close()


def into_a_table(table: RedrivenSql) -> dict[str, Any]:
    """Of which every row fits."""
    settings = table.settings
    return manifest(
        table.servers,
        "i",
        [table.at.topic],
        identity=settings.id.identity,
        decode={"format": "raw"},
        sinks=[
            {
                "name": settings.id.sink,
                "transform": {"select": {"columns": {"part": "0", "off": "kafka.offset", "value": "'redriven'"}}},
                "postgresql": {
                    "servers": settings.connection.servers,
                    "database": settings.connection.database,
                    "auth": {"username": settings.connection.user},
                    "table": {
                        "schema": table.schema,
                        "name": "orders",
                        "columns": {each.name: each.type for each in table.columns},
                    },
                    "progressSchema": settings.progress_schema,
                },
                "deadLetter": {"topic": {"name": table.dead}},
            }
        ],
    )


@pytest.mark.thorough("starts Spark; tests/postgresql has what a redrive into a table does")
def test_into_a_table_as_an_action_asks_for_it(table: RedrivenSql, tmp_path: Path) -> None:
    """By what a Job runs: shown, and then carried out as it was shown."""
    app = App(tmp_path, into_a_table(table))
    shown = app.call("dlq", "redrive", "-f", str(app.manifest), "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "3 letters of" in shown.stderr
    order = {
        "spec": {"pipeline": "i", "sink": table.settings.id.sink, "action": "Redrive"},
        "created": 0,
        "owner": {"cluster": "file", "name": "n"},
    }
    preview = acted(app, {**order, "do": "preview"})["preview"]
    assert f"each of them goes into table {table.schema}.orders, once" in preview["text"]
    table.repeat_letter(1, 0)
    done = acted(app, {**order, "do": "carryOut", "resolved": preview["resolved"]})["done"]
    assert done.startswith("redrove: 3 delivered, "), "and the letter that came later is left"
    assert (table.times(), table.pending()) == (Counter(range(ALL_IN_TABLE)), 1)
    # As the pod after one that failed behind its commit: its words are those that the action shows.
    again = acted(app, {**order, "do": "carryOut", "resolved": preview["resolved"]})["done"]
    assert again.startswith("redrove: 0 delivered, ")
    assert again.endswith("; 3 more letters of the preview were redriven before this pod began")
    assert table.times() == Counter(range(ALL_IN_TABLE))


def acted(app: App, order: dict[str, Any]) -> dict[str, Any]:
    path, answer = app.manifest.with_name("order.json"), app.manifest.with_name("answer.json")
    path.write_text(json.dumps(order))
    command = [sys.executable, "-m", "sinkpipeline.cli.pod.asked", "--config", str(app.manifest), "--order", str(path)]
    done = subprocess.run([*command, "--termination-log", str(answer)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


@pytest.mark.long("the command beside the action, which is the same code")
def test_into_a_table_by_the_command(table: RedrivenSql, tmp_path: Path) -> None:
    app = App(tmp_path, into_a_table(table))
    for delivered in (3, 0):
        done = app.call("dlq", "redrive", "-f", str(app.manifest), "--log-file", str(app.log_file), "-o", "json")
        assert done.returncode == 0, f"{done.stderr}\n{app.log_tail()}"
        assert json.loads(done.stdout)["delivered"] == delivered
    assert table.times() == Counter(range(ALL_IN_TABLE))
    refused = app.call("dlq", "redrive", "-f", str(app.manifest), "--to", "source")
    assert "redrive without --to source" in refused.stderr
