"""One pipeline, level-triggered: observe → decide → report → act. Handlers only say that it is time to look.

The status is written before anything is done: it is where an operator that was killed in between finds what it was
about to do, and that a death has been counted. Where the API server refuses it for what a driver says, it is written
without that; what the API server refuses in spite of that is told by an event, and the step waits.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Any

from sinkpipeline.core.status import condition_of
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline_operator.act.actions import FINALIZER, Actions
from sinkpipeline_operator.act.asking import Asking
from sinkpipeline_operator.act.turns import Turns
from sinkpipeline_operator.act.workbench import Workbench
from sinkpipeline_operator.child import refusals
from sinkpipeline_operator.child.remedies import removal_barred
from sinkpipeline_operator.decide.asked import Outcome
from sinkpipeline_operator.decide.decision import Decision, Standing, Step, decide
from sinkpipeline_operator.knowing import (
    TOLD_STEPS,
    is_at_rest,
    is_new,
    is_to_be_removed,
    known_of,
    optional_sinks,
    refused_of,
    settled,
)
from sinkpipeline_operator.kube.client import PIPELINE, ApiFailed, ApiRefused, Cluster, NotFound, Ref
from sinkpipeline_operator.observe.hearing import Heard, Hearing
from sinkpipeline_operator.observe.kafka_view import Found, KafkaView, Question, Removal, wait_of
from sinkpipeline_operator.observe.observer import Observer, Seen
from sinkpipeline_operator.remembered import Remembered
from sinkpipeline_operator.report.events import (
    TOPIC_RECREATED,
    Event,
    Recorder,
    event_of_refusal,
    event_of_start,
    events_of,
    events_of_deletion,
    events_of_removal,
)
from sinkpipeline_operator.report.known import Known, without_words
from sinkpipeline_operator.report.metrics import Metrics
from sinkpipeline_operator.report.status import UNRESPONSIVE, report
from sinkpipeline_operator.report.writes import Due, Tokens
from sinkpipeline_operator.settings import Settings

_LOG = logging.getLogger("sinkpipeline.reconcile")

_SOON_S = 1.0
"""While a driver starts or stops: an event may be late, or lost."""
_TRIGGERS = 3
"""A driver that looks for records at long intervals is given so many of them to make progress."""


class Reconciler:
    """For many threads, one at a time for each pipeline."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        observer: Observer,
        settings: Settings,
        recorder: Recorder,
        metrics: Metrics,
        kafka: KafkaView | None,
        bench: Workbench[Outcome],
        turns: Turns,
    ) -> None:
        """`kafka`: None leaves Kafka to the drivers, and to Jobs; `bench`: where actions are carried out."""
        self._turns = turns
        self._kafka = kafka
        self._cluster = cluster
        self._observer = observer
        self._settings = settings
        self._recorder = recorder
        self._metrics = metrics
        self._actions = Actions(cluster=cluster, child_kind=observer.child_kind, runtime=settings.runtime)
        self._bench = bench
        self._asking = Asking(cluster=cluster, actions=self._actions, recorder=recorder, bench=bench, kafka=kafka)
        self._tokens = Tokens()
        self._memory: dict[Ref, Remembered] = {}
        self._lock = threading.Lock()

    def reconcile(self, ref: Ref) -> float | None:
        """Looks once, and takes one step.

        Returns:
            In how many seconds to look again, if nothing happens before; None where the resource is gone.

        Raises:
            ApiUnavailable, ApiRefused, Conflict: look again later.
        """
        try:
            return self._reconcile(ref)
        except NotFound:
            # Gone in the middle of a look: the next one sees it.
            raise
        except (ApiRefused, ApiFailed) as error:
            self._tell_of_refusal(ref, error)
            raise
        finally:
            self._turns.looked(ref)

    def _reconcile(self, ref: Ref) -> float | None:
        resource = self._observer.find(ref)
        if resource is not None and not self._settings.selector.matches(resource["metadata"].get("labels")):
            # Another operator's: a pod of its driver was seen, or it was ours until its labels were changed.
            self._forget(ref)
            return None
        seen = None if resource is None else self._observer.look(resource)
        looked = self._asking.look(ref, seen, None if seen is None else self._question(seen))
        if seen is None:
            self._forget(ref)
            return looked.wait_s
        seen = replace(seen, observation=replace(seen.observation, held=looked.holds))
        seen = self._turns.ask(seen)
        memory = self._remembered(ref)
        memory.seen = seen
        memory.looked_at = memory.secrets_at = time.monotonic()
        memory.same, memory.answers = 0, False
        wait_s = self._act(seen, memory)
        memory.look_at = None if looked.wait_s is None else time.monotonic() + looked.wait_s
        return wait_s if looked.wait_s is None else min(wait_s, looked.wait_s)

    def has_seen(self, ref: Ref, version: str) -> bool:
        """Whether a resource of that version is what was seen last, or has been written here."""
        with self._lock:
            memory = self._memory.get(ref)
        seen = None if memory is None else memory.seen
        return seen is not None and seen.resource["metadata"]["resourceVersion"] == version

    def poll(self, ref: Ref) -> float | None:
        """Asks a driver that runs, or Kafka where none is to run.

        It looks at the rest only where that changes something, or it is time to.

        Returns, Raises: as `reconcile`.
        """
        memory = self._remembered(ref)
        seen = memory.seen
        if seen is None or not (seen.answer or is_at_rest(seen)) or self._is_late(seen, memory):
            return self.reconcile(ref)
        asked = self._observer.ask_again(seen)
        decision = decide(asked.observation)
        known = self._known(asked, decision, self._hear(asked, memory.hearing), memory)
        now = time.monotonic()
        status = report(known)
        due = memory.pace.due(asked.status, status, now)
        memory.answers = known.told is not None
        memory.same = memory.same + 1 if memory.answers and status == asked.status else 0
        if self._tokens.suffice(due, now):
            if due is not Due.COUNTS or decision.step is not Step.NOTHING:
                return self.reconcile(ref)
            self._tokens.take(due, now)
            asked, known, status = self._write_what_is_taken(asked, known, status, memory)
            self._metrics.show(ref, status)
        wait_s = _SOON_S
        if asked.answer is None:
            wait_s = self._settings.resync_s
        elif settled(asked, known):
            wait_s = memory.poll_s(self._settings.poll_s)
        return wait_s if memory.look_at is None else max(0.0, min(wait_s, memory.look_at - now))

    def _is_late(self, seen: Seen, memory: Remembered) -> bool:
        now, resync_s = time.monotonic(), self._settings.resync_s
        if memory.is_late(now, resync_s, self._settings.at_rest_s):
            return True
        if now - memory.secrets_at < resync_s:
            return False
        # Nobody may follow them.
        memory.secrets_at = now
        return self._observer.has_other_secrets(seen)

    def _act(self, seen: Seen, memory: Remembered) -> float:
        memory.token = seen.token or memory.token
        found = self._found(seen)
        decision = decide(replace(seen.observation, other_owner=found is not None and found.other_owner))
        if not seen.observation.deleting:
            # One of that name may have gone, and come again, between two looks.
            memory.announced = None
            if self._kafka is not None:
                self._kafka.forget_removal(seen.ref)
        removal = self._removal(seen, decision, memory)
        if removal is not None and removal.done:
            self._tell_what_stays(seen, removal)
            self._actions.settle_finalizer(seen, wanted=False)
            return _SOON_S
        known = self._known(seen, decision, self._hear(seen, memory.hearing), memory)
        if removal is not None:
            kafka = None if seen.pipeline is None else seen.pipeline.spec.reads
            servers = None if kafka is None else kafka.connection.bootstrap_servers
            known = replace(known, wait=wait_of(removal, seen.ref, servers))
            if removal.error is not None:
                # What was seen before may be so no more.
                memory.announced = None
        doomed = memory.announced if removal is None or removal.doomed is None else removal.doomed
        known = replace(known, doomed=doomed or ())
        status = report(known)
        self._note_refusal(seen, decision)
        now = time.monotonic()
        if self._tokens.take(memory.pace.due(seen.status, status, now), now) or doomed != memory.announced:
            seen, known, status = self._write_what_is_taken(seen, known, status, memory)
        self._announce(seen, doomed, memory)
        self._metrics.show(seen.ref, status)
        self._turns.settle(seen, status)
        failpoint("operator-after-status")
        seen = replace(seen, resource={**seen.resource, "status": status})
        if not self._take(seen, decision, known, memory):
            return 0.0
        self._actions.after_report(seen, known.told, status)
        return self._next(seen, decision, known)

    def _note_refusal(self, seen: Seen, decision: Decision) -> None:
        try:
            self._actions.before_noting(seen, decision)
        except NotFound:
            return
        except ApiRefused as error:
            # The death is noted all the same: what is not noted beside the configuration, the restarts still know.
            self._post(seen, event_of_refusal(error.message))

    def _write_what_is_taken(
        self, seen: Seen, known: Known, status: dict[str, Any], memory: Remembered
    ) -> tuple[Seen, Known, dict[str, Any]]:
        """The whole status, or what is left of it without the words of a driver; with what was told in the end."""
        try:
            return self._write(seen, status, memory, known), known, status
        except NotFound:
            raise
        except ApiRefused as error:
            known = without_words(known, f"the API server refuses what the driver says: {error.message}")
            status = report(known)
        if memory.pace.due(seen.status, status, time.monotonic()) is not Due.NOT:
            seen = self._write(seen, status, memory, known)
        return seen, known, status

    def _take(self, seen: Seen, decision: Decision, known: Known, memory: Remembered) -> bool:
        """The step, after what has to be there for it; False where that took a step of its own.

        What is refused is told, and tried again.
        """
        try:
            took = self._actions.settle_and_take(seen, decision, memory.token, finalizer=is_to_be_removed(seen))
        except (ApiRefused, ApiFailed) as error:
            deadline_s = self._settings.start_deadline_s
            memory.refusal = refused = refused_of(decision.step, error, memory.refusal, time.monotonic(), deadline_s)
            if refused.wait != known.wait and decision.step in TOLD_STEPS:
                known = replace(known, previous=seen.status, wait=refused.wait)
                status = report(known)
                self._write(seen, status, memory, known)
                self._metrics.show(seen.ref, status)
            memory.told = error if decision.step in TOLD_STEPS else None
            raise
        memory.refusal = None
        if took and decision.step is Step.START:
            self._post(seen, event_of_start(seen.ref.name, decision))
        return took

    def _tell_of_refusal(self, ref: Ref, error: ApiRefused | ApiFailed) -> None:
        """By an event: it may be the status that is refused."""
        passes = isinstance(error, ApiFailed) and refusals.reason_of(error.message) is None
        if passes or self._remembered(ref).told is error:
            return
        try:
            resource = self._cluster.get(PIPELINE, ref)
        except ApiRefused:
            return
        if resource is not None:
            event = event_of_refusal(error.message)
            _LOG.info("%s: %s: %s", ref, event.reason, event.message)
            self._recorder.post(resource, event, int(time.time() * 1000))

    def _write(self, seen: Seen, status: dict[str, Any], memory: Remembered, known: Known) -> Seen:
        """The same look, with the resource as it is then."""
        before = seen.status
        written = self._cluster.replace_status(PIPELINE, {**seen.resource, "status": status})
        memory.pace.wrote(before, status, time.monotonic())
        if memory.seen is not None:
            memory.seen = replace(memory.seen, resource=written)
        self._metrics.wrote_status()
        letters = seen.dead_letter_topics
        for event in events_of(before, status, known.decision, letters, known.waits_for, pipeline=seen.ref):
            if event.reason == TOPIC_RECREATED:
                self._metrics.recreated(seen.ref)
            self._post(seen, event)
        return replace(seen, resource=written)

    def _post(self, seen: Seen, event: Event) -> None:
        _LOG.info("%s: %s: %s", seen.ref, event.reason, event.message)
        self._recorder.post(seen.resource, event, seen.observation.now_ms)

    def _announce(self, seen: Seen, doomed: tuple[str, ...] | None, memory: Remembered) -> None:
        """Data topics are deleted after they stand in the status, and were told by an event."""
        if doomed is None or doomed == memory.announced:
            return
        for event in events_of_deletion(doomed):
            self._post(seen, event)
        memory.announced = doomed

    def _tell_what_stays(self, seen: Seen, removal: Removal) -> None:
        if removal.error is None and is_to_be_removed(seen):
            letters = seen.dead_letter_topics.values()
            for event in events_of_removal(letters, removal.kept, removal.kept_in_database):
                self._post(seen, event)

    def _known(self, seen: Seen, decision: Decision, heard: Heard, memory: Remembered) -> Known:
        return known_of(
            seen,
            decision,
            heard,
            self._found(seen),
            refused=memory.refusal,
            start_deadline_s=self._settings.start_deadline_s,
        )

    def _removal(self, seen: Seen, decision: Decision, memory: Remembered) -> Removal | None:
        """How the removal of what the pipeline made in Kafka stands; None where its turn has not come."""
        finalizers = seen.resource["metadata"].get("finalizers") or []
        if not seen.observation.deleting or FINALIZER not in finalizers or decision.standing is not Standing.STOPPED:
            return None
        if not is_to_be_removed(seen):
            return Removal(done=True)
        question = self._question(seen)
        if question is None or self._kafka is None:
            return Removal(done=False, error=removal_barred(seen.ref, seen.trouble, has_kafka=self._kafka is not None))
        if seen.is_acted_on or self._bench.is_busy(seen.ref):
            # Who resets a sink would bring back what is removed.
            return Removal(done=False)
        return self._kafka.remove(question, memory.announced)

    def _question(self, seen: Seen) -> Question | None:
        if seen.pipeline is None or seen.run is None:
            return None
        return Question(
            ref=seen.ref,
            pipeline=seen.pipeline,
            config_hash=seen.run.hash,
            status=seen.status,
            secrets=seen.secrets,
            cluster=self._cluster.id,
        )

    def _found(self, seen: Seen) -> Found | None:
        """What Kafka says, where no driver could."""
        if self._kafka is None or seen.child is not None or seen.observation.deleting:
            return None
        question = self._question(seen)
        return None if question is None else self._kafka.of(question)

    def _hear(self, seen: Seen, hearing: Hearing) -> Heard:
        patience_s, optional = self._settings.progress_deadline_s, frozenset[str]()
        if seen.pipeline is not None:
            optional = optional_sinks(seen.pipeline)
            patience_s = max(patience_s, _TRIGGERS * seen.pipeline.spec.trigger.interval.seconds)
        new = is_new(seen, self._settings.start_deadline_s)
        known = condition_of(seen.status, "SparkApplicationReady")
        before = known["message"] if known.get("reason") == UNRESPONSIVE else ""
        now = time.monotonic()
        return hearing.hear(seen.answer, is_new=new, patience_s=patience_s, now=now, before=before, optional=optional)

    def _next(self, seen: Seen, decision: Decision, known: Known) -> float:
        if decision.step not in (Step.NOTHING, Step.WAIT):
            return 0.0
        wait = self._settings.resync_s
        if decision.look_again_ms is not None:
            wait = min(wait, max(0.0, (decision.look_again_ms - seen.observation.now_ms) / 1000))
        if seen.answer is not None:
            # Who waits for executors may wait for hours, and pods of theirs are events.
            wait = min(wait, self._settings.poll_s if settled(seen, known) else _SOON_S)
        elif decision.standing is Standing.STARTING and known.wait is not None and known.wait.alarm:
            # What it waits for may take hours, and the end of it is an event.
            wait = min(wait, self._settings.poll_s)
        elif seen.observation.deleting or decision.standing in (Standing.STARTING, Standing.STOPPING):
            wait = min(wait, _SOON_S)
        return wait

    def _remembered(self, ref: Ref) -> Remembered:
        with self._lock:
            return self._memory.setdefault(ref, Remembered(hearing=Hearing(pipeline=str(ref))))

    def _forget(self, ref: Ref) -> None:
        with self._lock:
            self._memory.pop(ref, None)
        self._turns.end(ref)
        self._metrics.forget(ref)
        self._observer.forget(ref)
        if self._kafka is not None:
            self._kafka.forget(ref)
