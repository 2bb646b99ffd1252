"""What the demo tells on the terminal, and what it keeps of what went wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from demo.audit import Audit

_WIDTH = 110
"""Where the output is no terminal."""


class Story:
    """Tells what happens, and keeps what went wrong."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        if not self._console.is_terminal:
            self._console.width = _WIDTH
        self._began = time.monotonic()
        self.problems: list[str] = []

    def step(self, title: str) -> None:
        self._console.print()
        self._line(f"[bold]{title}[/bold]")

    def say(self, text: str) -> None:
        self._line(f"  {text}")

    def check(self, sentence: str, *, holds: bool) -> None:
        self._line(f"  [green]ok[/green]     {sentence}" if holds else f"  [red]WRONG[/red]  {sentence}")
        if not holds:
            self.problems.append(sentence)

    def typed(self, command: str) -> None:
        """What a person would type here."""
        self._console.print(f"{'':12}$ {command}", markup=False)

    def show(self, text: str) -> None:
        """Another program's words."""
        for line in text.rstrip().splitlines():
            self._console.print(f"{'':12}{line.rstrip()}", style="dim", markup=False)

    def table(self, audits: Mapping[str, Audit], by: str = "read_committed consumer") -> None:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("", no_wrap=True)
        for name in ("expected", "delivered", "duplicates", "missing", "wrong"):
            table.add_column(name, justify="right", no_wrap=True)
        for title, audit in audits.items():
            numbers = (audit.expected, audit.delivered, audit.duplicates, audit.missing, audit.wrong)
            table.add_row(title, *(f"{number:,}" for number in numbers), style="" if audit.exactly_once else "red")
        self._console.print()
        self._line(f"[bold]Counted by an independent {by}[/bold]")
        self._console.print(Padding(table, (0, 0, 0, 2)))

    def end(self) -> int:
        self._console.print()
        for problem in self.problems:
            self._console.print(f"problem: {problem}", style="red", markup=False)
        if self.problems:
            self._line("[bold red]FAILED[/bold red]")
            return 1
        self._line("[bold green]OK[/bold green]")
        return 0

    def _line(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:7.1f} s[/dim]  {text}")
