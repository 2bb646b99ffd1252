"""Dead letters of a Redis stream, on a real broker: redriven once; and what is seen while nobody runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from servers.local_kafka import LocalKafka
from servers.redis import LocalRedis
from sinkpipeline.cli.main import cli
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.redrive import Letter
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.kafka.redrive import Summary
from sinkpipeline.kinds import Clients
from sinkpipeline.kinds.looking import inspect, preflight, purify
from sinkpipeline.kinds.resolve import resolve_sinks
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.removal import SinkRemoval
from sinkpipeline.sinks.reset import SinkReset
from support.app.command import manifest
from support.kafka import topics
from support.resource.redis import stream
from support.sink.cell_sink import COUNT, deliver_rest, handled_but_not_noted, redrive
from support.sink.redis_sink import LetteredRedis, batch, of_offsets

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def sink(kafka: LocalKafka, valkey: LocalRedis) -> Iterator[LetteredRedis]:
    found = LetteredRedis(valkey.address, servers=kafka.bootstrap_servers, stem=topics.unique("redis"))
    found.produce()
    yield found
    found.close()


@dataclass(frozen=True)
class Repaired:
    """A transform; it pickles, as a class of a module. `named`: whose rows have a header as the key is called."""

    named: frozenset[int] = frozenset()

    def __call__(self, letters: Sequence[Letter]) -> RowBatch | None:
        [partition] = {each.letter.record.partition for each in letters}
        found = batch(partition, range(COUNT))
        rows = [found.values[each.letter.record.offset] for each in letters]
        return replace(
            found,
            offsets=[each.id.offset for each in letters],
            values=rows,
            keys=[None] * len(rows),
            timestamps=[0] * len(rows),
            headers=[
                [("idempotency_key", b"x")] if each.letter.record.offset in self.named else None for each in letters
            ],
        )


def rows(bad: Sequence[int]) -> Any:
    """Rows of which these have no field."""
    return lambda partition, offsets: batch(partition, offsets, bad)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_letters_are_redriven_once(sink: LetteredRedis, exactly_once: bool) -> None:
    sink.changes = {"exactly_once": exactly_once}
    driver = sink.driver(COUNT, rows((1, 2, 7)))
    driver.drain()
    assert [each.record.offset for each in sink.letters()] == [1, 2, 7]
    assert {each.verdict.error_class for each in sink.letters()} == {ErrorClass.RECORD_REFUSED}
    assert sink.counted().total() == COUNT - 3
    assert redrive(sink.settings, Repaired()) == ([], Summary(delivered=3))
    assert redrive(sink.settings, Repaired()) == ([], Summary())
    assert sink.counted() == Counter((0, each) for each in range(COUNT))
    cells = sink.run("HKEYS", sink.stream.progress)
    assert not [each for each in cells if b"/d/" in each], "the cells of letters are gone"
    assert driver.dead == 3


def keys(sink: LetteredRedis) -> list[str]:
    """Without what they begin with: the epoch, and the offset."""
    found = [each[b"idempotency_key"].decode() for each in sink.entries()]
    assert all(each.startswith(f"i/{sink.name}/") and f"/{sink.at.topic}/0/" in each for each in found)
    return [f"{each.split('/')[2]}:{each.rpartition('/')[2]}" for each in found]


def test_a_redriven_row_has_the_key_that_its_record_would_have_had(sink: LetteredRedis) -> None:
    """A letter counts before its record's progress is written: after a crash the record may be delivered, too."""
    sink.changes = {"exactly_once": False}
    handled_but_not_noted(sink.driver(COUNT, rows((1, 2, 7))))
    assert len(keys(sink)) == COUNT - 3
    sink.driver(COUNT, rows((7,))).drain()
    assert [each.record.offset for each in sink.letters()] == [1, 2, 7, 7], "what was wrong with two of them was mended"
    assert redrive(sink.settings, Repaired())[1] == Summary(delivered=3, repeated=1)
    found = Counter(keys(sink))
    assert found.keys() == {f"0:{each}" for each in range(COUNT)}, "a reader that keeps keys has each row once"
    assert (found["0:1"], found["0:2"], found["0:7"]) == (2, 2, 1)


