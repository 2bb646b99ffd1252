"""The status document: from what the driver knows to the shape of the resource's `.status`; back, in `core.memory`.

`phase` is computed from the sinks, never read back. A condition keeps its `lastTransitionTime` while its status stays.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sinkpipeline.core.documents import DeadLetters, Frontier, SinkProgress
from sinkpipeline.core.durability import Durability, window
from sinkpipeline.core.earlier_status import sums
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.guarantees import exactly_once
from sinkpipeline.core.held_back import HeldBack
from sinkpipeline.core.lookups import TableInfo
from sinkpipeline.core.lookups import told as told_tables
from sinkpipeline.core.moments import calendar_time
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.tally import entries, total
from sinkpipeline.core.topic_ids import to_status
from sinkpipeline.core.work import Executors

_OF_TOPICS = frozenset(
    {
        Reason.SOURCE_TOPIC_MISSING,
        Reason.SOURCE_RECREATED,
        Reason.DATA_TOPIC_LOST,
        Reason.DATA_TOPIC_REMOVED,
        Reason.DATA_TOPIC_NOT_EMPTY,
        Reason.TOPIC_CREATION_FAILED,
        Reason.PROGRESS_TOPIC_INVALID,
        Reason.PROGRESS_LOST,
    }
)

RECORDS_DROPPED = "RecordsDropped"
SOURCE_TRANSACTION_OPEN = "SourceTransactionOpen"
"""Why SinksHealthy is True, and yet worth a look."""
NO_EXECUTORS = "NoExecutors"
FIRST_BATCH_PENDING = "FirstBatchPending"
"""Why Ready is False though all sinks run."""


class SinkState(str, enum.Enum):
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    RETRYING = "Retrying"
    FAILED = "Failed"


class Phase(str, enum.Enum):
    STARTING = "Starting"
    RUNNING = "Running"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    FAILED = "Failed"


@dataclass(frozen=True, kw_only=True)
class SinkReport:
    """What is known of one sink."""

    name: str
    exactly_once: bool
    kind: str | None = None
    """As the manifest calls it; None: not told."""
    required: bool = True
    """Whether Ready depends on it."""
    durability: Durability | None = None
    """As its last start found it; None: not known, or AtLeastOnce without a window for duplicates."""
    duplicate_window_ms: int | None = None
    """Likewise: for so long its target knows a row that is sent again."""
    state: SinkState = SinkState.STARTING
    progress: Progress | None = None
    lag: int | None = None
    """Source offsets between the frontier and the end offsets; None while unknown."""
    held_back: HeldBack | None = None
    """What open transactions of the source hold back beyond these end offsets; None while unknown."""
    circuit_opened_at: int | None = None
    """Unix milliseconds."""
    error: SinkPipelineError | None = None
    drift: tuple[str, ...] = ()
    proved: bool | None = None
    """Whether, since it last had to be tried again, it has committed a batch, or shown that there is none; None: not
    told."""
    still_since: int | None = None
    """Since when records wait and nothing is done about them, Unix milliseconds; None: not so."""

    @property
    def ready(self) -> bool:
        return self.state is SinkState.RUNNING and self.proved is not False

    @property
    def may_duplicate(self) -> int | None:
        """Set where its progress was once restored from a memory: the rows of at most so many records may be."""
        return None if self.progress is None or self.progress.meta is None else self.progress.meta.restored


def render(
    reports: Iterable[SinkReport],
    *,
    identity: str,
    generation: int | None,
    previous: Mapping[str, Any] | None,
    now_ms: int,
    executors: Executors | None = None,
    reader: Mapping[str, Any] | None = None,
    tables: Iterable[TableInfo] = (),
) -> dict[str, Any]:
    """The document, JSON-ready. `executors`, `reader`: None where there is nothing to tell of them."""
    sinks, lookups = list(reports), told_tables(tables)
    rendered = [_sink(report) for report in sinks]
    lost = executors is not None and executors.are_lost(now_ms)
    return {
        **({} if generation is None else {"observedGeneration": generation}),
        "identity": identity,
        "phase": phase(sinks, without_executors=lost).value,
        "conditions": conditions(_conditions(sinks, rendered, executors, lost=lost), generation, previous, now_ms),
        "totals": {
            "sinksReady": f"{sum(report.ready for report in sinks)}/{len(sinks)}",
            **sums(rendered),
            # A lag that is not known of every sink is none.
            **(
                {"lag": sum(sink["lag"] for sink in rendered)}
                if sinks and all("lag" in sink for sink in rendered)
                else {}
            ),
        },
        **({} if executors is None else {"executors": told_executors(executors)}),
        **({} if reader is None else {"readerSchema": reader}),
        **({"lookups": lookups} if lookups else {}),
        "sinks": rendered,
    }


def phase(reports: Iterable[SinkReport], *, without_executors: bool = False) -> Phase:
    """Of all sinks: one that is not required degrades the pipeline too, but only required ones are waited for.

    Where there is none, the source decides: `core.changes.told`.
    """
    sinks = list(reports)
    states = {report.state for report in sinks}
    if states & {SinkState.FAILED, SinkState.RETRYING}:
        return Phase.FAILED if states == {SinkState.FAILED} else Phase.DEGRADED
    required = _required(sinks)
    if {report.state for report in required} <= {SinkState.RUNNING}:
        if without_executors:
            return Phase.DEGRADED
        return Phase.RUNNING if all(report.ready for report in required) else Phase.STARTING
    if states == {SinkState.SUSPENDED}:
        return Phase.SUSPENDED
    return Phase.STARTING


def _required(sinks: Iterable[SinkReport]) -> list[SinkReport]:
    return [report for report in sinks if report.required]


def timestamp(unix_ms: int) -> str:
    """RFC 3339 in UTC, in whole seconds, as Kubernetes writes it."""
    return calendar_time(unix_ms).isoformat().replace("+00:00", "Z")


def instant(told: object) -> int | None:
    """Unix milliseconds of a `timestamp` in somebody's document; None for what is none."""
    try:
        return int(datetime.strptime(str(told), "%Y-%m-%dT%H:%M:%S%z").timestamp() * 1000)
    except ValueError:
        return None


