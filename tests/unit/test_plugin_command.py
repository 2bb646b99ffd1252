"""The arguments of `kubectl sinkpipeline`, without an API server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sinkpipeline_operator.plugin import main
from sinkpipeline_operator.plugin.main import cli

NOWHERE = {"KUBECONFIG": "/nowhere/kubeconfig"}


def run(entry: str, *words: str) -> subprocess.CompletedProcess[str]:
    """As the entry point does; the last line says what was imported of what is slow."""
    script = (
        f"import sys; sys.argv = {['plugin', *words]!r}\n"
        f"from sinkpipeline_operator.plugin.main import {entry}\n"
        f"try:\n    {entry}()\n"
        "finally:\n"
        "    print('slow:', *sorted({name.partition('.')[0] for name in sys.modules} & {'kubernetes', 'pydantic'}))\n"
    )
    environ = {**os.environ, **NOWHERE, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_kubectl_is_told_what_fits_before_anything_slow_is_imported() -> None:
    done = run("complete", "dlq", "redrive", "orders", "--class", "MalformedJ")
    assert done.stdout.splitlines() == ["MalformedJson", ":4", "slow:"]


def test_where_no_cluster_answers_a_shell_is_told_nothing() -> None:
    done = run("complete", "status", "")
    assert done.stdout.splitlines()[:-1] == [":4"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["status", "orders"], "ApiServerUnreachable: no Kubernetes API server is known: ", 1),
        (["fly"], "UsageInvalid: No such command 'fly'. (see --help)", 2),
        (["reset", "orders", "--sink", "x", "--to", "12", "--yes"], "UsageInvalid: target 12 names no partition", 1),
        (["reset", "orders", "--sink", "x", "--to", "latest"], "UsageInvalid: standard input is no terminal", 1),
        (["dlq", "purge", "orders", "--sink", "x", "--yes"], "UsageInvalid: name exactly one bound", 1),
    ],
)
def test_what_is_wrong_is_one_line(
    words: list[str], told: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", NOWHERE["KUBECONFIG"])
    monkeypatch.setattr(sys, "argv", ["plugin", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (code, "")
    assert err.startswith(told)
    assert err.count("\n") == 1


def test_no_line_of_help_is_cut() -> None:
    commands = [[], ["dlq"], *([name] for name in cli.commands)]
    for command in commands:
        text = CliRunner().invoke(cli, [*command, "--help"]).stdout
        assert [line for line in text.splitlines() if line.rstrip().endswith("...") and "Usage:" not in line] == []
