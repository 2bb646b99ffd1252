"""The one place for the Kubernetes client: objects as plain dictionaries, every call with a deadline.

Objects that are ours are applied server-side under one field manager; what is deleted is deleted with a precondition on
its uid, so that a late call never takes away what came after it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import should_bypass_proxies
from typing_extensions import override
from urllib3.exceptions import HTTPError

FIELD_MANAGER = "sinkpipeline-operator"
_TIMEOUT_S = (5.0, 20.0)
"""To connect, and to read."""

_PROBE_S = (2.0, 2.0)
"""Likewise, while a kubelet waits for an answer to its own question."""
_FRESH_S = 10.0
"""An answer is as good as another one for so long."""

_DEEPEST = 50_000
"""The API server takes objects of 10,000 levels, also in a pod template, of which it does not know what may be in it.
Python reads a thousand: so one object of one person would end what reads those of all. A level costs a copy three."""
_STACK_BYTES = 32 * 1024 * 1024
"""Of a thread, for so many; taken only where it is used."""
_CONFLICT = 409
_REFUSALS = frozenset({400, 401, 403, 404, 405, 413, 415, 422})
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class ApiUnavailable(Exception):
    """The API server did not answer, or could not; nothing is known of what was asked."""


class ApiFailed(ApiUnavailable):
    """The API server answered that it could not, as where a webhook that it has to ask is away."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.message = message


class ApiRefused(Exception):
    """The API server refuses for a reason that a retry doesn't change: rights, or the object itself."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class NotFound(ApiRefused):
    """No such object, or no such kind."""


class Conflict(Exception):
    """Somebody else changed the object meanwhile, or it is there already: look again."""


@dataclass(frozen=True, order=True)
class Ref:
    """An object of a namespace."""

    namespace: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Kind:
    """A kind as the API has it."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str | None, *parts: str) -> str:
        root = "/apis/" if "/" in self.api_version else "/api/"
        inside = () if namespace is None else ("namespaces", namespace)
        return root + "/".join((self.api_version, *inside, self.plural, *parts))


PIPELINE = Kind("sinkpipeline.io/v1alpha1", "SinkPipeline", "sinkpipelines")
ACTION = Kind("sinkpipeline.io/v1alpha1", "SinkPipelineAction", "sinkpipelineactions")
JOB = Kind("batch/v1", "Job", "jobs")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
POD = Kind("v1", "Pod", "pods")
EVENT = Kind("v1", "Event", "events")
DEFINITION = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")
NAMESPACE = Kind("v1", "Namespace", "namespaces")


def take_deep_objects() -> None:
    """For a process that reads what anybody may have written, before it has threads."""
    sys.setrecursionlimit(_DEEPEST)
    threading.stack_size(_STACK_BYTES)


def is_in_a_pod() -> bool:
    """Whether the pod's own service account is to be used: not where somebody names another way."""
    return "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ


def connect() -> client.ApiClient:
    """By KUBECONFIG where it is set, else by the pod's own service account, else by ~/.kube/config.

    Raises:
        ApiUnavailable: none of them is there.
    """
    configuration = client.Configuration()
    load = config.load_incluster_config if is_in_a_pod() else config.load_kube_config
    try:
        load(client_configuration=configuration)
    except config.ConfigException as error:
        raise ApiUnavailable(f"no Kubernetes API server is known: {error}") from error
    return client.ApiClient(configuration)


@dataclass(frozen=True, kw_only=True)
class Access:
    """How an API server is reached, for a client that is not ours: at the address and as the account of ours."""

    server: str
    ca_path: str | None
    verify: bool
    certificate_path: str | None
    key_path: str | None
    token: str | None = field(repr=False)
    proxy: str | None


def access_of(api: client.ApiClient) -> Access:
    """As it is now: the token of a service account is another one after an hour."""
    configuration = api.configuration
    around = configuration.proxy is None or should_bypass_proxies(configuration.host, configuration.no_proxy or "")
    bearer = (configuration.auth_settings().get("BearerToken") or {}).get("value")
    return Access(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        verify=configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        key_path=configuration.key_file,
        token=None if bearer is None else str(bearer).removeprefix("Bearer ").removeprefix("bearer "),
        proxy=None if around else configuration.proxy,
    )


