"""What is told of a table before it is written, and while nobody writes it; a source of a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, LocalPostgresql
from sinkpipeline.cli.main import cli
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.status import SinkReport
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.asked_reset import AskedReset
from sinkpipeline.kinds.looking import inspect, preflight, purify
from sinkpipeline.kinds.resolve import SinkSettings, resolve_sinks
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.removal import SinkRemoval
from support.app.command import manifest
from support.kafka.topics import create_topic, produce, unique
from support.resource.manifests import table
from support.sink.cell_sink import deliver_rest
from support.sink.sql_sink import SqlSink, batch

pytestmark = pytest.mark.kafka
ROWS = 5


class World:
    """A source with records, and a sink that nobody runs. The role of the sink owns nothing yet."""

    def __init__(self, kafka: LocalKafka, server: LocalPostgresql, path: Path) -> None:
        self.name = unique("looked").replace("-", "_")
        self.sql = SqlSink(server.address).sql
        self.servers, self.topic = kafka.bootstrap_servers, f"{self.name}-in"
        create_topic(self.servers, self.topic)
        produce(self.servers, self.topic, [b"v"] * ROWS)
        self.sql(f"CREATE ROLE {self.name} LOGIN")
        self.manifest = path / "sinkpipeline.yaml"
        self.address = server.address
        self.document = self.with_table()

    def with_table(self, **changes: Any) -> dict[str, Any]:
        """Writes the manifest."""
        given = {
            "servers": self.address,
            "database": DATABASE,
            "auth": {"username": self.name},
            "of_table": {"schema": self.name, "columns": {"off": "bigint", "value": "text"}},
            "progressSchema": f"{self.name}_progress",
            **changes,
        }
        document = manifest(
            self.servers, self.name.replace("_", "-"), [self.topic], sinks=[table(select=None, **given)]
        )
        self.manifest.write_text(yaml.safe_dump(document))
        return document

    @property
    def settings(self) -> SinkSettings:
        [found] = resolve_sinks(parse_manifest(yaml.safe_load(self.manifest.read_text())), None)
        return found

    def refused(self) -> SinkPipelineError:
        [finding] = purify([self.settings])
        assert finding.error is not None
        return finding.error

    def deliver(self) -> None:
        def rows(_partition: SourcePartition, offsets: range) -> RowBatch:
            return batch(offsets, [(str(each), "v") for each in offsets])

        deliver_rest(self.settings, SourcePartition(self.topic, 0), ROWS, rows)

    def call(self, *arguments: str) -> Any:
        return CliRunner().invoke(cli, [*arguments, "-f", str(self.manifest)])


@pytest.fixture
def world(kafka: LocalKafka, postgresql: LocalPostgresql, tmp_path: Path) -> World:
    return World(kafka, postgresql, tmp_path)


def test_what_is_missing_is_told_one_after_the_other_each_with_what_to_type(world: World) -> None:
    told = world.refused()
    assert (told.reason, told.message) == (
        Reason.SINK_REFUSED,
        f"database postgres has no schema {world.name}, and a start creates none for a table",
    )
    world.sql(f"CREATE SCHEMA {world.name}")
    told = world.refused()
    assert told.message == f"role {world.name} may not use schema {world.name} of database postgres"
    world.sql(told.remedy)
    told = world.refused()
    assert told.message == f"role {world.name} may create no table in schema {world.name} of database postgres"
    world.sql(told.remedy.partition(", or")[0])
    told = world.refused()
    assert told.message.endswith(f"no schema {world.name}_progress, and role {world.name} may create none")
    world.sql(told.remedy)
    [finding] = purify([world.settings])
    assert finding.plan == "starts for the first time, creates the progress table and the data table"
    assert (finding.error, finding.warnings) == (None, ())

    world.sql(f"CREATE TABLE {world.name}.orders (off bigint)")
    told = world.refused()
    assert told.reason is Reason.SINK_REFUSED
    assert "value" in told.message or "permission denied" in told.message
    world.sql(f"ALTER TABLE {world.name}.orders ADD value integer; GRANT INSERT ON {world.name}.orders TO {world.name}")
    [finding] = purify([world.settings])
    assert finding.warnings == (f"{world.name}.orders has column value=integer, the manifest says text",)


def test_a_server_that_is_not_there(world: World) -> None:
    world.with_table(servers="127.0.0.1:1")
    assert world.refused().reason is Reason.SINK_UNREACHABLE
    with pytest.raises(SinkPipelineError) as told:
        preflight([world.settings])
    assert told.value.reason is Reason.SINK_UNREACHABLE
    world.with_table(auth={"username": "nobody_of_this_name"})
    assert world.refused().reason is Reason.AUTHENTICATION_FAILED


def test_progress_reset_and_what_is_seen_of_a_table_that_nobody_writes(world: World) -> None:
    world.sql(f"CREATE SCHEMA {world.name} AUTHORIZATION {world.name}")
    world.sql(f"CREATE SCHEMA {world.name}_progress AUTHORIZATION {world.name}")
    world.deliver()
    done = world.call("progress", "-o", "json")
    assert done.exit_code == 0, done.output
    [line] = json.loads(done.stdout)
    assert (line["next"], line["lag"], line["rows"]) == (ROWS, 0, ROWS)
    synced = world.sql("SHOW fsync") == [("on",)]
    assert (line["guarantee"], line["durability"]) == ("ExactlyOnce", "Committed" if synced else "AtRisk")
    [finding] = purify([world.settings])
    assert finding.plan == "resumes from its progress, creates nothing"
    report = inspect(world.settings, None)
    assert (report.error, report.lag, report.progress.rows) == (None, 0, ROWS)

    done = world.call("reset", "--sink", "copy", "--to", "earliest", "--yes")
    assert done.exit_code == 0, done.output
    assert f"{world.name}.orders" in done.stderr
    world.deliver()
    assert world.sql(f"SELECT count(*), count(DISTINCT off) FROM {world.name}.orders") == [(2 * ROWS, ROWS)]

    asked = AskedReset(settings=world.settings)
    shown = asked.preview("earliest")
    assert f"what is in table {world.name}.orders stays; it is created if it is missing" in shown.text
    assert "is in epoch 2" in asked.carry_out(shown.resolved)
    assert "by an earlier attempt" in asked.carry_out(shown.resolved)

    world.deliver()
    world.sql(f"DROP TABLE {world.name}.orders")
    told = world.refused()
    assert told.reason is Reason.DATA_TOPIC_LOST
    assert f"table {world.name}.orders" in told.message
    seen: SinkReport = inspect(world.settings, None)
    assert seen.error is not None
    assert seen.error.reason is Reason.DATA_TOPIC_LOST


def test_a_removal_takes_the_progress_and_the_table_that_was_created_here(world: World) -> None:
    world.sql(f"CREATE SCHEMA {world.name} AUTHORIZATION {world.name}")
    world.sql(f"CREATE SCHEMA {world.name}_progress AUTHORIZATION {world.name}")
    world.deliver()
    label = f"{world.name}.orders"
    with Clients() as clients:
        ports = clients.ports(world.settings)
        assert ports.settings.owner == Owner(cluster="file", name=f"test/{world.name.replace('_', '-')}")
        removal = SinkRemoval(ports=ports, announced=frozenset({label}))
        assert removal.doomed() == (label,)
        assert removal.carry_out() is None
    assert world.sql(f"SELECT to_regclass('{label}')") == [(None,)]
    assert world.sql(f"SELECT count(*) FROM {world.name}_progress.progress") == [(0,)]
