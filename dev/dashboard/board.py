"""The Grafana dashboard: what it asks of Prometheus, and where that stands.

What operator and drivers both tell has one name, so every query takes the maximum of what was scraped. Counts of the
operator are those of the statuses: gauges that go up, and back at a reset.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Final

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh

_Panel = stat.Panel | timeseries.Panel

_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_PIPELINE: Final = 'namespace=~"$namespace", pipeline=~"$pipeline"'
_SINK: Final = f'{_PIPELINE}, sink=~"$sink"'
_OF_PIPELINE: Final = "{{namespace}}/{{pipeline}}"
_OF_SINK: Final = "{{namespace}}/{{pipeline}} {{sink}}"
_BY_PIPELINE: Final = "by (namespace, pipeline)"
_BY_SINK: Final = "by (namespace, pipeline, sink)"
_BY_CLASS: Final = "by (namespace, pipeline, sink, class)"
_BY_REASON: Final = "by (namespace, pipeline, sink, reason)"
_ROWS: Final = f"sum {_BY_SINK} (rate(sinkpipeline_sink_rows_delivered{{{_SINK}}}[5m]))"
_LAG: Final = f"max {_BY_SINK} (sinkpipeline_sink_lag_offsets{{{_SINK}}})"
_VARIABLE: Final = re.compile(r"\$(namespace|pipeline|kind|sink)\b")
_WAITS: Final = "sinkpipeline_sink_lag_seconds"


def of_all(query: str) -> str:
    """A query with every value of each variable."""
    return _VARIABLE.sub(".*", query)


def render() -> str:
    """The dashboard's JSON."""
    board = (
        dashboard.Dashboard("SinkPipelines")
        .uid("sinkpipelines")
        .description("Kafka records delivered exactly once by Spark: SinkPipeline resources of a cluster.")
        .tags(["sinkpipeline", "kafka", "spark"])
        .refresh("1m")
        .time("now-6h", "now")
        .timezone("utc")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(_variable("namespace", "sinkpipeline_sink_circuit_open"))
        .with_variable(_variable("pipeline", 'sinkpipeline_sink_circuit_open{namespace=~"$namespace"}'))
        .with_variable(_variable("kind", f"sinkpipeline_sink_info{{{_PIPELINE}}}"))
        .with_variable(_variable("sink", f'sinkpipeline_sink_info{{{_PIPELINE}, kind=~"$kind"}}'))
    )
    ids = itertools.count(1)
    for row, panels in (
        (dashboard.Row("All pipelines"), _of_all()),
        (dashboard.Row("Progress and exactly once"), _of_progress()),
        (dashboard.Row("$pipeline").repeat("pipeline"), _of_one()),
    ):
        board = board.with_row(row.id(next(ids)))
        for panel in panels:
            board = board.with_panel(panel.id(next(ids)))
    return json.dumps(board.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _of_all() -> list[_Panel]:
    return [
        _number("Ready", f"sum(max {_BY_PIPELINE} (sinkpipeline_ready{{{_PIPELINE}}}))"),
        _number("Not Ready", f"count(max {_BY_PIPELINE} (sinkpipeline_ready{{{_PIPELINE}}}) == 0) or vector(0)"),
        _number("Circuits open", f"sum(max {_BY_SINK} (sinkpipeline_sink_circuit_open{{{_SINK}}}))"),
        _number("Records that wait", f"sum({_LAG})"),
        _chart("Pipelines by phase", "max by (phase) (sinkpipeline_pipelines)", "{{phase}}"),
        _chart(
            "One look of the operator, 95 %",
            "histogram_quantile(0.95, sum by (le) (rate(sinkpipeline_reconcile_seconds_bucket[5m])))",
            "95 %",
            unit="s",
        ),
    ]


def _of_progress() -> list[_Panel]:
    def of_driver(metric: str) -> str:
        return f"sum {_BY_SINK} (rate({metric}{{{_SINK}}}[5m]))"

    def quantile(metric: str) -> str:
        of = f"sum by (namespace, pipeline, sink, le) (rate({metric}_bucket{{{_SINK}}}[5m]))"
        return f"histogram_quantile(0.95, {of})"

    age = f"time() - max {_BY_SINK} (sinkpipeline_sink_last_progress_timestamp_seconds{{{_SINK}}})"
    # Operator and driver tell both, and each stage is counted apart.
    letters = _more(
        lambda ago: (
            f"sum {_BY_CLASS} (max by (namespace, pipeline, sink, class, stage)"
            f' (sinkpipeline_dead_letters{{{_SINK}, stage!=""}}{ago}))'
        )
    )
    return [
        _chart("Rows a second", _ROWS, _OF_SINK, unit="rowsps"),
        _chart("Lag, records", _LAG, _OF_SINK),
        _chart("Lag, seconds that the oldest record waits (drivers)", _max(_WAITS), _OF_SINK, unit="s"),
        _chart("Seconds to work off the lag at the present rate", f"{_LAG} / ({_ROWS} > 0)", _OF_SINK, unit="s"),
        _chart("Age of the progress", age, _OF_SINK, unit="s"),
        _chart("Held back by open transactions of the source", _max("sinkpipeline_sink_held_back_offsets"), _OF_SINK),
        _chart("May be duplicated after a restored progress", _max("sinkpipeline_sink_may_be_duplicated"), _OF_SINK),
        _chart("Delivered again after a sink went back", _max("sinkpipeline_sink_rolled_back_rows"), _OF_SINK),
        _chart("Dead letters by class, in 5 minutes", letters, f"{_OF_SINK} {{{{class}}}}"),
        _chart("Dropped", _max("sinkpipeline_sink_dropped"), _OF_SINK),
        _chart("Lost by the source", _max("sinkpipeline_sink_lost"), _OF_SINK),
        _chart("Deaths of drivers", f"max {_BY_PIPELINE} (sinkpipeline_driver_restarts{{{_PIPELINE}}})", _OF_PIPELINE),
        _chart("Commits a second (drivers)", of_driver("sinkpipeline_sink_commits_total"), _OF_SINK),
        _chart(
            "Failures, aborted transactions among them, in 5 minutes (drivers)",
            _more(lambda ago: f"sum {_BY_REASON} (sinkpipeline_sink_failures_total{{{_SINK}}}{ago})"),
            f"{_OF_SINK} {{{{reason}}}}",
        ),
        _chart(
            "Takeovers of partitions a second (drivers)",
            of_driver("sinkpipeline_sink_takeover_duration_seconds_count"),
            _OF_SINK,
        ),
        _chart("Tasks in doubt a second (drivers)", of_driver("sinkpipeline_sink_in_doubt_tasks_total"), _OF_SINK),
        _chart("Commit, 95 % (drivers)", quantile("sinkpipeline_sink_commit_duration_seconds"), _OF_SINK, unit="s"),
        _chart("Rows of a commit, 95 % (drivers)", quantile("sinkpipeline_sink_commit_rows"), _OF_SINK),
        _chart(
            "Partitions taken again, in 5 minutes (drivers)",
            _more(lambda ago: f"sum {_BY_REASON} (sinkpipeline_sink_retries_total{{{_SINK}}}{ago})"),
            f"{_OF_SINK} {{{{reason}}}}",
        ),
        _chart("Batch, 95 % (drivers)", quantile("sinkpipeline_sink_batch_duration_seconds"), _OF_SINK, unit="s"),
        _chart("Takeover, 95 % (drivers)", quantile("sinkpipeline_sink_takeover_duration_seconds"), _OF_SINK, unit="s"),
    ]


def _of_one() -> list[_Panel]:
    """Of the pipeline of a repeated row."""
    return [
        _number("Ready", f"max(sinkpipeline_ready{{{_PIPELINE}}})"),
        _number("Deaths of the driver", f"max(sinkpipeline_driver_restarts{{{_PIPELINE}}})"),
        _chart("Rows a second", _ROWS, "{{sink}}", unit="rowsps"),
        _chart("Lag, records", _LAG, "{{sink}}"),
        _chart("Lag, seconds that the oldest record waits", _max(_WAITS), "{{sink}}", unit="s"),
    ]


def _more(count: Callable[[str], str]) -> str:
    """How much more it is than five minutes ago; `count` is given the offset of its query.

    `increase` knows nothing of a series that begins with its first count, as those of a class or a reason do.
    """
    now, before = count(""), count(" offset 5m")
    return f"{now} - ({before} or {now} * 0) > 0"


def _max(metric: str) -> str:
    return f"max {_BY_SINK} ({metric}{{{_SINK}}})"


def _variable(name: str, of: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .datasource(_SOURCE)
        .query({"query": f"label_values({of}, {name})", "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(multi=True)
        .include_all(include_all=True)
    )


def _query(expression: str, legend: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).legend_format(legend).ref_id("A")


def _number(title: str, expression: str) -> stat.Panel:
    return stat.Panel().title(title).datasource(_SOURCE).height(4).span(6).with_target(_query(expression, title))


def _chart(title: str, expression: str, legend: str, *, unit: str = "short") -> timeseries.Panel:
    panel = timeseries.Panel().title(title).datasource(_SOURCE).height(8).span(12).unit(unit).min(0)
    return panel.with_target(_query(expression, legend))
