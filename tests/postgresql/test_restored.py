"""A server that was restored: nothing is written before a person has said so, and the steps of the page go on.

The ways: an older copy of its files; its archive, played up to a point in time; a dump, in another server.
"""

from __future__ import annotations

import abc
import json
import re
import shlex
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from servers.postgresql_standby import has_program
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
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]
PAGE = Path(__file__).parents[2] / "docs" / "postgresql.md"
ROWS = {0: 12, 1: 5}
STEP = 4


class Way(abc.ABC):
    """How a server is restored to the time of `save`."""

    def __init__(self) -> None:
        self.server: LocalPostgresql = LocalPostgresql(settings=self.settings)

    @property
    def settings(self) -> dict[str, str]:
        return {}

    @abc.abstractmethod
    def save(self) -> None: ...

    @abc.abstractmethod
    def restore(self, opened: ExitStack) -> None:
        """`server` is the restored one from here on."""


def copied(server: LocalPostgresql, what: str, to: str) -> None:
    """Of a server that was killed; its files keep their owner."""
    server.kill()
    subprocess.run(["rm", "-rf", server.directory / to], check=True)
    subprocess.run(["cp", "-a", server.directory / what, server.directory / to], check=True)


class Files(Way):
    @override
    def save(self) -> None:
        copied(self.server, "data", "backup")
        self.server.start()

    @override
    def restore(self, opened: ExitStack) -> None:
        copied(self.server, "backup", "data")
        self.server.start()


class PointInTime(Way):
    """The base backup is from before; what was committed after the point is in the archive too."""

    @property
    @override
    def settings(self) -> dict[str, str]:
        return {"archive_mode": "on", "archive_command": "mkdir -p ../archive && cp %p ../archive/%f"}

    @override
    def save(self) -> None:
        self._sql("SELECT pg_create_restore_point('here')")

    def begin(self) -> None:
        at = ("-h", "127.0.0.1", "-p", str(self.server.port), "-U", SUPERUSER)
        backup = str(self.server.directory / "backup")
        self.server.run("pg_basebackup", *at, "-D", backup, "--checkpoint=fast", "--no-sync")

    @override
    def restore(self, opened: ExitStack) -> None:
        self._sql("SELECT pg_switch_wal()")
        archived = "SELECT last_archived_wal >= pg_walfile_name(pg_current_wal_lsn() - 1) FROM pg_stat_archiver"
        wait_until(lambda: self._sql(archived) == [(True,)], "the archive is complete")
        copied(self.server, "backup", "data")
        data = self.server.directory / "data"
        with (data / "postgresql.conf").open("a") as file:
            file.write("restore_command = 'cp ../archive/%f %p'\nrecovery_target_name = 'here'\n")
            file.write("recovery_target_action = promote\narchive_mode = off\n")
        (data / "recovery.signal").touch()
        self.server.start()
        wait_until(lambda: self._sql("SELECT pg_is_in_recovery()") == [(False,)], "it takes writes")
        assert self._sql("SELECT timeline_id FROM pg_control_checkpoint()") != [(1,)]

    def _sql(self, statement: str) -> list[tuple[Any, ...]]:
        return SqlSink(self.server.address).sql(statement)


class Dump(Way):
    @override
    def save(self) -> None:
        self._run(self.server, "pg_dump", "-Fc", "-f", "dump", DATABASE)

    @override
    def restore(self, opened: ExitStack) -> None:
        before = self.server
        self.server = opened.enter_context(LocalPostgresql())
        # Whoever runs a server may not read the files of another one.
        self._run(before, "pg_restore", "-d", DATABASE, "dump")

    def _run(self, by: LocalPostgresql, program: str, *arguments: str) -> None:
        by.run(program, "-h", "127.0.0.1", "-p", str(self.server.port), "-U", SUPERUSER, *arguments)


