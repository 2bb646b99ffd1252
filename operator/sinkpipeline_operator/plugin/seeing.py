"""The commands that show something: `status`, `progress`, `logs`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from sinkpipeline_operator.plugin.failure import Failure
from sinkpipeline_operator.plugin.options import NAME, OUTPUT, WATCH, complete_by, reaching
from sinkpipeline_operator.plugin.say import say, say_log

if TYPE_CHECKING:
    from sinkpipeline_operator.plugin.work import Work

_WATCH_S = 2.0


@click.command()
@click.argument("name", metavar="[PIPELINE]", required=False, shell_complete=complete_by(lambda work, _: work.names()))
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List pipelines of all namespaces.")
@OUTPUT
@WATCH
@reaching
def status(work: Work, name: str | None, output: str, *, everywhere: bool, watch: bool) -> None:
    """Show a pipeline on one page, or list all."""
    from sinkpipeline_operator.plugin import page  # noqa: PLC0415 - see options.py

    def every(_: Rates) -> str:
        found = work.pipelines(everywhere=everywhere)
        if output == "json":
            return json.dumps([page.summary(page.Scene(pipeline=each, now_ms=0)) for each in found], indent=2)
        where = "any namespace" if everywhere else f"namespace {work.namespace}"
        if not found:
            return f"there is no SinkPipeline in {where}"
        return page.overview(found, int(time.time() * 1000), everywhere=everywhere)

    def one(rates: Rates) -> str:
        scene = work.scene(str(name))
        if watch:
            scene = replace(scene, rates=rates.of(scene.pipeline))
        return json.dumps(page.summary(scene), indent=2) if output == "json" else page.page(scene)

    _show(every if name is None else one, watch=watch)


@click.command()
@NAME
@click.option("--sink", help="Only this sink's.")
@OUTPUT
@WATCH
@reaching
def progress(work: Work, name: str, sink: str | None, output: str, *, watch: bool) -> None:
    """Show the next offset of each partition, and the lag.

    The figures are those of the status, which may be a minute old.
    """
    from sinkpipeline_operator.plugin import page  # noqa: PLC0415 - see options.py

    if sink is not None and sink not in (known := work.sinks(name)):
        raise Failure("UsageInvalid", f"{name} has no sink {sink}", f"name one of {', '.join(known)}")

    def look(rates: Rates) -> str:
        pipeline = work.pipeline(name)
        if output == "json":
            return json.dumps(page.frontiers(pipeline, sink), indent=2)
        scene = page.Scene(pipeline=pipeline, now_ms=int(time.time() * 1000), rates=rates.of(pipeline) if watch else {})
        return page.progress(scene, sink)

    _show(look, watch=watch)


@click.command()
@NAME
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the pod ends.")
@click.option("--tail", type=click.IntRange(0), help="Print only this many of the last lines.")
@click.option("-p", "--previous", is_flag=True, help="Print the log of the previous container of the pod.")
@click.option("--pod", help="Print the log of this pod, such as an executor's; by default the driver's.")
@reaching
def logs(work: Work, name: str, pod: str | None, tail: int | None, *, follow: bool, previous: bool) -> None:
    """Print the log of the driver, or of another pod."""
    say_log(work.logs(name, pod, follow=follow, tail=tail, previous=previous))


class Rates:
    """Rows a second of each sink, from one look to a later one that has counted more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}

    def of(self, pipeline: Mapping[str, Any]) -> dict[str, float]:
        now = self._clock()
        for sink in (pipeline.get("status") or {}).get("sinks") or ():
            name, rows = str(sink["name"]), int(sink.get("rowsDelivered") or 0)
            at, before = self._seen.setdefault(name, (now, rows))
            if rows != before:
                # A reset begins to count anew.
                self._rates[name] = max(0, rows - before) / max(now - at, 1e-3)
                self._seen[name] = (now, rows)
        return dict(self._rates)


def _show(look: Callable[[Rates], str], *, watch: bool) -> None:
    rates = Rates()
    while True:
        text = look(rates)
        if watch and sys.stdout.isatty():
            click.clear()
        say(text)
        if not watch:
            return
        time.sleep(_WATCH_S)