def test_a_letter_of_before_a_reset_has_the_key_of_that_time(sink: LetteredRedis) -> None:
    """After a reset another record may stand at that offset, which is no repetition."""
    sink.changes = {"exactly_once": False}
    sink.driver(COUNT, rows((1,))).drain()
    resetting = SinkReset(ports=sink.ports())
    resetting.carry_out(resetting.plan(parse_targets([f"{sink.at.topic}:0={COUNT - 1}"])))
    sink.driver(COUNT, rows((COUNT - 1,))).drain()
    assert redrive(sink.settings, Repaired())[1] == Summary(delivered=2)
    assert Counter(keys(sink)) == Counter([*(f"0:{each}" for each in range(COUNT)), f"1:{COUNT - 1}"])


@pytest.mark.thorough("of an earlier release, which wrote no epoch")
def test_a_letter_of_which_nobody_knows_the_epoch_is_redriven_without_a_key(sink: LetteredRedis) -> None:
    sink.changes = {"exactly_once": False}
    sink.driver(COUNT, rows((1, 7))).drain()
    found = sink.run("HGETALL", sink.stream.progress)
    for key, value in found.items():
        if b"/d/" in key and b"/1/" in key:
            sink.run("HSET", sink.stream.progress, key, value.replace(b',"epoch":0', b""))
    assert redrive(sink.settings, Repaired())[1] == Summary(delivered=2)
    assert [each[b"value"] for each in sink.entries() if b"idempotency_key" not in each] == [b"0/1"]


@pytest.mark.thorough("tests/redis/test_at_least_once has it of a row that was no letter")
def test_a_redriven_row_that_names_its_own_key_stays_a_letter(sink: LetteredRedis) -> None:
    sink.changes = {"exactly_once": False}
    sink.driver(COUNT, rows((1, 7))).drain()
    assert redrive(sink.settings, Repaired(named=frozenset({7})))[1] == Summary(delivered=1, dead_lettered=1)
    assert redrive(sink.settings, Repaired())[1] == Summary(delivered=1)
    assert Counter(keys(sink)) == Counter(f"0:{each}" for each in range(COUNT))


def test_what_is_seen_of_a_stream_while_nobody_runs_and_what_is_done_to_it(
    sink: LetteredRedis, valkey: LocalRedis, tmp_path: Path
) -> None:
    name = topics.unique("seen")
    wanted = stream(key=name, servers=valkey.address)
    path = tmp_path / "sinkpipeline.yaml"
    path.write_text(yaml.safe_dump(manifest(sink.servers, name, [sink.at.topic], sinks=[wanted])))
    [settings] = resolve_sinks(parse_manifest(yaml.safe_load(path.read_text())), None)

    def call(*arguments: str) -> Any:
        return CliRunner().invoke(cli, [*arguments, "-f", str(path)])

    assert preflight([settings]) == ()
    [finding] = purify([settings])
    assert finding.plan == "starts for the first time, creates the data stream"
    assert sink.run("KEYS", f"*{name}*") == [], "a look leaves nothing behind"
    deliver_rest(settings, sink.at, COUNT, of_offsets)
    [finding] = purify([settings])
    assert finding.plan == "resumes from its progress, creates nothing"
    assert "once a second" in "".join(finding.warnings)
    [line] = json.loads(call("progress", "-o", "json").stdout)
    assert (line["next"], line["lag"], line["rows"]) == (COUNT, 0, COUNT)
    assert (line["guarantee"], line["durability"]) == ("ExactlyOnce", "AsHeldBySink")
    report = inspect(settings, None)
    assert report.progress is not None
    assert (report.error, report.lag, report.progress.rows) == (None, 0, COUNT)
    done = call("reset", "--sink", "copy", "--to", "earliest", "--yes")
    assert done.exit_code == 0, done.output
    deliver_rest(settings, sink.at, COUNT, of_offsets)
    assert sink.run("XLEN", name) == 2 * COUNT
    with Clients() as clients:
        assert SinkRemoval(ports=clients.ports(settings)).carry_out() is None, "its stream does not stay"
    assert sink.run("EXISTS", name) == 0
