"""The command as somebody meets it who types it wrong: what is told on the terminal, and the exit code. No broker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import yaml

from sinkpipeline.cli import validate as validate_command
from sinkpipeline.cli.main import cli, main
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.finding import Finding
from sinkpipeline.core.naming import SinkId
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.diagnosis import unreachable
from sinkpipeline.spark.expressions import ExpressionsInvalid, Problem
from sinkpipeline.spark.session import with_jars
from support.resource.manifests import KAFKA, SINK, changed, smallest

Call = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*arguments: str) -> tuple[int, list[str], list[str]]:
        """Exit code, and the lines of standard output and standard error."""
        monkeypatch.setattr(sys, "argv", ["sinkpipeline", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out.splitlines(), err.splitlines()

    return called


@pytest.mark.parametrize("command", [(), ("dlq",)])
def test_without_a_command_it_shows_its_help(call: Call, command: tuple[str, ...]) -> None:
    code, out, err = call(*command)
    assert (code, err) == (0, [])
    assert out == call(*command, "--help")[1]


def test_no_line_of_help_is_cut(call: Call) -> None:
    for command in ((), ("dlq",), *((name,) for name in cli.commands)):
        _, out, _ = call(*command, "--help")
        assert [line for line in out if line.rstrip().endswith("...") and "Usage:" not in line] == []


def test_each_problem_has_a_line_and_a_remedy_of_its_own(call: Call, tmp_path: Path) -> None:
    document = changed(smallest(), ((*KAFKA, "isolationLevel"), "some"), ((*SINK, "onExistingData"), "Delete"))
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.dump(document))
    code, out, err = call("validate", "-f", str(manifest), "--offline")
    assert (code, out) == (2, [])
    first, second, last = err
    assert first == 'spec.source.kafka.isolationLevel: is "some"; use read_committed or read_uncommitted'
    assert second == 'spec.sinks[0].onExistingData: is "Delete"; use Append or Refuse'
    assert last.startswith("ManifestInvalid: 2 problems, which the lines above tell (correct the manifest where")


def test_wrong_syntax_is_shown_with_a_mark_at_its_place(call: Call, tmp_path: Path) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text("kind: SinkPipeline\nspec: {sinks: ]\n")
    code, _, (line, mark, last) = call("validate", "-f", str(manifest), "--offline")
    assert code == 2
    assert line.strip() == "spec: {sinks: ]"
    assert mark.index("^") == line.index("]")
    assert last.startswith(f"ManifestInvalid: {manifest} is not YAML, line 2, column 15: ")
    assert last.endswith(" (correct the syntax at that place)")


def test_wrong_arguments_of_a_reset_are_told_before_a_terminal_is_asked_for(call: Call, tmp_path: Path) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.dump(smallest()))
    reset = ("reset", "-f", str(manifest), "--to", "earliest")
    assert "the manifest has no sink nobody" in call(*reset, "--sink", "nobody")[2][-1]
    assert "has no sink nobody" in call("progress", "-f", str(manifest), "--sink", "nobody")[2][-1]
    assert "--yes" in call(*reset, "--sink", smallest()["spec"]["sinks"][0]["name"])[2][-1]


def test_programs_are_told_where_a_first_start_begins(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ("begins from consumer group old: t-0 at 7", "what it wrote since is delivered again")
    found = [
        Finding(SinkId("shop.orders", "first"), None, None, begins=told),
        Finding(SinkId("shop.orders", "second"), None, None),
    ]
    monkeypatch.setattr(validate_command, "purify", lambda _: found)
    monkeypatch.setattr(validate_command, "_check_expressions", lambda *_: None)
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.dump(smallest()))
    code, out, _ = call("validate", "-f", str(manifest), "-o", "json")
    assert code == 0
    assert [each.get("begins") for each in json.loads("\n".join(out))["sinks"]] == [list(told), None]


def test_all_that_is_wrong_is_told_at_once(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expressions too where a Secret is missing or a broker refuses; the last line is of what was found first."""
    away = SinkPipelineError(Reason.BROKER_UNREACHABLE, "k:1 refuses", "start it")
    wrong = [Problem("spec.transform.where", "no column a", "name one"), Problem("spec.decode", "no", "another")]
    checked: list[int] = []

    def check(_: object, sinks: list[object], *__: object) -> None:
        checked.append(len(sinks))
        raise ExpressionsInvalid(wrong)

    monkeypatch.setattr(validate_command, "purify", lambda sinks: [Finding(each.id, None, away) for each in sinks])
    monkeypatch.setattr(validate_command, "_check_expressions", check)
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.dump(smallest()))
    told = ["spec.transform.where: no column a; name one", "spec.decode: no; another"]
    last = "ExpressionInvalid: 2 problems, which the lines above tell (name one; another)"

    code, _, err = call("validate", "-f", str(manifest))
    refused = "BrokerUnreachable: k:1 refuses (start it)"
    assert (code, err) == (1, [f"sink {smallest()['spec']['sinks'][0]['name']}: {refused}", *told, last, refused])

    auth = {"sasl": {"mechanism": "PLAIN", "username": "u", "passwordSecretRef": {"name": "s", "key": "k"}}}
    manifest.write_text(yaml.dump(changed(smallest(), ((*KAFKA, "auth"), auth))))
    code, _, err = call("validate", "-f", str(manifest))
    assert (code, err[1:-1]) == (3, [*told, last])
    assert err[0] == err[-1]
    assert err[0].startswith("SecretNotFound: ")
    assert checked == [1, 0]

    assert call("validate", "-f", str(manifest), "--offline")[::2] == (2, [*told, last])


