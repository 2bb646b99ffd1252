"""The driver's metrics, computed from what it last said whenever Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from typing_extensions import override

from sinkpipeline.cli.pod.vitals import Vitals
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.served import RunCounts
from sinkpipeline.core.status import SinkState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TOTALS = (
    ("rowsDelivered", "sinkpipeline_sink_rows_delivered", "Rows delivered, by all drivers of this epoch."),
    ("deadLettered", "sinkpipeline_sink_dead_lettered", "Records dead-lettered, by all drivers of this epoch."),
    ("dropped", "sinkpipeline_sink_dropped", "Records dropped under onFailure: DropAndContinue, likewise."),
    ("lost", "sinkpipeline_sink_lost", "Source offsets skipped under onDataLoss: Skip, likewise."),
)
_BY_CLASS = (
    ("count", "sinkpipeline_dead_letters", "Records dead-lettered by error class, by all drivers of this epoch."),
    ("dropped", "sinkpipeline_dropped_records", "Records dropped under onFailure: DropAndContinue, likewise."),
)

_OF_A_STAGE = (
    (
        "lagBytes",
        "sinkpipeline_source_lag_bytes",
        "Bytes of the database's log, of all tables, that are not read yet; none if unknown.",
    ),
    (
        "lagSeconds",
        "sinkpipeline_source_lag_seconds",
        "How long a change may have waited that is not in the change topic, by the database's clock; none if unknown.",
    ),
    (
        "retainedBytes",
        "sinkpipeline_source_retained_bytes",
        "Bytes of its log that the database keeps for the slot; none if unknown.",
    ),
    (
        "safeBytes",
        "sinkpipeline_source_safe_bytes",
        "Bytes that the database may write until it gives the slot up; none if it has no limit.",
    ),
)


class Metrics:
    """What `GET /metrics` answers."""

    def __init__(self, vitals: Vitals) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_DriverCollector(vitals))
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _DriverCollector(Collector):
    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals

    @override
    def collect(self) -> Iterator[Metric]:
        driver, seen = self._vitals.driver, self._vitals.seen
        sinks = seen.status["sinks"]
        yield InfoMetricFamily(
            "sinkpipeline_driver",
            "This driver.",
            {
                "identity": seen.status.get("identity", ""),
                "config_hash": driver.config_hash or "",
                "run": driver.run,
            },
        )
        heartbeat = self._vitals.heartbeat_ms / 1000
        yield GaugeMetricFamily(
            "sinkpipeline_driver_heartbeat_timestamp_seconds", "When the supervising loop last went round.", heartbeat
        )
        yield from _totals(sinks)
        lag = GaugeMetricFamily(
            "sinkpipeline_sink_lag_offsets",
            "Offsets between frontier and source's end; none if unknown.",
            None,
            ["sink"],
        )
        held_back = GaugeMetricFamily(
            "sinkpipeline_sink_held_back_offsets",
            "Source offsets beyond the lag that open transactions of the source hold back; none if unknown.",
            None,
            ["sink"],
        )
        state = GaugeMetricFamily("sinkpipeline_sink_state", "1 for the state a sink is in.", None, ["sink", "state"])
        for sink in sinks:
            if "lag" in sink:
                lag.add_metric([sink["name"]], sink["lag"])
            if "heldBack" in sink:
                held_back.add_metric([sink["name"]], sink["heldBack"])
            for each in SinkState:
                state.add_metric([sink["name"], each.value], float(each.value == sink["state"]))
        yield lag
        yield _waits(seen.counts)
        yield held_back
        yield state
        yield from _batches(seen.counts)
        yield from _commits(seen.counts, {sink["name"]: sink.get("kind", "") for sink in sinks})
        failures = CounterMetricFamily(
            "sinkpipeline_sink_failures", "Failures of this driver; retried ones too.", labels=["sink", "reason"]
        )
        for name, counts in seen.counts.items():
            for reason, count in counts.failures.items():
                failures.add_metric([name, reason], count)
        yield failures
        yield from _source(seen.status.get("source"))


def _source(source: Mapping[str, Any] | None) -> Iterator[Metric]:
    """Of the stage that reads a database; nothing where there is none."""
    if source is None:
        return
    for key, name, text in _OF_A_STAGE:
        if key in source:
            yield GaugeMetricFamily(name, text, source[key])
    yield GaugeMetricFamily(
        "sinkpipeline_source_at_risk",
        "1 where the slot or the log may be lost soon, or the slot holds more than limits.maxRetained, else 0.",
        float("atRisk" in source),
    )
    if "changes" in source:
        name = "sinkpipeline_source_changes"
        yield CounterMetricFamily(name, "Changes in the change topic, by all drivers.", source["changes"])
    state = GaugeMetricFamily("sinkpipeline_source_state", "1 for the state the stage is in.", None, ["state"])
    for each in SinkState:
        state.add_metric([each.value], float(each.value == source["state"]))
    yield state


def _waits(counts: Mapping[str, RunCounts]) -> Metric:
    waits = GaugeMetricFamily(
        "sinkpipeline_sink_lag_seconds",
        "For how long the oldest record that waits has waited, as far as this driver has seen; none if unknown.",
        labels=["sink"],
    )
    for name, each in counts.items():
        if each.waits_s is not None:
            waits.add_metric([name], each.waits_s)
    return waits


def _batches(counts: Mapping[str, RunCounts]) -> Iterator[Metric]:
    """Of this driver."""
    batches = CounterMetricFamily("sinkpipeline_sink_batches", "Micro-batches of this driver.", labels=["sink"])
    seconds = HistogramMetricFamily(
        "sinkpipeline_sink_batch_duration_seconds", "Micro-batches that were delivered.", labels=["sink"]
    )
    takeovers = HistogramMetricFamily(
        "sinkpipeline_sink_takeover_duration_seconds",
        "Takeovers of a source partition by a task: its transactional id is fenced, and the progress read.",
        labels=["sink"],
    )
    in_doubt = CounterMetricFamily(
        "sinkpipeline_sink_in_doubt_tasks",
        "Tasks that ended without knowing whether their last transaction was committed; it was looked up.",
        labels=["sink"],
    )
    for name, each in ((name, found.batches) for name, found in counts.items()):
        batches.add_metric([name], each.delivered)
        seconds.add_metric([name], list(each.batches.buckets()), each.batches.total)
        takeovers.add_metric([name], list(each.takeovers.buckets()), each.takeovers.total)
        in_doubt.add_metric([name], each.in_doubt)
    yield from (batches, seconds, takeovers, in_doubt)


def _commits(counts: Mapping[str, RunCounts], kinds: Mapping[str, str]) -> Iterator[Metric]:
    """Likewise, by the kind of the sink too: what a commit is differs between them."""
    labels = ["sink", "kind"]
    commits = CounterMetricFamily(
        "sinkpipeline_sink_commits", "Transactions that were committed with rows of batches.", labels=labels
    )
    seconds = HistogramMetricFamily(
        "sinkpipeline_sink_commit_duration_seconds",
        "Commits that count, from the request to the answer; of a small batch that the driver delivers, with its rows.",
        labels=labels,
    )
    rows = HistogramMetricFamily("sinkpipeline_sink_commit_rows", "Rows of a commit that counts.", labels=labels)
    in_doubt = CounterMetricFamily(
        "sinkpipeline_sink_commits_in_doubt",
        "Commits without a clear answer whether they count; the progress was read to find out.",
        labels=labels,
    )
    retries = CounterMetricFamily(
        "sinkpipeline_sink_retries",
        "How often a task took its partition again, read how far it had come, and went on, by reason.",
        labels=[*labels, "reason"],
    )
    for name, each in ((name, found.batches) for name, found in counts.items()):
        of = [name, kinds.get(name, "")]
        commits.add_metric(of, each.commits)
        seconds.add_metric(of, list(each.costs.seconds.buckets()), each.costs.seconds.total)
        rows.add_metric(of, list(each.costs.rows.buckets()), each.costs.rows.total)
        in_doubt.add_metric(of, each.costs.in_doubt)
        for reason, count in {"Fenced": 0, "InDoubt": 0, **each.costs.retries}.items():
            # Prometheus sees no increase from nothing to the first one.
            retries.add_metric([*of, reason], count)
    yield from (commits, seconds, rows, in_doubt, retries)


def _totals(sinks: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    for key, name, text in _TOTALS:
        total = CounterMetricFamily(name, text, labels=["sink"])
        for sink in sinks:
            # A sink of which nothing is known yet has no sample: 0 would be a reset.
            if key in sink:
                total.add_metric([sink["name"]], sink[key])
        yield total
    for key, name, text in _BY_CLASS:
        of_class = CounterMetricFamily(name, text, labels=["sink", "stage", "class"])
        for sink in sinks:
            for each in _every_class(sink):
                of_class.add_metric([sink["name"], each["stage"], each["class"]], each[key])
        yield of_class


def _every_class(sink: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Also those of which there is none yet: Prometheus sees no increase from nothing to the first one."""
    if "deadLetters" not in sink:
        return []
    none = {each.value: {"stage": each.stage.value, "count": 0, "dropped": 0} for each in ErrorClass}
    told = {each["class"]: each for each in sink["deadLetters"]}
    return [{**each, "class": word} for word, each in {**none, **told}.items()]
