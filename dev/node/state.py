"""Where a node keeps what it has, and what it is called."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typing_extensions import Self

from servers.local_process import cache_directory

NAME: Final = "node1"
INTERFACE: Final = "node0"
"""The node's end of the cable to this machine."""
CLUSTER: Final = "10.244.0.0/16"
PODS: Final = "10.244.0.0/24"
"""Of the only node: the first of the cluster's."""
SERVICES: Final = "10.96.0.0/16"
SERVICES_FIRST: Final = "10.96.0.1"
PORT: Final = 6443
_SETTINGS: Final = "settings.json"


class NodeError(RuntimeError):
    """The node did not come up."""


@dataclass(frozen=True)
class State:
    """All of it lies below `directory`, but for the images, which outlive the node."""

    directory: Path
    number: int
    """Of its network: several nodes may run on one machine."""
    programs: str
    """The directory with Kubernetes' and Kubeflow's programs."""
    control_plane: str

    @classmethod
    def load(cls, directory: Path) -> Self:
        return cls(directory, **json.loads((directory / _SETTINGS).read_text()))

    def save(self) -> None:
        settings = dataclasses.asdict(self)
        del settings["directory"]
        (self.directory / _SETTINGS).write_text(json.dumps(settings))

    @property
    def cgroup(self) -> str:
        return f"sinkpipeline-{self.number}"

    @property
    def link(self) -> str:
        """This machine's end of the cable."""
        return f"sinkpipeline{self.number}"

    @property
    def address(self) -> str:
        """Of the node, for this machine and for pods."""
        return f"10.200.{self.number}.2"

    @property
    def host_address(self) -> str:
        """Of this machine, for the node and its pods."""
        return f"10.200.{self.number}.1"

    @property
    def server(self) -> str:
        return f"https://{self.address}:{PORT}"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def pid(self) -> Path:
        return self.directory / "pid"

    @property
    def before(self) -> Path:
        """What this machine was like."""
        return self.directory / "before.json"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def stopped(self) -> Path:
        """A file in it keeps the program of that name from running."""
        return self.directory / "stopped"

    @property
    def filled(self) -> Path:
        """There once all images are: the kubelet needs one of them for every pod."""
        return self.directory / "filled"

    @property
    def containerd_socket(self) -> Path:
        return self.directory / "containerd.sock"

    @property
    def images(self) -> Path:
        """containerd's own, kept for the next node."""
        return cache_directory() / "node" / "containerd"

    def file(self, name: str) -> str:
        return str(self.directory / name)

    def made(self, name: str) -> str:
        """A directory."""
        path = self.directory / name
        path.mkdir(parents=True, exist_ok=True)
        return str(path)
