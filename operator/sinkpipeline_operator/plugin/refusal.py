"""What a person does where the API server refuses, or is not there."""

from __future__ import annotations

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline_operator.kube.client import ApiRefused, ApiUnavailable, Conflict
from sinkpipeline_operator.plugin.failure import Failure

_FORBIDDEN, _UNAUTHORIZED, _INVALID = 403, 401, 422


def _of_cluster(error: ApiUnavailable | ApiRefused | Conflict) -> Failure:
    """What the API server has said, and what a person does about it."""
    if isinstance(error, ApiUnavailable):
        return Failure("ApiServerUnreachable", str(error), "see that `kubectl version` reaches it")
    if isinstance(error, Conflict):
        return Failure("Conflict", str(error), "somebody changed it at the same time: try again")
    words = {
        _FORBIDDEN: ("Forbidden", "ask for the right that the message names: docs/install.md, Rights"),
        _UNAUTHORIZED: ("Unauthorized", "log in as for kubectl"),
        _INVALID: ("Invalid", "correct what the message names"),
    }
    reason, remedy = words.get(error.code, ("Refused", ""))
    return Failure(reason, error.message, remedy)


def failure(error: Exception) -> Failure:
    """Whatever was raised, as what is told."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, SinkPipelineError):
        return Failure(error.reason.value, error.message, error.remedy)
    if isinstance(error, ApiUnavailable | ApiRefused | Conflict):
        return _of_cluster(error)
    return Failure("InternalError", f"{type(error).__name__}: {error}", "please report this")
