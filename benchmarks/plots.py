"""Draws what the benchmarks stored: `build/bench/*.png`, a plot for each figure.

`make bench` does it at its end; alone: `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m plots [DIRECTORY]`.
Those of `docs/benchmarks.md` are drawn into `docs/pictures/benchmarks`.

A bar is a median; its whisker goes from the least to the most.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from record import STORE, Bar

_WIDTH = 0.8
"""Of a group of bars; groups are one apart."""
_LABEL = 16
"""Characters in a line below a group."""


def draw(bars: Sequence[Bar], foot: str, path: Path) -> None:
    """One figure."""
    groups = list(dict.fromkeys(each.group for each in bars))
    variants = list(dict.fromkeys(each.variant for each in bars))
    width = _WIDTH / len(variants)
    figure = Figure(figsize=(max(6.0, 1.5 + 0.5 * len(groups) * (len(variants) + 1)), 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, variant in enumerate(variants):
        own = [each for each in bars if each.variant == variant]
        at = [groups.index(each.group) + (number + 0.5) * width - _WIDTH / 2 for each in own]
        middle = [statistics.median(each.values) for each in own]
        below = [middle[index] - min(each.values) for index, each in enumerate(own)]
        above = [max(each.values) - middle[index] for index, each in enumerate(own)]
        axes.bar(at, middle, width, yerr=[below, above], capsize=3, label=variant)
    axes.set_xticks(range(len(groups)), [textwrap.fill(each, _LABEL) for each in groups], fontsize="small")
    axes.set_ylabel(bars[0].unit)
    axes.set_ylim(bottom=0)
    axes.set_title(bars[0].figure)
    axes.legend(fontsize="small")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    figure.supxlabel(foot, fontsize="x-small")
    figure.savefig(path, dpi=120)


def foot(document: Mapping[str, object]) -> str:
    machine = document["machine"]
    assert isinstance(machine, dict)
    where = f"{machine['CPU']}, {machine['cores']} cores; Spark {machine['Spark']}"
    return f"{where}; {machine['commit']}, {document['began']}"


def main(into: Path = STORE) -> None:
    """Draws all that are stored."""
    into.mkdir(parents=True, exist_ok=True)
    for stored in sorted(STORE.glob("*.json")):
        document = json.loads(stored.read_text())
        found: dict[str, list[Bar]] = {}
        for each in document.get("bars", ()):
            bar = Bar(**each)
            found.setdefault(bar.figure, []).append(bar)
        for title, bars in found.items():
            words = re.findall(r"[a-z0-9]+", title.lower())
            path = into / f"{'-'.join([stored.stem, *words])}.png"
            draw(bars, foot(document), path)
            print(path, flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
