"""What `kubectl sinkpipeline status` and `progress` print, from the documents of the API server. Pure.

A page fits 50 columns but for the sentences, which a terminal wraps by itself: a command in one of them can be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sinkpipeline.core.durability import tier
from sinkpipeline.core.status import condition_of, is_required
from sinkpipeline_operator.child import remedies
from sinkpipeline_operator.child.podwait import wait_of
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.kube.times import milliseconds
from sinkpipeline_operator.plugin.text import age, columns, indented, number

Document = Mapping[str, Any]

_EVENTS = 8
"""The last ones."""
_PARTITIONS = 6
"""Of a topic, on the page; `progress` has all."""
_OF_A_SOURCE = (
    ("lag", "lagBytes", " bytes"),
    ("behind", "lagSeconds", " s"),
    ("log kept", "retainedBytes", " bytes"),
    ("log left", "safeBytes", " bytes"),
    ("changes", "changes", ""),
    ("dead", "deadLettered", ""),
    ("dropped", "dropped", ""),
)
"""What the page calls it, its field, and its unit."""
_NOT_SEEN = "the operator has not seen it yet: it is away, or does not serve this namespace"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A pipeline and what is around it."""

    pipeline: Document
    pods: Sequence[Document] = ()
    events: Sequence[Document] = ()
    now_ms: int
    rates: Mapping[str, float] = field(default_factory=dict)
    """Rows a second by sink, where it was looked at for long enough."""

    @property
    def status(self) -> Document:
        return self.pipeline.get("status") or {}

    @property
    def name(self) -> str:
        return str(self.pipeline["metadata"]["name"])


def page(scene: Scene) -> str:
    """All that a person wants to know of one pipeline."""
    parts = [
        _head(scene),
        [*_source(scene)],
        *([*_sink(scene, sink)] for sink in scene.status.get("sinks") or ()),
        _driver(scene),
        _conditions(scene),
        _events(scene),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def overview(pipelines: Iterable[Document], now_ms: int, *, everywhere: bool) -> str:
    """A line for each, and below what is to be told of those that are not ready."""
    found = sorted(pipelines, key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))
    rows = [["NAME", "PHASE", "SINKS", "LAG", "AGE"]]
    told = []
    for each in found:
        meta, status = each["metadata"], each.get("status") or {}
        name = f"{meta['namespace']}/{meta['name']}" if everywhere else meta["name"]
        totals = status.get("totals") or {}
        lag = number(totals["lag"]) if "lag" in totals else "?"
        rows.append(
            [name, _phase(status), totals.get("sinksReady", "?"), lag, age(meta.get("creationTimestamp"), now_ms)]
        )
        ready = condition_of(status, "Ready")
        if ready.get("status") not in ("True", None):
            told += ["", f"{name}: {ready['reason']}", *indented([ready["message"]] if ready["message"] else [])]
        elif not status.get("phase"):
            told += ["", f"{name}: {_NOT_SEEN}"]
    return "\n".join([*columns(rows, right=(3,)), *told])


def frontiers(pipeline: Document, only: str | None = None) -> list[dict[str, Any]]:
    """Where each partition of each sink is read next, as the status has it; of one without progress only its name."""
    lines: list[dict[str, Any]] = []
    for sink in (pipeline.get("status") or {}).get("sinks") or ():
        if only not in (None, sink["name"]):
            continue
        own = [
            {"sink": sink["name"], "topic": topic["topic"], "partition": partition, "next": offset}
            for topic in sink.get("frontier") or ()
            for partition, offset in enumerate(topic["next"])
        ]
        lines += own or [{"sink": sink["name"]}]
    return lines


def progress(scene: Scene, only: str | None = None) -> str:
    """The frontier of every sink, and how far behind it is."""
    lines = frontiers(scene.pipeline, only)
    rows = [
        [each["sink"], each["topic"], str(each["partition"]), str(each["next"])] for each in lines if "topic" in each
    ]
    parts = columns([["SINK", "TOPIC", "PARTITION", "NEXT"], *rows], right=(2, 3)) if rows else []
    parts += [f"sink {each['sink']} has no progress yet" for each in lines if "topic" not in each]
    for sink in scene.status.get("sinks") or ():
        if only in (None, sink["name"]):
            parts += ["", f"sink {sink['name']}: {tier(sink)}", *indented(_counts(scene, sink))]
    return "\n".join(parts) if lines else _NOT_SEEN


def summary(scene: Scene) -> dict[str, Any]:
    """The page for programs."""
    meta = scene.pipeline["metadata"]
    return {
        "namespace": meta["namespace"],
        "name": meta["name"],
        "suspend": bool((scene.pipeline.get("spec") or {}).get("suspend")),
        "status": scene.status,
        "pods": [_pod(each) for each in scene.pods],
        "events": [
            {
                "lastTime": _time_of(each),
                **{key: each.get(key) for key in ("type", "reason", "message")},
                "count": each.get("count") or 1,
            }
            for each in _latest(scene.events)
        ],
    }


