"""The stages of Grafana Alloy that docs/logs.md shows, applied as Alloy's reference defines them."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs" / "logs.md"


@dataclass
class Entry:
    """A line as Loki has it."""

    line: str
    time: dt.datetime | None = None
    labels: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.line)
        return found


class Rules:
    """Of the block `loki.process` of the page."""

    def __init__(self) -> None:
        [block] = re.findall(r"```alloy\n(.*?)```", DOCS.read_text(), re.DOTALL)
        [process] = re.findall(r'^loki\.process "\w+" \{\n(.*?)^\}', block, re.DOTALL | re.MULTILINE)
        self._stages = dict(re.findall(r"^  stage\.(\w+) \{\n(.*?)^  \}", process, re.DOTALL | re.MULTILINE))
        assert list(self._stages) == ["json", "timestamp", "labels", "structured_metadata"]

    def apply(self, line: str) -> Entry:
        entry = Entry(line)
        try:
            document = json.loads(line)
        except ValueError:
            # The stage takes out nothing, and the line goes on.
            return entry
        assert isinstance(document, dict), line
        found = {name: document.get(source) for name, source in self._map("json")}
        [source] = re.findall(r'source\s*=\s*"(\w+)"', self._stages["timestamp"])
        assert '"RFC3339Nano"' in self._stages["timestamp"]
        entry.time = dt.datetime.fromisoformat(str(found[source]))
        entry.labels = self._chosen("labels", found)
        entry.metadata = self._chosen("structured_metadata", found)
        return entry

    def _chosen(self, stage: str, found: dict[str, Any]) -> dict[str, str]:
        chosen = {name: found.get(source) for name, source in self._map(stage)}
        return {name: str(value) for name, value in chosen.items() if value not in (None, "")}

    def _map(self, stage: str) -> list[tuple[str, str]]:
        """Names with their sources; an empty source is the name itself."""
        [text] = re.findall(r"\{(.*)\}", self._stages[stage])
        return [(name, source or name) for name, source in re.findall(r'(\w+)\s*=\s*"(\w*)"', text)]
