"""A server with an older copy of its data directory: nothing is written into it before a person has said so."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.cli.main import cli
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.sinks.contract import RowBatch
from support.app.command import manifest
from support.kafka.topics import create_topic, produce, unique
from support.resource.manifests import table
from support.sink.cell_driver import Driver
from support.sink.sql_sink import SqlSink, batch
from support.sink.starts import refusal

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]
PAGE = Path(__file__).parents[2] / "docs" / "postgresql.md"
ROWS = {0: 12, 1: 5}
STEP = 4


@pytest.fixture
def server() -> Iterator[LocalPostgresql]:
    """One of its own, whose files are taken away from it."""
    with LocalPostgresql() as found:
        yield found


def copied(server: LocalPostgresql, what: str, to: str) -> None:
    """Of a server that was killed; its files keep their owner."""
    server.kill()
    subprocess.run(["rm", "-rf", server.directory / to], check=True)
    subprocess.run(["cp", "-a", server.directory / what, server.directory / to], check=True)
    server.start()


def printed(name: str) -> str:
    """The command NAME of the steps that the page tells."""
    section = PAGE.read_text().partition("### Going on after a restore\n")[2].partition("\n## ")[0]
    [command] = re.findall(rf"`(sinkpipeline {name} [^`]*)`", section)
    return str(command)


def rows_of(partition: SourcePartition, offsets: range) -> RowBatch:
    return batch(offsets, [(str(each), str(partition.partition)) for each in offsets])


@pytest.mark.thorough("cells and rows that went back, in test_commits; this is a server's own files")
def test_a_server_with_an_older_copy_of_its_files_goes_on_by_the_steps_of_the_page(
    kafka: LocalKafka, server: LocalPostgresql, tmp_path: Path
) -> None:
    topic, file = unique("orders"), tmp_path / "sinkpipeline.yaml"
    create_topic(kafka.bootstrap_servers, topic, partitions=len(ROWS))
    for partition, count in ROWS.items():
        produce(kafka.bootstrap_servers, topic, [b"v"] * count, partition=partition)
    given = table(
        "orders-table",
        servers=server.address,
        database=DATABASE,
        auth={"username": SUPERUSER},
        of_table={"schema": "public", "columns": {"off": "bigint", "part": "integer"}},
    )
    file.write_text(yaml.safe_dump(manifest(kafka.bootstrap_servers, unique("restored"), [topic], sinks=[given])))
    [settings] = resolve_sinks(parse_manifest(yaml.safe_load(file.read_text())), None)
    ends = {SourcePartition(topic, partition): count for partition, count in ROWS.items()}
    count = "SELECT part, off, count(*) FROM public.orders GROUP BY part, off ORDER BY part, off"

    def typed(command: str, *more: str) -> Any:
        done = CliRunner().invoke(cli, [*shlex.split(command.replace("sinkpipeline.yaml", str(file)))[1:], *more])
        assert done.exit_code == 0, done.output
        return done

    with Clients() as clients:
        driver = Driver(clients.ports(settings), ends, STEP, rows_of, Remembered())
        driver.batch()
        copied(server, "data", "backup")
        driver.batch()
        copied(server, "backup", "data")
        kept = SqlSink(server.address).sql(count)
        assert len(kept) == 2 * STEP, "the copy is older"
        driver.delivery.close()
        refusal(driver.start, Reason.PROGRESS_REGRESSED)
        assert SqlSink(server.address).sql(count) == kept, "nothing is written"

        shown = json.loads(typed(printed("progress"), "-o", "json").stdout)
        restored = {each["partition"]: each["next"] for each in shown}
        assert restored == {0: STEP, 1: STEP}
        command = printed("reset").replace("orders:", f"{topic}:")
        for partition, at in restored.items():
            command = command.replace(f":{partition}=NEXT", f":{partition}={at}")
        assert "NEXT" not in command
        typed(command, "--yes")
        again = Driver(clients.ports(settings), ends, STEP, rows_of, Remembered())
        again.drain()
        for client in (*driver.worker._shared.values(), *again.worker._shared.values()):
            client.close()
    assert SqlSink(server.address).sql(count) == [
        (each.partition, off, 1) for each in ends for off in range(ends[each])
    ]