def _head(scene: Scene) -> list[str]:
    status, meta = scene.status, scene.pipeline["metadata"]
    ready = condition_of(status, "Ready")
    title = f"{meta['namespace']}/{meta['name']}: {_phase(status)}"
    if not status.get("phase"):
        return [title, *indented([_NOT_SEEN])]
    lines: list[str] = []
    if ready:
        word = {"True": "ready", "False": "not ready"}.get(ready["status"], "nobody knows whether it is ready")
        title += f", {word} for {age(ready.get('lastTransitionTime'), scene.now_ms)}"
        lines += [ready["reason"]] if ready["status"] != "True" else []
        lines += _news(scene, ready["message"])
    stalled = condition_of(status, "Stalled")
    if stalled.get("status") == "True":
        lines.append("a person is needed")
        lines += _news(scene, stalled["message"]) if stalled["message"] != ready.get("message") else []
    reconciling = condition_of(status, "Reconciling")
    if reconciling.get("reason") == "Stalled":
        lines.append(reconciling["message"])
    if status.get("observedGeneration") != meta.get("generation"):
        lines.append("the operator has not seen the latest change yet")
    return [title, *indented(lines)]


def _news(scene: Scene, message: str) -> list[str]:
    """What the source and the sinks below don't tell anyway."""
    told = [scene.status.get("source") or {}, *(scene.status.get("sinks") or ())]
    errors = [each["error"]["message"] for each in told if each.get("error")]
    return [] if not message or any(error in message for error in errors) else [_typed(scene, message)]


def _typed(scene: Scene, remedy: str) -> str:
    """With the plugin's own commands, for those that ask for an action with nothing but kubectl."""
    ref = Ref(str(scene.pipeline["metadata"]["namespace"]), scene.name)
    for sink in scene.status.get("sinks") or ():
        name = str(sink["name"])
        ours = f"{ref.name} -n {ref.namespace} --sink {name}"
        remedy = remedy.replace(
            f"`{remedies.reset(ref, name)}`, and confirm what it shows",
            f"`kubectl sinkpipeline reset {ours} --to earliest`",
        )
        remedy = remedy.replace(f"`{remedies.redrive(ref, name)}`", f"`kubectl sinkpipeline dlq redrive {ours}`")
    return remedy


def _phase(status: Document) -> str:
    return str(status.get("phase") or "Unknown")


def _source(scene: Scene) -> Iterator[str]:
    """Of a database: where its stage is."""
    source = scene.status.get("source")
    if not source:
        return
    yield f"source: {source['state']}" + (f", slot {source['slot']}" if "slot" in source else "")
    error = source.get("error")
    if error:
        yield from indented([f"{error['reason']}: {error['message']}", f"remedy: {_typed(scene, error['remedy'])}"])
    if source.get("circuit"):
        yield f"  its circuit is open for {age(source['circuit']['openedAt'], scene.now_ms)}"
    if source.get("atRisk"):
        yield from indented([f"at risk: {source['atRisk']}"])
    yield from indented(_snapshot(source.get("snapshot") or {}))
    yield from indented(_incremental(source.get("incrementalSnapshot") or {}))
    if "position" in source:
        yield f"  position   {source['position']} index {source.get('index', 0)}"
    for title, key, unit in _OF_A_SOURCE:
        if source.get(key) is not None:
            yield f"  {title:<10} {number(source[key])}{unit}"


def _snapshot(snapshot: Document) -> list[str]:
    if snapshot.get("phase") == "TakingBack":
        return ["snapshot   what was read before is taken back"]
    if "table" not in snapshot:
        return []
    rows = f"{number(snapshot.get('rows'))} of about {number(snapshot.get('estimatedRows'))} rows"
    return [f"snapshot   {snapshot['table']}, {rows}"]


def _incremental(snapshot: Document) -> list[str]:
    if "table" not in snapshot:
        return []
    more = int(snapshot.get("tablesWaiting") or 1) - 1
    told = f"rows of    {snapshot['table']}{f' and {more} more tables' if more else ''}: {number(snapshot.get('rows'))}"
    return [told, *([f"           wait: {snapshot['waitsFor']}"] if snapshot.get("waitsFor") else [])]