def test_without_the_registry_expressions_have_no_columns(call: Call, tmp_path: Path) -> None:
    decode = {"format": "avro", "schemaRegistry": {"url": "http://registry:8081"}}
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.dump(changed(smallest(), (("spec", "decode"), decode))))
    why = "not checked: their columns are in the schema registry"
    assert call("validate", "-f", str(manifest), "--offline")[:2] == (0, [ANY, f"expressions: {why}"])
    code, out, _ = call("validate", "-f", str(manifest), "--offline", "-o", "json")
    document = json.loads("\n".join(out))
    assert (code, document["valid"]) == (0, True)
    assert document["warnings"] == [{"sink": None, "message": f"expressions: {why}"}]
    in_clear = {"basic": {"username": "u", "passwordSecretRef": {"name": "s", "key": "k"}}}
    decode["schemaRegistry"] = {"url": "http://registry:8081", "auth": in_clear}
    manifest.write_text(yaml.dump(changed(smallest(), (("spec", "decode"), decode))))
    code, out, _ = call("validate", "-f", str(manifest), "--offline")
    assert (code, out[1][:37]) == (0, "warning: spec.decode.schemaRegistry: ")
    code, out, _ = call("validate", "-f", str(manifest), "--offline", "-o", "json")
    assert len(json.loads("\n".join(out))["warnings"]) == 2


@pytest.mark.parametrize(
    ("reason", "path"), [(Reason.SCHEMA_NOT_FOUND, "spec.decode"), (Reason.SPARK_FAILED, None)], ids=str
)
def test_columns_that_are_not_to_be_had_have_a_path(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: Reason, path: str | None
) -> None:
    def check(*_: object) -> None:
        raise SinkPipelineError(reason, "no", "x")

    monkeypatch.setattr(validate_command, "_check_expressions", check)
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.dump(smallest()))
    [problem] = json.loads("\n".join(call("validate", "-f", str(manifest), "--offline", "-o", "json")[1]))["problems"]
    assert (problem["path"], problem["reason"]) == (path, reason.value)


