"""A program in a container, as `kubectl exec` runs it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes import client
from kubernetes.stream import ws_client
from websocket import WebSocketException

from sinkpipeline_operator.kube.client import POD, ApiRefused, Ref

_PROTOCOL = "v4.channel.k8s.io"
"""The one that API servers hand through to a node as it is. Nothing is written to the program, so it is enough."""


def run(api: client.ApiClient, pod: Ref, container: str, argv: Sequence[str]) -> tuple[int, str, str]:
    """Runs a program in a container: its exit code, what it printed, and what it said on stderr.

    Raises:
        ApiRefused: it could not be run.
    """
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", each) for each in argv]
    _, url, headers, *_ = api.param_serialize(
        "GET",
        POD.path(pod.namespace, pod.name, "exec"),
        query_params=query,
        header_params={"sec-websocket-protocol": _PROTOCOL},
        auth_settings=["BearerToken"],
    )
    try:
        address = ws_client.get_websocket_url(url)
        # A letter may come in two pieces.
        stream = ws_client.WSClient(api.configuration, address, _lower(headers), capture_all=False, binary=True)
        stream.run_forever()
        channels = (ws_client.STDOUT_CHANNEL, ws_client.STDERR_CHANNEL, ws_client.ERROR_CHANNEL)
        printed, told, verdict = ((stream.read_channel(each) or b"").decode(errors="replace") for each in channels)
    except (WebSocketException, OSError) as error:
        raise ApiRefused(getattr(error, "status_code", 0), _words(error)) from error
    return _code(verdict), printed, told


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    """As that client looks for them."""
    return {name.lower(): value for name, value in headers.items()}


def _words(error: Exception) -> str:
    """The API server's own sentence, where it has said one."""
    body: Any = getattr(error, "resp_body", None)
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{type(error).__name__}: {error}"


def _code(verdict: str) -> int:
    """The exit code, of a Status object of the node."""
    try:
        status: dict[str, Any] = json.loads(verdict)
    except ValueError:
        return 1
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [each["message"] for each in causes if each.get("reason") == "ExitCode"]
    if not codes:
        raise ApiRefused(int(status.get("code") or 0), str(status.get("message") or verdict))
    return int(codes[0])
