"""What was told after how many seconds, as a table for people: `build/e2e/report.md`."""

from __future__ import annotations

from pathlib import Path

_HEAD = ("case", "seconds", "what was told", "`kubectl get sinkpipelines`")


class Report:
    """Written anew with every line: a run that breaks off has what was seen until then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[tuple[str, str, str, str]] = []

    def tell(self, case: str, seconds: float, words: str, line: str = "") -> None:
        self._rows.append((case, f"{seconds:.0f}", words.replace("|", "\\|").replace("\n", " "), line))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        rows = [_HEAD, ("---",) * len(_HEAD), *self._rows]
        self._path.write_text("".join(f"| {' | '.join(row)} |\n" for row in rows))