class Cluster:
    """One API server. Usable from several threads.

    Raises (all methods):
        ApiUnavailable, ApiRefused, Conflict
    """

    def __init__(self, api: client.ApiClient, manager: str = FIELD_MANAGER) -> None:
        """`manager`: of the fields that it writes."""
        self._api = api
        self._manager = manager
        self._id: str | None = None
        self._answered_at = time.monotonic()
        self._probing = threading.Lock()
        self._trouble = ""

    @property
    def id(self) -> str:
        """The uid of the namespace kube-system, by which a cluster is known."""
        if self._id is None:
            self._id = self._ask("GET", NAMESPACE.path(None, "kube-system"))["metadata"]["uid"]
        return str(self._id)

    @property
    def access(self) -> Access:
        return access_of(self._api)

    def trouble(self) -> str:
        """Why it can't be worked with; empty where it has just answered, or does so now. Never raises."""
        if time.monotonic() - self._answered_at < _FRESH_S:
            return ""
        # One at a time: whoever asks for the process's own health must not wait behind a server that is silent.
        if self._probing.acquire(blocking=False):
            try:
                self._ask("GET", NAMESPACE.path(None, "kube-system"), timeout=_PROBE_S)
                self._trouble = ""
            except (ApiUnavailable, ApiRefused, Conflict) as error:
                self._trouble = f"the API server can't be worked with: {error}"
            finally:
                self._probing.release()
        return self._trouble

    def get(self, kind: Kind, ref: Ref) -> dict[str, Any] | None:
        """None where it is not there."""
        if not ref.name:
            # A label may be empty: the API server would answer with a list of all there are.
            return None
        try:
            return self._ask("GET", kind.path(ref.namespace, ref.name))
        except NotFound:
            return None

    def get_metadata(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """Of an object outside namespaces, without the rest of it; None where it is not there."""
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        try:
            return self._ask("GET", kind.path(None, name), accept=accept)
        except NotFound:
            return None

    def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str], fields: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """`namespace`: None for all of them. `fields`: those that the API server can select by."""
        query = {"labelSelector": _selector(labels), "fieldSelector": _selector(fields or {})}
        found = self._ask("GET", kind.path(namespace), {name: value for name, value in query.items() if value})
        items: list[dict[str, Any]] = found["items"]
        return items

    def apply(self, kind: Kind, document: Mapping[str, Any], manager: str = FIELD_MANAGER) -> dict[str, Any]:
        """Server-side apply, taking over the fields that are ours, or that manager's."""
        meta = document["metadata"]
        query = {"fieldManager": manager, "force": "true"}
        return self._ask("PATCH", kind.path(meta.get("namespace"), meta["name"]), query, document, _APPLY)

    def create(self, kind: Kind, document: Mapping[str, Any]) -> dict[str, Any]:
        query = {"fieldManager": self._manager}
        return self._ask("POST", kind.path(document["metadata"]["namespace"]), query, document)

    def delete(self, kind: Kind, ref: Ref, uid: str) -> None:
        """Deletes that very object; it may be gone already, or another one be there."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            self._ask("DELETE", kind.path(ref.namespace, ref.name), None, body)
        except (NotFound, Conflict):
            return

    def replace_status(self, kind: Kind, document: Mapping[str, Any]) -> dict[str, Any]:
        """Writes `status` of the object as it was read: a Conflict where somebody was faster."""
        meta = document["metadata"]
        query = {"fieldManager": self._manager}
        return self._ask("PUT", kind.path(meta["namespace"], meta["name"], "status"), query, document)

    def patch(self, kind: Kind, ref: Ref, patch: Mapping[str, Any]) -> dict[str, Any]:
        """A merge patch; with `metadata.resourceVersion` in it, a Conflict where somebody was faster."""
        query = {"fieldManager": self._manager}
        return self._ask("PATCH", kind.path(ref.namespace, ref.name), query, patch, _MERGE)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout: tuple[float, float] = _TIMEOUT_S,
        accept: str = "application/json",
    ) -> dict[str, Any]:
        try:
            request = self._api.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params={"Accept": accept, "Content-Type": content_type},
                body=None if body is None else dict(body),
                auth_settings=["BearerToken"],
            )
            response = self._api.call_api(*request, _request_timeout=timeout)
            text = response.read()  # type: ignore[no-untyped-call]
        except (ApiException, HTTPError, OSError) as error:
            raise ApiUnavailable(f"{type(error).__name__}: {error}") from error
        document = answer_of(int(response.status), text)
        self._answered_at = time.monotonic()
        return document


def _selector(wanted: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))


def answer_of(code: int, text: bytes) -> dict[str, Any]:
    """The document that was answered; raises what the API server's refusal is."""
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError:
        document = {}
    if 200 <= code < 300 and document:  # noqa: PLR2004 - HTTP's own
        return document
    # The API server's own sentence: a Status object.
    message = str(document.get("message", "")) or text[:200].decode(errors="replace")
    if code == _CONFLICT:
        raise Conflict(message)
    if code == 404:  # noqa: PLR2004 - HTTP's own
        raise NotFound(code, message)
    if code in _REFUSALS:
        raise ApiRefused(code, message)
    raise ApiFailed(code, message)
