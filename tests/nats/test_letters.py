"""Dead letters of a stream, on a real broker: redriven into the stream once, and what is seen while nobody runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from servers.local_kafka import LocalKafka
from servers.nats import LocalNats
from sinkpipeline.cli.main import cli
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.redrive import Letter
from sinkpipeline.kafka.redrive import Summary
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.looking import inspect, preflight, purify
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.removal import SinkRemoval
from support.app.command import manifest
from support.kafka import topics
from support.resource.streams import stream
from support.sink.cell_sink import COUNT, deliver_rest, redrive
from support.sink.nats_sink import LetteredNats, api, batch, messages, of_offsets

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
BAD = "a.subject.of.nobody"


@pytest.fixture
def sink(kafka: LocalKafka, nats: LocalNats) -> Iterator[LetteredNats]:
    found = LetteredNats(nats.address, servers=kafka.bootstrap_servers, stem=topics.unique("nats"))
    found.produce()
    yield found
    found.close()


@dataclass(frozen=True)
class Repaired:
    """A transform; it pickles, as a class of a module."""

    def __call__(self, letters: Sequence[Letter]) -> RowBatch | None:
        values = [b"0:%d redriven" % each.letter.record.offset for each in letters]
        return batch([each.id.offset for each in letters], values)


def rows(sink: LetteredNats, bad: Sequence[int]) -> Any:
    """Rows of which these have a subject that the stream does not take."""

    def make(_partition: object, offsets: range) -> RowBatch:
        found = batch(offsets, [b"0:%d" % each for each in offsets])
        subjects = [BAD if each in bad else sink.subject for each in offsets]
        found.keys[:] = [each.encode() for each in subjects]
        return found

    return make


@pytest.mark.parametrize("exactly_once", [True, False])
def test_letters_are_redriven_once(sink: LetteredNats, exactly_once: bool) -> None:
    sink.changes = {"exactly_once": exactly_once}
    driver = sink.driver(COUNT, rows(sink, (1, 2, 7)))
    driver.drain()
    assert [each.record.offset for each in sink.letters()] == [1, 2, 7]
    assert {each.verdict.error_class for each in sink.letters()} == {ErrorClass.SUBJECT_INVALID}
    assert sink.delivered().total() == COUNT - 3
    assert redrive(sink.settings, Repaired()) == ([], Summary(delivered=3))
    assert redrive(sink.settings, Repaired()) == ([], Summary())
    assert sink.delivered() == sink.once
    cells = [each[1] for each in messages(sink.direct, sink.stream) if each[1].startswith("_sinkpipeline.")]
    assert not [each for each in cells if ".d." in each], "the cells of letters are gone, and leave nothing"
    assert driver.dead == 3


@pytest.mark.thorough("many of them")
def test_more_letters_than_a_batch_takes_with_their_cells(sink: LetteredNats) -> None:
    """Each costs no commit of its own, neither as it is refused nor as it is redriven."""
    many = LetteredNats(sink.address, servers=sink.servers, stem=topics.unique("nats"), count=600)
    many.produce()
    many.driver(600, rows(many, range(600))).drain()
    assert (len(many.letters()), many.delivered().total()) == (600, 0)
    _, done = redrive(many.settings, Repaired())
    assert done == Summary(delivered=600)
    assert many.delivered() == many.once
    many.close()


def test_what_is_seen_of_a_stream_while_nobody_runs_and_what_is_done_to_it(
    sink: LetteredNats, nats: LocalNats, tmp_path: Path
) -> None:
    name = topics.unique("seen")
    wanted = stream(servers=nats.address, subject=f"{name}.all", of_stream={"name": name})
    path = tmp_path / "sinkpipeline.yaml"
    path.write_text(yaml.safe_dump(manifest(sink.servers, name, [sink.at.topic], sinks=[wanted])))
    [settings] = resolve_sinks(parse_manifest(yaml.safe_load(path.read_text())), None)

    def call(*arguments: str) -> Any:
        return CliRunner().invoke(cli, [*arguments, "-f", str(path)])

    assert preflight([settings]) == ()
    [finding] = purify([settings])
    assert finding.plan == "starts for the first time, creates the data stream"
    deliver_rest(settings, sink.at, COUNT, of_offsets)
    [finding] = purify([settings])
    assert finding.plan == "resumes from its progress, creates nothing"
    assert "1 replica" in "".join(finding.warnings)
    [line] = json.loads(call("progress", "-o", "json").stdout)
    assert (line["next"], line["lag"], line["rows"]) == (COUNT, 0, COUNT)
    assert (line["guarantee"], line["durability"]) == ("ExactlyOnce", "AsHeldBySink")
    report = inspect(settings, None)
    assert (report.error, report.lag, report.progress.rows) == (None, 0, COUNT)
    done = call("reset", "--sink", "copy", "--to", "earliest", "--yes")
    assert done.exit_code == 0, done.output
    deliver_rest(settings, sink.at, COUNT, of_offsets)
    assert api(nats.address, f"STREAM.INFO.{name}", subjects_filter=f"{name}.>")["state"]["subjects"] == {
        f"{name}.all": 2 * COUNT
    }
    with Clients() as clients:
        assert SinkRemoval(ports=clients.ports(settings)).carry_out() is None, "its stream does not stay"
    assert "error" in api(nats.address, f"STREAM.INFO.{name}")