def told_executors(executors: Executors) -> dict[str, Any]:
    """As a status document has them."""
    since = executors.none_since
    return {
        "registered": executors.registered,
        **({} if executors.wanted is None else {"wanted": executors.wanted}),
        **({} if since is None else {"noneSince": timestamp(since)}),
    }


def executors_of(document: Mapping[str, Any]) -> Executors | None:
    """What a status document says of executors; None where it says nothing, or nothing sound."""
    found = document.get("executors")
    if not isinstance(found, Mapping) or not _is_count(found.get("registered")):
        return None
    wanted = found.get("wanted")
    return Executors(
        registered=found["registered"],
        wanted=wanted if _is_count(wanted) else None,
        none_since=instant(found.get("noneSince")),
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _sink(report: SinkReport) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": report.name,
        "state": report.state.value,
        "guarantee": "ExactlyOnce" if report.exactly_once else "AtLeastOnce",
        **({} if report.kind is None else {"kind": report.kind}),
        **({} if report.durability is None else {"durability": report.durability.value}),
        **window(report.duplicate_window_ms),
        **({} if report.required else {"required": False}),
    }
    if report.progress is not None:
        document |= dict(_progress(report.progress))
    if report.lag is not None:
        document["lag"] = report.lag
    if report.held_back is not None:
        document["heldBack"] = report.held_back.offsets
        if report.held_back.open_transaction is not None:
            document["openTransaction"] = report.held_back.open_transaction.to_dict()
    if report.circuit_opened_at is not None:
        document["circuit"] = {"openedAt": timestamp(report.circuit_opened_at)}
    if report.error is not None:
        document["error"] = report.error.to_dict()
    if report.proved is not None:
        document["proved"] = report.proved
    if report.still_since is not None:
        document["stillSince"] = timestamp(report.still_since)
    return document


def _progress(progress: Progress) -> SinkProgress:
    states = progress.partitions.values()
    meta = progress.meta
    document: SinkProgress = {
        "rowsDelivered": sum(state.rows for state in states),
        "deadLettered": sum(state.dead for state in states),
        "dropped": sum(state.dropped for state in states),
        "lost": sum(state.lost for state in states),
        "deadLetters": dead_letters(states),
        "frontier": frontier(progress),
    }
    last = max((state.at for state in states), default=0)
    if last:
        document["lastProgressTime"] = timestamp(last)
    if meta is not None:
        document |= cast(SinkProgress, to_status(meta.data))
        document["epoch"], document["progressTopicId"] = meta.epoch, meta.progress
        if meta.restored is not None:
            document["mayBeDuplicated"] = meta.restored
        if meta.rolled_back is not None:
            document["rolledBack"] = meta.rolled_back
    if progress.counted is not None:
        document["counted"] = progress.counted
    return document


def dead_letters(states: Iterable[PartitionProgress]) -> list[DeadLetters]:
    """Class by class, what of a sink's records could not be delivered; empty and not absent where there is none."""
    return cast(list[DeadLetters], entries(total(each.by_class for each in states)))


def frontier(progress: Progress) -> list[Frontier]:
    """Topic by topic, the next offset of every partition; the index is the partition."""
    topics: dict[str, list[int]] = {}
    for partition, state in sorted(progress.partitions.items()):
        topics.setdefault(partition.topic, []).append(state.next)
    source = progress.meta.source if progress.meta is not None else {}
    return [{"topic": topic, "topicId": source.get(topic), "next": offsets} for topic, offsets in topics.items()]


@dataclass(frozen=True)
class Condition:
    """One condition without its bookkeeping; `status` is True, False or Unknown, `reason` CamelCase."""

    status: str
    reason: str
    message: str


