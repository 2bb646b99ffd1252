"""The actions of one pipeline: looked at with it, one after the other, so that no two happen to a sink at once."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sinkpipeline.core import resume
from sinkpipeline.core.asked import Preview
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.manifest.action import ActionType
from sinkpipeline.core.memory import memory_of
from sinkpipeline.kinds.asked_reset import AskedReset
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline_operator.act.actions import Actions
from sinkpipeline_operator.act.workbench import Workbench
from sinkpipeline_operator.child import askedjob, remedies
from sinkpipeline_operator.child.askedjob import ACTION_LABEL
from sinkpipeline_operator.child.builder import Order
from sinkpipeline_operator.child.podwait import wait_of
from sinkpipeline_operator.decide.asked import Around, Asked, Next, Outcome, Phase, Task, Trouble
from sinkpipeline_operator.decide.asked_steps import decide, job_name, task_of
from sinkpipeline_operator.kube.client import (
    ACTION,
    CONFIG_MAP,
    JOB,
    POD,
    ApiRefused,
    Cluster,
    Conflict,
    NotFound,
    Ref,
)
from sinkpipeline_operator.kube.times import milliseconds
from sinkpipeline_operator.observe.kafka_view import KafkaView, Question
from sinkpipeline_operator.observe.observer import Seen
from sinkpipeline_operator.report.events import Event, Recorder

_LOG = logging.getLogger("sinkpipeline.reconcile")
_POD_S = 30.0
"""After so long without a pod something is in the way of it: a quota, or an admission."""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What a look at the actions of a pipeline led to."""

    holds: str = ""
    """Why the pipeline must have no driver for now; empty where it may."""
    wait_s: float | None = None
    """In how many seconds to look again."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Usable from several threads, by one at a time for each pipeline."""

    cluster: Cluster
    actions: Actions
    recorder: Recorder
    bench: Workbench[Outcome]
    kafka: KafkaView | None

    def look(self, ref: Ref, seen: Seen | None, question: Question | None) -> Looked:
        """Looks once at each action of the pipeline, and takes one step of each.

        Args:
            ref: the pipeline.
            seen: None where there is none of that name.
            question: as it is asked of Kafka; None where the manifest is refused, or a Secret is missing.

        Raises:
            ApiUnavailable
        """
        found = sorted(self._all(ref), key=lambda each: each.order)
        waits: list[float] = []
        for at, asked in enumerate(found):
            around = self._around(asked, found, seen, question)
            try:
                found[at], wait_s = self._step(asked, around, seen, question)
            except Conflict:
                # Somebody has just changed it: most often, confirmed it.
                wait_s = 0.05
            except ApiRefused as error:
                # One action that can't be written down must not hold up its pipeline.
                _LOG.warning("%s: action %s: %s", ref, asked.ref.name, error)
                wait_s = 60.0
            if wait_s is not None:
                waits.append(wait_s)
        holder = next((each for each in found if each.holds), None)
        return Looked(
            holds=""
            if holder is None or holder.spec is None
            else f"action {holder.ref.name} resets sink {holder.spec.sink}",
            wait_s=min(waits, default=None),
        )

    def _all(self, ref: Ref) -> Iterator[Asked]:
        try:
            documents = self.cluster.list(ACTION, ref.namespace, {})
        except NotFound:
            # Of a release before, whose CRD nobody has applied yet.
            return
        for document in documents:
            resource = {"apiVersion": ACTION.api_version, "kind": ACTION.kind, **document}
            spec = document.get("spec") or {}
            if spec.get("pipeline") == ref.name and "deletionTimestamp" not in document["metadata"]:
                yield Asked.read(resource)

    def _around(self, asked: Asked, others: list[Asked], seen: Seen | None, question: Question | None) -> Around:
        now_ms = int(time.time() * 1000)
        new_id = uuid.uuid4().hex[:8]
        if seen is None or seen.observation.deleting:
            return Around(now_ms=now_ms, uid=None, new_id=new_id)
        pipeline = seen.pipeline
        of_sink = asked.spec is not None and asked.spec.sink
        beside = [each for each in others if each.uid != asked.uid and each.spec and each.spec.sink == of_sink]
        return Around(
            now_ms=now_ms,
            uid=seen.resource["metadata"]["uid"],
            trouble=_trouble(seen) if question is None else None,
            sinks={} if pipeline is None else {each.name: each.dead_letter is not None for each in pipeline.spec.sinks},
            driver_is_gone=(seen.child is None or seen.child.foreign)
            and all(pod.is_gone for pod in seen.observation.pods),
            paused=seen.observation.paused,
            rivals=[each.ref.name for each in beside if each.phase is Phase.RUNNING],
            others=",".join(sorted(f"{each.uid}:{each.status.get('phase')}" for each in beside)),
            in_process=self.kafka is not None
            and asked.spec is not None
            and asked.spec.action is ActionType.RESET
            and not (pipeline is not None and pipeline.logs_in_as_its_pods),
            new_id=new_id,
        )

    def _step(
        self, asked: Asked, around: Around, seen: Seen | None, question: Question | None
    ) -> tuple[Asked, float | None]:
        """The action as it is then, and in how many seconds to look again."""
        task = task_of(asked, around)
        outcome: Outcome | None = None
        if task is not Task.NONE and seen is not None and question is not None:
            here = around.in_process
            outcome = self._in_process(asked, around, task, question) if here else self._by_job(asked, task, seen)
            if outcome is not None:
                failpoint("action-after-outcome")
        then = decide(asked, around, task, outcome)
        if then.delete:
            self.cluster.delete(ACTION, asked.ref, asked.uid)
            return asked, None
        if then.abandon:
            self._abandon(asked)
        written = self._write(asked, then, seen, around)
        if written.phase is not asked.phase:
            if written.phase is Phase.RUNNING:
                failpoint("action-after-running")
            if written.phase is Phase.SUCCEEDED and self.kafka is not None and seen is not None:
                self.kafka.look_anew(seen.ref)
        return written, then.wait_s

    def _write(self, asked: Asked, then: Next, seen: Seen | None, around: Around) -> Asked:
        if dict(then.status) == dict(asked.status):
            return asked
        try:
            written = self.cluster.replace_status(ACTION, {**asked.resource, "status": dict(then.status)})
        except NotFound:
            # Deleted meanwhile: nobody waits for it.
            return asked
        after = replace(asked, resource={"apiVersion": ACTION.api_version, "kind": ACTION.kind, **written})
        if after.phase is not asked.phase:
            for resource, event in _events(after, seen):
                _LOG.info("%s: %s: %s", asked.ref, event.reason, event.message)
                self.recorder.post(resource, event, around.now_ms)
        return after

    # --- in this process ---

    def _in_process(self, asked: Asked, around: Around, task: Task, question: Question) -> Outcome | None:
        kafka, spec = self.kafka, asked.spec
        assert kafka is not None
        assert spec is not None

        def work() -> Outcome:
            try:
                with kafka.opened(question) as opened:
                    settings = next(each for each in opened.sinks if each.id.sink == spec.sink)
                    status, identity = question.status, question.pipeline.identity
                    memory = memory_of(status, identity, spec.sink) if status.get("sinks") else None
                    reset = AskedReset(settings=settings, memory=memory)
                    match task:
                        case Task.PREVIEW:
                            return reset.preview(spec.to or "")
                        case Task.CHECK:
                            return reset.preview_again(asked.resolved)
                        case _:
                            return reset.carry_out(asked.resolved)
            except SinkPipelineError as error:
                return _translated(Trouble.of(error), question.ref, spec.sink)
            except ValueError:
                return _unreadable()

        beside = around.others if task is Task.CHECK else ""
        key = f"{asked.uid}/{asked.attempt}/{task.value}/{beside}"
        return self.bench.ask(key, question.ref, work, lane=question.lane)

    # --- by a Job ---

    def _by_job(self, asked: Asked, task: Task, seen: Seen) -> Outcome | None:
        name = job_name(asked)
        found = self.cluster.get(JOB, Ref(asked.ref.namespace, name))
        if found is None:
            return self._make_job(asked, task, name, seen)
        owners = found["metadata"].get("ownerReferences") or []
        if not any(each["uid"] == asked.uid for each in owners):
            fact = f"there is a Job {name} of somebody else"
            return Trouble(reason="NameTaken", message=fact, remedy="create another action")
        ended = {
            each["type"] for each in (found.get("status") or {}).get("conditions") or () if each["status"] == "True"
        }
        pods = self.cluster.list(POD, asked.ref.namespace, {ACTION_LABEL: asked.ref.name, "job-name": name})
        if not ended & {"Complete", "Failed"}:
            if not pods and _age_s(found) > _POD_S:
                return _waiting(name, "NoPod", f"there is none: `kubectl -n {seen.ref.namespace} describe job {name}`")
            waits = next(
                (wait for each in pods if (wait := wait_of(each.get("status") or {})) and wait.complains), None
            )
            return None if waits is None else _waiting(name, waits.reason, waits.message)
        return _answer(pods, name, seen.ref, "" if asked.spec is None else asked.spec.sink)

    def _make_job(self, asked: Asked, task: Task, name: str, seen: Seen) -> Outcome | None:
        pipeline, run, spec = seen.pipeline, seen.run, asked.spec
        assert pipeline is not None
        assert run is not None
        assert spec is not None
        order = Order(pipeline=pipeline, run=run, runtime=self.actions.runtime, cluster=self.cluster.id)
        try:
            resolved = asked.resolved if task is Task.CARRY_OUT else {}
        except ValueError:
            return _unreadable()
        what = {
            "do": "carryOut" if task is Task.CARRY_OUT else "preview",
            "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True),
            "created": asked.created_ms,
            "owner": {"cluster": self.cluster.id, "name": str(seen.ref)},
            "resume": _memory(seen, pipeline.identity),
            "resolved": resolved,
        }
        with_spark = spec.action is ActionType.REDRIVE and task is Task.CARRY_OUT
        like = self.actions.child_kind.driver_container
        document = askedjob.job(name, asked.ref, asked.uid, order, with_spark=with_spark, like=like)
        try:
            self.cluster.apply(CONFIG_MAP, askedjob.config_map(name, asked.ref, asked.uid, order, what))
            failpoint("action-after-config")
            self.cluster.create(JOB, document)
        except Conflict:
            # There: an earlier answer was lost.
            return None
        except ApiRefused as error:
            return Trouble(
                reason="ObjectRefused",
                message=f"the API server refuses the Job: {error.message}",
                remedy="change what the message names; it is tried again",
                retry=True,
            )
        failpoint("action-after-job")
        return None

    def _abandon(self, asked: Asked) -> None:
        if not asked.attempt:
            return
        found = self.cluster.get(JOB, Ref(asked.ref.namespace, job_name(asked)))
        if found is not None and any(
            each["uid"] == asked.uid for each in found["metadata"].get("ownerReferences") or []
        ):
            self.cluster.delete(JOB, Ref(asked.ref.namespace, job_name(asked)), found["metadata"]["uid"])


