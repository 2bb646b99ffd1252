"""The API server for a person: by kubeconfig and context as kubectl reaches it, and the logs of pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from sinkpipeline_operator.kube.client import (
    POD,
    ApiUnavailable,
    Cluster,
    Ref,
    answer_of,
    is_in_a_pod,
    take_deep_objects,
)

MANAGER = "kubectl-sinkpipeline"
"""Who changed a field, in its managedFields."""
_CONNECT_S = 5.0
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def contexts(kubeconfig: str | None) -> list[str]:
    """The names of the contexts; empty where there is no kubeconfig."""
    try:
        found, _ = config.list_kube_config_contexts(kubeconfig)
    except config.ConfigException:
        return []
    return [each["name"] for each in found]


class Session(Cluster):
    """A cluster as somebody's kubeconfig has it.

    Raises (all methods): as Cluster.
    """

    def __init__(self, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None) -> None:
        """As kubectl: by these, else by KUBECONFIG, else by ~/.kube/config; in a pod by its service account.

        Raises:
            ApiUnavailable: none of them is there, or it has no such context.
        """
        take_deep_objects()
        configuration = client.Configuration()
        try:
            if kubeconfig is None and context is None and is_in_a_pod():
                config.load_incluster_config(client_configuration=configuration)
                own = _OWN_NAMESPACE.read_text().strip()
            else:
                config.load_kube_config(kubeconfig, context, configuration, persist_config=False)
                own = _namespace_of(kubeconfig, context)
        except (config.ConfigException, OSError) as error:
            raise ApiUnavailable(f"no Kubernetes API server is known: {error}") from error
        self.api = client.ApiClient(configuration)
        super().__init__(self.api, manager=MANAGER)
        self.namespace = namespace or own

    def log(self, pod: Ref, container: str, *, follow: bool, tail: int | None, previous: bool) -> Iterator[bytes]:
        """What a container has written, piece by piece; with `follow` until it ends."""
        query = {"container": container}
        query |= {"follow": "true"} if follow else {}
        query |= {"previous": "true"} if previous else {}
        query |= {} if tail is None else {"tailLines": str(tail)}
        request = self.api.param_serialize(
            "GET",
            POD.path(pod.namespace, pod.name, "log"),
            query_params=list(query.items()),
            header_params={"Accept": "*/*"},
            auth_settings=["BearerToken"],
        )
        try:
            response = self.api.call_api(*request, _request_timeout=(_CONNECT_S, None)).response
            if response.status >= 300:  # noqa: PLR2004 - HTTP's own
                answer_of(response.status, response.data)
            yield from _pieces(response)
        except (ApiException, HTTPError, OSError) as error:
            raise ApiUnavailable(f"{type(error).__name__}: {error}") from error


def _namespace_of(kubeconfig: str | None, context: str | None) -> str:
    """Of the context, as kubectl: `default` where it names none."""
    found, active = config.list_kube_config_contexts(kubeconfig)
    chosen = active if context is None else next((each for each in found if each["name"] == context), active)
    return str(chosen["context"].get("namespace") or "default")


def _pieces(response: urllib3.HTTPResponse) -> Iterator[bytes]:
    try:
        yield from response.stream(None)
    finally:
        response.close()
