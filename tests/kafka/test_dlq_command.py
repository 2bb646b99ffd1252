"""`sinkpipeline dlq list`, `show` and `purge` on a real broker, and what `redrive` says before Spark is needed."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from servers.local_kafka import LocalKafka
from sinkpipeline.cli.main import cli
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason, SinkPipelineError
from support.app.command import manifest
from support.app.command import sink as sink_of
from support.kafka import topics
from support.kafka.raw import produce_raw
from support.sink.dead_letters import AT_MS
from support.sink.redrives import Dead, Repaired, dead

pytestmark = pytest.mark.kafka

COUNT = 6
Call = Callable[..., Result]


def document(task: Dead, *names: str) -> dict[str, Any]:
    return manifest(
        task.servers,
        task.sink.name,
        [task.sink.source],
        identity=task.sink.name,
        sinks=[
            {
                **sink_of(
                    name, topic=task.sink.data if name == "out" else name, progressTopic={"name": task.sink.progress}
                ),
                "deadLetter": {"topic": {"name": task.sink.dead}},
            }
            for name in names
        ],
    )


@pytest.fixture
def task(kafka: LocalKafka) -> Dead:
    """Its records 0 to 5 are dead letters at the offsets 0 to 5; 0 to 2 could not be decoded, the others placed."""
    task = dead(kafka.bootstrap_servers, COUNT)
    task.write(task.rows(range(COUNT), bad=range(3), astray=range(3, COUNT)))
    return task


@pytest.fixture
def call(task: Dead, tmp_path: Path) -> Call:
    return caller(task, tmp_path)


def caller(task: Dead, directory: Path) -> Call:
    file = directory / "sinkpipeline.yaml"
    file.write_text(yaml.safe_dump(document(task, "out")))

    def call(command: str, *more: str, answer: str | None = None) -> Result:
        # Not in a process of its own: to import all that `run` needs takes seconds.
        return CliRunner().invoke(cli, ["dlq", command, "-f", str(file), *more], input=answer)

    return call


def listed(call: Call, *more: str) -> list[dict[str, Any]]:
    result = call("list", "-o", "json", *more)
    assert result.exit_code == 0, result.exception
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def offsets(lines: list[dict[str, Any]]) -> list[str]:
    return [line["id"].partition(":")[2] for line in lines]


def reason(result: Result) -> Reason:
    assert isinstance(result.exception, SinkPipelineError), result.exception
    return result.exception.reason


def test_list_filters_and_tells_what_was_redriven(task: Dead, call: Call) -> None:
    assert listed(call)[0] | {"written": ""} == {
        "id": "0:0",
        "topic": task.sink.dead,
        "sink": "out",
        "state": "Pending",
        "stage": "decode",
        "class": "MalformedJson",
        "written": "",
        "source": {"topic": task.sink.source, "partition": 0, "offset": 0},
        "redrives": 0,
        "code": "",
        "reason": "no object",
    }
    assert offsets(listed(call, "--class", "PartitionOutOfRange")) == ["3", "4", "5"]
    assert offsets(listed(call, "--stage", "decode", "--stage", "serialize", "--limit", "4")) == ["0", "1", "2", "3"]
    assert listed(call, "--since", "1h", "--until", "2020-01-01T00:00:00Z") == []
    assert len(listed(call, "--since", "1h")) == COUNT
    task.redrive(
        Repaired(filtered=frozenset({0}), astray=frozenset({1})), classes=frozenset({ErrorClass.MALFORMED_JSON})
    )
    states = {f"{line['source']['offset']}/{line['redrives']}": line["state"] for line in listed(call)}
    assert states == {
        "0/0": "Filtered",
        "1/0": "DeadLettered",
        "1/1": "Pending",
        "2/0": "Delivered",
        **{f"{n}/0": "Pending" for n in (3, 4, 5)},
    }
    assert offsets(listed(call, "--state", "redriven")) == ["0", "1", "2"]
    assert len(listed(call, "--state", "pending")) == 4


def test_a_terminal_is_not_steered_and_nothing_is_shown_of_what_a_record_holds(task: Dead, call: Call) -> None:
    task.source.append((b"\x1b[31msecret\x1b[0m\xc2\x9b1m", b"\x1b]0;title\x07", [("\x1b[2J", b"\x1b[1m")], AT_MS))
    task.source.append((b"\xff\x00", None, [], AT_MS))
    topics.produce_whole(task.servers, task.sink.source, task.source[COUNT:])
    task.write(task.rows(range(COUNT, COUNT + 2), bad=[COUNT, COUNT + 1]))
    table = call("list")
    assert "\x1b" not in table.output
    assert "secret" not in table.output
    assert table.output.count("MalformedJson") == 5
    first, second = (f"0:{n}" for n in sorted(int(each) for each in offsets(listed(call)))[-2:])
    shown = call("show", first).output
    assert not set(shown) & set("\x1b\x07\x9b")
    assert "\\u001b[31msecret" in shown
    assert "header \\u001b[2J" in shown
    assert "not UTF-8, in base64:\n  /wA=" in call("show", second).output
    document = json.loads(call("show", first, "-o", "json").stdout)
    assert base64.b64decode(document["value"]["base64"]) == task.source[COUNT][0]
    assert base64.b64decode(document["key"]["base64"]) == task.source[COUNT][1]
    assert document["headers"] == [{"name": "\x1b[2J", "base64": base64.b64encode(b"\x1b[1m").decode()}]
    assert call("show", second, "--raw").stdout_bytes == b"\xff\x00"
    assert json.loads(call("show", second, "-o", "json").stdout)["key"] == {"base64": None}


def test_what_is_no_letter_is_counted_and_named(task: Dead, call: Call) -> None:
    version_2 = [("sinkpipeline.dlq.version", b"2")]
    newer = (b'{"version":2}', None, [("sinkpipeline.dlq.redriven", b"2")], 1)
    topics.produce_whole(task.servers, task.sink.dead, [(b"x", None, [], 1), (b"x", None, version_2, 1), newer])  # type: ignore[list-item]
    produce_raw(task.servers, task.sink.dead, [(b"x", None, [(b"\xff", b"1"), (b"sinkpipeline.dlq.version", b"1")])])
    result = call("list")
    assert result.stdout.count("Pending") == COUNT
    assert "has 4 records that are no dead letters, the first is 0:7: the record has no header" in result.stderr
    assert reason(call("show", "0:7")) is Reason.USAGE_INVALID
    assert reason(call("redrive", "--dry-run")) is Reason.PROGRESS_VERSION_UNKNOWN


@pytest.mark.parametrize("wrong", ["0:99", "0:6", "5:0", "x", "0:", "0:-1"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_ids_that_are_none(call: Call, wrong: str) -> None:
    """Offset 6 is the marker of the transaction."""
    for command in ("show", "redrive"):
        assert reason(call(command, "--", wrong)) is Reason.USAGE_INVALID


def test_an_empty_topic_and_none(kafka: LocalKafka, tmp_path: Path) -> None:
    task = dead(kafka.bootstrap_servers, COUNT)
    call = caller(task, tmp_path)
    assert listed(call) == []
    assert call("redrive").exit_code == 0
    assert "nothing was deleted" in call("purge", "--redriven", "--yes").stderr
    topics.delete_topic(task.servers, task.sink.dead)
    for command in (["list"], ["redrive"], ["purge", "--redriven", "--yes"]):
        result = call(*command)
        assert (result.exit_code, "does not exist" in result.stderr) == (0, True)
    assert reason(call("show", "0:0")) is Reason.USAGE_INVALID


def test_a_dry_run_says_what_is_pending(task: Dead, call: Call) -> None:
    task.redrive(classes=frozenset({ErrorClass.MALFORMED_JSON}))
    result = call("redrive", "--dry-run", "-o", "json")
    assert json.loads(result.stdout)["pending"] == 3
    assert "3 letters" in result.stderr
    assert "(PartitionOutOfRange 3), 3 were redriven before" in result.stderr
    assert task.pending() == 3


def test_back_to_the_source_each_record_goes_once_and_as_it_was(task: Dead, call: Call) -> None:
    result = call("redrive", "--to", "source", "--class", "PartitionOutOfRange", "--rate", "2", "-o", "json")
    assert result.exit_code == 0, result.exception
    assert json.loads(result.stdout) == {
        "delivered": 0,
        "returned": 3,
        "filtered": 0,
        "deadLettered": 0,
        "repeated": 0,
        "kept": 0,
        "uncounted": 0,
        "gone": 0,
        "pending": 0,
    }
    assert call("redrive", "--to", "source").stdout.split()[-9:] == ["0", "3", *"0000000"]
    assert call("redrive", "--to", "source").exit_code == 0
    found = topics.read_committed(task.servers, task.sink.source)[COUNT:]
    assert [(each.value, each.key, each.headers, each.timestamp) for each in found] == task.source[3:] + task.source[:3]
    assert {line["state"] for line in listed(call)} == {"Returned"}
    assert task.sink.delivered() == []


@pytest.mark.thorough("a mistake of a person; the command is in make test")
def test_a_source_that_is_another_one_gets_nothing_back(task: Dead, call: Call) -> None:
    topics.recreate_topic(task.servers, task.sink.source)
    assert reason(call("redrive", "--to", "source")) is Reason.SOURCE_RECREATED
    assert topics.read(task.servers, task.sink.source) == []
    assert task.pending() == COUNT


def test_where_a_return_would_be_read_by_others_or_twice(task: Dead, tmp_path: Path) -> None:
    several = document(task, "out", "other")
    uncommitted = document(task, "out")
    uncommitted["spec"]["source"]["kafka"]["isolationLevel"] = "read_uncommitted"
    elsewhere = document(task, "out")
    elsewhere["spec"]["source"]["kafka"]["bootstrapServers"] = "127.0.0.1:1,127.0.0.1:2"
    elsewhere["spec"]["sinks"][0]["kafka"]["bootstrapServers"] = task.servers
    for number, each in enumerate((several, uncommitted, elsewhere)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(each))
        call = ["dlq", "redrive", "-f", str(file), "--sink", "out", "--to", "source"]
        assert reason(CliRunner().invoke(cli, call)) is Reason.USAGE_INVALID
    assert task.pending() == COUNT


@pytest.mark.thorough("a mistake of a person; the command is in make test")
def test_which_sink_has_to_be_said(task: Dead, tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump(document(task, "out", "other")))
    arguments = ["-f", str(file)]
    assert len(json.loads(CliRunner().invoke(cli, ["dlq", "list", *arguments, "-o", "json"]).stdout)) == COUNT
    assert reason(CliRunner().invoke(cli, ["dlq", "redrive", *arguments])) is Reason.USAGE_INVALID
    assert CliRunner().invoke(cli, ["dlq", "show", *arguments, "0:0"]).exit_code == 0, "they share the topic"
    listed_of_other = CliRunner().invoke(cli, ["dlq", "list", *arguments, "--sink", "other", "-o", "json"])
    assert json.loads(listed_of_other.stdout) == []
    assert f"letters of other sinks too ({task.sink.name}/out: {COUNT})" in listed_of_other.stderr
    assert reason(CliRunner().invoke(cli, ["dlq", "list", *arguments, "--sink", "none"])) is Reason.USAGE_INVALID


def test_purge_asks_and_says_what_would_be_lost(task: Dead, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    task.redrive(ids=frozenset(id_ for source, id_ in task.ids().items() if source in (0, 1, 4)))
    assert reason(call("purge", "--redriven")) is Reason.USAGE_INVALID, "nobody can be asked"
    assert reason(call("purge", "--yes")) is Reason.USAGE_INVALID, "no bound"
    assert reason(call("purge", "--yes", "--before-offset", "0:1000")) is Reason.USAGE_INVALID
    shown = call("purge", "--before-offset", "0:4", "--dry-run")
    assert shown.stdout.split()[-5:] == ["0", "0", "4", "4", "2"]
    assert f"2 PENDING letters of {task.sink.name}/out are deleted for good" in shown.stderr
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True), exit=sys.exit)
    monkeypatch.setattr("sinkpipeline.cli.dlq.purging.sys", terminal)
    declined = call("purge", "--redriven", answer="n\n")
    assert (declined.exit_code, topics.offsets(task.servers, task.sink.dead)[0]) == (1, 0)
    assert call("purge", "--redriven", answer="y\n").exit_code == 0
    assert topics.offsets(task.servers, task.sink.dead)[0] == 2, "up to the first pending one"
    assert task.pending() == 3
    assert call("purge", "--until", "0s", "--yes").exit_code == 0
    assert listed(call) == []
    assert task.delivered() == [0, 1, 4]