def test_a_shell_is_told_what_fits_before_anything_slow_is_imported() -> None:
    """Spark, the Kafka client and the manifest's types take half a second and more, at each press of a key."""
    slow = ("pyspark", "confluent_kafka", "pydantic", "rich")
    script = f"""
import sys
sys.argv = ["sinkpipeline"]
from sinkpipeline.cli.main import main
try:
    main()
except SystemExit:
    pass
print("slow:", *sorted({{each.partition(".")[0] for each in sys.modules}} & set({slow!r})))
"""
    for words, fitting in (("sinkpipeline val", "plain,validate"), ("sinkpipeline dlq redrive --cl", "plain,--class")):
        *before, _ = words.split()
        environ = {"_SINKPIPELINE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(before))}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split("\n")[:2] == [fitting, "slow:"]


def test_all_problems_are_one_document_for_programs(call: Call, tmp_path: Path) -> None:
    document = changed(smallest(), ((*KAFKA, "isolationLevel"), "some"), ((*SINK, "onExistingData"), "Delete"))
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.dump(document))
    code, out, (last,) = _with_last_line(call("validate", "-f", str(manifest), "-o", "json"))
    assert code == 2
    assert json.loads("\n".join(out)) == {
        "valid": False,
        "problems": [
            {
                "path": "spec.source.kafka.isolationLevel",
                "reason": "ManifestInvalid",
                "message": 'is "some"',
                "remedy": "use read_committed or read_uncommitted",
            },
            {
                "path": "spec.sinks[0].onExistingData",
                "reason": "ManifestInvalid",
                "message": 'is "Delete"',
                "remedy": "use Append or Refuse",
            },
        ],
        "warnings": [],
        "sinks": [],
    }
    assert last.startswith("ManifestInvalid: 2 problems")
    manifest.write_text("kind: [")
    code, out, _ = call("validate", "-f", str(manifest), "-o", "json")
    [problem] = json.loads("\n".join(out))["problems"]
    assert (code, problem["path"]) == (2, None)
    assert "is not YAML, line 1" in problem["message"]


def _with_last_line(called: tuple[int, list[str], list[str]]) -> tuple[int, list[str], list[str]]:
    code, out, err = called
    return code, out, err[-1:]


def test_addresses_that_lead_nowhere_are_told_as_such() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{probe.getsockname()[1]}"
        error = unreachable(Connection(bootstrap_servers=f"nohost.invalid:9092,{closed}"))
        assert error is not None
        assert error.message == f"the host name nohost.invalid does not resolve, and {closed} refuses connections"
        probe.listen()
        assert unreachable(Connection(bootstrap_servers=f"nohost.invalid:9092,{closed}")) is None, "one may answer"


def test_jars_are_those_of_spark(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several by a comma or by several options, once each, as URIs."""
    asked: list[Any] = []
    monkeypatch.setattr(validate_command, "validate", lambda *_, jars, **__: asked.append(jars))
    jars = [tmp_path / name for name in ("a.jar", "b #1%.jar", "c.jar")]
    for jar in jars:
        with zipfile.ZipFile(jar, "w"):
            pass
    monkeypatch.chdir(tmp_path)
    code, _, err = call("validate", "-f", "m.yaml", "--jars", f"a.jar, {jars[1]}", "--jars", "c.jar,a.jar")
    assert (code, err) == (0, [])
    [given] = asked
    directory = tmp_path.as_uri()
    assert given == (f"{directory}/a.jar", f"{directory}/b%20%231%25.jar", f"{directory}/c.jar")
    assert with_jars({"spark.a": "b"}, given) == {"spark.a": "b", "spark.jars": ",".join(given)}
    assert with_jars({"spark.a": "b"}, ()) == {"spark.a": "b"}


@pytest.mark.parametrize(
    ("jars", "fact"),
    [("none.jar", "none.jar is no file of this machine"), ("m.yaml", "is no jar"), ("", "an empty name is no file")],
)
def test_what_is_no_jar_is_told_before_spark_starts(call: Call, tmp_path: Path, jars: str, fact: str) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.safe_dump(smallest()))
    for command in ("run", "validate", "preview", "dlq redrive"):
        code, _, err = call(*command.split(), "-f", str(manifest), "--jars", jars and str(tmp_path / jars))
        assert code == 2, command
        assert err[-1].startswith("UsageInvalid: ")
        assert fact in err[-1]