def _age_s(document: Mapping[str, Any]) -> float:
    created = milliseconds(document["metadata"].get("creationTimestamp"))
    return 0.0 if created is None else time.time() - created / 1000


def of_bug(error: Exception) -> Outcome:
    """Of work that raised what nobody expected."""
    return Trouble(
        reason=Reason.INTERNAL_ERROR.value, message=f"{type(error).__name__}: {error}", remedy="please report this"
    )


def _trouble(seen: Seen) -> Trouble:
    if seen.trouble is not None:
        return Trouble.of(seen.trouble)
    return Trouble(
        reason=Reason.MANIFEST_INVALID.value,
        message=f"the manifest of SinkPipeline {seen.ref.name} is refused: {'; '.join(map(str, seen.problems))}",
        remedy="correct it, then create another action",
    )


def _unreadable() -> Trouble:
    return Trouble(
        reason=Reason.STATUS_FILE_INVALID.value,
        message="somebody has written into the status of this action: what was shown can't be read",
        remedy="create another action",
    )


def _waiting(job: str, reason: str, message: str) -> Trouble:
    return Trouble(
        reason=reason,
        message=f"the pod of Job {job} waits: {message or reason}",
        remedy="change what it names",
        retry=True,
    )


def _translated(trouble: Trouble, pipeline: Ref, sink: str) -> Trouble:
    return replace(trouble, remedy=remedies.in_cluster(trouble.remedy, pipeline, sink))


