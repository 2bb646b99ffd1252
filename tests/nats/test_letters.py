"""Dead letters of a stream, on a real broker: redriven into the stream once, and what is seen while nobody runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from servers.local_kafka import LocalKafka
from servers.nats import LocalNats
from sinkpipeline.cli.main import cli
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.redrive import Letter, LetterId
from sinkpipeline.kafka.redrive import Summary
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.looking import inspect, preflight, purify
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.sinks.contract import Restart, RowBatch
from sinkpipeline.sinks.removal import SinkRemoval
from support.app.command import manifest
from support.kafka import topics
from support.resource.streams import stream
from support.sink.cell_sink import COUNT, deliver_rest, handled_but_not_noted, redrive, redriving
from support.sink.nats_redrives import NatsRepaired, of_a_stream
from support.sink.nats_sink import LetteredNats, api, batch, messages, of_offsets
from support.sink.redrives import RedriveProcess
from support.sink.starts import refusal

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
BAD = "a.subject.of.nobody"


@pytest.fixture
def sink(kafka: LocalKafka, nats: LocalNats) -> Iterator[LetteredNats]:
    found = LetteredNats(nats.address, servers=kafka.bootstrap_servers, stem=topics.unique("nats"))
    found.produce()
    yield found
    found.close()


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
    assert redrive(sink.settings, NatsRepaired()) == ([], Summary(delivered=3))
    assert redrive(sink.settings, NatsRepaired()) == ([], Summary())
    assert sink.delivered() == sink.once
    cells = [each[1] for each in messages(sink.direct, sink.stream) if each[1].startswith("_sinkpipeline.")]
    assert not [each for each in cells if ".d." in each], "the cells of letters are gone, and leave nothing"
    assert driver.dead == 3


def ids(sink: LetteredNats) -> list[str]:
    """In the stream's order, without what they begin with: the epoch, and the offset."""
    found = [headers["Nats-Msg-Id"] for _, headers, _ in sink.rows()]
    assert all(each.startswith(f"i.1/{sink.name}/") and f"/{sink.at.topic}/0/" in each for each in found)
    return [f"{each.split('/')[2]}:{each.rpartition('/')[2]}" for each in found]


def test_a_redriven_row_has_the_id_that_its_record_would_have_had(sink: LetteredNats) -> None:
    sink.changes = {"exactly_once": False}
    sink.driver(COUNT, rows(sink, (1, 2, 7))).drain()
    assert redrive(sink.settings, NatsRepaired())[1] == Summary(delivered=3)
    assert ids(sink) == [f"0:{each}" for each in (0, 3, 4, 5, 6, 8, 9, 10, 11, 1, 2, 7)]


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.thorough("and a kill"))])
def test_a_row_that_is_there_already_is_not_stored_again_by_a_redrive(
    sink: LetteredNats, tmp_path: Path, is_killed: bool
) -> None:
    """A letter counts before its record's progress is written: after a crash the record may be delivered, too.

    Of a batch with such a row the server stores nothing.
    """
    sink.changes = {"exactly_once": False}
    handled_but_not_noted(sink.driver(COUNT, rows(sink, (1, 2, 7))))
    assert sink.delivered().total() == COUNT - 3
    sink.driver(COUNT, rows(sink, (7,))).drain()
    assert [each.record.offset for each in sink.letters()] == [1, 2, 7, 7], "what was wrong with two of them was mended"
    if is_killed:
        with RedriveProcess(tmp_path / "killed", sink.settings, run=of_a_stream) as killed:
            killed.arm("nats-rows-published")
            killed.until_held("nats-rows-published")
        assert sink.delivered() == sink.once, "the rows are there, and no letter is settled yet"
    assert redrive(sink.settings, NatsRepaired())[1] == Summary(delivered=3, repeated=1)
    assert sink.delivered() == sink.once
    assert sorted(ids(sink)) == sorted(f"0:{each}" for each in range(COUNT))
    assert redrive(sink.settings, NatsRepaired())[1] == Summary()


