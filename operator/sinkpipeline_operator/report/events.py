"""Events: what changed, told once. A repetition counts up the event that is there instead of making another one."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core.changes.dropping import PUBLICATION, SLOT, Kept
from sinkpipeline.core.changes.told import SOURCE_HEALTHY
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.status import RECORDS_DROPPED, SOURCE_TRANSACTION_OPEN, timestamp
from sinkpipeline.core.texts import shortened
from sinkpipeline.sinks.removal import KeptTopic
from sinkpipeline_operator.child import refusals, remedies
from sinkpipeline_operator.child.driverpod import Death
from sinkpipeline_operator.child.waits import Wait
from sinkpipeline_operator.decide.decision import Decision, Step
from sinkpipeline_operator.kube.client import (
    EVENT,
    FIELD_MANAGER,
    ApiRefused,
    ApiUnavailable,
    Cluster,
    Conflict,
    Ref,
)
from sinkpipeline_operator.report.undelivered import First, firsts

_LOG = logging.getLogger("sinkpipeline.reconcile")

MAX_MESSAGE = 1000
"""Characters; the API server takes 1024 bytes of most."""
_REMEMBERED = 10_000

TOPIC_RECREATED = "ProgressTopicRecreated"
DEAD_LETTERED = "DeadLettered"
_OF_A_DATABASE = {SLOT: ("Slot", ", and the database keeps its log for it"), PUBLICATION: ("Publication", "")}
"""In reasons, and what it costs to keep it."""
_NORMAL, _WARNING = "Normal", "Warning"


@dataclass(frozen=True)
class Event:
    kind: str
    """Normal or Warning."""
    reason: str
    message: str
    key: str = ""
    """What makes it the same event where its words differ from time to time; its words where it is empty."""


def events_of(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    decision: Decision,
    letters: Mapping[str, str],
    wait: Wait | None = None,
    *,
    pipeline: Ref,
) -> Iterator[Event]:
    """What a person would want to read of the way from one status to the next.

    Args:
        before: the status that was there; empty where there was none.
        after: the one that is there now.
        decision: what is done about the driver.
        letters: the dead-letter topic of each sink that has one.
        wait: what the driver, or an executor of it, waits for.
        pipeline: whose status it is.
    """
    told: set[tuple[str, str]] = set()
    for event in _events_of(before, after, decision, letters, wait, pipeline):
        # Two conditions with one cause are one event.
        if (event.reason, event.message) not in told:
            told.add((event.reason, event.message))
            yield event


def event_of_start(name: str, decision: Decision) -> Event:
    """Once the child is there: nothing of it runs yet."""
    return Event(
        _NORMAL,
        "DriverSubmitted",
        f"SparkApplication {name} of configuration {decision.run} is made: Kubeflow's Spark operator starts its driver",
    )


def event_of_refusal(words: str) -> Event:
    """Of anything that the API server does not take, and that the status can't tell.

    Args:
        words: the API server's own.
    """
    reason = refusals.reason_of(words) or refusals.REFUSED
    return Event(_WARNING, reason, f"the API server refuses: {words} ({refusals.remedy_of(reason)})", key="refusal")


def _events_of(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    decision: Decision,
    letters: Mapping[str, str],
    wait: Wait | None,
    pipeline: Ref,
) -> Iterator[Event]:
    yield from _of_step(decision)
    old, new = _conditions(before), _conditions(after)
    yield from _of_readiness(old, new)
    yield from _of_wait(old, wait)
    for kind in _ALARMS:
        yield from _of_condition(kind, old.get(kind), new.get(kind))
    yield from _of_sinks(before, after)
    for first in firsts(before, after):
        yield _of_dead_letters(first, letters, pipeline)


def events_of_removal(
    letters: Iterable[str], kept: Iterable[KeptTopic] = (), in_database: Iterable[Kept] = ()
) -> Iterator[Event]:
    """What a removal leaves behind.

    Args:
        letters: the dead-letter topics of the pipeline.
        kept: its data topics that stay.
        in_database: its slot and its publication, likewise.
    """
    for each in in_database:
        word, costs = _OF_A_DATABASE[each.what]
        text = f"{each.what} {each.name} stays{costs}: {each.why} (if nobody needs it, run {each.statement})"
        yield Event(_NORMAL, f"{word}Kept", text)
    for topic_kept in kept:
        yield Event(
            _NORMAL,
            "DataTopicKept",
            f"the data topic {topic_kept.name} stays: {topic_kept.why} (delete it yourself if nobody needs it)",
        )
    for topic in sorted({*letters}):
        yield Event(
            _NORMAL,
            "DeadLetterTopicKept",
            f"the dead-letter topic {topic} stays: perhaps nobody has looked at its letters yet, and others may write "
            "to it (delete it yourself once it is not needed)",
        )


def events_of_deletion(doomed: Iterable[str]) -> Iterator[Event]:
    """What is said before data topics are deleted.

    Args:
        doomed: their names; of a database, `slot NAME` and `publication NAME`.
    """
    for topic in sorted({*doomed}):
        what, _, name = topic.partition(" ")
        if what in _OF_A_DATABASE and name:
            text = f"{what} {name} is dropped now: this pipeline created it, and it goes with the pipeline"
            yield Event(_NORMAL, f"{_OF_A_DATABASE[what][0]}Dropped", text)
            continue
        yield Event(
            _NORMAL,
            "DataTopicDeleted",
            f"the data topic {topic} is deleted now, with all rows in it: this pipeline created it, and no other sink "
            "that keeps its progress in the same place delivers into it",
        )


def _of_step(decision: Decision) -> Iterator[Event]:
    match decision.step:
        case Step.NOTE if decision.death is not None:
            yield _of_death(decision.death)
        case Step.DELETE:
            yield Event(_NORMAL, "DriverStopping", f"stopping the driver: {decision.why}")
        case _:
            pass


def _of_death(death: Death) -> Event:
    if death.is_of_submission:
        words = f"{death.message} ({death.remedy})"
        return Event(_WARNING, death.reason, f"the driver could not be submitted: {words}", key="submission")
    kind = _NORMAL if death.exit_code == 0 else _WARNING
    code = "without an exit code" if death.exit_code is None else f"with exit code {death.exit_code}"
    return Event(kind, "DriverEnded", f"the driver ended {code}: {death.reason}: {death.message}")


def _of_wait(old: Mapping[str, Any], wait: Wait | None) -> Iterator[Event]:
    known = {old.get(kind, {}).get("reason") for kind in ("SparkApplicationReady", "Reconciling", "Stalled")}
    if wait is not None and wait.alarm and wait.reason not in known:
        yield Event(_WARNING, wait.reason, wait.message, key="wait")


def _of_readiness(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    suspended = {"reason": "Suspended", "message": "no driver runs"}
    before, after = old.get("Ready", {}).get("status"), new.get("Ready", suspended)
    if after.get("status") == "True" and before != "True":
        yield Event(_NORMAL, "Ready", after.get("message") or "all sinks run")
    if after.get("status") != "True" and before == "True":
        yield Event(_WARNING, "NotReady", f"{after.get('reason')}: {after.get('message')}")


_ALARMS = {
    "SpecValid": "False",
    "TopicsReady": "False",
    "Stalled": "True",
    SOURCE_HEALTHY: "False",
    "ExactlyOnce": "Unknown",
}


def _of_condition(kind: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Iterator[Event]:
    # What a sink has lost is told of each sink, each time.
    untold = new is not None and new["reason"] in ("NotYetKnown", Reason.SINK_ROLLED_BACK.value)
    if new is None or new["status"] != _ALARMS[kind] or untold:
        return
    if old is None or (old["status"], old["reason"]) != (new["status"], new["reason"]):
        yield Event(_WARNING, new["reason"], new["message"])


def _of_sinks(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    old = {sink["name"]: sink for sink in before.get("sinks", ())}
    for sink in after.get("sinks", ()):
        known = old.get(sink["name"], {})
        error, earlier = sink.get("error"), known.get("error") or {}
        if error and (error["reason"], sink["state"]) != (earlier.get("reason"), known.get("state")):
            yield Event(_WARNING, error["reason"], f"{sink['name']}: {error['message']} ({error['remedy']})")
        hanging = sink.get("openTransaction")
        if hanging and not known.get("openTransaction"):
            yield Event(
                _WARNING, SOURCE_TRANSACTION_OPEN, f"{sink['name']}: {hanging['message']} ({hanging['remedy']})"
            )
        ids = known.get("progressTopicId"), sink.get("progressTopicId")
        lost = (sink.get("rolledBack") or 0) - (known.get("rolledBack") or 0)
        if "rolledBack" in sink and (lost > 0 or "rolledBack" not in known):
            words = f"the sink has lost its newest rows with their progress: {lost} rows are delivered again"
            yield Event(_WARNING, Reason.SINK_ROLLED_BACK.value, f"{sink['name']}: {words}")
        if all(ids) and ids[0] != ids[1]:
            yield Event(_WARNING, TOPIC_RECREATED, f"{sink['name']}: the progress topic was deleted and is there again")


def _of_dead_letters(first: First, letters: Mapping[str, str], pipeline: Ref) -> Event:
    topic = letters.get(first.sink, "the dead-letter topic")
    records = "1 record" if first.count == 1 else f"{first.count} records"
    why = f"{first.letters['class']} (stage {first.letters['stage']})"
    if first.dropped:
        return Event(
            _WARNING,
            RECORDS_DROPPED,
            f"{first.sink}: dropped {records} that could be neither delivered nor written to {topic}: {why} "
            "(the driver's log names some; onFailure: Stop would stop the sink instead)",
        )
    return Event(
        _WARNING,
        DEAD_LETTERED,
        f"{first.sink}: {records} could not be delivered and went to {topic}: {why} "
        f"(mend the cause; `{remedies.redrive(pipeline, first.sink)}` shows what is pending, and how to confirm it)",
    )


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {each["type"]: each for each in status.get("conditions", ())}


class Recorder:
    """Posts events. An event that can't be posted is nobody's problem but its reader's."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def post(self, pipeline: Mapping[str, Any], event: Event, now_ms: int) -> None:
        """Raises: ApiUnavailable."""
        meta = pipeline["metadata"]
        message = shortened(event.message, MAX_MESSAGE)
        # One name for the same words about the same object: that is what de-duplicates, also across restarts.
        words = "\n".join((meta["uid"], event.kind, event.reason, event.key or message))
        name = f"{meta['name']}.{hashlib.sha256(words.encode()).hexdigest()[:16]}"
        count = self._count(f"{meta['namespace']}/{name}")
        now = timestamp(now_ms)
        words_now = {"message": message} if event.key else {}
        if count > 1 and self._repeat(
            Ref(meta["namespace"], name), {"count": count, "lastTimestamp": now, **words_now}
        ):
            return
        document = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": pipeline["apiVersion"],
                "kind": pipeline["kind"],
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
                "resourceVersion": meta.get("resourceVersion", ""),
            },
            "type": event.kind,
            "reason": event.reason,
            "message": message,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": FIELD_MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._cluster.create(EVENT, document)
        except Conflict:
            # Of an operator before this one: how often it counted is not ours to read.
            self._repeat(Ref(meta["namespace"], name), {"lastTimestamp": now, **words_now})
        except (ApiRefused, ApiUnavailable) as error:
            # A namespace that goes takes no new objects; and nothing waits for an event, least of all a deletion.
            _LOG.warning("%s: event %s can't be written: %s", meta["name"], event.reason, error)

    def _repeat(self, ref: Ref, patch: Mapping[str, Any]) -> bool:
        """False where it has expired meanwhile: then it is counted anew."""
        try:
            self._cluster.patch(EVENT, ref, patch)
        except (ApiRefused, ApiUnavailable, Conflict):
            with self._lock:
                self._counts[f"{ref.namespace}/{ref.name}"] = 1
            return False
        return True

    def _count(self, key: str) -> int:
        with self._lock:
            count = self._counts.pop(key, 0) + 1
            self._counts[key] = count
            while len(self._counts) > _REMEMBERED:
                self._counts.popitem(last=False)
            return count
