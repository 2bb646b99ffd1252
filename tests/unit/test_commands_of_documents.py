"""A command that a document prints can be typed as it is printed: it and its options are there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from sinkpipeline.cli.main import cli as command
from sinkpipeline_operator.plugin.main import cli as plugin

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_IN_A_LINE = re.compile(r"`((?:kubectl )?sinkpipeline [^`]+)`")
_BEGINS = re.compile(r"^ *(?:\$ )?((?:kubectl )?sinkpipeline .+)$", re.MULTILINE)
_GRAMMAR = re.compile(r"\[|\||\.\.\.")
"""Of a line that says what can be typed, and is not to be typed."""


def _printed() -> Iterator[tuple[str, bool]]:
    """Each command, and whether it is whole: in the middle of a sentence it may be a name alone."""
    for path in DOCUMENTS:
        text = path.read_text()
        for block in _BLOCK.findall(text):
            for line in _BEGINS.findall(block.replace("\\\n", " ")):
                is_grammar = _GRAMMAR.search(line)
                yield re.sub(r"[\[\]|]", " ", line) if is_grammar else line, not is_grammar
        for line in _IN_A_LINE.findall(text.replace("\n", " ")):
            yield line, False


def _read(words: Sequence[str], group: click.Command, name: str) -> tuple[click.Command, dict[str, object], list[str]]:
    """What the words are for the command that they end with: its values, and what it has no place for."""
    context = click.Context(group, info_name=name)
    values, rest, _ = group.make_parser(context).parse_args(list(words))
    if isinstance(group, click.Group) and rest:
        found = group.get_command(context, rest[0])
        if found is None:
            raise click.UsageError(f"{name} has no command {rest[0]}")
        return _read(rest[1:], found, f"{name} {rest[0]}")
    return group, dict(values), rest


def _wrong_name(words: Sequence[str], group: click.Command, name: str) -> str | None:
    """Of words that are no whole command: whether it, or one of its options, is not there."""
    names = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
    for option in ([], *([word] for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word))):
        try:
            _read([*names, *option], group, name)
        except click.BadOptionUsage:
            continue
        except click.UsageError as error:
            return error.format_message()
    return None


def wrong(line: str, *, whole: bool) -> str | None:
    """What a shell would say."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return "it is no line of a shell" if whole else None
    is_plugin = words[0] == "kubectl"
    group, name, rest = (
        (plugin, "kubectl sinkpipeline", words[2:]) if is_plugin else (command, "sinkpipeline", words[1:])
    )
    if not whole:
        return _wrong_name(rest, group, name)
    try:
        found, values, extra = _read(rest, group, name)
    except click.UsageError as error:
        return error.format_message()
    missing = [each.name for each in found.params if each.required and not values.get(each.name or "")]
    return f"it lacks {missing}, or has {extra} too many" if missing or extra else None


PRINTED = sorted(set(_printed()))


def test_documents_print_commands() -> None:
    assert len([line for line, whole in PRINTED if whole]) > 15


@pytest.mark.parametrize(("line", "whole"), PRINTED, ids=lambda value: str(value)[:60])
def test_what_a_document_prints_can_be_typed(line: str, whole: bool) -> None:
    assert wrong(line, whole=whole) is None


@pytest.mark.parametrize(
    "line",
    [
        "sinkpipeline validate sinkpipeline.yaml",
        "sinkpipeline validate -f a.yaml --purify",
        "sinkpipeline rerun -f a.yaml",
        "kubectl sinkpipeline restart a b",
    ],
)
def test_what_cannot_be_typed_is_noticed(line: str) -> None:
    assert wrong(line, whole=True) is not None