def conditions(
    found: Mapping[str, Condition], generation: int | None, previous: Mapping[str, Any] | None, now_ms: int
) -> list[dict[str, Any]]:
    """Conditions by type as the API has them: each keeps its `lastTransitionTime` while its status stays."""
    before = {condition["type"]: condition for condition in (previous or {}).get("conditions", [])}
    rendered = []
    for kind, condition in found.items():
        old = before.get(kind)
        changed = old is None or old.get("status") != condition.status
        rendered.append(
            {
                "type": kind,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": timestamp(now_ms) if old is None or changed else old["lastTransitionTime"],
                **({} if generation is None else {"observedGeneration": generation}),
            }
        )
    return rendered


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """A condition of a status document by its type; empty where it has none."""
    return next((each for each in status.get("conditions", ()) if each["type"] == kind), {})


def _conditions(
    sinks: list[SinkReport], rendered: Sequence[Mapping[str, Any]], executors: Executors | None, *, lost: bool
) -> dict[str, Condition]:
    return {
        "Ready": _ready(sinks, rendered, executors, lost=lost),
        "TopicsReady": Condition(*_topics_ready(sinks)),
        "SinksHealthy": _sinks_healthy(sinks, rendered),
        "ExactlyOnce": Condition(*exactly_once((each.name, each.exactly_once, each.progress) for each in sinks)),
    }


def _ready(
    sinks: list[SinkReport], rendered: Sequence[Mapping[str, Any]], executors: Executors | None, *, lost: bool
) -> Condition:
    """Of the required sinks; what becomes of the others is told beside."""
    required = _required(sinks)
    needed = [sink for sink, report in zip(rendered, sinks, strict=True) if report.required]
    current = phase(required)
    errors = [f"{report.name}: {report.error}" for report in required if report.error is not None]
    if not errors and lost and executors is not None and executors.none_since is not None:
        since = timestamp(executors.none_since)
        return Condition("False", NO_EXECUTORS, f"{executors} since {since}, and sinks wait for one")
    if not errors and all(report.state is SinkState.RUNNING for report in required):
        pending = first_batch_pending(needed, executors)
        if pending is not None:
            return pending
    if current is Phase.RUNNING:
        return Condition("True", current.value, beside(rendered))
    return Condition("False", current.value, "; ".join(errors))


def is_required(sink: Mapping[str, Any]) -> bool:
    """Of a sink's document: whether Ready depends on it."""
    return sink.get("required") is not False


def beside(sinks: Iterable[Mapping[str, Any]]) -> str:
    """What is to be told of the sinks without which a pipeline is ready; empty where they deliver."""
    told = [
        f"{sink['name']} ({(sink.get('error') or {}).get('reason') or sink['state']})"
        for sink in sinks
        if not is_required(sink) and (sink["state"] != SinkState.RUNNING.value or sink.get("proved") is False)
    ]
    return f"not delivering, and not required: {', '.join(told)}" if told else ""


def first_batch_pending(sinks: Iterable[Mapping[str, Any]], executors: Executors | None) -> Condition | None:
    """Ready where a sink runs and has not shown yet that it delivers; None where there is no such sink."""
    names = [str(sink["name"]) for sink in sinks if sink.get("proved") is False]
    if not names:
        return None
    who = "" if executors is None else f" ({executors})"
    return Condition("False", FIRST_BATCH_PENDING, f"no batch has come through yet: {', '.join(names)}{who}")


def _topics_ready(sinks: list[SinkReport]) -> tuple[str, str, str]:
    drift = [sentence for report in sinks for sentence in report.drift]
    lost = [report.error for report in sinks if report.error is not None and report.error.reason in _OF_TOPICS]
    if lost:
        return "False", lost[0].reason.value, "; ".join(error.message for error in lost)
    # Progress alone proves nothing: before a start has looked, it is what an earlier status remembered.
    if any(report.progress is None or report.error or report.state is SinkState.STARTING for report in sinks):
        return "Unknown", "NotYetKnown", "not every sink's topics could be looked at"
    return "True", ("Drifted" if drift else "TopicsAsRequested"), "; ".join(drift)


def _sinks_healthy(sinks: list[SinkReport], rendered: Iterable[Mapping[str, Any]]) -> Condition:
    broken = [report for report in sinks if report.error is not None]
    if not broken:
        return without_errors(rendered)
    reason = broken[0].error.reason.value if broken[0].error is not None else ""
    return Condition("False", reason, "; ".join(f"{report.name}: {report.error}" for report in broken))


def without_errors(sinks: Iterable[Mapping[str, Any]]) -> Condition:
    """SinksHealthy where no sink has an error.

    What was dropped was so by order, and what producers of the source hold back is no fault of a sink: both are told.
    """
    known = list(sinks)
    told: list[tuple[str, str]] = []
    # All sinks have the same source.
    hanging = {f"{each['message']} ({each['remedy']})": None for sink in known if (each := sink.get("openTransaction"))}
    if hanging:
        told.append((SOURCE_TRANSACTION_OPEN, "; ".join(hanging)))
    dropped = [f"{sink['name']}: {sink['dropped']}" for sink in known if sink.get("dropped")]
    if dropped:
        told.append((RECORDS_DROPPED, f"records dropped, as onFailure says: {', '.join(dropped)}"))
    if not told:
        return Condition("True", "NoErrors", "")
    return Condition("True", told[0][0], "; ".join(text for _, text in told))
