"""What to do about one `SinkPipelineAction`, as pure functions of what was observed.

    Previewing ──► AwaitingConfirmation ──► Running ──► Succeeded
        ▲                  │ confirm: digest    │
        └── it has moved ──┴────────────────────┘   any of them ──► Failed

Every phase is written before what it says is done, with the id of the attempt: an operator that is killed in between
finds what it was about to do, and does it again. Doing it again is harmless: what was shown is kept as numbers, and
whoever carries it out looks first whether it has been done.
"""

from __future__ import annotations

import json
from typing import Any

from sinkpipeline.core.asked import MAX_RESOLVED, Preview
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.manifest.action import ActionType
from sinkpipeline.core.status import Condition, conditions, timestamp
from sinkpipeline.core.texts import shortened
from sinkpipeline_operator.child import remedies
from sinkpipeline_operator.decide.asked import Around, Asked, Next, Outcome, Phase, Task, Trouble
from sinkpipeline_operator.kube.times import milliseconds

MAX_MESSAGE = 1024
RUN_DEADLINE_S = 900.0
"""For how long what may pass by itself is tried again, once a person has confirmed."""
AGAIN_S = 5.0
_LOOK_S = 2.0
"""While somebody is at work: the end of it is an event, which may be lost."""
PIPELINE_NOT_FOUND = "PipelineNotFound"
NOT_CONFIRMED = "NotConfirmed"
_TOO_LARGE = Trouble(
    reason=Reason.USAGE_INVALID.value,
    message="the preview has more partitions than the status of an action can hold",
    remedy="create several actions, each of which names some topics or partitions",
)


def task_of(asked: Asked, around: Around) -> Task:
    """What is to be worked at now."""
    if asked.phase is None or asked.phase.is_over or refusal(asked, around) is not None or asked.spec is None:
        return Task.NONE
    match asked.phase:
        case Phase.PREVIEWING:
            return Task.PREVIEW
        case Phase.AWAITING:
            ready = asked.is_confirmed and not around.rivals
            return Task.CHECK if ready and around.in_process else Task.NONE
        case _:
            stopped = around.driver_is_gone or asked.spec.action is not ActionType.RESET
            return Task.CARRY_OUT if stopped else Task.NONE


def refusal(asked: Asked, around: Around) -> Trouble | None:
    """Why it is not to be done at all."""
    spec = asked.spec
    if spec is None:
        return Trouble(
            reason=Reason.MANIFEST_INVALID.value, message=asked.problems, remedy="create another action, without that"
        )
    known = asked.status.get("pipelineUid")
    if around.uid is None or known not in (None, around.uid):
        gone = "is not there" if known is None else "was deleted since this was shown"
        doubt = "; nobody knows whether this was carried out" if asked.phase is Phase.RUNNING else ""
        return Trouble(
            reason=PIPELINE_NOT_FOUND,
            message=f"SinkPipeline {spec.pipeline} {gone} in the namespace of this action{doubt}",
            remedy="create another action for a pipeline that is there",
        )
    if around.trouble is not None and asked.phase is not Phase.RUNNING:
        return around.trouble
    if around.trouble is None and spec.sink not in around.sinks:
        return Trouble(
            reason=Reason.USAGE_INVALID.value,
            message=f"SinkPipeline {spec.pipeline} has no sink {spec.sink}",
            remedy=f"create another action for one of {', '.join(sorted(around.sinks))}",
        )
    if around.trouble is None and spec.action is not ActionType.RESET and not around.sinks[spec.sink]:
        return Trouble(
            reason=Reason.USAGE_INVALID.value,
            message=f"sink {spec.sink} of SinkPipeline {spec.pipeline} has no deadLetter, and so no dead letters",
            remedy="create another action for a sink that has one",
        )
    return None


