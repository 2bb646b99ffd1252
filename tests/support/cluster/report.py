"""What was told after how many seconds, as a table for people: `build/e2e/report.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_HEAD = ("case", "seconds", "what was told", "`kubectl get sinkpipelines`", "the last event")


class Report:
    """Written line by line, by all processes of a run: one that breaks off has what was seen until then."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> None:
        """Anew."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("".join(_row(each) for each in (_HEAD, ("---",) * len(_HEAD))))

    def tell(self, case: str, seconds: float, words: str, line: str = "", event: str = "") -> None:
        cells = (each.replace("|", "\\|").replace("\n", " ") for each in (words, line, event))
        row = _row((case, f"{seconds:.0f}", *cells))
        with self._path.open("a") as out:
            out.write(row)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
