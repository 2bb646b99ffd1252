"""What a pod's container is given by a kubelet, as files and variables of this machine.

A volume that is mounted at /etc/x stands in <files>/etc/x. Contents are those of the start: nothing is refreshed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from kubeflow.pods import driver_container
from servers.kube_api import KubeApi

Object = dict[str, Any]

TOKEN_SECONDS: Final = 86_400
"""How long a driver's token is good; a kubelet would write a new one in time, and asks for an hour."""


class NotMountableError(RuntimeError):
    """Something that the pod names is not there yet: a kubelet tries again, and so must the caller."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def mount(api: KubeApi, pod: Object, files: Path, volumes: Path) -> None:
    """Raises NotMountableError."""
    named = {volume["name"]: volume for volume in pod["spec"].get("volumes") or []}
    mounts = driver_container(pod).get("volumeMounts") or []
    for one in sorted(mounts, key=lambda each: len(each["mountPath"])):
        source = volumes / one["name"]
        if not source.exists():
            _fill(api, pod, named[one["name"]], source)
        target = files / one["mountPath"].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_symlink():
            target.symlink_to(source / one.get("subPath", ""))


def environment(api: KubeApi, pod: Object, address: str) -> dict[str, str]:
    """The container's variables. Raises NotMountableError."""
    container = driver_container(pod)
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        for kind, read in (("configMapRef", _config_map), ("secretRef", _secret)):
            if kind in source:
                contents = read(api, pod, source[kind])
                prefix = source.get("prefix", "")
                variables |= {prefix + key: value.decode(errors="replace") for key, value in contents.items()}
    for variable in container.get("env") or []:
        value = _value(api, pod, address, variable)
        if value is not None:
            variables[variable["name"]] = value
    return variables


def _value(api: KubeApi, pod: Object, address: str, variable: Object) -> str | None:
    source = variable.get("valueFrom")
    if source is None:
        text: str = variable.get("value", "")
        return text
    if "fieldRef" in source:
        return _field(pod, address, source["fieldRef"]["fieldPath"])
    for kind, read in (("configMapKeyRef", _config_map), ("secretKeyRef", _secret)):
        if kind in source:
            wanted = source[kind]
            contents = read(api, pod, wanted)
            if wanted["key"] in contents:
                return contents[wanted["key"]].decode(errors="replace")
            if wanted.get("optional"):
                return None
            raise NotMountableError(
                "CreateContainerConfigError", f"couldn't find key {wanted['key']} in {wanted['name']}"
            )
    raise NotMountableError("CreateContainerConfigError", f"{variable['name']}: not served here: {', '.join(source)}")


def _fill(api: KubeApi, pod: Object, volume: Object, directory: Path) -> None:
    contents = dict(_contents(api, pod, volume))
    directory.mkdir(parents=True)
    for path, (data, mode) in contents.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=mode)
        file.write_bytes(data)


def _contents(api: KubeApi, pod: Object, volume: Object) -> Iterator[tuple[str, tuple[bytes, int]]]:
    """(path, (data, mode)) of each file."""
    if "emptyDir" in volume:
        return
    for kind, read in _SOURCES.items():
        if kind in volume:
            source = volume[kind] or {}
            mode = (source.get("defaultMode") or 0o644) | 0o200
            if kind == "projected":
                for part in source["sources"]:
                    yield from _contents(api, pod, {**part, "name": volume["name"]})
                return
            yield from ((path, (data, mode)) for path, data in read(api, pod, source).items())
            return
    raise NotMountableError("ContainerCreating", f"volume {volume['name']} is of a kind that is not served here")


def _config_map(api: KubeApi, pod: Object, source: Object) -> dict[str, bytes]:
    found = _named(api, pod, "configmaps", source["name"], source)
    texts = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    return _chosen(texts | _decoded(found.get("binaryData")), source)


def _secret(api: KubeApi, pod: Object, source: Object) -> dict[str, bytes]:
    name = source.get("secretName") or source["name"]
    return _chosen(_decoded(_named(api, pod, "secrets", name, source).get("data")), source)


def _token(api: KubeApi, pod: Object, source: Object) -> dict[str, bytes]:
    namespace, account = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    spec: Object = {"expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound}
    if source.get("audience"):
        spec["audiences"] = [source["audience"]]
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", request)
    return {source["path"]: answer["status"]["token"].encode()}


def _downward(_api: KubeApi, pod: Object, source: Object) -> dict[str, bytes]:
    items = [item for item in source.get("items") or [] if "fieldRef" in item]
    return {item["path"]: _field(pod, "", item["fieldRef"]["fieldPath"]).encode() for item in items}


def _field(pod: Object, address: str, path: str) -> str:
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"]["nodeName"],
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.hostIP": address,
    }
    if path not in fields:
        raise NotMountableError("CreateContainerConfigError", f"the field {path} is not served here")
    return str(fields[path])


def _named(api: KubeApi, pod: Object, plural: str, name: str, source: Object) -> Object:
    found = api.find(f"/api/v1/namespaces/{pod['metadata']['namespace']}/{plural}/{name}")
    if found is None and not source.get("optional"):
        raise NotMountableError("ContainerCreating", f'{plural} "{name}" not found')
    return found or {}


def _chosen(contents: dict[str, bytes], source: Object) -> dict[str, bytes]:
    items = source.get("items")
    if not items:
        return contents
    missing = [item["key"] for item in items if item["key"] not in contents]
    if missing and not source.get("optional"):
        raise NotMountableError("ContainerCreating", f"references non-existent key: {missing[0]}")
    return {item["path"]: contents[item["key"]] for item in items if item["key"] in contents}


def _decoded(data: dict[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (data or {}).items()}


_SOURCES: Final[dict[str, Callable[[KubeApi, Object, Object], dict[str, bytes]]]] = {
    "configMap": _config_map,
    "secret": _secret,
    "serviceAccountToken": _token,
    "downwardAPI": _downward,
    "projected": lambda _api, _pod, _source: {},
}