def decide(asked: Asked, around: Around, task: Task, outcome: Outcome | None) -> Next:
    """The status from now on.

    Args:
        asked: the action.
        around: what is so.
        task: what `task_of` said.
        outcome: of that task; None where it is on its way.
    """
    if asked.phase is not None and asked.phase.is_over:
        return _over(asked, around)
    trouble = refusal(asked, around)
    if trouble is not None:
        return Next(status=_failed(asked, around, trouble), abandon=asked.phase is not None)
    if asked.phase is None:
        return Next(status=_previewing(asked, around, "looking what would be done"), wait_s=0.0)
    if isinstance(outcome, Trouble):
        return _in_trouble(asked, around, task, outcome)
    if asked.phase is Phase.PREVIEWING:
        return _looking(asked, around, outcome)
    awaiting = asked.phase is Phase.AWAITING
    return _awaiting(asked, around, task, outcome) if awaiting else _at_work(asked, around, task, outcome)


def _looking(asked: Asked, around: Around, outcome: Outcome | None) -> Next:
    if isinstance(outcome, Preview) and len(json.dumps(dict(outcome.resolved))) > MAX_RESOLVED:
        return Next(status=_failed(asked, around, _TOO_LARGE), wait_s=0.0)
    if isinstance(outcome, Preview):
        return Next(status=_shown(asked, around, outcome), wait_s=0.0)
    job = "" if around.in_process else f"; Job {job_name(asked)} does it"
    return Next(status={**asked.status, **_said(asked, f"looking what would be done{job}")}, wait_s=_LOOK_S)


def _at_work(asked: Asked, around: Around, task: Task, outcome: Outcome | None) -> Next:
    if isinstance(outcome, str):
        return Next(status=_succeeded(asked, around, outcome), wait_s=0.0)
    return Next(status={**asked.status, **_said(asked, _doing(asked, around, task))}, wait_s=_LOOK_S)


def _awaiting(asked: Asked, around: Around, task: Task, outcome: Outcome | None) -> Next:
    spec, status = asked.spec, asked.status
    assert spec is not None
    if asked.is_confirmed and around.rivals:
        waits = f"confirmed; it waits until {', '.join(sorted(around.rivals))} is through"
        return Next(status={**status, **_said(asked, waits)}, wait_s=AGAIN_S)
    if not asked.is_confirmed:
        return Next(status={**status, **_said(asked, _how_to_confirm(asked))})
    if task is Task.CHECK:
        if outcome is None:
            return Next(status=status)
        if isinstance(outcome, Preview) and dict(outcome.resolved) != _comparable(asked):
            why = (
                "something has changed since the preview, so nothing was done, and there is a new preview: suspend the "
                "pipeline first if it delivers"
            )
            return Next(status=_previewing(asked, around, why, Reason.FRONTIER_MOVED.value), wait_s=0.0)
    return Next(status=_running(asked, around), wait_s=0.0)


def _comparable(asked: Asked) -> dict[str, Any]:
    try:
        return asked.resolved
    except ValueError:
        return {}


def _in_trouble(asked: Asked, around: Around, task: Task, trouble: Trouble) -> Next:
    if trouble.reason == Reason.FRONTIER_MOVED.value and asked.phase is not Phase.PREVIEWING:
        return Next(status=_previewing(asked, around, trouble.message, trouble.reason), wait_s=0.0)
    if trouble.retry and (task is not Task.CARRY_OUT or _age_s(asked, around) < RUN_DEADLINE_S):
        return Next(
            status={**asked.status, **_said(asked, f"{trouble.text}; it is tried again")},
            wait_s=AGAIN_S,
        )
    # What still waits must not begin after it was given up.
    abandon = trouble.retry and not around.in_process
    return Next(status=_failed(asked, around, trouble), wait_s=0.0, abandon=abandon)


def _over(asked: Asked, around: Around) -> Next:
    ended = milliseconds(asked.status.get("completionTime"))
    ttl_s = 0 if asked.spec is None else asked.spec.ttl_seconds_after_finished
    left_s = 0.0 if ended is None else ended / 1000 + ttl_s - around.now_ms / 1000
    return Next(status=asked.status, wait_s=max(0.0, left_s), delete=left_s <= 0)


def _doing(asked: Asked, around: Around, task: Task) -> str:
    if around.trouble is not None:
        return f"waiting: {around.trouble.text}"
    if task is Task.CARRY_OUT:
        return (
            "carrying out what was shown" if around.in_process else f"Job {job_name(asked)} carries out what was shown"
        )
    if around.paused:
        return "the pipeline's driver runs, and reconciliation is paused by its annotation: nothing stops the driver"
    return "waiting until the pipeline's driver has stopped"