def _answer(pods: list[dict[str, Any]], job: str, pipeline: Ref, sink: str) -> Outcome:
    """What the last pod said."""
    words = ""
    for pod in sorted(pods, key=lambda each: str(each["metadata"].get("creationTimestamp"))):
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated") or {}
            if container.get("name") == askedjob.CONTAINER and ended:
                words = ended.get("message") or ""
    try:
        answer = parse_json(words)
        if "error" in answer:
            error = answer["error"]
            trouble = Trouble(reason=str(error["reason"]), message=str(error["message"]), remedy=str(error["remedy"]))
            # It was tried again by the Job itself.
            return _translated(trouble, pipeline, sink)
        return Preview.from_dict(answer["preview"]) if "preview" in answer else str(answer["done"])
    except (ValueError, KeyError, TypeError):
        return Trouble(
            reason="JobFailed",
            message=f"Job {job} ended, and its pod did not say how",
            remedy=f"look at `kubectl -n {pipeline.namespace} describe job {job}`; then create another action",
        )


def _memory(seen: Seen, identity: str) -> Mapping[str, Any] | None:
    if not seen.status.get("sinks") or seen.status.get("identity") != identity:
        return None
    try:
        return resume.render(resume.from_status(seen.status, identity))
    except SinkPipelineError:
        return None


def _events(asked: Asked, seen: Seen | None) -> Iterator[tuple[Mapping[str, Any], Event]]:
    message, phase = str(asked.status.get("message", "")), asked.phase
    match phase:
        case Phase.PREVIEWING if (asked.status.get("attempt") or {}).get("number", 1) > 1:
            yield asked.resource, Event("Warning", Reason.FRONTIER_MOVED.value, message)
        case Phase.AWAITING:
            yield asked.resource, Event("Normal", "Previewed", message)
        case Phase.RUNNING:
            yield asked.resource, Event("Normal", "Confirmed", f"digest {asked.digest} was confirmed")
        case Phase.SUCCEEDED:
            yield asked.resource, Event("Normal", "Succeeded", message)
            if seen is not None:
                yield seen.resource, Event("Normal", "ActionSucceeded", f"action {asked.ref.name}: {message}")
        case Phase.FAILED:
            reason = (asked.status.get("error") or {}).get("reason") or "Failed"
            yield asked.resource, Event("Warning", reason, message)
            if seen is not None:
                yield seen.resource, Event("Warning", "ActionFailed", f"action {asked.ref.name}: {message}")
        case _:
            pass