def printed(name: str) -> str:
    """The command NAME of the steps that the page tells."""
    section = PAGE.read_text().partition("### Going on after a restore\n")[2].partition("\n## ")[0]
    [command] = re.findall(rf"`(sinkpipeline {name} [^`]*)`", section)
    return str(command)


def rows_of(partition: SourcePartition, offsets: range) -> RowBatch:
    return batch(offsets, [(str(each), str(partition.partition)) for each in offsets])


@pytest.mark.thorough("cells and rows that went back, in test_commits; this is a server's own files")
@pytest.mark.skipif(not has_program("pg_dump"), reason="no programs for clients: make postgresql")
@pytest.mark.parametrize("kind", [Files, PointInTime, Dump])
@pytest.mark.long("the other ways to restore a server", after=1)
def test_a_restored_server_goes_on_by_the_steps_of_the_page(kafka: LocalKafka, tmp_path: Path, kind: type[Way]) -> None:
    with ExitStack() as opened:
        way = kind()
        opened.enter_context(way.server)
        restored(kafka, tmp_path, way, opened)


def restored(kafka: LocalKafka, tmp_path: Path, way: Way, opened: ExitStack) -> None:
    topic, name, file = unique("orders"), unique("restored"), tmp_path / "sinkpipeline.yaml"
    create_topic(kafka.bootstrap_servers, topic, partitions=len(ROWS))
    for partition, count in ROWS.items():
        produce(kafka.bootstrap_servers, topic, [b"v"] * count, partition=partition)

    def settings() -> Any:
        """By the manifest, which names the server that is the one now."""
        given = table(
            "orders-table",
            servers=way.server.address,
            database=DATABASE,
            auth={"username": SUPERUSER},
            of_table={"schema": "public", "columns": {"off": "bigint", "part": "integer"}},
        )
        file.write_text(yaml.safe_dump(manifest(kafka.bootstrap_servers, name, [topic], sinks=[given])))
        [found] = resolve_sinks(parse_manifest(yaml.safe_load(file.read_text())), None)
        return found

    ends = {SourcePartition(topic, partition): count for partition, count in ROWS.items()}

    def rows() -> list[tuple[Any, ...]]:
        count = "SELECT part, off, count(*) FROM public.orders GROUP BY part, off ORDER BY part, off"
        return SqlSink(way.server.address).sql(count)

    def typed(command: str, *more: str) -> Any:
        done = CliRunner().invoke(cli, [*shlex.split(command.replace("sinkpipeline.yaml", str(file)))[1:], *more])
        assert done.exit_code == 0, done.output
        return done

    with Clients() as clients:
        if isinstance(way, PointInTime):
            way.begin()
        remembered = Remembered()
        driver = Driver(clients.ports(settings()), ends, STEP, rows_of, remembered)
        driver.batch()
        way.save()
        driver.batch()
        way.restore(opened)
        kept = rows()
        assert len(kept) == 2 * STEP, "the copy is older"
        driver.delivery.close()
        status = Remembered(remembered.memory)
        told = Reason.PROGRESS_LOST if isinstance(way, Dump) else Reason.PROGRESS_REGRESSED
        refusal(lambda: Driver(clients.ports(settings()), ends, STEP, rows_of, status), told)
        assert rows() == kept, "nothing is written"

        shown = json.loads(typed(printed("progress"), "-o", "json").stdout)
        offsets = {each["partition"]: each["next"] for each in shown}
        assert offsets == {0: STEP, 1: STEP}
        command = printed("reset").replace("orders:", f"{topic}:")
        for partition, at in offsets.items():
            command = command.replace(f":{partition}=NEXT", f":{partition}={at}")
        assert "NEXT" not in command
        typed(command, "--yes")
        again = Driver(clients.ports(settings()), ends, STEP, rows_of, Remembered())
        again.drain()
        for client in (*driver.worker._shared.values(), *again.worker._shared.values()):
            client.close()
    assert rows() == [(each.partition, off, 1) for each in ends for off in range(ends[each])]