def _sink(scene: Scene, sink: Document) -> Iterator[str]:
    yield f"sink {sink['name']}: {sink['state']}, {tier(sink)}{'' if is_required(sink) else ', not required'}"
    error = sink.get("error")
    if error:
        yield from indented([f"{error['reason']}: {error['message']}", f"remedy: {_typed(scene, error['remedy'])}"])
    if sink.get("circuit"):
        yield f"  its circuit is open for {age(sink['circuit']['openedAt'], scene.now_ms)}"
    yield from indented(_counts(scene, sink))
    for topic in sink.get("frontier") or ():
        told = [f"{partition}:{offset}" for partition, offset in enumerate(topic["next"][:_PARTITIONS])]
        more = len(topic["next"]) - _PARTITIONS
        yield from indented([f"next       {topic['topic']} {' '.join(told)}{f' and {more} more' if more > 0 else ''}"])
    transaction = sink.get("openTransaction")
    if transaction:
        yield from indented([transaction["message"], f"remedy: {transaction['remedy']}"])


def _counts(scene: Scene, sink: Document) -> Iterator[str]:
    rate = scene.rates.get(str(sink["name"]))
    yield f"lag        {number(sink.get('lag'))}"
    if sink.get("heldBack"):
        yield f"held back  {number(sink['heldBack'])}"
    if "rowsDelivered" in sink:
        last = sink.get("lastProgressTime")
        when = "" if last is None else f", last {age(last, scene.now_ms)} ago"
        yield f"delivered  {number(sink['rowsDelivered'])}{when}"
    if rate is not None:
        yield f"rate       {rate:,.0f} rows/s"
    classes = ", ".join(f"{each['class']} {number(each['count'])}" for each in sink.get("deadLetters") or ())
    if sink.get("deadLettered"):
        yield f"dead       {number(sink['deadLettered'])}{f' ({classes})' if classes else ''}"
    if sink.get("dropped"):
        yield f"dropped    {number(sink['dropped'])}"
    if sink.get("lost"):
        yield f"lost       {number(sink['lost'])}"
    if sink.get("mayBeDuplicated"):
        yield f"the rows of at most {number(sink['mayBeDuplicated'])} records may be duplicated"
    if "rolledBack" in sink:
        yield f"{number(sink['rolledBack'])} rows were lost by the sink, and delivered again"


def _driver(scene: Scene) -> list[str]:
    status = scene.status
    restarts, executors = status.get("restarts") or {}, status.get("executors")
    lines = []
    for pod in scene.pods:
        told = _pod(pod)
        since = age(pod["metadata"].get("creationTimestamp"), scene.now_ms)
        reason = f" ({told['reason']})" if told["reason"] else ""
        lines.append(f"{told['name']}: {told['phase']}{reason}, {since}")
        lines += indented([told["message"]] if told["message"] else [])
    if not lines:
        lines.append("no pod is there")
    if executors:
        wanted = f" of {executors['wanted']}" if "wanted" in executors else ""
        lines.append(f"executors registered: {executors['registered']}{wanted}")
    if restarts.get("total"):
        lines.append(f"restarts: {restarts['total']}, {restarts.get('consecutive', 0)} of them in a row")
        if restarts.get("lastReason"):
            lines.append(f"last one {age(restarts.get('lastTime'), scene.now_ms)} ago: {restarts['lastReason']}")
            lines += indented([restarts["lastMessage"]] if restarts.get("lastMessage") else [])
    next_ms = milliseconds(restarts.get("nextTime"))
    if next_ms is not None and next_ms > scene.now_ms:
        lines.append(f"next start in {(next_ms - scene.now_ms) // 1000}s")
    return ["pods", *indented(lines)]


def _pod(pod: Document) -> dict[str, str]:
    meta, status = pod["metadata"], pod.get("status") or {}
    wait = wait_of(status) if status.get("phase", "Pending") == "Pending" else None
    phase = "Terminating" if "deletionTimestamp" in meta else str(status.get("phase") or "Pending")
    return {
        "name": str(meta["name"]),
        "role": str((meta.get("labels") or {}).get("spark-role") or ""),
        "phase": phase,
        "reason": "" if wait is None else wait.reason,
        "message": "" if wait is None else wait.message,
    }


def _conditions(scene: Scene) -> list[str]:
    found = [each for each in scene.status.get("conditions") or () if each["type"] != "Ready"]
    if not found:
        return []
    rows = columns(([each["type"], each["status"], each["reason"]] for each in found), gap=1)
    return ["conditions", *indented(rows)]


def _events(scene: Scene) -> list[str]:
    lines = []
    for each in _latest(scene.events):
        again = f" (x{each['count']})" if (each.get("count") or 1) > 1 else ""
        lines.append(f"{age(_time_of(each), scene.now_ms)} ago: {each.get('reason')}{again}")
        lines += indented([_typed(scene, str(each["message"]))] if each.get("message") else [])
    return ["events", *indented(lines)] if lines else []


def _latest(events: Iterable[Document]) -> list[Document]:
    """The newest last, as in a log."""
    return sorted(events, key=_time_of)[-_EVENTS:]


def _time_of(event: Document) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