@pytest.mark.thorough("tests/nats/test_expiry has it of the progress alone")
def test_letters_count_also_where_messages_expire_since(sink: LetteredNats) -> None:
    """What says so was written before a message could say that it stays; the start after that writes it anew."""

    def of_letters() -> list[str | None]:
        return [each[2].get("Nats-TTL") for each in messages(sink.direct, sink.stream) if ".d." in each[1]]

    sink.create(allow_msg_ttl=False)
    driver = sink.driver(COUNT, rows(sink, (1, 2, 7)))
    driver.drain()
    assert of_letters() == [None] * 3
    sink.update(allow_msg_ttl=True, max_age=86_400 * 10**9)
    with pytest.raises(Restart):
        driver.delivery.check_world()
    driver.delivery.close()
    driver.start()
    assert of_letters()[-3:] == ["never"] * 3
    assert redrive(sink.settings, NatsRepaired())[1] == Summary(delivered=3)
    assert sink.delivered() == sink.once


@pytest.mark.parametrize(
    "left",
    [
        range(3),
        pytest.param(range(1_200), marks=pytest.mark.thorough("rows for all of them")),
        pytest.param(range(0), marks=pytest.mark.thorough("rows for none")),
    ],
)
def test_more_letters_than_a_batch_takes_with_their_cells(sink: LetteredNats, left: range) -> None:
    """Each costs no commit of its own, neither as it is refused nor as it is redriven. `where` may drop many."""
    many = LetteredNats(sink.address, servers=sink.servers, stem=topics.unique("nats"), count=1_200)
    many.produce()
    many.driver(1_200, rows(many, range(1_200))).drain()
    assert (len(many.letters()), many.delivered().total()) == (1_200, 0)
    _, done = redrive(many.settings, NatsRepaired(left))
    assert done == Summary(delivered=len(left), filtered=1_200 - len(left))
    assert many.delivered() == {(0, each): 1 for each in left}
    assert redrive(many.settings, NatsRepaired(left)) == ([], Summary())
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


def test_a_connection_that_is_lost_during_a_chunk_ends_no_redrive(sink: LetteredNats) -> None:
    """Versions of the letters' cells were read on it, and mean nothing on another one."""
    sink.driver(COUNT, rows(sink, (1, 2, 7))).drain()
    lost: list[object] = []

    def transform(letters: Sequence[Letter]) -> RowBatch | None:
        lost.append(found.ports.client.close())  # type: ignore[attr-defined]
        return NatsRepaired()(letters)

    with closing(redriving(sink.settings, transform)) as found:
        survey = found.survey()
        assert survey is not None
        assert found.carry_out(survey) == Summary(delivered=3)
    assert (len(lost), sink.delivered()) == (1, sink.once)


def test_a_letter_that_another_one_has_settled_while_the_connection_was_lost(sink: LetteredNats) -> None:
    """In another partition, so that no redrive fences the other one: the letter's cell is gone."""
    sink.driver(COUNT, rows(sink, (1, 2, 7))).drain()
    topics.add_partitions(sink.servers, sink.dead, 2)
    [again] = [each for each in topics.read_uncommitted(sink.servers, sink.dead) if offset_of(each.headers) == 2]
    topics.produce_whole(sink.servers, sink.dead, [(again.value, again.key, [*again.headers], 0)], partition=1)

    def transform(letters: Sequence[Letter]) -> RowBatch | None:
        with closing(redriving(sink.settings, NatsRepaired(), ids=(LetterId(1, 0),))) as newer:
            other = newer.survey()
            assert other is not None
            assert newer.carry_out(other) == Summary(delivered=1)
        found.ports.client.close()  # type: ignore[attr-defined]
        return NatsRepaired()(letters)

    with closing(redriving(sink.settings, transform)) as found:
        survey = found.survey()
        assert survey is not None
        refusal(lambda: found.carry_out(survey), Reason.SUPERSEDED)
    assert redrive(sink.settings, NatsRepaired())[1] == Summary(delivered=2, repeated=1)
    assert sink.delivered() == sink.once


def offset_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return int(dict(headers)["sinkpipeline.dlq.source.offset"] or b"")
