"""`sinkpipeline dlq show`: one letter, with its payload, safe to print."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sinkpipeline.cli.dlq.contents import read_letter
from sinkpipeline.cli.dlq.selection import find_topic, letter_id, missing, one_topic, sinks_of, topic_name
from sinkpipeline.cli.say import say
from sinkpipeline.core.deadletter import reason_of
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.printable import printable
from sinkpipeline.core.redrive import Foreign, Letter
from sinkpipeline.core.status import timestamp
from sinkpipeline.core.targets import usage_invalid

_WIDTH = 10


def show_letter(
    manifest: Path, secrets_dir: Path | None, sink: str | None, text: str, output: str, *, raw: bool
) -> None:
    wanted = letter_id(text)
    settings = one_topic(sinks_of(manifest, secrets_dir, sink))
    topic = find_topic(settings)
    if topic is None:
        raise usage_invalid(missing(settings), "`sinkpipeline dlq list` shows what there is")
    name = topic_name(settings)
    if wanted.partition >= topic.partitions:
        raise usage_invalid(f"{name} has no partition {wanted.partition}", "`sinkpipeline dlq list` shows the ids")
    found, state = read_letter(settings, topic, wanted)
    if isinstance(found, Foreign):
        raise usage_invalid(f"{wanted} of {name} is no dead letter: {reason_of(found.why)}", "name a letter")
    if found is None:
        raise usage_invalid(f"{name} has no dead letter {wanted}", "`sinkpipeline dlq list` shows the ids")
    if raw:
        sys.stdout.buffer.write(found.letter.record.value or b"")
        if found.letter.record.value is None:
            say("the value is null", err=True)
    elif output == "json":
        say(json.dumps(_document(found, name, state), indent=2))
    else:
        for line in _lines(found, name, state):
            say(line)


def _document(found: Letter, topic: str, state: str) -> dict[str, Any]:
    letter, record = found.letter, found.letter.record
    return {
        "id": str(found.id),
        "topic": topic,
        "identity": letter.sink.identity,
        "sink": letter.sink.sink,
        "state": state,
        "stage": letter.verdict.error_class.stage.value,
        "class": letter.verdict.error_class.value,
        "code": letter.verdict.code,
        "reason": letter.verdict.text,
        "written": timestamp(found.at),
        "redrives": letter.redrives,
        "source": {**position_of(record.partition, record.offset), "timestamp": record.timestamp},
        "headers": [{"name": name, "base64": base64_of(content)} for name, content in record.headers or ()],
        "key": {"base64": base64_of(record.key)},
        "value": {"base64": base64_of(record.value)},
    }


def position_of(partition: SourcePartition, offset: int) -> dict[str, str | int]:
    """Where a record stands in its source: in this shape in the JSON of every command that names records."""
    return {"topic": partition.topic, "partition": partition.partition, "offset": offset}


def base64_of(content: str | bytes | None) -> str | None:
    """As JSON has it; None for null."""
    if content is None:
        return None
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def _lines(found: Letter, topic: str, state: str) -> Iterator[str]:
    letter, record = found.letter, found.letter.record
    verdict = letter.verdict
    for name, value in (
        ("id", str(found.id)),
        ("topic", topic),
        ("sink", str(letter.sink)),
        ("state", state),
        ("class", f"{verdict.error_class.value}, in {verdict.error_class.stage.value}"),
        ("reason", verdict.text),
        ("code", verdict.code or "-"),
        ("written", timestamp(found.at)),
        ("redrives", str(letter.redrives)),
        ("source", f"{record.partition.topic}, partition {record.partition.partition}, offset {record.offset}"),
        ("timestamp", f"{record.timestamp} ms"),
    ):
        yield f"{name:{_WIDTH}}{reason_of(value)}"
    for name, content in record.headers or ():
        yield from content_lines(f"header {printable(name)}", content)
    yield from content_lines("key", record.key)
    yield from content_lines("value", record.value)


def content_lines(name: str, content: str | bytes | None) -> Iterator[str]:
    """As text where it is UTF-8, safe to print; else in base64."""
    if content is None:
        yield f"{name:{_WIDTH - 1}} null"
        return
    raw = content.encode() if isinstance(content, str) else content
    try:
        kind, text = "text", printable(raw.decode())
    except UnicodeDecodeError:
        kind, text = "not UTF-8, in base64", base64.b64encode(raw).decode()
    yield f"{name:{_WIDTH - 1}} {len(raw)} bytes, {kind}:"
    yield from (f"  {line}" for line in text.split("\n"))
