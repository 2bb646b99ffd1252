"""Images for a node that can pull none: from OCI archives into containerd."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

from node.state import NodeError, State


def import_images(state: State, archives: Path) -> None:
    """Those that it does not have already; and nothing of containers that an earlier node has left.

    Raises:
        NodeError: containerd refuses.
    """
    for kind in ("tasks", "containers"):
        for name in _ctr(state, kind, "list", "-q").split():
            _ctr(state, kind, "rm", *(["--force"] if kind == "tasks" else []), name)
    there = {line.split()[0]: line.split()[2] for line in _ctr(state, "images", "list").splitlines()[1:]}
    for archive in sorted(archives.glob("*.tar")):
        name, digest = _content(archive)
        if there.get(name) != digest:
            _ctr(state, "images", "import", str(archive))


def _content(archive: Path) -> tuple[str, str]:
    """Name and digest of the image in an OCI archive."""
    with tarfile.open(archive) as content:
        index = content.extractfile("index.json")
        assert index is not None
        (manifest,) = json.load(index)["manifests"]
    return manifest["annotations"]["org.opencontainers.image.ref.name"], manifest["digest"]


def _ctr(state: State, *arguments: str) -> str:
    command = ["ctr", "--address", str(state.containerd_socket), "--namespace", "k8s.io", *arguments]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode != 0:
        raise NodeError(f"ctr {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout
