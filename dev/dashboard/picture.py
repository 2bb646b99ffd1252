"""`make dashboard-picture`: draws the dashboard's queries as a real Prometheus answers them; no Grafana is needed.

Five minutes of the flights example on a real broker, API server and Spark, with operator and driver scraped: a backlog,
then a steady load, five records that are no flights, the driver killed, and a burst. Panels are those of
dashboard.json, with their titles, legends and units; how they look is matplotlib's, not Grafana's. It ends with an
error where Prometheus has no answer to a panel that should show something.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import yaml
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dashboard.board import of_all, render
from demo import data
from demo.audit import Broker
from demo.play import EXAMPLE
from demo.stage import DELIVERY_S, PARTITIONS, START_S
from deployed.cluster import ROOT, Kubernetes
from servers.local_kafka import LocalKafka
from servers.prometheus import Prometheus

PICTURE: Final = ROOT / "docs" / "pictures" / "dashboard.png"
_SERVICE_PORT: Final = 4041
_STEP_S: Final = 2.0
_MINUTE: Final = 60.0
_EACH: Final = 6_000
"""Flights of a steady load, every two seconds."""
_BURST: Final = 300_000
_BROKEN_AT, _KILL_AT, _BURST_AT, _END_AT = (each * _MINUTE for each in (1, 2, 3.5, 4.5))
_LEGEND: Final = re.compile(r"\{\{ *(\w+) *\}\}")
_COLUMNS: Final = 3
_DATES: Final[Any] = dates
"""Without types."""
_MOST_IN_A_LEGEND: Final = 8
_MAY_BE_EMPTY: Final = frozenset(
    {
        # No progress is restored here, and no transaction fails.
        "May be duplicated after a restored progress",
        "Failures, aborted transactions among them, in 5 minutes (drivers)",
    }
)


@dataclass(frozen=True)
class Panel:
    """Of the dashboard; a panel has one query."""

    title: str
    kind: str
    unit: str
    expression: str
    legend: str


def panels(board: dict[str, Any]) -> list[Panel]:
    """All but those of the repeated row, which show of one pipeline what others show of all."""
    found: list[Panel] = []
    for each in board["panels"]:
        if each["type"] == "row":
            if each.get("repeat"):
                break
            continue
        [target] = each["targets"]
        unit = each.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
        expression = of_all(target["expr"])
        found.append(Panel(each["title"], each["type"], unit, expression, target["legendFormat"]))
    return found


def named(legend: str, labels: dict[str, str]) -> str:
    return _LEGEND.sub(lambda found: labels.get(found[1], ""), legend)


class Scene:
    """The pipeline, what feeds it, and what scrapes it."""

    def __init__(self, broker: Broker, kubernetes: Kubernetes, directory: Path) -> None:
        document = yaml.safe_load(EXAMPLE.read_text())
        kafka = document["spec"]["source"]["kafka"]
        kafka["bootstrapServers"] = broker.bootstrap_servers
        self._broker = broker
        self._kubernetes = kubernetes
        self._name: str = document["metadata"]["name"]
        self._source: str = kafka["topics"][0]
        self._manifest = directory / "flights.yaml"
        self._manifest.write_text(yaml.safe_dump(document))
        self._drivers = directory / "drivers.json"
        self._drivers.write_text("[]")
        self._all = data.flights()
        self._ids = itertools.count(0, len(self._all))

    @property
    def scraped(self) -> list[dict[str, Any]]:
        """As the chart's ServiceMonitor and PodMonitor do it: the operator's labels stay, a driver's are its pod's."""
        operator = {"targets": [self._kubernetes.operator_address]}
        return [
            {"job_name": "operator", "honor_labels": True, "static_configs": [operator]},
            {"job_name": "drivers", "file_sd_configs": [{"files": [str(self._drivers)], "refresh_interval": "1s"}]},
        ]

    def begin(self) -> None:
        self._broker.create(self._source, PARTITIONS)
        self._feed(len(self._all))
        self._kubernetes.kubectl("apply", "-f", str(self._manifest))
        self._kubernetes.wait_for("the pipeline is Ready", START_S + DELIVERY_S, self._is_ready)

    def play(self) -> None:
        """Under load for `_END_AT` seconds."""
        began = time.monotonic()
        events: list[tuple[float, Callable[[], object]]] = [
            (_BROKEN_AT, lambda: data.produce_broken(self._broker.bootstrap_servers, self._source)),
            (_KILL_AT, lambda: self._kubernetes.kill_driver(self._name)),
            (_BURST_AT, lambda: self._feed(_BURST)),
        ]
        for beat in itertools.count():
            now = time.monotonic() - began
            if now > _END_AT:
                return
            while events and now >= events[0][0]:
                events.pop(0)[1]()
            self._feed(_EACH)
            self._find_driver()
            time.sleep(max(0.0, began + 2 * (beat + 1) - time.monotonic()))

    def _feed(self, count: int) -> None:
        flights: pd.DataFrame = self._all.head(count)
        data.produce(data.with_ids(flights, first=next(self._ids)), self._broker.bootstrap_servers, self._source)

    def _is_ready(self) -> bool | None:
        self._find_driver()
        return self._kubernetes.condition(self._name, "Ready").get("status") == "True" or None

    def _find_driver(self) -> None:
        """For Prometheus, which reads the file."""
        namespace = self._kubernetes.namespace
        pods = self._kubernetes.cluster.get("pods", f"--namespace={namespace}")["items"]
        found = [
            {
                "targets": [f"{pod['status']['podIP']}:{_SERVICE_PORT}"],
                "labels": {"namespace": namespace, "pipeline": self._name},
            }
            for pod in pods
            if pod["status"].get("podIP") and pod["status"].get("phase") == "Running"
        ]
        text = json.dumps(found)
        if text != self._drivers.read_text():
            beside = self._drivers.with_suffix(".new")
            beside.write_text(text)
            beside.rename(self._drivers)


def draw(shown: Sequence[Panel], prometheus: Prometheus, began: float, ended: float, path: Path) -> list[str]:
    """One file: the figures above, the charts below. The titles of the panels to which there was no answer."""
    empty: list[str] = []
    numbers = [each for each in shown if each.kind == "stat"]
    charts = [each for each in shown if each.kind != "stat"]
    rows = -(-len(charts) // _COLUMNS)
    figure = Figure(figsize=(7.0 * _COLUMNS, 1.6 + 3.1 * rows), layout="constrained")
    both: Any = figure.subfigures(2, 1, height_ratios=[1.0, 3.1 * rows])
    above, below = both
    for axes, panel in zip(above.subplots(1, len(numbers)), numbers, strict=True):
        value = prometheus.query(panel.expression)
        empty += [] if value else [panel.title]
        axes.text(
            0.5, 0.4, f"{float(value[0]['value'][1]):,.0f}" if value else "-", ha="center", va="center", fontsize=24
        )
        axes.set_title(panel.title, fontsize="medium")
        axes.set_axis_off()
    grid = below.subplots(rows, _COLUMNS, squeeze=False).flat
    for axes, panel in itertools.zip_longest(grid, charts):
        if panel is None:
            axes.set_axis_off()
        else:
            series = prometheus.query_range(panel.expression, began, ended, _STEP_S)
            empty += [] if series else [panel.title]
            _chart(axes, panel, series)
            axes.set_xlim(_day(began), _day(ended))
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=60)
    return empty


def _chart(axes: Axes, panel: Panel, series: Sequence[dict[str, Any]]) -> None:
    for each in series:
        times, values = zip(*each["values"], strict=True)
        axes.plot(
            [_day(at) for at in times], [float(value) for value in values], label=named(panel.legend, each["metric"])
        )
    axes.set_title(panel.title, fontsize="medium")
    axes.set_ylabel({"s": "seconds", "rowsps": "rows/s"}.get(panel.unit, ""), fontsize="small")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(locator := _DATES.AutoDateLocator())
    axes.xaxis.set_major_formatter(_DATES.ConciseDateFormatter(locator))
    axes.tick_params(labelsize="small")
    axes.grid(alpha=0.3)
    if 0 < len(series) <= _MOST_IN_A_LEGEND:
        axes.legend(fontsize="x-small", loc="upper left")


def _day(seconds: float) -> float:
    return float(_DATES.date2num(pd.Timestamp(seconds, unit="s")))


def main(path: Path = PICTURE) -> None:
    namespace = yaml.safe_load(EXAMPLE.read_text())["metadata"]["namespace"]
    with (
        tempfile.TemporaryDirectory(prefix="sinkpipeline-picture-") as name,
        LocalKafka() as kafka,
        Kubernetes(Path(name), namespace, "--open-driver-metrics") as kubernetes,
    ):
        scene = Scene(Broker(kafka.bootstrap_servers), kubernetes, Path(name))
        with Prometheus(scene.scraped) as prometheus:
            began = time.time()
            scene.begin()
            scene.play()
            empty = draw(panels(json.loads(render())), prometheus, began, time.time(), path)
    print(path)
    if missing := [title for title in empty if title not in _MAY_BE_EMPTY]:
        sys.exit(f"Prometheus has no answer to: {', '.join(missing)}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
