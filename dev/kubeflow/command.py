"""What a driver pod's process is told on this machine: the application's arguments, with the paths and the address that
the pod has here in place of the container's.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from kubeflow import pods
from kubeflow.node import Driver

_ANYWHERE: Final = ("0.0.0.0:", "[::]:")


def local_arguments(driver: Driver) -> list[str]:
    """`spec.arguments`, in which paths of mounts, the termination log and the address to listen on are the driver's."""
    container = pods.driver_container(driver.pod)
    mounts = [PurePosixPath(mount["mountPath"]) for mount in container.get("volumeMounts") or []]
    log = container.get("terminationMessagePath") or "/dev/termination-log"
    ports = {str(port["containerPort"]) for port in container.get("ports") or [] if "containerPort" in port}

    def local(argument: str) -> str:
        if argument == log:
            return str(driver.termination_log)
        for anywhere in _ANYWHERE:
            if argument.removeprefix(anywhere) in ports:
                return f"{driver.address}:{argument.removeprefix(anywhere)}"
        path = PurePosixPath(argument)
        # `--secrets-dir` holds mounts, the others are held by one.
        if path.is_absolute() and any(path.is_relative_to(mount) or mount.is_relative_to(path) for mount in mounts):
            return str(driver.files / argument.lstrip("/"))
        return argument

    return [local(argument) for argument in driver.application["spec"].get("arguments") or []]
