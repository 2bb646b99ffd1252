"""docs/cookbook.md as tests read it: the manifest of each recipe, its records before, and what is there after."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml

from sinkpipeline.spark.java import JAVA_OPTIONS, SHORT_LIVED
from support.kafka import topics
from support.kafka.topics import Record

PAGE = Path(__file__).parents[2] / "docs" / "cookbook.md"


@dataclass(frozen=True)
class Recipe:
    """A section of the page; its blocks in their order."""

    title: str
    manifests: tuple[str, ...]
    tables: tuple[str, ...]
    """Records, or rows."""
    commands: tuple[str, ...]
    schemas: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def manifest(self) -> dict[str, Any]:
        [text] = self.manifests
        document: dict[str, Any] = yaml.safe_load(text)
        return document

    @property
    def before(self) -> tuple[Line, ...]:
        return lines(self.tables[0])

    @property
    def after(self) -> tuple[Line, ...]:
        return lines(self.tables[1])


@dataclass(frozen=True)
class Line:
    """A record, as the page shows it."""

    topic: str
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...] | None = None
    """None where the recipe is not about them."""
    timestamp: int | None = None
    """Milliseconds; likewise."""


def recipes() -> dict[str, Recipe]:
    """By their titles."""
    _, *sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    found = [_recipe(*section.split("\n", 1)) for section in sections]
    return {each.title: each for each in found}


def recipe(title: str) -> Recipe:
    return recipes()[title]


def _recipe(title: str, text: str) -> Recipe:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names = ("yaml", "text", "sh", "json", "csv")
    kinds = {kind: tuple(body for found, body in blocks if found == kind) for kind in names}
    return Recipe(title, kinds["yaml"], kinds["text"], kinds["sh"], kinds["json"], kinds["csv"])


def lines(table: str) -> tuple[Line, ...]:
    return tuple(_line(*re.split(r"\s{2,}", line)) for line in table.splitlines())


def _line(topic: str, key: str, value: str, headers: str | None = None, at: str | None = None) -> Line:
    named = None if headers in (None, "-") else tuple(_header(each) for each in str(headers).split(","))
    moment = None if at is None else datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return Line(topic, _text(key), _text(value), named, None if moment is None else int(moment.timestamp() * 1000))


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _text(shown: str) -> str | None:
    return None if shown == "null" else shown


def typed(shown: Recipe, here: Mapping[str, str]) -> str:
    """The manifest as it is printed, but for this machine's addresses and directories, and a JVM that starts soon."""
    [text] = shown.manifests
    for name, ours in here.items():
        text, count = re.subn(rf"(?<![\w-]){re.escape(name)}", ours, text)
        assert count == 1, f"{name} in {shown.title}"
    return f"{text}  spark: {{conf: {{{JAVA_OPTIONS}: {json.dumps(SHORT_LIVED)}}}}}\n"


def feed(servers: str, before: Iterable[Line], *, partitions: int = 1) -> None:
    """Creates the topics, and produces the records to their first partitions."""
    found = tuple(before)
    for topic in dict.fromkeys(each.topic for each in found):
        topics.create_topic(servers, topic, partitions=partitions, config={"retention.ms": "-1"})
        topics.produce_whole(servers, topic, [_whole(each) for each in found if each.topic == topic])


def _whole(line: Line) -> topics.Whole:
    headers: list[tuple[str, bytes | None]] = [(name, value.encode()) for name, value in line.headers or ()]
    return _bytes(line.value), _bytes(line.key), headers, line.timestamp or 0


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def compare(servers: str, after: Iterable[Line]) -> None:
    """The topics that the page shows hold just these rows for who reads what is committed, those of a key in order."""
    found = tuple(after)
    assert found, "the recipe shows nothing"
    for topic in dict.fromkeys(each.topic for each in found):
        expected = [each for each in found if each.topic == topic]
        seen = [_seen(topic, row, expected[0]) for row in topics.read_committed(servers, topic)]
        # Several source partitions have no order.
        assert sorted(seen, key=_key) == sorted(expected, key=_key)


def _key(line: Line) -> str:
    return line.key or ""


def _seen(topic: str, row: Record, like: Line) -> Line:
    headers = tuple((name, (value or b"").decode()) for name, value in row.headers)
    return Line(
        topic,
        None if row.key is None else row.key.decode(),
        None if row.value is None else row.value.decode(),
        None if like.headers is None else headers,
        None if like.timestamp is None else row.timestamp,
    )
