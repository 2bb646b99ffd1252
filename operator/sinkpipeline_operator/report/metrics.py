"""The operator's own metrics, by Prometheus' client: what it does, and what the statuses say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sinkpipeline.core.status import condition_of
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.kube.times import milliseconds
from sinkpipeline_operator.report.undelivered import letters_of

_OF = ("namespace", "pipeline")
_SINK = (*_OF, "sink")


class _OfSink(NamedTuple):
    name: str
    text: str
    read: Callable[[Mapping[str, Any]], float | None]
    """From the sink's entry in the status; None where it is not known."""


def _number(key: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda sink: sink.get(key)


def _flag(key: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda sink: float(key in sink)


def _progressed_at(sink: Mapping[str, Any]) -> float | None:
    at_ms = milliseconds(sink.get("lastProgressTime"))
    return None if at_ms is None else at_ms / 1000


_OF_SINKS = (
    _OfSink("rows_delivered", "Rows delivered since the first start or the last reset.", _number("rowsDelivered")),
    _OfSink("dead_lettered", "Records that went to the dead-letter topic.", _number("deadLettered")),
    _OfSink("dropped", "Records that were dropped because the manifest says so.", _number("dropped")),
    _OfSink("lost", "Source offsets that the source no longer had.", _number("lost")),
    _OfSink("lag_offsets", "Source offsets between the frontier and the end offsets.", _number("lag")),
    _OfSink(
        "held_back_offsets",
        "Source offsets beyond the lag that open transactions of the source hold back.",
        _number("heldBack"),
    ),
    _OfSink("last_progress_timestamp_seconds", "When progress was last written.", _progressed_at),
    _OfSink("circuit_open", "1 where the sink is not tried again until a person has decided.", _flag("circuit")),
    _OfSink(
        "source_transaction_open",
        "1 where a transaction of the source has been open for 16 minutes or longer, else 0.",
        _flag("openTransaction"),
    ),
    _OfSink(
        "may_be_duplicated",
        "Records whose rows may have been delivered twice, where the progress was restored from the status.",
        _number("mayBeDuplicated"),
    ),
    _OfSink(
        "rolled_back_rows",
        "Rows that were delivered again, as the sink had lost them with their progress.",
        _number("rolledBack"),
    ),
)
_OF_A_SOURCE = (
    _OfSink("lag_bytes", "Bytes of the database's log, of all tables, that are not read yet.", _number("lagBytes")),
    _OfSink(
        "lag_seconds",
        "How long a change may have waited that is not in the change topic, by the database's clock.",
        _number("lagSeconds"),
    ),
    _OfSink("retained_bytes", "Bytes of its log that the database keeps for the slot.", _number("retainedBytes")),
    _OfSink(
        "at_risk",
        "1 where the slot or the log may be lost soon, or the slot holds more than limits.maxRetained, else 0.",
        _flag("atRisk"),
    ),
)
"""Of pipelines that read a database."""
_ABOUT = ("kind", "guarantee", "durability")
_INFO = (*_SINK, *_ABOUT)
_CLASS = (*_SINK, "stage", "class")
_BY_CLASS = {
    "count": ("dead_letters", "Records that went to the dead-letter topic, by error class."),
    "dropped": ("dropped_records", "Records that were dropped because the manifest says so, by error class."),
}
PHASES = ("Pending", "Starting", "Running", "Degraded", "Suspended", "Failed", "Deleting")


class Metrics:
    """Usable from several threads."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._sinks: dict[Ref, set[str]] = {}
        self._phases: dict[Ref, str] = {}
        self._pipelines = Gauge("sinkpipeline_pipelines", "Pipelines by phase.", ("phase",), registry=registry)
        self._ready = Gauge(
            "sinkpipeline_ready",
            "1 where the condition Ready is True, else 0; absent for a pipeline that is suspended and has stopped.",
            _OF,
            registry=registry,
        )
        self._restarts = Gauge(
            "sinkpipeline_driver_restarts", "Deaths of the driver, as status.restarts.total.", _OF, registry=registry
        )
        self._recreated = Counter(
            "sinkpipeline_progress_topics_recreated",
            "Progress topics that were deleted and made again.",
            _OF,
            registry=registry,
        )
        self._gauges = {
            each: Gauge(f"sinkpipeline_sink_{each.name}", each.text, _SINK, registry=registry) for each in _OF_SINKS
        }
        self._source_gauges = {
            each: Gauge(f"sinkpipeline_source_{each.name}", each.text, _OF, registry=registry) for each in _OF_A_SOURCE
        }
        self._by_class = {
            key: Gauge(f"sinkpipeline_{name}", text, _CLASS, registry=registry)
            for key, (name, text) in _BY_CLASS.items()
        }
        self._infos = Gauge(
            "sinkpipeline_sink_info",
            "Always 1; the labels say what the sink is and promises. A label is empty if that is not known.",
            _INFO,
            registry=registry,
        )
        self._of_infos: dict[Ref, set[tuple[str, ...]]] = {}
        self._classes: dict[Ref, set[tuple[str, str, str]]] = {}
        self._seconds = Histogram(
            "sinkpipeline_reconcile_seconds", "How long one look and one step took.", registry=registry
        )
        self._errors = Counter(
            "sinkpipeline_reconcile_errors",
            "Looks that failed, by reason.",
            ("reason",),
            registry=registry,
        )
        self._writes = Counter("sinkpipeline_status_writes", "Writes of a status.", registry=registry)
        for phase in PHASES:
            self._pipelines.labels(phase).set(0)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def took(self, seconds: float) -> None:
        self._seconds.observe(seconds)

    def failed(self, reason: str) -> None:
        self._errors.labels(reason).inc()

    def wrote_status(self) -> None:
        self._writes.inc()

    def recreated(self, ref: Ref) -> None:
        self._recreated.labels(ref.namespace, ref.name).inc()

    def show(self, ref: Ref, status: Mapping[str, Any]) -> None:
        """What the status says from now on."""
        of = (ref.namespace, ref.name)
        ready = condition_of(status, "Ready").get("status")
        with self._lock:
            self._set_phase(ref, status["phase"])
            if ready is None:
                self._ready.remove_by_labels(dict(zip(_OF, of, strict=True)))
            else:
                self._ready.labels(*of).set(float(ready == "True"))
            self._restarts.labels(*of).set(status["restarts"].get("total", 0))
            names = {sink["name"] for sink in status["sinks"]}
            for gone in self._sinks.get(ref, set()) - names:
                self._drop_sink(of, gone)
            self._sinks[ref] = names
            for sink in status["sinks"]:
                for each, gauge in self._gauges.items():
                    value = each.read(sink)
                    if value is not None:
                        gauge.labels(*of, sink["name"]).set(value)
                    else:
                        # What is not known is no number.
                        gauge.remove_by_labels(dict(zip(_SINK, (*of, sink["name"]), strict=True)))
            self._show_source(of, status.get("source"))
            self._show_classes(ref, status)
            self._show_infos(ref, status)

    def forget(self, ref: Ref) -> None:
        """The resource is gone."""
        of = (ref.namespace, ref.name)
        with self._lock:
            self._set_phase(ref, None)
            for sink in self._sinks.pop(ref, set()):
                self._drop_sink(of, sink)
            self._show_source(of, None)
            self._show_classes(ref, {})
            self._show_infos(ref, {})
            for gauge in (self._ready, self._restarts, self._recreated):
                gauge.remove_by_labels(dict(zip(_OF, of, strict=True)))

    def _show_source(self, of: tuple[str, str], source: Mapping[str, Any] | None) -> None:
        for each, gauge in self._source_gauges.items():
            value = None if source is None else each.read(source)
            if value is None:
                gauge.remove_by_labels(dict(zip(_OF, of, strict=True)))
            else:
                gauge.labels(*of).set(value)

    def _show_classes(self, ref: Ref, status: Mapping[str, Any]) -> None:
        of = (ref.namespace, ref.name)
        found = {
            (sink["name"], each["stage"], each["class"]): each
            for sink in status.get("sinks", ())
            for each in letters_of(sink)
        }
        for key, gauge in self._by_class.items():
            for gone in self._classes.get(ref, set()) - found.keys():
                gauge.remove(*of, *gone)
            for labels, each in found.items():
                gauge.labels(*of, *labels).set(each[key])
        self._classes[ref] = set(found)
        if not found:
            del self._classes[ref]

    def _show_infos(self, ref: Ref, status: Mapping[str, Any]) -> None:
        of = (ref.namespace, ref.name)
        found = {(sink["name"], *(str(sink.get(each, "")) for each in _ABOUT)) for sink in status.get("sinks", ())}
        for gone in self._of_infos.pop(ref, set()) - found:
            self._infos.remove(*of, *gone)
        for labels in found:
            self._infos.labels(*of, *labels).set(1)
        if found:
            self._of_infos[ref] = found

    def _drop_sink(self, of: tuple[str, str], sink: str) -> None:
        for gauge in self._gauges.values():
            gauge.remove_by_labels(dict(zip(_SINK, (*of, sink), strict=True)))

    def _set_phase(self, ref: Ref, phase: str | None) -> None:
        before = self._phases.pop(ref, None)
        if before is not None:
            self._pipelines.labels(before).dec()
        if phase is not None:
            self._phases[ref] = phase
            self._pipelines.labels(phase).inc()


__all__ = ["CONTENT_TYPE", "Metrics"]