def job_name(asked: Asked) -> str:
    return f"{asked.ref.name}-{asked.attempt}"


def _how_to_confirm(asked: Asked) -> str:
    confirm = None if asked.spec is None else asked.spec.confirm
    other = "" if confirm is None else f"spec.confirm is {confirm}, and the digest of the preview is {asked.digest}; "
    return f"{other}nothing is changed yet: `{remedies.confirm(asked.ref, asked.digest or '')}` carries out the preview"


def _age_s(asked: Asked, around: Around) -> float:
    started = milliseconds((asked.status.get("attempt") or {}).get("startedTime"))
    return 0.0 if started is None else (around.now_ms - started) / 1000


def _previewing(asked: Asked, around: Around, message: str, reason: str = "Previewing") -> dict[str, Any]:
    number = int((asked.status.get("attempt") or {}).get("number", 0)) + 1
    kept = {key: asked.status[key] for key in ("conditions",) if key in asked.status}
    status = {
        **kept,
        "observedGeneration": asked.resource["metadata"].get("generation", 1),
        "phase": Phase.PREVIEWING.value,
        "pipelineUid": around.uid,
        "attempt": {"id": around.new_id, "number": number, "startedTime": timestamp(around.now_ms)},
        "message": _cut(message),
    }
    return _with(status, asked, around, Previewed=Condition("False", reason, message))


def _shown(asked: Asked, around: Around, preview: Preview) -> dict[str, Any]:
    number = int((asked.status.get("attempt") or {}).get("number", 1))
    status = {
        **asked.status,
        "phase": Phase.AWAITING.value,
        "preview": preview.text,
        "resolved": json.dumps(dict(preview.resolved)),
        "digest": preview.digest(asked.uid, number),
    }
    seen = Asked(resource={**asked.resource, "status": status}, spec=asked.spec)
    status["message"] = _cut(_how_to_confirm(seen))
    return _with(status, asked, around, Previewed=Condition("True", NOT_CONFIRMED, status["message"]))


def _running(asked: Asked, around: Around) -> dict[str, Any]:
    number = int((asked.status.get("attempt") or {}).get("number", 1))
    return {
        **asked.status,
        "observedGeneration": asked.resource["metadata"].get("generation", 1),
        "phase": Phase.RUNNING.value,
        "attempt": {"id": around.new_id, "number": number, "startedTime": timestamp(around.now_ms)},
        "message": "confirmed",
    }


def _succeeded(asked: Asked, around: Around, done: str) -> dict[str, Any]:
    status = {
        **asked.status,
        "phase": Phase.SUCCEEDED.value,
        "message": _cut(done),
        "completionTime": timestamp(around.now_ms),
    }
    return _with(status, asked, around, Complete=Condition("True", "Done", done))


def _failed(asked: Asked, around: Around, trouble: Trouble) -> dict[str, Any]:
    status = {
        **asked.status,
        "observedGeneration": asked.resource["metadata"].get("generation", 1),
        "phase": Phase.FAILED.value,
        "message": _cut(trouble.text),
        "completionTime": timestamp(around.now_ms),
        "error": {"reason": trouble.reason, "message": _cut(trouble.message), "remedy": _cut(trouble.remedy)},
    }
    return _with(status, asked, around, Failed=Condition("True", trouble.reason, trouble.message))


def _said(asked: Asked, message: str) -> dict[str, Any]:
    return {
        "observedGeneration": asked.resource["metadata"].get("generation", 1),
        "message": _cut(message),
    }


def _with(status: dict[str, Any], asked: Asked, around: Around, **found: Condition) -> dict[str, Any]:
    """With conditions; those that are not named stay."""
    cut = {kind: Condition(each.status, each.reason, _cut(each.message)) for kind, each in found.items()}
    generation = asked.resource["metadata"].get("generation", 1)
    new = conditions(cut, generation, asked.status, around.now_ms)
    kept = [each for each in asked.status.get("conditions") or () if each["type"] not in found]
    return {**status, "conditions": [*kept, *new]}


def _cut(text: str) -> str:
    return shortened(text, MAX_MESSAGE)
