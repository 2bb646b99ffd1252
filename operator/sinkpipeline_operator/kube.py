"""The one place for the Kubernetes client: objects as plain dictionaries, every call with a deadline.

Objects that are ours are applied server-side under one field manager; what is deleted is deleted with a precondition on
its uid, so that a late call never takes away what came after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError
from urllib3.exceptions import HTTPError

FIELD_MANAGER = "sinkpipeline-operator"
_TIMEOUT_S = (5, 20)
"""To connect, and to read."""

_NOT_FOUND, _CONFLICT, _UNPROCESSABLE = 404, 409, 422

P = ParamSpec("P")
T = TypeVar("T")


class ApiUnavailable(Exception):
    """The API server did not answer, or could not; nothing is known of what was asked."""


class ApiRefused(Exception):
    """The API server refuses for a reason that a retry doesn't change: rights, or the object itself."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Conflict(Exception):
    """Somebody else changed the object meanwhile: look again."""


@dataclass(frozen=True)
class Ref:
    """An object of a namespace."""

    namespace: str
    name: str


def _translated(ask: Callable[P, T]) -> Callable[P, T]:
    @wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return ask(*args, **kwargs)
        except (ApiException, DynamicApiError) as error:
            code = int(error.status or 0)
            if code == _CONFLICT:
                raise Conflict(str(error.reason)) from error
            if code in (400, 401, 403, _NOT_FOUND, 405, 413, _UNPROCESSABLE):
                raise ApiRefused(code, _message(error)) from error
            raise ApiUnavailable(f"{code} {error.reason}") from error
        except (HTTPError, OSError) as error:
            raise ApiUnavailable(f"{type(error).__name__}: {error}") from error

    return asked


def _message(error: Any) -> str:
    """The API server's own sentence, without the request's headers, which the client would print."""
    try:
        summary: str = error.summary() if isinstance(error, DynamicApiError) else ""  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, AttributeError):
        summary = ""
    return summary or str(error.reason)


class Cluster:
    """One API server. Usable from several threads.

    Raises (all methods):
        ApiUnavailable, ApiRefused, Conflict
    """

    def __init__(self, api: client.ApiClient | None = None) -> None:
        self._dynamic: Any = DynamicClient(api or client.ApiClient())  # type: ignore[no-untyped-call]

    @_translated
    def get(self, api_version: str, kind: str, ref: Ref) -> dict[str, Any] | None:
        try:
            found = self._resource(api_version, kind).get(
                name=ref.name, namespace=ref.namespace, _request_timeout=_TIMEOUT_S
            )
        except (ApiException, DynamicApiError) as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return _plain(found)

    @_translated
    def list(
        self, api_version: str, kind: str, namespace: str | None, labels: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        found = self._resource(api_version, kind).get(
            namespace=namespace, label_selector=selector, _request_timeout=_TIMEOUT_S
        )
        return [_plain(each) for each in found.items]

    @_translated
    def apply(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply, taking over the fields that are ours."""
        meta = document["metadata"]
        applied = self._resource(document["apiVersion"], document["kind"]).server_side_apply(
            body=dict(document),
            name=meta["name"],
            namespace=meta["namespace"],
            field_manager=FIELD_MANAGER,
            force_conflicts=True,
            _request_timeout=_TIMEOUT_S,
        )
        return _plain(applied)

    @_translated
    def create(self, document: Mapping[str, Any]) -> dict[str, Any]:
        meta = document["metadata"]
        created = self._resource(document["apiVersion"], document["kind"]).create(
            body=dict(document),
            namespace=meta["namespace"],
            field_manager=FIELD_MANAGER,
            _request_timeout=_TIMEOUT_S,
        )
        return _plain(created)

    @_translated
    def delete(self, api_version: str, kind: str, ref: Ref, uid: str) -> None:
        """Deletes that very object; it may be gone already, or another one be there."""
        try:
            self._resource(api_version, kind).delete(
                name=ref.name,
                namespace=ref.namespace,
                body={"propagationPolicy": "Foreground", "preconditions": {"uid": uid}},
                _request_timeout=_TIMEOUT_S,
            )
        except (ApiException, DynamicApiError) as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise

    @_translated
    def replace_status(self, document: Mapping[str, Any]) -> None:
        """Writes `status` of the object as it was read: a Conflict where somebody was faster."""
        meta = document["metadata"]
        self._resource(document["apiVersion"], document["kind"]).status.replace(
            body=dict(document),
            name=meta["name"],
            namespace=meta["namespace"],
            field_manager=FIELD_MANAGER,
            _request_timeout=_TIMEOUT_S,
        )

    @_translated
    def patch(self, api_version: str, kind: str, ref: Ref, patch: Mapping[str, Any]) -> None:
        """A merge patch, for annotations and finalizers."""
        self._resource(api_version, kind).patch(
            body=dict(patch),
            name=ref.name,
            namespace=ref.namespace,
            content_type="application/merge-patch+json",
            _request_timeout=_TIMEOUT_S,
        )

    def _resource(self, api_version: str, kind: str) -> Any:
        return self._dynamic.resources.get(api_version=api_version, kind=kind)


def _plain(found: Any) -> dict[str, Any]:
    document: dict[str, Any] = found.to_dict()
    return document
