"""A `SinkPipelineAction` from the first question to its end: created, shown, confirmed, and waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline_operator.decide.asked import Asked, Phase
from sinkpipeline_operator.kube.client import ACTION, Cluster, NotFound, Ref
from sinkpipeline_operator.plugin.failure import Failure

_POLL_S = 0.5
_UNSEEN_S = 60.0
"""For how long an operator may say nothing of an action."""


@dataclass(frozen=True, kw_only=True)
class Person:
    """Who decides."""

    tell: Callable[[str], None]
    agrees: Callable[[], bool]
    """To what was told last."""
    dry_run: bool = False


def ask(cluster: Cluster, namespace: str, spec: Mapping[str, Any], person: Person) -> bool:
    """Whether it was done; where the person does not want it, the action is deleted.

    Raises:
        Failure: it could not be done, and why.
        ApiUnavailable, ApiRefused, Conflict: by the API server.
    """
    made = cluster.create(
        ACTION,
        {
            "apiVersion": ACTION.api_version,
            "kind": ACTION.kind,
            "metadata": {"generateName": f"{str(spec['action']).lower()}-", "namespace": namespace},
            "spec": dict(spec),
        },
    )
    asked = Asked.read(made)
    person.tell(f"sinkpipelineaction/{asked.ref.name} created")
    shown: str | None = None
    while True:
        asked = _until(cluster, asked.ref, shown)
        if asked.phase is Phase.AWAITING:
            if shown is not None:
                person.tell("something has changed since the preview, so nothing was done: here is the new preview")
            person.tell(str(asked.status.get("preview", "")))
            if person.dry_run or not person.agrees():
                cluster.delete(ACTION, asked.ref, asked.uid)
                person.tell("nothing was changed")
                return False
            shown = asked.digest
            cluster.patch(ACTION, asked.ref, {"spec": {"confirm": shown}})
        else:
            message = str(asked.status.get("message", ""))
            if asked.phase is Phase.FAILED:
                error = asked.status.get("error") or {}
                raise Failure(error.get("reason", "Failed"), error.get("message", message), error.get("remedy", ""))
            person.tell(message)
            return True


def _until(cluster: Cluster, ref: Ref, shown: str | None) -> Asked:
    """Until there is something to decide, or it is over; `shown`: the digest that was confirmed."""
    began = time.monotonic()
    while True:
        found = cluster.get(ACTION, ref)
        if found is None:
            raise NotFound(404, f"sinkpipelineaction {ref.name} was deleted meanwhile")
        asked = Asked.read(found)
        if asked.phase is not None and asked.phase.is_over:
            return asked
        if asked.phase is Phase.AWAITING and asked.digest != shown:
            return asked
        if asked.phase is None and time.monotonic() - began > _UNSEEN_S:
            raise Failure(
                "NotSeen",
                f"no operator has looked at sinkpipelineaction {ref.name} for {_UNSEEN_S:.0f} s",
                "check that the operator runs and serves this namespace; once it does, the action gets its preview",
            )
        time.sleep(_POLL_S)
