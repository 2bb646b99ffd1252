"""What `run` shows: a live line per sink, and of a database that is read, on a terminal; plain log lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from sinkpipeline.core.log_lines import Plain, log_fields
from sinkpipeline.core.served import Observation

Show = Callable[[Observation], None]

_LOG = logging.getLogger("sinkpipeline.run")
_LOG_EVERY_S = 10.0
_SOURCE = "(source)"
"""No sink has such a name."""
_ROOMY = 80
"""Columns of a terminal; on a narrower one a line has less in it, rather than parts of everything."""


@contextmanager
def display(sinks: Sequence[str], log_file: Path) -> Iterator[Show]:
    """Sets up logging and the live lines; both go to stderr, the client's own chatter to the log file."""
    console = Console(stderr=True)
    logger = logging.getLogger("sinkpipeline")
    to_file = logging.FileHandler(log_file)
    to_file.setFormatter(Plain("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    if console.is_terminal:
        handler: logging.Handler = RichHandler(console=console, show_path=False, show_time=False)
        handler.setFormatter(Plain("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(Plain("%(asctime)s %(levelname)s %(message)s"))
    handler.setLevel(logging.INFO)
    handler.addFilter(lambda record: record.name != "sinkpipeline.kafka" and record.exc_info is None)
    logger.setLevel(logging.DEBUG)
    logger.handlers = [to_file, handler]
    logger.propagate = False
    try:
        if console.is_terminal:
            with _live(sinks, console) as show:
                yield show
        else:
            yield Lines()
    finally:
        logger.handlers = []
        to_file.close()


@contextmanager
def _live(sinks: Sequence[str], console: Console) -> Iterator[Show]:
    more = (SpinnerColumn(), TextColumn("{task.fields[rate]}/s"), TimeElapsedColumn())
    spinner, rate, elapsed = more if console.width >= _ROOMY else (None, None, None)
    shown = (
        spinner,
        TextColumn("[bold]{task.description}"),
        TextColumn("{task.fields[state]}"),
        TextColumn("{task.completed:,.0f} rows"),
        rate,
        TextColumn("lag {task.fields[lag]}"),
        TextColumn("[yellow]{task.fields[undelivered]}"),
        elapsed,
    )
    columns = Progress(*(each for each in shown if each is not None), console=console, transient=False)
    tasks = {
        name: columns.add_task(name, total=None, state="Starting", lag="?", rate="0", undelivered="") for name in sinks
    }

    def show(seen: Observation) -> None:
        source = seen.status.get("source")
        if source is not None:
            if _SOURCE not in tasks:
                tasks[_SOURCE] = columns.add_task(_SOURCE, total=None, state="", lag="?", rate="0", undelivered="")
            speed = columns.tasks[tasks[_SOURCE]].speed or 0
            columns.update(
                tasks[_SOURCE],
                completed=source.get("changes", 0),
                state=source["state"],
                lag=f"{source['lagBytes']:,} bytes" if "lagBytes" in source else "?",
                rate=f"{speed:,.0f}",
                undelivered=_undelivered(source),
            )
        for sink in seen.status["sinks"]:
            task = tasks[sink["name"]]
            speed = columns.tasks[task].speed or 0
            columns.update(
                task,
                completed=seen.counts[sink["name"]].rows,
                state=sink["state"],
                lag=f"{sink['lag']:,}" if "lag" in sink else "?",
                rate=f"{speed:,.0f}",
                undelivered=_undelivered(sink),
            )

    with columns:
        yield show


def _undelivered(sink: Mapping[str, Any]) -> str:
    """Dead letters and dropped records of all runs; empty, as it should be, where there are none."""
    counts = (("deadLettered", "dead letters"), ("dropped", "dropped"))
    return ", ".join(f"{what} {sink[key]:,}" for key, what in counts if sink.get(key))


class Lines:
    """A log line per sink when its state changes, and every ten seconds while it handles records; so of a source."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._undelivered: dict[str, str] = {}
        self._at: dict[str, float] = {}

    def __call__(self, seen: Observation) -> None:
        now = time.monotonic()
        if "source" in seen.status:
            self._tell_source(seen.status["source"], now)
        for sink in seen.status["sinks"]:
            name, state, count = sink["name"], sink["state"], seen.counts[sink["name"]].rows
            since = now - self._at.get(name, 0.0)
            delivered, undelivered = count - self._rows.get(name, 0), _undelivered(sink)
            busy = delivered or undelivered != self._undelivered.get(name)
            if state != self._states.get(name) or (since >= _LOG_EVERY_S and busy):
                rate = delivered / since if name in self._at and since > 0 else 0.0
                lag, more = sink.get("lag", "unknown"), f", {undelivered}" if undelivered else ""
                with log_fields(sink=name):
                    _LOG.info("%s: %s, %d rows, %.0f rows/s, lag %s%s", name, state, count, rate, lag, more)
                self._states[name], self._rows[name], self._at[name] = state, count, now
                self._undelivered[name] = undelivered

    def _tell_source(self, source: Mapping[str, Any], now: float) -> None:
        state, count, undelivered = source["state"], source.get("changes", 0), _undelivered(source)
        busy = count != self._rows.get(_SOURCE, 0) or undelivered != self._undelivered.get(_SOURCE)
        if state == self._states.get(_SOURCE) and not (busy and now - self._at.get(_SOURCE, 0.0) >= _LOG_EVERY_S):
            return
        position = f", at {source['position']}" if "position" in source else ""
        lag = f", {source['lagBytes']} bytes of WAL behind" if "lagBytes" in source else ""
        more = f", {undelivered}" if undelivered else ""
        _LOG.info("source: %s, %d changes%s%s%s", state, count, position, lag, more)
        self._states[_SOURCE], self._rows[_SOURCE], self._at[_SOURCE] = state, count, now
        self._undelivered[_SOURCE] = undelivered
