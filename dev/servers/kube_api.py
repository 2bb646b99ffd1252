"""Objects of an API server as plain JSON, for the programs in dev/: the one place of the client library.

Typed models would drop the fields that they don't know; what stands in for Kubeflow must keep all of them.
"""

from __future__ import annotations

import contextlib
import http
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import load_kube_config

REQUEST_TIMEOUT: Final = (5.0, 30.0)
"""Seconds to connect and to read."""

WATCH_SECONDS: Final = 60
RECONNECT_SECONDS: Final = 0.2

Object = dict[str, Any]


class ApiError(RuntimeError):
    """The API server refused; `reason` is the one of its Status, such as NotFound."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class Change:
    """What a watch saw; `old` is what it had seen before: None for an object that is new to it."""

    kind: str
    """ADDED, MODIFIED or DELETED."""
    new: Object
    old: Object | None


class KubeApi:
    """Requests by path, such as `/api/v1/namespaces/shop/pods`. Safe for threads. Raises ApiError."""

    def __init__(self, kubeconfig: Path) -> None:
        configuration = Configuration()
        load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)
        if configuration.host.startswith(("https://127.", "https://localhost")):
            # A proxy of the environment does not lead back to this machine.
            configuration.proxy = None
        self._client = ApiClient(configuration)
        self._closed = threading.Event()
        self._streams: set[urllib3.HTTPResponse] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends every watch."""
        with self._lock:
            self._closed.set()
            streams = list(self._streams)
        for stream in streams:
            # What is about to end may have ended.
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                stream.shutdown()
        self._client.rest_client.close()

    def get(self, path: str) -> Object:
        return self._request("GET", path)

    def find(self, path: str) -> Object | None:
        with contextlib.suppress(NotFoundError):
            return self.get(path)
        return None

    def create(self, path: str, body: Object) -> Object:
        return self._request("POST", path, body)

    def replace(self, path: str, body: Object) -> Object:
        return self._request("PUT", path, body)

    def merge(self, path: str, body: Object) -> Object:
        return self._request("PATCH", path, body, content_type="application/merge-patch+json")

    def delete(self, path: str, options: Object | None = None) -> None:
        """An object that is not there counts as deleted; so does another one of its name, given a precondition."""
        with contextlib.suppress(NotFoundError, ConflictError):
            self._request("DELETE", path, options)

    def follow(self, path: str, **query: str) -> Iterator[Change]:
        """Lists and watches until `close`, whatever breaks on the way: a new list is compared with what was known."""
        known: dict[str, Object] = {}
        while not self._closed.is_set():
            try:
                listed = self._request("GET", path, query=query)
                yield from _compare(known, listed.get("items") or [], listed)
                yield from self._watch(path, known, listed["metadata"]["resourceVersion"], query)
            except (ApiError, urllib3.exceptions.HTTPError, OSError, ValueError):
                self._closed.wait(RECONNECT_SECONDS)

    def _watch(self, path: str, known: dict[str, Object], version: str, query: Mapping[str, str]) -> Iterator[Change]:
        while not self._closed.is_set():
            more = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
            for line in self._lines(path, {**query, **more}):
                event = json.loads(line)
                seen = event["object"]
                if event["type"] == "ERROR":
                    # Expired, as a rule: what happened meanwhile shows in a new list.
                    raise ApiError(seen.get("code", 0), seen.get("reason", ""), seen.get("message", ""))
                version = seen["metadata"]["resourceVersion"]
                uid = seen["metadata"]["uid"]
                old = known.pop(uid, None)
                if event["type"] != "DELETED":
                    known[uid] = seen
                yield Change(event["type"], seen, old)

    def _lines(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        response = self._send("GET", path, query=query, timeout=(5.0, WATCH_SECONDS + 10.0))
        with self._lock:
            if self._closed.is_set():
                response.close()
                return
            self._streams.add(response)
        try:
            rest = b""
            for chunk in response.stream(None):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        finally:
            with self._lock:
                self._streams.discard(response)
            response.close()

    def _request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Object:
        response = self._send(method, path, body, content_type=content_type, query=query)
        try:
            answer: Object = json.loads(response.data)
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(error) from error
        return answer

    def _send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        timeout: tuple[float, float] = REQUEST_TIMEOUT,
    ) -> urllib3.HTTPResponse:
        request = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response: urllib3.HTTPResponse = self._client.call_api(*request, _request_timeout=timeout).response
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(error) from error
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise _error(response)
        return response


class UnreachableError(ApiError):
    """No answer."""

    def __init__(self, error: Exception) -> None:
        super().__init__(http.HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", str(error))


class NotFoundError(ApiError):
    """No such object."""


class ConflictError(ApiError):
    """The object was changed meanwhile, or one of that name is there already."""


def _error(response: urllib3.HTTPResponse) -> ApiError:
    text = response.data.decode(errors="replace")
    status: Object = {}
    with contextlib.suppress(ValueError):
        status = json.loads(text)
    classes: dict[int, type[ApiError]] = {
        http.HTTPStatus.NOT_FOUND: NotFoundError,
        http.HTTPStatus.CONFLICT: ConflictError,
    }
    kind = classes.get(response.status, ApiError)
    return kind(response.status, status.get("reason", ""), status.get("message", text))


def _compare(known: dict[str, Object], items: list[Object], listed: Object) -> Iterator[Change]:
    now = {item["metadata"]["uid"]: item for item in items}
    for uid in list(known.keys() - now.keys()):
        gone = known.pop(uid)
        yield Change("DELETED", gone, gone)
    for uid, item in now.items():
        # The items of a list carry neither, those of a watch both.
        item.setdefault("apiVersion", listed["apiVersion"])
        item.setdefault("kind", listed["kind"].removesuffix("List"))
        old, known[uid] = known.get(uid), item
        if old is None:
            yield Change("ADDED", item, None)
        elif old["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            yield Change("MODIFIED", item, old)
