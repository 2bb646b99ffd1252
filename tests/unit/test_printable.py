"""Whatever others have written, it does nothing to the terminal that shows it."""

from __future__ import annotations

import io
import json
import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.logging import RichHandler

from sinkpipeline.cli.say import say
from sinkpipeline.cli.tables import table
from sinkpipeline.core.log_lines import Json, Plain
from sinkpipeline.core.printable import printable
from sinkpipeline_operator.plugin import say as plugin
from sinkpipeline_operator.plugin.text import columns, indented

FORGED = "\x1b[2Jall is well\x9b1m\r\u202e\x00\U000e0041\ud800"
SHOWN = "\\u001b[2Jall is well\\u009b1m\\u000d\\u202e\\u0000\\U000e0041\\ud800"


@given(st.text())
def test_what_is_printed_does_nothing_to_who_prints_it(text: str) -> None:
    shown = printable(text)
    assert {unicodedata.category(each) for each in shown if each not in "\n\t"}.isdisjoint({"Cc", "Cf", "Cs", "Zl"})
    if text.isprintable():
        assert shown == text


@given(st.text())
def test_json_means_the_same(text: str) -> None:
    assert json.loads(printable(json.dumps(text))) == text


@pytest.mark.parametrize("tell", [say, plugin.say])
def test_commands_print_escapes(tell: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(tell)
    tell(FORGED)
    tell(FORGED, err=True, end="")
    assert capsys.readouterr() == (f"{SHOWN}\n", SHOWN)


def test_a_log_is_printed_as_it_comes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    whole = "one é\n\ttwo \x1b[31m日\n".encode() + b"\xff"
    plugin.say_log(bytes([each]) for each in whole)
    assert capfdbinary.readouterr().out.decode() == "one é\n\ttwo \\u001b[31m日\n\\xff"


def test_lines_of_logs_hold_escapes() -> None:
    record = logging.LogRecord("sinkpipeline", logging.WARNING, "", 0, "%s", (FORGED,), None)
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    handler = RichHandler(console=console, show_path=False, show_time=False, show_level=False)
    handler.setFormatter(Plain("%(message)s"))
    handler.emit(record)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().strip() == SHOWN
    line = Json().format(record)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == FORGED


def test_a_second_line_passes_for_none_of_ours() -> None:
    forged = "waiting\nsink enriched: Running"
    assert indented([forged]) == ["  waiting\n      sink enriched: Running"]
    assert columns([["NAME"], [forged]])[1:] == ["waiting sink enriched: Running"]
    assert table(("reason",), [[forged]], heads=1, width=None).splitlines()[1:] == ["waiting sink enriched: Running"]
