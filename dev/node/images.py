"""Images for a node that can pull none: from an OCI image layout into containerd."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any, Final

from node.state import NodeError, State

_INDEX: Final = "index.json"
_NAME: Final = "org.opencontainers.image.ref.name"


def import_images(state: State, layout: Path) -> None:
    """Those that it does not have already; and nothing of containers that an earlier node has left.

    Raises:
        NodeError: containerd refuses.
    """
    for kind in ("tasks", "containers"):
        for name in _ctr(state, kind, "list", "-q").split():
            _ctr(state, kind, "rm", *(["--force"] if kind == "tasks" else []), name)
    there = {line.split()[0]: line.split()[2] for line in _ctr(state, "images", "list").splitlines()[1:]}
    for manifest in _manifests(layout):
        name = manifest["annotations"][_NAME]
        if there.get(name) != manifest["digest"]:
            try:
                _import(state, layout, manifest, set(_ctr(state, "content", "list", "-q").split()))
            except NodeError:
                # Its garbage collector may have taken, meanwhile, what only the removed containers still held.
                _import(state, layout, manifest, ())
    drop_unreferenced(layout)


@contextlib.contextmanager
def another_name(directory: Path, image: str, name: str) -> Iterator[None]:
    """The node in that directory knows one of its images by another name too, meanwhile."""
    state = State.load(directory)
    _ctr(state, "images", "tag", "--force", image, name)
    try:
        yield
    finally:
        # Containers of it go on: its content has the first name still.
        _ctr(state, "images", "rm", name)


def write_archive(layout: Path, manifest: dict[str, Any], held: Collection[str], out: IO[bytes]) -> None:
    """One image of the layout as an OCI archive, without the layers that its reader holds."""
    with tarfile.open(fileobj=out, mode="w|") as archive:
        archive.add(layout / "oci-layout", "oci-layout")
        index = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
        entry = tarfile.TarInfo(_INDEX)
        entry.size = len(index)
        archive.addfile(entry, io.BytesIO(index))
        for digest in _blobs(layout, manifest):
            if digest not in held:
                path = _path(digest)
                archive.add(layout / path, path)


def drop_unreferenced(layout: Path) -> None:
    """Images that were replaced, which are without a name from then on, and their layers."""
    index = json.loads((layout / _INDEX).read_text())
    (layout / _INDEX).write_text(json.dumps({**index, "manifests": _manifests(layout)}))
    needed = {_path(digest) for manifest in _manifests(layout) for digest in _blobs(layout, manifest)}
    for blob in (layout / "blobs").glob("*/*"):
        if str(blob.relative_to(layout)) not in needed:
            blob.unlink()


def _manifests(layout: Path) -> list[dict[str, Any]]:
    """Of the images that have a name."""
    found: list[dict[str, Any]] = json.loads((layout / _INDEX).read_text())["manifests"]
    return [each for each in found if _NAME in each.get("annotations", {})]


def _blobs(layout: Path, manifest: dict[str, Any]) -> Iterator[str]:
    content = json.loads((layout / _path(manifest["digest"])).read_text())
    yield from (manifest["digest"], content["config"]["digest"])
    yield from (layer["digest"] for layer in content["layers"])


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _import(state: State, layout: Path, manifest: dict[str, Any], held: Collection[str]) -> None:
    command = _command(state, "images", "import", "-")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as ctr:
        assert ctr.stdin is not None
        assert ctr.stderr is not None
        try:
            write_archive(layout, manifest, held, ctr.stdin)
            ctr.stdin.close()
        except BrokenPipeError:
            pass
        said = ctr.stderr.read().decode(errors="replace")
    if ctr.returncode != 0:
        raise NodeError(f"{' '.join(command)}: {said.strip()}")


def _ctr(state: State, *arguments: str) -> str:
    command = _command(state, *arguments)
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode != 0:
        raise NodeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def _command(state: State, *arguments: str) -> list[str]:
    return ["ctr", "--address", str(state.containerd_socket), "--namespace", "k8s.io", *arguments]
