"""The phases of an action, each from what is so: nothing is guessed, and nothing is done twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sinkpipeline.core.asked import MAX_RESOLVED, Preview
from sinkpipeline_operator.decide.asked import Around, Asked, Outcome, Phase, Task, Trouble
from sinkpipeline_operator.decide.asked_steps import RUN_DEADLINE_S, decide, task_of

NOW = 1_750_000_000_000
AT = "2025-06-15T15:06:40Z"
PREVIEW = Preview(text="what would be done", resolved={"to": "orders:0=1", "before": "b", "after": "a"})
GONE = Trouble(reason="BrokerUnreachable", message="m", remedy="r", retry=True)
MOVED = Trouble(reason="FrontierMoved", message="m", remedy="r")
REFUSED = Trouble(reason="AuthorizationFailed", message="m", remedy="r")


def asked(status: dict[str, Any] | None = None, **spec: Any) -> Asked:
    document = {
        "apiVersion": "sinkpipeline.io/v1alpha1",
        "kind": "SinkPipelineAction",
        "metadata": {"name": "act", "namespace": "shop", "uid": "u", "generation": 1, "creationTimestamp": AT},
        "spec": {"pipeline": "orders", "sink": "copy", "action": "Reset", "to": "earliest", **spec},
        "status": status or {},
    }
    return Asked.read(document)


def around(**more: Any) -> Around:
    return Around(**{"now_ms": NOW, "uid": "p", "sinks": {"copy": False}, "new_id": "id", **more})


def then(before: Asked, what: Around, outcome: Outcome | None = None) -> Asked:
    """The action after one step."""
    found = decide(before, what, task_of(before, what), outcome)
    return Asked(resource={**before.resource, "status": dict(found.status)}, spec=before.spec)


def confirmed(before: Asked) -> Asked:
    spec = {**before.resource["spec"], "confirm": before.digest}
    return Asked.read({**before.resource, "spec": spec})


def shown() -> Asked:
    return then(then(asked(), around()), around(), PREVIEW)


def running() -> Asked:
    return then(confirmed(shown()), around(), PREVIEW)


def test_the_way_of_an_action() -> None:
    first = then(asked(), around())
    assert (first.phase, task_of(first, around())) == (Phase.PREVIEWING, Task.PREVIEW)
    waits = then(first, around(), PREVIEW)
    assert (waits.phase, task_of(waits, around())) == (Phase.AWAITING, Task.NONE)
    assert json.loads(waits.status["resolved"]) == PREVIEW.resolved
    yes = confirmed(waits)
    assert task_of(yes, around()) is Task.CHECK
    runs = then(yes, around(), PREVIEW)
    assert runs.phase is Phase.RUNNING
    assert runs.holds
    assert task_of(runs, around()) is Task.NONE, "its driver still runs"
    assert task_of(runs, around(driver_is_gone=True)) is Task.CARRY_OUT
    done = then(runs, around(driver_is_gone=True), "done")
    assert (done.phase, done.status["message"], done.holds) == (Phase.SUCCEEDED, "done", False)
    assert task_of(done, around()) is Task.NONE


def test_nothing_runs_without_the_digest_of_what_is_shown() -> None:
    for confirm in (None, "0123456789abcdef"):
        before = shown()
        spec = {**before.resource["spec"], **({} if confirm is None else {"confirm": confirm})}
        after = then(Asked.read({**before.resource, "spec": spec}), around())
        assert after.phase is Phase.AWAITING
        assert f'"confirm":"{before.digest}"' in after.status["message"]


def test_a_digest_confirms_one_preview_of_one_action() -> None:
    digests = {PREVIEW.digest(uid, number) for uid in ("u", "v") for number in (1, 2)}
    assert len(digests) == 4


def test_what_moved_is_shown_again_and_not_done() -> None:
    other = Preview(text="another", resolved={**PREVIEW.resolved, "before": "c"})
    again = then(confirmed(shown()), around(new_id="two"), other)
    assert (again.phase, again.attempt, again.digest) == (Phase.PREVIEWING, "two", None)
    late = then(running(), around(driver_is_gone=True, new_id="two"), MOVED)
    assert (late.phase, late.digest) == (Phase.PREVIEWING, None)
    second = then(late, around(), PREVIEW)
    assert second.digest != shown().digest, "what confirmed the first one confirms no second"


def test_who_waits_for_another_one_is_not_begun() -> None:
    waits = then(confirmed(shown()), around(rivals=["other"]))
    assert (waits.phase, "other" in waits.status["message"]) == (Phase.AWAITING, True)


def test_what_may_pass_is_tried_again_but_not_for_ever() -> None:
    before = running()
    assert then(before, around(driver_is_gone=True), GONE).phase is Phase.RUNNING
    late = around(driver_is_gone=True, now_ms=NOW + int(RUN_DEADLINE_S * 1000))
    assert then(before, late, GONE).phase is Phase.FAILED
    assert then(before, around(driver_is_gone=True), REFUSED).status["error"]["reason"] == "AuthorizationFailed"
    assert then(then(asked(), around()), late, GONE).phase is Phase.PREVIEWING, "nobody waits for a preview"


@pytest.mark.parametrize(
    "what",
    [
        around(uid=None),
        around(sinks={"other": True}),
        around(trouble=Trouble(reason="SecretNotFound", message="m", remedy="r")),
    ],
    ids=["its pipeline is gone", "no such sink", "a Secret is missing"],
)
def test_what_can_t_be_done(what: Around) -> None:
    after = then(asked(), what)
    assert after.phase is Phase.FAILED
    assert {each["type"]: each["status"] for each in after.status["conditions"]} == {"Failed": "True"}


def test_another_pipeline_of_that_name_is_another_one() -> None:
    after = then(confirmed(shown()), around(uid="another"))
    assert (after.phase, after.status["error"]["reason"]) == (Phase.FAILED, "PipelineNotFound")
    assert "nobody knows" in then(running(), around(uid=None)).status["message"]


def test_a_secret_that_goes_missing_does_not_fail_what_runs() -> None:
    what = around(trouble=Trouble(reason="SecretNotFound", message="m", remedy="r"))
    after = then(running(), what)
    assert (after.phase, "SecretNotFound" in after.status["message"]) == (Phase.RUNNING, True)


def test_it_is_deleted_when_its_time_has_come() -> None:
    done = then(running(), around(driver_is_gone=True), "done")
    assert done.spec is not None
    for later_s, delete in ((0, False), (done.spec.ttl_seconds_after_finished, True)):
        what = around(now_ms=NOW + later_s * 1000)
        assert decide(done, what, Task.NONE, None).delete is delete


def test_a_status_that_somebody_wrote_into_begins_anew() -> None:
    assert then(asked({"phase": "Whatever"}), around()).phase is Phase.PREVIEWING


def test_what_does_not_fit_into_a_status_is_refused() -> None:
    large = Preview(text="", resolved={**PREVIEW.resolved, "to": "x" * MAX_RESOLVED})
    after = then(then(asked(), around()), around(), large)
    assert (after.phase, after.status["error"]["reason"]) == (Phase.FAILED, "UsageInvalid")


def test_a_job_that_is_given_up_does_not_begin_later() -> None:
    before, late = running(), around(driver_is_gone=True, in_process=False, now_ms=NOW + int(RUN_DEADLINE_S * 1000))
    assert decide(before, late, Task.CARRY_OUT, GONE).abandon
    assert not decide(before, late, Task.CARRY_OUT, REFUSED).abandon, "its pod has ended, and its log may be of use"
