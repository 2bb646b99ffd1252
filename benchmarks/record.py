"""What a benchmark ran with and what it found: on the console, and in `build/bench/NAME.json` for the plots."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import psutil
from rich.console import Console
from rich.table import Table

from servers import local_kafka
from servers.java import java_executable

STORE: Final = Path("build/bench")
_WIDTH: Final = 120


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar of a plot: several measurements of the same."""

    figure: str
    """The title of the plot."""
    unit: str
    group: str
    """Bars of one group stand beside each other."""
    variant: str
    """Bars of one variant have one colour."""
    values: tuple[float, ...]


@dataclass(kw_only=True)
class Record:
    """Of one run of a benchmark."""

    benchmark: str
    arguments: Mapping[str, Any]
    machine: Mapping[str, str]
    began: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    load: list[float] = field(default_factory=list)
    """The machine's load averages before and after: what else was done on it."""
    effective: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each variant ran with: Spark's configuration, the properties of its clients, the manifest."""
    tables: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    def ran(self, variant: str, **parts: Mapping[str, Any]) -> None:
        """What a variant ran with."""
        self.effective[variant] = {
            name: dict(part) if name == "manifest" else {key: _plain(value) for key, value in part.items()}
            for name, part in parts.items()
        }

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> None:
        """The first columns, `texts` of them, are texts, the others numbers."""
        shown = Table(title=title, title_justify="left")
        for number, column in enumerate(columns):
            shown.add_column(column, justify="left" if number < texts else "right")
        for row in rows:
            shown.add_row(*row)
        Console(width=_WIDTH).print(shown)
        self.tables.append({"title": title, "columns": list(columns), "rows": [list(row) for row in rows]})

    def line(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)

    def bar(self, figure: str, unit: str, group: str, variant: str, values: Sequence[float]) -> None:
        self.bars.append(Bar(figure=figure, unit=unit, group=group, variant=variant, values=tuple(values)))

    def differences(self) -> Iterator[str]:
        """What the variants did not have in common."""
        for part in sorted({part for found in self.effective.values() for part in found} - {"manifest"}):
            found = {variant: parts[part] for variant, parts in self.effective.items() if part in parts}
            for key in sorted({key for each in found.values() for key in each}):
                values: dict[str | None, list[str]] = {}
                for variant, each in found.items():
                    values.setdefault(each.get(key), []).append(variant)
                if len(values) > 1 and not key.startswith(_ITS_OWN):
                    told = (f"{value or 'not set'} ({' and '.join(who)})" for value, who in values.items())
                    yield f"  {part}: {key}: {'; '.join(told)}"

    def store(self) -> Path:
        STORE.mkdir(parents=True, exist_ok=True)
        path = STORE / f"{self.benchmark}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1, default=str) + "\n")
        part.rename(path)
        return path


_ITS_OWN: Final = ("spark.app.", "spark.driver.port", "bootstrap.servers", "kafka.bootstrap.servers", "logger")
"""What no two runs have in common."""


def _plain(value: Any) -> str:
    """As text, without the names of directories that a session makes for itself."""
    return re.sub(r"sinkpipeline-spark-\w+", "sinkpipeline-spark-*", str(value))


@contextmanager
def recording(benchmark: str, arguments: argparse.Namespace) -> Iterator[Record]:
    """Stored when the benchmark has come to its end: half of a run would look like a whole one."""
    record = Record(benchmark=benchmark, arguments=vars(arguments), machine=machine())
    print("; ".join(f"{name} {value}" for name, value in record.machine.items()), flush=True)
    record.load.append(os.getloadavg()[0])
    yield record
    record.load.append(os.getloadavg()[0])
    for text in record.differences():
        print(text, flush=True)
    print(f"what each variant ran with (Spark, clients, manifest), and what was found: {record.store()}", flush=True)


def machine() -> dict[str, str]:
    """What the figures are of."""
    return {
        "cores": str(os.cpu_count()),
        "CPU": _processor(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Java": _java(),
        "Spark": version("pyspark"),
        "Kafka": local_kafka.version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "commit": _said(["git", "describe", "--always", "--dirty"]),
    }


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return platform.processor() or platform.machine() if found is None else found[1]


def _java() -> str:
    found = re.search(r'version "([^"]+)"', _said([java_executable(), "-version"]))
    return "?" if found is None else found[1]


def _said(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()
