"""`sinkpipeline dlq list`: one line a letter, never with contents of its record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sinkpipeline.cli.dlq.contents import Contents, read_contents
from sinkpipeline.cli.dlq.selection import Filters, by_topic, find_topic, missing, sinks_of
from sinkpipeline.cli.dlq.showing import position_of
from sinkpipeline.cli.say import say
from sinkpipeline.cli.tables import table, terminal_width
from sinkpipeline.core.deadletter import reason_of
from sinkpipeline.core.redrive import PENDING, Letter
from sinkpipeline.core.status import timestamp


@dataclass(frozen=True)
class _Line:
    id: str
    topic: str
    sink: str
    state: str
    stage: str
    error_class: str
    written: str
    source: dict[str, str | int]
    redrives: int
    code: str
    reason: str


def list_letters(
    manifest: Path, secrets_dir: Path | None, sink: str | None, filters: Filters, state: str, limit: int, output: str
) -> None:
    """Letters go to stdout, everything else to stderr."""
    sinks = sinks_of(manifest, secrets_dir, sink)
    wanted = filters.wanted(sinks)
    lines: list[_Line] = []
    for group in by_topic(sinks):
        topic = find_topic(group[0])
        if topic is None:
            say(missing(group[0]), err=True)
            continue
        contents = read_contents(group[0], topic)
        found = [each for each in contents.letters if wanted.matches(each) and _is(state, contents.state(each))]
        lines += [_line(contents, each) for each in sorted(found, key=lambda each: (each.at, each.id))]
        for note in contents.notes(frozenset(each.id for each in sinks)):
            say(f"note: {reason_of(note)}", err=True)
    more = len(lines) - limit if limit else 0
    lines = lines[:limit] if limit else lines
    _show(lines, output)
    if more > 0:
        say(f"{more} more: raise --limit, or 0 for all", err=True)


def _is(wanted: str, state: str) -> bool:
    return wanted == "all" or (wanted == "pending") == (state == PENDING)


def _line(contents: Contents, each: Letter) -> _Line:
    letter = each.letter
    source = letter.record
    return _Line(
        id=str(each.id),
        topic=contents.topic.name,
        sink=letter.sink.sink,
        state=contents.state(each),
        stage=letter.verdict.error_class.stage.value,
        error_class=letter.verdict.error_class.value,
        written=timestamp(each.at),
        source=position_of(source.partition, source.offset),
        redrives=letter.redrives,
        code=letter.verdict.code,
        reason=letter.verdict.text,
    )


def _show(lines: Iterable[_Line], output: str) -> None:
    documents = [{_CAMEL.get(name, name): value for name, value in asdict(line).items()} for line in lines]
    if output == "json":
        say(json.dumps(documents, indent=2))
        return
    columns = ("id", "sink", "state", "class", "written", "source", "redrives", "reason")
    # Whoever may write to the topic may have written the envelope.
    several = len({each["topic"] for each in documents}) > 1
    names = ("topic", *columns) if several else columns
    rows = [[reason_of(_text(each[name])) for name in names] for each in documents]
    say(table(names, rows, right=("redrives",), heads=3 if several else 2, width=terminal_width()))


def _text(value: object) -> str:
    """In a cell of the table; a position of the source as `topic:partition:offset`."""
    return ":".join(map(str, value.values())) if isinstance(value, dict) else str(value)


_CAMEL = {"error_class": "class"}
